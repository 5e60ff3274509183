"""What is in these bytes: JSON, text, or just bytes? And how is each shown exactly? Pure.

Four of four consoles show 64-bit numbers wrongly, because they pass JSON through JavaScript's
floating point. Here a number is never a number: the digits that were written are the digits that
are shown. Duplicate members and their order stay too.

Payloads are hostile. Nothing here makes HTML: a payload becomes pieces of text with a class each,
and the template escapes them. Sizes and depth are bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

# Shown on a page; the rest is a download away.
SHOWN_BYTES_MAX = 32 * 1024
# What one record's page parses to tell whether it is JSON.
JSON_BYTES_MAX = 1024 * 1024
# One line of a table of records.
PREVIEW_CHARACTERS = 240
HEX_ROW_BYTES = 16
HEX_SHOWN_BYTES = 1024
# Deeper than what people write, far less than what Python's stack takes.
DEPTH_MAX = 100
_INDENT = "  "
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class Pairs(tuple[tuple[str, object], ...]):
    """The members of a JSON object, as many and in the order that were written."""

    __slots__ = ()


class Piece(NamedTuple):
    kind: str  # key, string, number, word, punctuation
    text: str


class Payload(NamedTuple):
    kind: str  # null, empty, json, text, bytes
    size: int
    preview: str
    note: str  # what the bytes may be, if that can be told


def parse_json(text: str) -> object:
    """The value with its numbers as written; ValueError if it is not JSON or too deep."""
    try:
        return json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse,
            object_pairs_hook=Pairs,
        )
    except RecursionError:
        raise ValueError("too deep") from None


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def decode(data: bytes) -> str | None:
    """The text, if the bytes are text that people could have written."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def looks_like_json(text: str) -> bool:
    """Whether it is worth trying: a bare number or word is shown as text anyway."""
    stripped = text.strip()
    return stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]")


def glimpse(data: bytes | None) -> Payload:
    """What a payload is and one line of it, told from its beginning: text is not parsed."""
    if data is None:
        return Payload("null", 0, "null", "")
    if not data:
        return Payload("empty", 0, "", "")
    head = data[:SHOWN_BYTES_MAX]
    text = decode(head) if len(head) == len(data) else decode_head(head)
    if text is None:
        return Payload("bytes", len(data), hex_preview(data), note_of(data))
    return Payload("text", len(data), one_line(text), "")


def describe(data: bytes | None) -> Payload:
    """What a payload is as a whole, and one line of it."""
    found = glimpse(data)
    if data is None or found.kind != "text" or len(data) > JSON_BYTES_MAX:
        return found
    text = decode(data)
    if text is None:
        return Payload("bytes", len(data), hex_preview(data), note_of(data))
    if looks_like_json(text):
        try:
            parse_json(text)
        except ValueError:
            return found
        return found._replace(kind="json")
    return found


def decode_head(head: bytes) -> str | None:
    """As `decode`, for bytes that were cut, perhaps inside of a character."""
    for cut in range(4):
        text = decode(head[: len(head) - cut])
        if text is not None:
            return text
    return None


def one_line(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: PREVIEW_CHARACTERS * 2].split())
    return line if len(line) <= PREVIEW_CHARACTERS else f"{line[:PREVIEW_CHARACTERS]}…"


def hex_preview(data: bytes) -> str:
    shown = data[:24].hex(" ")
    return shown if len(data) <= 24 else f"{shown} …"


def note_of(data: bytes) -> str:
    """What binary bytes often are: a serialized integer, or a schema id before the data."""
    if len(data) == 8:
        return f"int64 {int.from_bytes(data, 'big', signed=True)}"
    if len(data) == 4:
        return f"int32 {int.from_bytes(data, 'big', signed=True)}"
    if len(data) > 5 and data[0] == 0:
        return f"schema id {int.from_bytes(data[1:5], 'big')}"
    return ""


class HexRow(NamedTuple):
    offset: str
    digits: str
    characters: str


def hex_rows(data: bytes) -> list[HexRow]:
    """A hex dump of the beginning."""
    rows = []
    for start in range(0, min(len(data), HEX_SHOWN_BYTES), HEX_ROW_BYTES):
        row = data[start : start + HEX_ROW_BYTES]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(HexRow(f"{start:08x}", row.hex(" "), characters))
    return rows


class Pieces(NamedTuple):
    shown: list[Piece]
    is_cut: bool


def json_pieces(text: str, characters_max: int = SHOWN_BYTES_MAX) -> Pieces | None:
    """The beginning of the JSON, indented, to colour; None if it is not JSON or too deep."""
    shown: list[Piece] = []
    size = 0
    try:
        for piece in _merged(_pieces(parse_json(text), 0)):
            if size >= characters_max:
                return Pieces(shown, True)
            shown.append(piece)
            size += len(piece.text)
    except ValueError:
        return None
    return Pieces(shown, False)


def _pieces(value: object, depth: int) -> Iterator[Piece]:
    if depth > DEPTH_MAX:
        raise ValueError("too deep")
    if isinstance(value, Pairs):
        yield from _container("{", "}", [(key, item) for key, item in value], depth)
    elif isinstance(value, list):
        yield from _container("[", "]", [(None, item) for item in value], depth)
    elif isinstance(value, Number):
        yield Piece("number", str(value))
    elif isinstance(value, str):
        yield Piece("string", _quoted(value))
    else:
        yield Piece("word", "null" if value is None else str(value).lower())


def _container(
    opening: str, closing: str, items: list[tuple[str | None, object]], depth: int
) -> Iterator[Piece]:
    if not items:
        yield Piece("punctuation", opening + closing)
        return
    yield Piece("punctuation", opening)
    for position, (key, item) in enumerate(items):
        yield Piece("punctuation", ("," if position else "") + "\n" + _INDENT * (depth + 1))
        if key is not None:
            yield Piece("key", _quoted(key))
            yield Piece("punctuation", ": ")
        yield from _pieces(item, depth + 1)
    yield Piece("punctuation", "\n" + _INDENT * depth + closing)


def _merged(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Neighbours of one kind as one piece: half as many elements on the page."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None and held.kind == piece.kind == "punctuation":
            held = Piece(held.kind, held.text + piece.text)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


def _quoted(text: str) -> str:
    """A JSON string as people read it: only what must be escaped is."""
    return json.dumps(text, ensure_ascii=False)
