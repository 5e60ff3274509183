"""How a record looks as text: the `-f` strings of produce and consume, and their JSON lines.

`%t` topic, `%p` partition, `%o` offset, `%k` key, `%v` value, `%h` headers, `%d` timestamp,
`%K` and `%V` the sizes of key and value, `%%` a percent sign. `{hex}` and `{base64}` after `%k`,
`%v` or `%h` choose an encoding, `{iso}` after `%d` a readable time.

One string serves both directions, so what `consume -f` wrote, `produce -f` reads. JSON lines keep
what text cannot: null against empty, bytes that are not UTF-8, and several headers of one name.
Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A record as a command line sees it; positions are None before it is written."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class FormatError(ValueError):
    """A format string, or input that does not follow it, in words for the user."""


class Literal(NamedTuple):
    text: bytes


class Field(NamedTuple):
    letter: str
    modifier: str


Piece = Literal | Field

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_MODIFIERS = {"k": ("hex", "base64"), "v": ("hex", "base64"), "h": ("hex", "base64"), "d": ("iso",)}
_OUTPUT_LETTERS = "tpokvhdKV"
_INPUT_LETTERS = "kvhpd"
_FIELD_NAMES = {"k": "key", "v": "value", "h": "headers", "p": "partition", "d": "timestamp"}


def parse_format(text: str) -> tuple[Piece, ...]:
    """The pieces of a format string."""
    pieces: list[Piece] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            taken, data = _escape(text, position)
            literal += data
            position += taken
        elif char == "%" and text[position : position + 2] == "%%":
            literal += b"%"
            position += 2
        elif char == "%":
            found = re.compile(r"%([A-Za-z])(?:\{([^}]*)\})?").match(text, position)
            if found is None:
                raise FormatError(f"'%' at position {position} of the format names no field")
            if literal:
                pieces.append(Literal(bytes(literal)))
                literal.clear()
            pieces.append(_field(found[1], found[2] or ""))
            position = found.end()
        else:
            literal += char.encode()
            position += 1
    if literal:
        pieces.append(Literal(bytes(literal)))
    return tuple(pieces)


def _escape(text: str, position: int) -> tuple[int, bytes]:
    code = text[position + 1 : position + 2]
    if code == "x":
        digits = text[position + 2 : position + 4]
        if re.fullmatch("[0-9a-fA-F]{2}", digits) is None:
            raise FormatError(r"\x in the format wants two hexadecimal digits")
        return 4, bytes.fromhex(digits)
    if code not in _ESCAPES:
        raise FormatError(f"the format has an unknown escape '\\{code}'")
    return 2, _ESCAPES[code]


def _field(letter: str, modifier: str) -> Field:
    if letter not in _OUTPUT_LETTERS:
        raise FormatError(f"the format has an unknown field '%{letter}'")
    if modifier and modifier not in _MODIFIERS.get(letter, ()):
        raise FormatError(f"'%{letter}' knows no modifier '{{{modifier}}}'")
    return Field(letter, modifier)


def render(pieces: tuple[Piece, ...], record: TextRecord) -> bytes:
    """The record as text."""
    return b"".join(
        piece.text if isinstance(piece, Literal) else _render_field(piece, record)
        for piece in pieces
    )


def _render_field(field: Field, record: TextRecord) -> bytes:
    match field.letter:
        case "k":
            return _encoded(record.key or b"", field.modifier)
        case "v":
            return _encoded(record.value or b"", field.modifier)
        case "h":
            return b",".join(
                name.encode() + b"=" + _encoded(value or b"", field.modifier)
                for name, value in record.headers
            )
        case "d":
            return timestamp_text(record.timestamp_ms, is_iso=field.modifier == "iso").encode()
        case "K":
            return str(-1 if record.key is None else len(record.key)).encode()
        case "V":
            return str(-1 if record.value is None else len(record.value)).encode()
        case "t":
            return (record.topic or "").encode()
        case "p":
            return str(record.partition).encode()
        case _:
            return str(record.offset).encode()


def timestamp_text(timestamp_ms: int | None, *, is_iso: bool) -> str:
    """Milliseconds since 1970, or the same as ISO 8601 in UTC."""
    if timestamp_ms is None:
        return "-1"
    if not is_iso:
        return str(timestamp_ms)
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # beyond the year 9999, which a producer may write
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _encoded(data: bytes, modifier: str) -> bytes:
    if modifier == "hex":
        return data.hex().encode()
    if modifier == "base64":
        return base64.b64encode(data)
    return data


@dataclass(frozen=True, slots=True)
class InputFormat:
    """A format string read backwards: fields, what stands between them, what ends a record."""

    fields: tuple[Field, ...]
    prefix: bytes
    between: tuple[bytes, ...]
    terminator: bytes

    @classmethod
    def parse(cls, text: str) -> InputFormat:
        """Check that a record can be told apart again by this format."""
        pieces = parse_format(text)
        fields = tuple(piece for piece in pieces if isinstance(piece, Field))
        if not fields:
            raise FormatError("the format names no field; the simplest is '%v\\n'")
        for field in fields:
            if field.letter not in _INPUT_LETTERS:
                raise FormatError(f"'%{field.letter}' cannot be read, only printed")
        if len({field.letter for field in fields}) != len(fields):
            raise FormatError("the format names a field twice")
        if not isinstance(pieces[-1], Literal):
            raise FormatError("the format must end with what ends a record, such as '\\n'")
        prefix = pieces[0].text if isinstance(pieces[0], Literal) else b""
        inner = pieces[1:] if prefix else pieces
        for left, right in pairwise(inner):
            if isinstance(left, Field) and isinstance(right, Field):
                raise FormatError(f"nothing stands between '%{left.letter}' and '%{right.letter}'")
        literals = tuple(piece.text for piece in inner if isinstance(piece, Literal))
        return cls(fields, prefix, literals[:-1], literals[-1])

    def read(self, chunk: bytes, number: int) -> TextRecord:
        """The record in `chunk`, which lacks the terminator; `number` counts from 1."""
        if not chunk.startswith(self.prefix):
            raise FormatError(f"record {number} does not begin with {self.prefix!r}")
        rest = chunk[len(self.prefix) :]
        values: dict[str, Any] = {}
        for field, delimiter in zip(self.fields, (*self.between, None), strict=True):
            if delimiter is None:
                part, rest = rest, b""
            else:
                part, found, rest = rest.partition(delimiter)
                if not found:
                    name = _FIELD_NAMES[field.letter]
                    raise FormatError(f"record {number} has no {delimiter!r} after the {name}")
            values[_ATTRIBUTES[field.letter]] = _decode_field(field, part, number)
        return TextRecord(**values)


_ATTRIBUTES = {"k": "key", "v": "value", "h": "headers", "p": "partition", "d": "timestamp_ms"}


def _decode_field(field: Field, part: bytes, number: int) -> object:
    name = _FIELD_NAMES[field.letter]
    try:
        if field.letter == "p":
            return int(part)
        if field.letter == "d":
            return parse_timestamp_ms(part.decode())
        if field.letter == "h":
            return tuple(_read_headers(part, field.modifier))
        return _decoded(part, field.modifier)
    except ValueError as error:
        raise FormatError(f"record {number}: the {name} {part!r} cannot be read") from error


def _read_headers(part: bytes, modifier: str) -> Iterator[tuple[str, bytes]]:
    for header in part.split(b",") if part else ():
        name, equals, value = header.partition(b"=")
        if not equals:
            raise ValueError("a header lacks its equal sign")
        yield name.decode(), _decoded(value, modifier)


def _decoded(data: bytes, modifier: str) -> bytes:
    if modifier == "hex":
        return bytes.fromhex(data.decode())
    if modifier == "base64":
        return base64.b64decode(data, validate=True)
    return data


def parse_timestamp_ms(text: str) -> int:
    """Milliseconds since 1970 from a number or an ISO 8601 time; UTC if no zone is given."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def split_records(
    read: Callable[[], bytes], terminator: bytes, *, record_bytes_max: int
) -> Iterator[bytes]:
    """Chunks between terminators; a last record without one counts, an empty end does not."""
    pending = bytearray()
    searched = 0
    while data := read():
        pending += data
        while (at := pending.find(terminator, searched)) >= 0:
            yield bytes(pending[:at])
            del pending[: at + len(terminator)]
            searched = 0
        # A terminator may be cut in two by the end of what has arrived.
        searched = max(0, len(pending) - len(terminator) + 1)
        if len(pending) > record_bytes_max:
            raise FormatError(f"a record is longer than {record_bytes_max} bytes")
    if pending:
        yield bytes(pending)


def to_json_object(record: TextRecord) -> dict[str, Any]:
    """The record for JSON; bytes that are not UTF-8 go under `..._base64` instead."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"key": name, **_json_bytes("value", value)} for name, value in record.headers],
    }


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def from_json_object(document: Any, number: int) -> TextRecord:
    """The record that `to_json_object` wrote; a value may also be any JSON, kept as JSON text."""
    if not isinstance(document, Mapping):
        raise FormatError(f"record {number} is not a JSON object")
    headers = document.get("headers") or []
    try:
        return TextRecord(
            key=_bytes_from_json(document, "key"),
            value=_bytes_from_json(document, "value"),
            headers=tuple(
                (str(header["key"]), _bytes_from_json(header, "value")) for header in headers
            ),
            timestamp_ms=_int_from_json(document, "timestamp"),
            partition=_int_from_json(document, "partition"),
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise FormatError(
            f"record {number} is not as 'ottla consume -o jsonl' prints it"
        ) from error


def _bytes_from_json(document: Mapping[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = document.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _int_from_json(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{name} is not an integer")
    return value
