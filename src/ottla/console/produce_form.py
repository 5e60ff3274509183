"""A record as the fields of a form, and back, byte for byte. Pure.

A browser changes what it carries: a field of one line loses its line ends, a text area turns every
line end into one kind and drops one that it begins with, and no field tells null from empty. So a
payload is offered as text only if that text comes back as it was, else as hexadecimal digits, and
beside each field stands what it is written as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.console.errors import BadRequestError
from ottla.console.payloads import decode
from ottla.console.records import Record

TEXT, HEX, NULL, EMPTY = "text", "hex", "null", "empty"


class Field(NamedTuple):
    text: str
    written_as: str  # text, hex, null or empty


class HeaderFields(NamedTuple):
    name: str
    value: Field


class Fields(NamedTuple):
    key: Field = Field("", TEXT)
    value: Field = Field("", TEXT)
    headers: tuple[HeaderFields, ...] = (HeaderFields("", Field("", TEXT)),)


class Written(NamedTuple):
    """What a form asks to be written."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def fields_of(record: Record) -> Fields:
    """The form filled with a record; BadRequestError if a form cannot carry it."""
    for name, _ in record.headers:
        if "\ufffd" in name or not _fits_line(name.encode()):
            raise BadRequestError("The name of a header is not text: no form can carry it.")
    headers = [HeaderFields(name, _field(value, _fits_line)) for name, value in record.headers]
    # One blank line to write into; a header without name and value must not look like it.
    shown = [
        one._replace(value=Field("", HEX)) if one == Fields().headers[0] else one for one in headers
    ]
    key = _field(record.key, _fits_line)
    return Fields(
        Field("", EMPTY) if key == Field("", TEXT) else key,
        _field(record.value, _fits_area),
        tuple(shown) or Fields().headers,
    )


def written_of(form: Mapping[str, Sequence[str]]) -> Written:
    """What a form that came back asks to be written."""
    key = _bytes(_first(form, "key"), _first(form, "key_as", TEXT))
    if key == b"" and _first(form, "key_as", TEXT) == TEXT:
        key = None  # as the form says: left empty, there is no key
    # A text area may send line ends as the network writes them; it never holds any other kind.
    text = _first(form, "value").replace("\r\n", "\n")
    value = _bytes(text, _first(form, "value_as", TEXT))
    names, texts = form.get("header_name", []), form.get("header_value", [])
    kinds = form.get("header_as", [TEXT] * len(names))
    if not len(names) == len(texts) == len(kinds):
        raise BadRequestError("The headers cannot be read.")
    headers = [
        (name, _bytes(one, kind))
        for name, one, kind in zip(names, texts, kinds, strict=True)
        if (name, one, kind) != ("", "", TEXT)
    ]
    return Written(key, value, headers)


def _field(data: bytes | None, fits: Callable[[bytes], bool]) -> Field:
    if data is None:
        return Field("", NULL)
    return Field(data.decode(), TEXT) if fits(data) else Field(data.hex(" "), HEX)


def _fits_line(data: bytes) -> bool:
    text = decode(data)
    return text is not None and "\n" not in text and "\r" not in text


def _fits_area(data: bytes) -> bool:
    text = decode(data)
    return text is not None and "\r" not in text


def _first(form: Mapping[str, Sequence[str]], name: str, default: str = "") -> str:
    values = form.get(name)
    return values[0] if values else default


def _bytes(text: str, written_as: str) -> bytes | None:
    if written_as == NULL:
        return None
    if written_as == EMPTY:
        return b""
    if written_as == HEX:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise BadRequestError("That is not hexadecimal.") from None
    return text.encode()
