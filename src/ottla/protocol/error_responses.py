"""How is a request answered that failed as a whole? Pure.

Most responses have no error of their own, but one for each topic, resource or group that was
asked about. Kafka writes such an answer by hand for each API (getErrorResponse). Here it is made
from the schemas: what was asked is repeated, with the same error wherever the response has one.

A response names things as its request does, but for lists of plain names or numbers, which become
structs: `groups: [str]` is answered with `groups: [{group_id, error_code}]`.
"""

from collections.abc import Iterable
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.schemas import Kind, kinds_of, plain

ERROR_WIRE = "error_code"
MESSAGE_NAME = "error_message"


def error_fields(
    response_schema: Any, request: Any, code: ErrorCode, message: str | None
) -> dict[str, Any]:
    """The fields of a response that refuses all that `request` asked for."""
    kinds, _ = kinds_of(response_schema)
    fields: dict[str, Any] = {}
    for kind in kinds:
        if kind.wire == ERROR_WIRE:
            fields[kind.name] = code
        elif kind.name == MESSAGE_NAME:
            fields[kind.name] = message if message or kind.nullable else ""
        elif not kind.is_array and not kind.entity:
            asked = getattr(request, kind.name, None)
            if asked is not None:
                fields[kind.name] = plain(asked)
    if any(kind.wire == ERROR_WIRE for kind in kinds):
        return fields  # whatever lies below has no part in it
    for kind in kinds:
        if kind.is_array and kind.entity:
            fields[kind.name] = [
                error_fields(kind.entity, _as_struct(kind.entity, item), code, message)
                for item in _asked_items(request, kind)
            ]
    return fields


class _Named:
    """A plain name or number that was asked for, as the struct that answers it."""

    def __init__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


def _as_struct(schema: Any, item: Any) -> Any:
    if hasattr(item, "__dataclass_fields__"):
        return item
    wires = ("string",) if isinstance(item, str) else ("int32", "int64")
    for kind in kinds_of(schema)[0]:
        if kind.wire in wires and kind.name != MESSAGE_NAME and not kind.is_array:
            return _Named(kind.name, item)
    return None


def _asked_items(request: Any, answer: Kind) -> Iterable[Any]:
    """The list of the request that this list of the response answers."""
    if not hasattr(request, "__dataclass_fields__"):
        return ()
    arrays = [kind.name for kind in kinds_of(type(request))[0] if kind.is_array]
    name = answer.name if answer.name in arrays else next(iter(arrays), None)
    return () if name is None else getattr(request, name) or ()
