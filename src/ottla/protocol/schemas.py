"""What a dataclass in kio's style says about the bytes of a message. Pure.

kio writes a schema into annotations and field metadata: `X | None` may be null, `tuple[X, ...]`
is an array, a dataclass is a struct, `kafka_type` names the primitive, `tag` makes the field a
tagged one (KIP-482). Durations and timestamps are Python's in kio's entities and integers of
milliseconds on the wire and in the dicts that Ottla encodes.

kio registers its types with hypothesis wherever that is installed, which costs a developer's
broker half a second and 20 MB. It is told that there is none, unless it is loaded already.
"""

import datetime
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # so that importing it fails
    import kio.static.primitive  # noqa: F401

    del sys.modules["hypothesis"]

FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
"""The `struct` format of each primitive that always takes the same number of bytes."""

_NO_UUID = bytes(16)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def duration_ms(value: datetime.timedelta) -> int:
    """A duration of a decoded message, as the integer that was on the wire."""
    return value // _MILLISECOND


def timestamp_ms(value: datetime.datetime | None) -> int:
    """A timestamp of a decoded message, as the integer that was on the wire; -1 for none."""
    return -1 if value is None else (value - EPOCH) // _MILLISECOND


def uuid_bytes(value: UUID | bytes | None) -> bytes:
    """Sixteen bytes; all zero stands for no id."""
    if value is None:
        return _NO_UUID
    return value.bytes if isinstance(value, UUID) else value


class Kind:
    """What one field is."""

    def __init__(self, field: Field[Any]) -> None:
        kind: Any = field.type
        self.name = field.name
        self.nullable, kind = _strip_none(kind)
        self.is_array = get_origin(kind) is tuple
        if self.is_array:
            _, kind = _strip_none(get_args(kind)[0])
        self.entity: Any = kind if is_dataclass(kind) else None
        self.wire = "" if self.entity else str(field.metadata["kafka_type"])
        self.tag: int | None = field.metadata.get("tag")
        self.has_default = field.default is not MISSING
        self.entity_default: Any = field.default  # as an entity holds it
        self.default = self._default(field.default)  # as a dict holds it

    def _default(self, default: Any) -> Any:
        if default is not MISSING:
            return plain(default)
        if self.nullable:
            return None
        if self.is_array:
            return ()
        if self.entity:
            return {}
        return {"string": "", "bytes": b"", "records": b"", "float64": 0.0, "bool": False}.get(
            self.wire, 0
        )


def kinds_of(schema: Any) -> tuple[list[Kind], list[Kind]]:
    """The plain fields in their order, and the tagged ones in the order of their tags."""
    kinds = [Kind(field) for field in fields(schema)]
    tagged = [kind for kind in kinds if kind.tag is not None]
    tagged.sort(key=lambda kind: kind.tag or 0)
    return [kind for kind in kinds if kind.tag is None], tagged


def plain(value: Any) -> Any:
    """A value of a kio entity as a dict would hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return duration_ms(value)
    if isinstance(value, datetime.datetime):
        return timestamp_ms(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def _strip_none(kind: Any) -> tuple[bool, Any]:
    """Whether a type is a union with None, and what is left of it without."""
    if get_origin(kind) in (UnionType, Union):
        rest = [part for part in get_args(kind) if part is not NoneType]
        return len(rest) < len(get_args(kind)), rest[0]
    return False, kind
