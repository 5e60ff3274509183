"""How an address of the API is declared: enough to route it and to describe it. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]
Schema = dict[str, Any]


class Parameter(NamedTuple):
    name: str
    place: str  # path or query
    schema: Schema
    text: str
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    method: str
    path: str
    handler: Handler
    name: str
    text: str
    answer: Schema
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    media_type: str = "application/json"


def text(**more: Any) -> Schema:
    return {"type": "string", **more}


def integer(**more: Any) -> Schema:
    return {"type": "integer", "format": "int64", **more}


def number() -> Schema:
    return {"type": "number"}


def boolean() -> Schema:
    return {"type": "boolean"}


def nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def mapping(values: Schema) -> Schema:
    """An object whose names are not known beforehand."""
    return {"type": "object", "additionalProperties": values}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def record(is_complete: bool = True, /, **fields: Schema) -> Schema:
    """An object with these fields, all of which are always there unless told otherwise."""
    schema: Schema = {"type": "object", "properties": fields}
    if is_complete and fields:
        schema["required"] = list(fields)
    return schema


def path(name: str, about: str) -> Parameter:
    return Parameter(name, "path", text(), about, True)


def query(
    name: str, about: str, schema: Schema | None = None, is_required: bool = False
) -> Parameter:
    return Parameter(name, "query", schema or text(), about, is_required)


def schema_of(row: type, **own: Schema) -> Schema:
    """The schema of a NamedTuple as `as_json` writes it; `own` are fields that it does not."""
    fields = {name: own.get(name) or _schema(hint) for name, hint in get_type_hints(row).items()}
    return record(**{**fields, **own})


def as_json(value: object) -> Any:
    """A row as JSON: what has names is an object, whatever it holds."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(one) for name, one in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [as_json(one) for one in value]
    return value


def _schema(hint: Any) -> Schema:
    if isinstance(hint, UnionType):
        (kind,) = (one for one in get_args(hint) if one is not type(None))
        return nullable(_schema(kind))
    if get_origin(hint) in (list, tuple):
        return array(_schema(get_args(hint)[0]))
    if hint in _SCHEMAS:
        return _SCHEMAS[hint]()
    if get_origin(hint) is dict:
        return {"type": "object"}
    return schema_of(hint)


_SCHEMAS: dict[object, Callable[[], Schema]] = {
    int: integer,
    float: number,
    bool: boolean,
    str: text,
}

PARTITION = record(topic=text(), partition=integer())


def partitions_as_json(found: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in found]
