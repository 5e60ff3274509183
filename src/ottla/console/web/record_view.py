"""Records as rows, details and exports. Pure."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any, NamedTuple

from ottla.console.payloads import (
    SHOWN_BYTES_MAX,
    HexRow,
    Payload,
    Piece,
    decode_head,
    describe,
    glimpse,
    hex_rows,
    json_pieces,
)
from ottla.console.records import Record
from ottla.console.web.rendering import iso

# Spreadsheets run what begins with these; a quote before it makes it text.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
CSV_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


class RecordRow(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: Payload
    value: Payload
    header_count: int


class PayloadView(NamedTuple):
    """A payload in full: as coloured JSON, text, or a hex dump."""

    payload: Payload
    pieces: list[Piece] | None
    text: str | None
    rows: list[HexRow]
    is_cut: bool  # whether there is more than is shown

    @property
    def is_text_whole(self) -> bool:
        """Whether `text` is all of it."""
        return self.payload.size <= SHOWN_BYTES_MAX


def row_of(record: Record) -> RecordRow:
    return RecordRow(
        record.partition,
        record.offset,
        record.timestamp_ms,
        glimpse(record.key),
        glimpse(record.value),
        len(record.headers),
    )


def payload_view(data: bytes | None) -> PayloadView:
    payload = describe(data)
    if data is None or payload.kind in ("null", "empty"):
        return PayloadView(payload, None, None, [], False)
    if payload.kind == "bytes":
        rows = hex_rows(data)
        return PayloadView(payload, None, None, rows, len(rows) * 16 < len(data))
    text = decode_head(data[:SHOWN_BYTES_MAX]) or ""
    pieces = json_pieces(data.decode()) if payload.kind == "json" else None
    if pieces is not None:
        return PayloadView(payload, pieces.shown, text, [], pieces.is_cut)
    return PayloadView(payload, None, text, [], len(data) > SHOWN_BYTES_MAX)


def json_object(topic: str, record: Record) -> dict[str, Any]:
    """The record as `ottla consume -o jsonl` prints it, so that `ottla produce` reads it."""
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"key": name, **_json_bytes("value", value)} for name, value in record.headers],
    }


def json_line(topic: str, record: Record) -> str:
    return json.dumps(json_object(topic, record), ensure_ascii=False) + "\n"


def csv_header() -> str:
    return _csv_row(CSV_COLUMNS)


def csv_line(record: Record) -> str:
    headers = json.dumps(
        [{"key": name, **_json_bytes("value", value)} for name, value in record.headers],
        ensure_ascii=False,
    )
    return _csv_row(
        (
            str(record.partition),
            str(record.offset),
            iso(record.timestamp_ms),
            _csv_text(record.key),
            _csv_text(record.value),
            headers if record.headers else "",
        )
    )


def _csv_row(cells: tuple[str, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()


def _csv_text(data: bytes | None) -> str:
    """Text a spreadsheet shows and does not run; bytes that are not text as base64."""
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
