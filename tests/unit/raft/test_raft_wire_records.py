"""The record codec on bytes that nobody wrote on purpose."""

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.raft.control_records import (
    ElectionVoter,
    LeaderChangeMessage,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_control,
    encode_control,
)
from ottla.raft.wire_records import (
    INT8,
    INT32,
    STRING,
    CorruptRecordError,
    UnsupportedRecordError,
    decode,
    encode,
    wire,
)


@dataclass(frozen=True)
class Sample:
    number: int = wire(INT32)
    words: tuple[str, ...] = wire(STRING, array=True)
    late: int = wire(INT8, since=1)
    note: str | None = wire(STRING, nullable=True, tag=3, default=None)
    later: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, since=1, tag=1, default=None
    )


SAMPLES = st.builds(
    Sample,
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.text(max_size=200), max_size=5).map(tuple),
    st.integers(-128, 127),
    st.none() | st.text(max_size=5),
    st.none() | st.lists(st.integers(0, 9), max_size=3).map(tuple),
)


@given(SAMPLES)
def test_a_record_comes_back_as_it_went(record: Sample) -> None:
    assert decode(Sample, 1, encode(record, 1)) == record


@given(SAMPLES)
def test_an_older_version_keeps_what_it_knows(record: Sample) -> None:
    back = decode(Sample, 0, encode(record, 0))
    assert back == Sample(number=record.number, words=record.words, note=record.note)


def test_tagged_fields_are_written_only_where_they_differ_from_the_default() -> None:
    assert encode(Sample(), 1) == bytes((0, 0, 0, 0, 1, 0, 0))
    assert encode(Sample(note="x", later=()), 1) == bytes(
        (0, 0, 0, 0, 1, 0, 2, 1, 1, 1, 3, 2, 2, ord("x"))
    )


def test_an_unknown_tag_is_skipped() -> None:
    assert decode(Sample, 0, bytes((0, 0, 0, 0, 1, 1, 9, 2, 7, 7))) == Sample()


@given(SAMPLES, st.data())
def test_a_record_cut_short_is_refused(record: Sample, data: st.DataObject) -> None:
    whole = encode(record, 1)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CorruptRecordError):
        decode(Sample, 1, cut)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(garbage: bytes) -> None:
    try:
        record = decode(Sample, 1, garbage)
    except CorruptRecordError:
        return
    assert decode(Sample, 1, encode(record, 1)) == record


def test_bytes_behind_a_record_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="1 bytes follow"):
        decode(Sample, 0, encode(Sample(), 0) + b"\x00")


def test_an_array_longer_than_its_record_is_refused_before_it_is_read() -> None:
    with pytest.raises(CorruptRecordError, match="does not fit"):
        decode(Sample, 0, b"\x00\x00\x00\x00\xff\xff\xff\xff\x0f")


def test_control_records_come_back_as_they_went() -> None:
    voter = Voter(1, UUID(int=9), (VoterEndpoint("CONTROLLER", "host", 65535),))
    for record in (
        LeaderChangeMessage(0, 1, (ElectionVoter(1),), (ElectionVoter(1),)),
        LeaderChangeMessage(1, 1, (ElectionVoter(1, UUID(int=5)),), ()),
        VotersRecord(voters=(voter,)),
    ):
        assert decode_control(*encode_control(record)) == record


def test_a_control_record_of_a_newer_kafka_is_refused_in_a_sentence() -> None:
    key, value = encode_control(VotersRecord())
    with pytest.raises(UnsupportedRecordError, match="does not know"):
        decode_control(b"\x00\x00\x00\x63", value)
    with pytest.raises(UnsupportedRecordError, match="VotersRecord of version 9"):
        decode_control(key, b"\x00\x09" + value[2:])
