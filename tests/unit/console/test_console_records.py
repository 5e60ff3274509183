"""Rows and exports keep what a record holds and disarm what a spreadsheet would run."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.errors import BadRequestError
from ottla.console.records import Record, format_position, parse_position, tell_troubles
from ottla.console.seeking import parse_time_ms
from ottla.console.web.record_view import csv_line, json_line, payload_view, row_of
from ottla.console.web.streams import event

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3))
def test_json_lines_hold_every_byte(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    import base64

    def back(found: dict[str, str | None], name: str) -> bytes | None:
        if f"{name}_base64" in found:
            return base64.b64decode(str(found[f"{name}_base64"]))
        text = found[name]
        return None if text is None else text.encode()

    record = Record(1, 2, 3, False, key, value, tuple(headers))
    line = json_line("t", record)
    assert line.count("\n") == 1
    found = json.loads(line)
    assert (back(found, "key"), back(found, "value")) == (key, value)
    assert [(one["key"], back(one, "value")) for one in found["headers"]] == headers
    row_of(record)
    payload_view(value)


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd", "-cmd|' /C calc'!A0", "\t=1"])
def test_csv_disarms_formulas(text: str) -> None:
    line = csv_line(Record(0, 0, 0, False, text.encode(), text.encode(), ()))
    cells = next(csv.reader(io.StringIO(line)))
    assert cells[3] == cells[4] == f"'{text}"


@pytest.mark.parametrize(
    "text", ["-5", "+5.5", "-1e3", "plain", 'with "quotes", commas\nand lines']
)
def test_csv_keeps_what_is_harmless(text: str) -> None:
    line = csv_line(Record(0, 0, 0, False, None, text.encode(), ()))
    assert next(csv.reader(io.StringIO(line)))[4] == text


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)))
def test_positions_survive_an_address(position: dict[int, int]) -> None:
    assert parse_position(format_position(position)) == position


@pytest.mark.parametrize(
    "text", ["x", "1", "1:", ":1", "1:-2", "1:2,,x", "1:" + "9" * 5000, f"1:{2**63}", f"{2**31}:1"]
)
def test_other_text_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="PARTITION:OFFSET"):
        parse_position(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", 1_000_000 - 900_000),
        ("1h ago", 0),
        ("1700000000", 1_700_000_000_000),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01T02:00+01:00", 3_600_000),
    ],
)
def test_times_as_people_write_them(text: str, expected: int) -> None:
    assert parse_time_ms(text, now_s=1000.0) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "15 parsecs", "99999999999999999999"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_time_ms(text)


@given(st.text())
def test_a_payload_cannot_end_its_event(text: str) -> None:
    sent = event("records", text)
    assert sent.startswith("event: records\n")
    assert sent.endswith("\n\n")
    body = sent.removeprefix("event: records\n").removesuffix("\n\n").split("\n")
    assert all(line.startswith("data: ") for line in body)


def test_troubles_name_each_reason_once() -> None:
    assert (
        tell_troubles({3: "gone", 1: "gone", 2: "full"})
        == "Partitions 1, 3: gone Partition 2: full"
    )
    assert tell_troubles(dict.fromkeys(range(100), "gone")).startswith("Partitions 0, 1,")
    assert "and 88 more: gone" in tell_troubles(dict.fromkeys(range(100), "gone"))
