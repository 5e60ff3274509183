"""Payloads are shown exactly as they were written, and never as something else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.payloads import (
    SHOWN_BYTES_MAX,
    decode_head,
    describe,
    glimpse,
    hex_rows,
    json_pieces,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_pieces_are_the_same_json(value: object) -> None:
    pieces = json_pieces(json.dumps(value))
    assert pieces is not None
    assert json.loads("".join(piece.text for piece in pieces.shown)) == value


@pytest.mark.parametrize(
    "digits",
    [
        "9007199254740993",
        "-9223372036854775808",
        "18446744073709551615",
        "0.1000",
        "1e400",
        "1E-5",
        "-0",
    ],
)
def test_numbers_keep_the_digits_that_were_written(digits: str) -> None:
    pieces = json_pieces(f'{{"n": {digits}}}')
    assert pieces is not None
    assert [piece.text for piece in pieces.shown if piece.kind == "number"] == [digits]


def test_duplicate_members_and_their_order_stay() -> None:
    pieces = json_pieces('{"b": 1, "a": 2, "b": 3}')
    assert pieces is not None
    assert [piece.text for piece in pieces.shown if piece.kind == "key"] == ['"b"', '"a"', '"b"']


@pytest.mark.parametrize(
    ("data", "kind", "note"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b'{"a": 1}', "json", ""),
        (b"[1, 2]", "json", ""),
        (b"12", "text", ""),
        (b'{"a": NaN}', "text", ""),
        (b"{not json}", "text", ""),
        ("Dvořák".encode(), "text", ""),
        (b"\xff\xfe", "bytes", ""),
        (b"a\x00b", "bytes", ""),
        ((2**62).to_bytes(8, "big"), "bytes", "int64 4611686018427387904"),
        (b"\x00\x00\x00\x00\x2a\x02hello", "bytes", "schema id 42"),
    ],
)
def test_a_payload_is_told_by_its_bytes(data: bytes | None, kind: str, note: str) -> None:
    found = describe(data)
    assert (found.kind, found.note) == (kind, note)


@given(st.binary(max_size=300))
def test_hex_rows_hold_every_byte(data: bytes) -> None:
    assert bytes.fromhex(" ".join(row.digits for row in hex_rows(data))) == data


@given(st.text(min_size=1, alphabet=st.characters(min_codepoint=32)), st.integers(0, 3))
def test_a_text_cut_inside_a_character_is_still_text(text: str, cut: int) -> None:
    data = text.encode()
    assert decode_head(data[: max(0, len(data) - cut)]) is not None


def test_json_too_deep_for_a_page_is_not_parsed() -> None:
    assert json_pieces("[" * 500 + "]" * 500) is None
    assert json_pieces("[" * 100_000 + "]" * 100_000) is None


def test_large_json_is_json_and_shown_in_part() -> None:
    text = json.dumps([{"n": 2**60 + n} for n in range(4_000)])
    assert len(text) > SHOWN_BYTES_MAX
    assert describe(text.encode()).kind == "json"
    pieces = json_pieces(text)
    assert pieces is not None
    assert pieces.is_cut
    shown = sum(len(piece.text) for piece in pieces.shown)
    assert SHOWN_BYTES_MAX <= shown < SHOWN_BYTES_MAX + 1_000


@given(st.none() | st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_glimpse_tells_the_same_but_for_json(data: bytes | None) -> None:
    seen, whole = glimpse(data), describe(data)
    assert seen._replace(kind=whole.kind) == whole
    assert seen.kind == whole.kind or (seen.kind, whole.kind) == ("text", "json")
