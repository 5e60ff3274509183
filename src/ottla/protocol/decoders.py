"""Turns a schema into a function that decodes one message, whatever a stranger sent. Pure.

kio's native decoder is fast, but it reserves room for as many elements as an array claims to
have, so that five bytes abort the process; it refuses tagged fields that it does not know, which
KIP-482 has for skipping; and durations longer than Python's. So a schema becomes, once, the
source of a straight function: fields of fixed size that follow each other are one `struct`
read, every length is held against the bytes left, and the result is kio's own entity.

Wrong are: a count that the bytes left could not hold, a length that passes the end, null where
none may be, text that is not UTF-8, and a tagged field that is not as long as it says.

Invariant: what is allocated is in proportion to the bytes that are there, never to a number in
them.
"""

import datetime
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from struct import Struct, calcsize
from struct import error as StructError
from types import MemberDescriptorType
from typing import Any
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import read_unsigned_varint
from ottla.protocol.schemas import EPOCH, FIXED_FORMATS, Kind, kinds_of

Decoder = Callable[[memoryview, int], tuple[Any, int]]
_Decode = Callable[[memoryview, int, int], tuple[Any, int]]

_NO_UUID = bytes(16)
_DURATION_MS_MAX = datetime.timedelta.max // datetime.timedelta(milliseconds=1)
_DURATION_MS_MIN = -(datetime.timedelta.max.days * 86_400_000)

_CONVERSIONS = {
    "uuid": "None if {0} == NO_UUID else UUID(bytes={0})",
    "error_code": "error_code({0})",
    "timedelta_i32": "timedelta(0, 0, 0, {0})",
    "timedelta_i64": "duration({0})",
    "datetime_i64": "timestamp({0})",
}
"""How a number or sixteen bytes become what kio's entities hold."""


@cache
def decoder_of(schema: Any) -> Decoder:
    """A function from a buffer and a position to the message there and the position after it.

    It raises KafkaError(INVALID_REQUEST), and nothing else, if there is no such message.
    """
    decode = _decode_of(schema)
    name = schema.__name__

    def decoder(view: memoryview, pos: int) -> tuple[Any, int]:
        try:
            return decode(view, pos, len(view))
        except (IndexError, StructError, UnicodeDecodeError, OverflowError, _Misfit) as error:
            what = str(error) or "a length does not fit"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The bytes are not a {name}: {what}"
            ) from error

    return decoder


class _Misfit(Exception):
    """A length or a count does not fit into the bytes left."""


def _misfit(*_: Any) -> Any:
    raise _Misfit


def _duration(value: int) -> datetime.timedelta:
    """Longer than Python can say is as good as for ever."""
    return datetime.timedelta(milliseconds=min(max(value, _DURATION_MS_MIN), _DURATION_MS_MAX))


def _timestamp(value: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(milliseconds=value)


def _nullable_timestamp(value: int) -> datetime.datetime | None:
    return None if value == -1 else _timestamp(value)


@cache
def _error_codes() -> dict[int, Any]:
    from kio.schema.errors import ErrorCode as KioErrorCode

    return {int(code): code for code in KioErrorCode}


def _error_code(number: int) -> Any:
    """A code from a newer peer is an unknown error, as it is to Apache Kafka."""
    codes = _error_codes()
    return codes.get(number, codes[-1])


@cache
def _decode_of(schema: Any) -> _Decode:
    source = _Source()
    kinds, tagged = kinds_of(schema)
    for kind in kinds:
        source.read(kind, schema.__flexible__)
    if schema.__flexible__:
        source.read_tags(tagged)
    return source.compile(schema)


class _Source:
    """The source of one decoder, written field by field. Each value goes into a local `v_name`."""

    def __init__(self) -> None:
        self._lines = ["def decode(view, pos, end):"]
        self._names: dict[str, Any] = {
            "NO_UUID": _NO_UUID,
            "UUID": UUID,
            "duration": _duration,
            "error_code": _error_code,
            "int16": Struct(">h").unpack_from,
            "int32": Struct(">i").unpack_from,
            "misfit": _misfit,
            "new": object.__new__,
            "timedelta": datetime.timedelta,
            "timestamp": _timestamp,
            "nullable_timestamp": _nullable_timestamp,
            "Struct": Struct,
            "uvarint": read_unsigned_varint,
        }
        self._run: list[Kind] = []

    def compile(self, schema: Any) -> _Decode:
        self._flush()
        self._line("if pos > end: misfit()")
        names = [field.name for field in fields(schema)]
        slots = [vars(schema).get(name) for name in names]
        has_slots = all(isinstance(slot, MemberDescriptorType) for slot in slots)
        if has_slots and not hasattr(schema, "__post_init__"):
            # A frozen dataclass fills its slots one by one through its class; this is the same,
            # at less than half the cost.
            self._line(f"o = new({self._constant(schema)})")
            for name, slot in zip(names, slots, strict=True):
                self._line(f"{self._constant(slot.__set__)}(o, v_{name})")
            self._line("return o, pos")
        else:
            arguments = ", ".join(f"{name}=v_{name}" for name in names)
            self._line(f"return {self._constant(schema)}({arguments}), pos")
        return self._compiled(schema.__qualname__)

    def compile_value(self, kind: Kind) -> _Decode:
        """A decoder of one value alone, as a tagged field or an array holds it."""
        self.read(kind, True)
        self._flush()
        self._line(f"return v_{kind.name}, pos")
        return self._compiled(kind.name)

    def _compiled(self, name: str) -> _Decode:
        exec(compile("\n".join(self._lines), f"<decoder of {name}>", "exec"), self._names)
        decode: _Decode = self._names["decode"]
        return decode

    def read(self, kind: Kind, flexible: bool) -> None:
        if kind.is_array:
            self._read_array(kind, flexible)
        elif kind.entity:
            self._flush()
            decode = self._constant(_decode_of(kind.entity))
            if kind.nullable:
                # KIP-893 spells null -1, or 0 in a tagged field, and writes 1 before a value.
                null = ">= 128" if kind.tag is None else "== 0"
                self._line("pos += 1")
                self._line(f"if view[pos - 1] {null}: v_{kind.name} = None")
                self._line(f"else: v_{kind.name}, pos = {decode}(view, pos, end)")
            else:
                self._line(f"v_{kind.name}, pos = {decode}(view, pos, end)")
        elif kind.wire in FIXED_FORMATS:
            self._run.append(kind)
        else:
            self._read_length(kind.wire == "string", flexible, kind.nullable)
            target = f"v_{kind.name}"
            depth = 1
            if kind.nullable:
                self._line(f"if n < 0: {target} = None")
                self._line("else:")
                depth = 2
            # A slice that passes the end is cut there; the end of the struct finds that out.
            self._line(f"p = pos; pos += n; {target} = {_slice(kind)}", depth)

    def read_tags(self, tagged: list[Kind]) -> None:
        self._flush()
        for kind in tagged:
            self._line(f"v_{kind.name} = {self._constant(_entity_default(kind))}")
        self._line("if view[pos] == 0: pos += 1")
        self._line("else:")
        self._line("n, pos = uvarint(view, pos, end)", 2)
        self._line("for _ in range(n):", 2)
        self._line("tag, pos = uvarint(view, pos, end)", 3)
        self._line("size, pos = uvarint(view, pos, end)", 3)
        self._line("stop = pos + size", 3)
        self._line("if stop > end: misfit()", 3)
        for kind in tagged:
            decode = self._constant(_Source().compile_value(kind))
            self._line(f"if tag == {kind.tag}:", 3)
            self._line(f"v_{kind.name}, p = {decode}(view, pos, stop)", 4)
            self._line("if p != stop: misfit()", 4)
        self._line("pos = stop", 3)

    def _read_length(self, is_string: bool, flexible: bool, nullable: bool) -> None:
        """Read a length into `n`; null is -1."""
        self._flush()
        if flexible:
            self._line("n = view[pos] - 1; pos += 1")
            self._line("if n > 126: n, pos = uvarint(view, pos - 1, end); n -= 1")
        elif is_string:
            self._line("n = int16(view, pos)[0]; pos += 2")
        else:
            self._line("n = int32(view, pos)[0]; pos += 4")
        if not nullable:
            self._line("if n < 0: misfit()")
        elif not flexible:
            self._line("if n < -1: misfit()")

    def _read_array(self, kind: Kind, flexible: bool) -> None:
        self._read_length(False, flexible, kind.nullable)
        self._line("if n > end - pos: misfit()")
        target = f"v_{kind.name}"
        depth = 1
        if kind.nullable:
            self._line(f"if n < 0: {target} = None")
            self._line("else:")
            depth = 2
        if kind.wire in FIXED_FORMATS:
            code = FIXED_FORMATS[kind.wire]
            size = calcsize(">" + code)
            self._line(f"p = pos; pos += n * {size}", depth)
            self._line("if pos > end: misfit()", depth)
            formats = f"'>' + {code!r} * n" if kind.wire == "uuid" else f"f'>{{n}}{code}'"
            items = f"Struct({formats}).unpack_from(view, p)"
            if kind.wire in _CONVERSIONS:
                items = f"tuple([{_converted(kind, 'i')} for i in {items}])"
            self._line(f"{target} = {items}", depth)
            return
        if kind.entity:
            decode = self._constant(_decode_of(kind.entity))
        else:
            decode = self._constant(_item_decoder(kind, flexible))
        self._line("items = []", depth)
        self._line("for _ in range(n):", depth)
        self._line(f"i, pos = {decode}(view, pos, end)", depth + 1)
        self._line("items.append(i)", depth + 1)
        self._line(f"{target} = tuple(items)", depth)

    def _flush(self) -> None:
        if not self._run:
            return
        layout = Struct(">" + "".join(FIXED_FORMATS[kind.wire] for kind in self._run))
        targets = "".join(f"v_{kind.name}, " for kind in self._run)
        self._line(f"{targets}= {self._constant(layout.unpack_from)}(view, pos)")
        self._line(f"pos += {layout.size}")
        for kind in self._run:
            if kind.wire in _CONVERSIONS:
                target = f"v_{kind.name}"
                self._line(f"{target} = {_converted(kind, target)}")
        self._run = []

    def _line(self, text: str, depth: int = 1) -> None:
        self._lines.append("    " * depth + text)

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


def _item_decoder(kind: Kind, flexible: bool) -> _Decode:
    """A decoder of one string or bytes of an array, where null may not be."""
    source = _Source()
    source._read_length(kind.wire == "string", flexible, False)
    source._line(f"p = pos; pos += n; v = {_slice(kind)}")
    source._line("return v, pos")
    return source._compiled(kind.name)


def _slice(kind: Kind) -> str:
    return "view[p:pos].tobytes()" + (".decode()" if kind.wire == "string" else "")


def _converted(kind: Kind, expression: str) -> str:
    if kind.wire == "datetime_i64" and kind.nullable:
        return f"nullable_timestamp({expression})"
    return _CONVERSIONS[kind.wire].format(expression)


def _entity_default(kind: Kind) -> Any:
    """What an absent tagged field holds in an entity."""
    if kind.has_default:
        return kind.entity_default
    if kind.entity and not kind.is_array:
        kinds, tagged = kinds_of(kind.entity)
        return kind.entity(**{part.name: _entity_default(part) for part in kinds + tagged})
    return kind.default
