"""The text forms of records, against their inverse and against obvious slow readers."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_format import (
    FormatError,
    InputFormat,
    TextRecord,
    from_json_object,
    parse_format,
    parse_timestamp_ms,
    render,
    split_records,
    timestamp_text,
    to_json_object,
)

RECORD = TextRecord(
    key=b"k\xff",
    value=b"v",
    headers=(("h", b"1"), ("h", None)),
    timestamp_ms=1_700_000_000_123,
    topic="orders",
    partition=2,
    offset=41,
)

maybe_bytes = st.none() | st.binary(max_size=20)
records = st.builds(
    TextRecord,
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), maybe_bytes), max_size=3
    ).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 2**62),
    partition=st.none() | st.integers(0, 100),
)


@given(records)
def test_json_lines_bring_back_every_record_exactly(record: TextRecord) -> None:
    line = json.dumps(to_json_object(record), ensure_ascii=False)
    assert from_json_object(json.loads(line), 1) == record


@given(st.binary(max_size=30), st.binary(max_size=30), st.sampled_from(["hex", "base64"]))
def test_an_encoded_format_reads_back_what_it_printed(key: bytes, value: bytes, how: str) -> None:
    text = rf"<%k{{{how}}}|%v{{{how}}}>\n"
    printed = render(parse_format(text), TextRecord(key=key, value=value))
    layout = InputFormat.parse(text)
    read = layout.read(printed[: -len(layout.terminator)], 1)
    assert (read.key, read.value) == (key, value)


@given(
    st.lists(st.binary(max_size=12)),
    st.sampled_from([b"\n", b"ab", b"aab", b"\0"]),
    st.lists(st.integers(1, 5)),
)
def test_records_are_split_alike_however_the_input_arrives(
    parts: list[bytes], terminator: bytes, sizes: list[int]
) -> None:
    stream = terminator.join(parts)
    rest = stream
    pieces = []
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces = [piece for piece in [*pieces, rest] if piece]
    feed = iter(pieces)
    got = list(split_records(lambda: next(feed, b""), terminator, record_bytes_max=10**6))
    expected = stream.split(terminator)
    assert got == (expected if expected[-1] else expected[:-1])


def test_a_record_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(FormatError, match="longer than 100"):
        list(split_records(lambda: b"x" * 60, b"\n", record_bytes_max=100))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%v\n", b"v\n"),
        ("%t %p %o %d", b"orders 2 41 1700000000123"),
        ("%d{iso}", b"2023-11-14T22:13:20.123Z"),
        ("%k", b"k\xff"),
        ("%k{hex} %k{base64}", b"6bff a/8="),
        ("%h", b"h=1,h="),
        ("%K:%V%%", b"2:1%"),
        (r"\t\x41\0\\", b"\tA\0\\"),
        ("é", "é".encode()),
    ],
)
def test_fields_print_as_documented(text: str, expected: bytes) -> None:
    assert render(parse_format(text), RECORD) == expected


def test_null_prints_as_nothing_but_its_size_tells_it_from_empty() -> None:
    pieces = parse_format("%k|%K|%v|%V|%d")
    assert render(pieces, TextRecord(key=None, value=b"")) == b"|-1||0|-1"


@pytest.mark.parametrize("text", ["%", "%z", "%v{rot13}", "%o{hex}", r"\q", r"\xZ1", "100% %v"])
def test_a_format_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_format(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("%k%v\\n", "nothing stands between"),
        ("%v", "must end with"),
        ("abc\\n", "names no field"),
        ("%o\\t%v\\n", "cannot be read"),
        ("%v\\t%v\\n", "twice"),
    ],
)
def test_a_format_that_cannot_be_read_back_says_why(text: str, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        InputFormat.parse(text)


def test_every_readable_field_lands_in_the_record() -> None:
    layout = InputFormat.parse(r"[%p] %d %h %k=%v\n")
    read = layout.read(b"[3] 2023-11-14T22:13:20.123Z a=1,b=2 key=val=ue", 1)
    assert read == TextRecord(
        key=b"key",
        value=b"val=ue",
        headers=(("a", b"1"), ("b", b"2")),
        timestamp_ms=1_700_000_000_123,
        partition=3,
    )


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        (r"%k\t%v\n", b"no tab", "record 7 has no .* after the key"),
        (r"%v{hex}\n", b"zz", "record 7: the value"),
        (r"%p %v\n", b"x y", "record 7: the partition"),
        (r"<%v>\n", b"v>", "record 7 does not begin"),
        (r"%h %v\n", b"lonely v", "record 7: the headers"),
    ],
)
def test_input_that_does_not_follow_the_format_names_the_record(
    text: str, line: bytes, complaint: str
) -> None:
    with pytest.raises(FormatError, match=complaint):
        InputFormat.parse(text).read(line, 7)


def test_any_json_is_a_value() -> None:
    assert from_json_object({"value": {"a": [1, None]}}, 1).value == b'{"a":[1,null]}'


@pytest.mark.parametrize(
    "document",
    [
        [],
        3,
        {"value_base64": "?"},
        {"partition": "0"},
        {"timestamp": True},
        {"headers": [{"value": "x"}]},
        {"headers": 3},
    ],
)
def test_json_of_another_shape_names_the_record(document: object) -> None:
    with pytest.raises(FormatError, match="record 5"):
        from_json_object(document, 5)


@given(st.integers(0, 253_402_300_799_999))
def test_iso_times_read_back_to_the_millisecond(timestamp_ms: int) -> None:
    assert parse_timestamp_ms(timestamp_text(timestamp_ms, is_iso=True)) == timestamp_ms


def test_a_time_without_zone_is_utc_and_one_with_zone_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    assert parse_timestamp_ms("2023-11-14T22:13:20") == 1_700_000_000_000
    assert parse_timestamp_ms("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    monkeypatch.undo()
    time.tzset()


def test_a_time_beyond_the_calendar_prints_as_its_number() -> None:
    assert timestamp_text(2**62, is_iso=True) == str(2**62)
