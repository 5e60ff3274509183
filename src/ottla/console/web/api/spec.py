"""How an address of the API is declared: enough to route it and to describe it. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple, get_args, get_type_hints

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


def schema_of(row: type) -> Schema:
    """The schema of a NamedTuple, from its annotations; what is nested is an array of anything."""
    fields = {}
    for name, hint in get_type_hints(row).items():
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        schema = _SCHEMAS.get(kinds[0], lambda: {"type": "array", "items": {}})()
        fields[name] = nullable(schema) if type(None) in kinds else schema
    return record(**fields)


_SCHEMAS: dict[object, Callable[[], Schema]] = {
    int: integer,
    float: number,
    bool: boolean,
    str: text,
}
