"""Records of `__consumer_offsets`: Kafka's bytes, both ways.

The golden segment was written by Apache Kafka 4.3.1: a dynamic and a static consumer joined,
committed and left; an offset was committed without a group, and that group deleted.
"""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.group.consumer_protocol import subscribed_topics
from ottla.coordinators.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetKey,
    OffsetRecord,
    decode_record,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from ottla.coordinators.partitioning import java_string_hash, partition_of
from ottla.protocol.batches import iter_batches, iter_records
from ottla.protocol.errors import ErrorCode, KafkaError

GOLDEN = Path(__file__).with_name("golden") / "kafka-4.3-consumer-offsets.log"

texts = st.text(st.characters(codec="utf-8"), max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
keys = st.builds(OffsetKey, texts, texts, int32s)
plain_offsets = st.builds(
    CommittedOffset,
    int64s,
    int32s,
    texts,
    int64s,
    st.just(NO_TIMESTAMP),
    st.uuids() | st.just(UUID(int=0)),
)
expiring_offsets = st.builds(
    CommittedOffset,
    int64s,
    st.just(-1),
    texts,
    int64s,
    st.integers(0, 2**63 - 1),
    st.just(UUID(int=0)),
)
members = st.builds(
    MemberMetadata,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    int32s,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
groups = st.builds(
    GroupMetadata,
    texts,
    int32s,
    st.none() | texts,
    st.none() | texts,
    int64s,
    st.lists(members, max_size=3).map(tuple),
)


def golden_records() -> list[CoordinatorRecord]:
    data = GOLDEN.read_bytes()
    return [
        CoordinatorRecord(record.key or b"", record.value)
        for at, header in iter_batches(data)
        for record in iter_records(data[at : at + header.size_bytes])
    ]


def encoded(decoded: OffsetRecord | GroupRecord) -> CoordinatorRecord:
    if isinstance(decoded, OffsetRecord):
        if decoded.value is None:
            return offset_tombstone(decoded.key)
        return offset_record(decoded.key, decoded.value)
    if decoded.value is None:
        return group_tombstone(decoded.group_id)
    return group_record(decoded.group_id, decoded.value)


def test_what_kafka_wrote_is_read_and_written_again_byte_for_byte() -> None:
    kinds = set()
    for record in golden_records():
        decoded = decode_record(*record)
        assert decoded is not None
        assert encoded(decoded) == record
        kinds.add((type(decoded), decoded.value is None))
    assert len(kinds) == 4  # offsets and groups, each with tombstones


def test_what_kafka_wrote_means_what_happened() -> None:
    decoded = [decode_record(*record) for record in golden_records()]
    stable = [
        one.value
        for one in decoded
        if isinstance(one, GroupRecord) and one.value is not None and len(one.value.members) == 2
    ]
    assert {one.group_instance_id for one in stable[-1].members} == {None, "static-1"}
    assert {one.client_id for one in stable[-1].members} == {"client-1", "client-2"}
    topics = subscribed_topics(one.subscription for one in stable[-1].members)
    assert topics == {"golden"}
    notes = {
        one.value.metadata
        for one in decoded
        if isinstance(one, OffsetRecord) and one.value is not None
    }
    assert any(note.startswith("note ключ") for note in notes)


@given(keys, plain_offsets | expiring_offsets)
def test_offsets_survive(key: OffsetKey, committed: CommittedOffset) -> None:
    decoded = decode_record(*offset_record(key, committed))
    assert decoded == OffsetRecord(key, committed)


@given(texts, groups)
def test_groups_survive(group_id: str, group: GroupMetadata) -> None:
    assert decode_record(*group_record(group_id, group)) == GroupRecord(group_id, group)


@given(texts, groups, st.data())
def test_records_cut_short_are_corrupt(
    group_id: str, group: GroupMetadata, data: st.DataObject
) -> None:
    key, value = group_record(group_id, group)
    assert value is not None
    end = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(KafkaError) as caught:
        decode_record(key, value[:end])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_record_or_corrupt(key: bytes, value: bytes) -> None:
    for prefix in (b"", b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\2\0\1g"):
        try:
            decode_record(prefix + key, value)
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE  # noqa: PT017


def test_types_of_other_protocols_are_left_alone() -> None:
    assert decode_record(b"\0\3\0\1g", b"whatever") is None


def test_older_versions_are_read() -> None:
    key = offset_tombstone(OffsetKey("g", "t", 0)).key
    old = b"\0\0" + (5).to_bytes(8, "big") + b"\0\1m" + (9).to_bytes(8, "big")
    assert decode_record(b"\0\0" + key[2:], old) == OffsetRecord(
        OffsetKey("g", "t", 0), CommittedOffset(5, -1, "m", 9)
    )
    assert decode_record(key, b"\0\2" + old[2:]) == decode_record(key, old)


@given(st.binary(max_size=30))
def test_subscriptions_that_do_not_parse_are_unknown(data: bytes) -> None:
    found = subscribed_topics([data])
    assert found is None or all(isinstance(topic, str) for topic in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("golden-group", -1429646149),
        ("polygenelubricants", -(2**31)),
        ("ключ", 33309882),
        ("𝄞", 1772394),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected
    assert 0 <= partition_of(text, 50) < 50


def test_hash_without_a_positive_twin_is_partition_zero() -> None:
    assert partition_of("polygenelubricants", 50) == 0
