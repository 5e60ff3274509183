"""How a record of the metadata log lies in bytes.

Metadata and control records are Kafka messages whose every version is flexible: compact
strings and arrays, and tagged fields at the end of each struct. A record is declared once, as
a frozen dataclass whose fields say since which version they exist and whether they are tagged;
reader and writer are compiled per class and version. One class serves all versions, because
the log of one cluster holds several at once and `replay` must not care.

Pure. Invariant: `decode(encode(record, v), v)` equals `record` for every field that `v` has; the
others get their defaults.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar
from uuid import UUID

R = TypeVar("R")

Write = Callable[[Any, bytearray], None]
Read = Callable[[bytes, int], tuple[Any, int]]

ZERO_UUID = UUID(int=0)
UVARINT_BYTES_MAX = 5  # lengths and tags are 32 bits wide


class CorruptRecordError(Exception):
    """Bytes that no version of Kafka wrote."""


class UnsupportedRecordError(Exception):
    """A record that this version does not know, most likely of a newer Kafka."""


@dataclass(frozen=True, slots=True)
class WireType:
    write: Write
    read: Read


@dataclass(frozen=True, slots=True)
class WireField:
    """Where a dataclass field lies on the wire."""

    type: WireType | type
    array: bool = False
    nullable: bool = False
    since: int = 0
    tag: int | None = None


def wire(
    type: WireType | type,  # noqa: A002
    *,
    array: bool = False,
    nullable: bool = False,
    since: int = 0,
    tag: int | None = None,
    default: Any = ...,
) -> Any:
    """Declare a field; without `default` it gets the type's zero, as Kafka's generator does."""
    spec = WireField(type, array, nullable, since, tag)
    if default is ...:
        default = () if array else ZEROES.get(type) if isinstance(type, WireType) else type()
    return field(default=default, metadata={"wire": spec})


def write_uvarint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(UVARINT_BYTES_MAX):
        if position >= len(buffer):
            raise CorruptRecordError("a record ends inside a varint")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise CorruptRecordError(f"a varint is longer than {UVARINT_BYTES_MAX} bytes")


def _fixed(code: str) -> WireType:
    packer = struct.Struct(">" + code)
    size, pack, unpack_from = packer.size, packer.pack, packer.unpack_from

    def write(value: Any, out: bytearray) -> None:
        out += pack(value)

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        try:
            return unpack_from(buffer, position)[0], position + size
        except struct.error as error:
            raise CorruptRecordError("a record ends inside a number") from error

    return WireType(write, read)


def _slice(buffer: bytes, position: int, length: int) -> bytes:
    if length > len(buffer) - position:
        raise CorruptRecordError(
            f"a field of {length} bytes does not fit into {len(buffer) - position}"
        )
    return buffer[position : position + length]


def _write_uuid(value: UUID, out: bytearray) -> None:
    out += value.bytes


def _read_uuid(buffer: bytes, position: int) -> tuple[UUID, int]:
    return UUID(bytes=_slice(buffer, position, 16)), position + 16


def _write_bytes(value: bytes | None, out: bytearray) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(len(value) + 1, out)
    out += value


def _read_bytes(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_uvarint(buffer, position)
    if length == 0:
        return None, position
    return bytes(_slice(buffer, position, length - 1)), position + length - 1


def _write_string(value: str | None, out: bytearray) -> None:
    _write_bytes(None if value is None else value.encode(), out)


def _read_string(buffer: bytes, position: int) -> tuple[str | None, int]:
    raw, position = _read_bytes(buffer, position)
    try:
        return None if raw is None else raw.decode(), position
    except UnicodeDecodeError as error:
        raise CorruptRecordError("a string is not UTF-8") from error


INT8 = _fixed("b")
INT16 = _fixed("h")
UINT16 = _fixed("H")
INT32 = _fixed("i")
INT64 = _fixed("q")
FLOAT64 = _fixed("d")
BOOL = _fixed("?")
UUID_TYPE = WireType(_write_uuid, _read_uuid)
STRING = WireType(_write_string, _read_string)
BYTES = WireType(_write_bytes, _read_bytes)

ZEROES: dict[WireType, Any] = {
    INT8: 0,
    INT16: 0,
    UINT16: 0,
    INT32: 0,
    INT64: 0,
    FLOAT64: 0.0,
    BOOL: False,
    UUID_TYPE: ZERO_UUID,
    STRING: "",
    BYTES: b"",
}


def _array_of(element: WireType) -> WireType:
    write_element, read_element = element.write, element.read

    def write(values: tuple[Any, ...] | None, out: bytearray) -> None:
        if values is None:
            out.append(0)
            return
        write_uvarint(len(values) + 1, out)
        for value in values:
            write_element(value, out)

    def read(buffer: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        length, position = read_uvarint(buffer, position)
        if length == 0:
            return None, position
        if length - 1 > len(buffer) - position:
            raise CorruptRecordError(f"an array of {length - 1} does not fit into its record")
        values = []
        for _ in range(length - 1):
            value, position = read_element(buffer, position)
            values.append(value)
        return tuple(values), position

    return WireType(write, read)


def _not_null(name: str, inner: WireType) -> WireType:
    read_inner = inner.read

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        value, position = read_inner(buffer, position)
        if value is None:
            raise CorruptRecordError(f"{name} is null")
        return value, position

    return WireType(inner.write, read)


@dataclass(frozen=True, slots=True)
class _BoundField:
    name: str
    default: Any
    write: Write
    read: Read


class Layout(Generic[R]):
    """Reader and writer of one record class at one version."""

    def __init__(self, record_class: type[R], version: int) -> None:
        self.record_class = record_class
        self.plain: list[_BoundField] = []
        self.tagged: dict[int, _BoundField] = {}
        for declared in fields(record_class):  # type: ignore[arg-type]  # R is a dataclass
            spec: WireField = declared.metadata["wire"]
            if spec.since > version:
                continue
            wire_type = _resolve(spec.type, version)
            if spec.array:
                wire_type = _array_of(wire_type)
            if (spec.array or wire_type in (STRING, BYTES)) and not spec.nullable:
                wire_type = _not_null(declared.name, wire_type)
            bound = _BoundField(declared.name, declared.default, wire_type.write, wire_type.read)
            if spec.tag is None:
                self.plain.append(bound)
            else:
                self.tagged[spec.tag] = bound
        self._tags = sorted(self.tagged.items())

    def write(self, record: R, out: bytearray) -> None:
        for bound in self.plain:
            bound.write(getattr(record, bound.name), out)
        present = [
            (tag, bound, value)
            for tag, bound in self._tags
            if (value := getattr(record, bound.name)) != bound.default
        ]
        write_uvarint(len(present), out)
        for tag, bound, value in present:
            body = bytearray()
            bound.write(value, body)
            write_uvarint(tag, out)
            write_uvarint(len(body), out)
            out += body

    def read(self, buffer: bytes, position: int) -> tuple[R, int]:
        values: dict[str, Any] = {}
        for bound in self.plain:
            values[bound.name], position = bound.read(buffer, position)
        tag_count, position = read_uvarint(buffer, position)
        if tag_count > len(buffer) - position:
            raise CorruptRecordError(f"{tag_count} tagged fields do not fit into their record")
        for _ in range(tag_count):
            tag, position = read_uvarint(buffer, position)
            size, position = read_uvarint(buffer, position)
            body = _slice(buffer, position, size)
            position += size
            known = self.tagged.get(tag)
            if known is None:
                continue  # tagged fields exist so that older readers may skip them
            values[known.name], end = known.read(body, 0)
            if end != size:
                raise CorruptRecordError(f"{known.name} fills {end} of its {size} bytes")
        return self.record_class(**values), position


def _resolve(declared: WireType | type, version: int) -> WireType:
    if isinstance(declared, WireType):
        return declared
    inner: Layout[Any] = layout(declared, version)
    return WireType(inner.write, inner.read)


_layouts: dict[tuple[type, int], Layout[Any]] = {}


def layout(record_class: type[R], version: int) -> Layout[R]:
    known = _layouts.get((record_class, version))
    if known is None:
        known = _layouts[record_class, version] = Layout(record_class, version)
    return known


def encode(record: Any, version: int) -> bytes:
    out = bytearray()
    layout(type(record), version).write(record, out)
    return bytes(out)


def decode(record_class: type[R], version: int, buffer: bytes, position: int = 0) -> R:
    """Read one record that must fill the rest of `buffer`."""
    record, end = layout(record_class, version).read(buffer, position)
    if end != len(buffer):
        raise CorruptRecordError(f"{len(buffer) - end} bytes follow a {record_class.__name__}")
    return record
