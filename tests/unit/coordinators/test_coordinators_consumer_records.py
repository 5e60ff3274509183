"""Records of consumer groups: Kafka's bytes, both ways.

The golden segment was written by Apache Kafka 4.3.1: groups of the new protocol in which members
share, leave and are replaced, one with a regular expression, and one that was a classic group
before and after.
"""

from pathlib import Path
from uuid import UUID

import pytest
from consumer_world import topic
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from ottla.coordinators.group.consumer.records import (
    ConsumerRecord,
    CurrentAssignmentRecord,
    DecidedRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpoch,
    TargetEpochRecord,
    TargetMemberRecord,
    current_assignment_record,
    decode_consumer_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    target_epoch_record,
    target_member_record,
)
from ottla.coordinators.group.consumer.topics import metadata_hash
from ottla.coordinators.group.consumer.xxh3 import xxh3_64
from ottla.coordinators.group.records import CoordinatorRecord
from ottla.coordinators.group.requests import GroupLimits
from ottla.coordinators.group.shard import GroupShard
from ottla.coordinators.record_fields import FieldReader
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.protocol.batches import iter_batches, iter_records
from ottla.protocol.errors import ErrorCode, KafkaError

GOLDEN = Path(__file__).with_name("golden") / "kafka-4.3-consumer-groups.log"

texts = st.text(st.characters(codec="utf-8"), max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16)
held = st.dictionaries(topic_ids, st.dictionaries(int32s, int32s), max_size=3)
classics = st.builds(
    ClassicMetadata,
    int32s,
    st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple),
)
subscriptions = st.builds(
    lambda *fields: ConsumerMember(*fields),  # the rest comes with another record
    texts,
    st.none() | texts,
    st.none() | texts,
    texts,
    texts,
    st.frozensets(texts, max_size=3),
    texts,
    int32s,
    st.none() | texts,
    st.none() | classics,
)


def encoded(record: ConsumerRecord) -> CoordinatorRecord:
    """The record as it is written; it has a value."""
    group_id = record.group_id
    if isinstance(record, PartitionMetadataRecord) or record.value is None:
        raise AssertionError(record)
    match record:
        case GroupEpochRecord():
            return group_epoch_record(group_id, record.value)
        case MemberRecord():
            return member_record(group_id, record.value)
        case TargetEpochRecord():
            return target_epoch_record(group_id, record.value)
        case TargetMemberRecord():
            return target_member_record(group_id, record.member_id, record.value)
        case CurrentAssignmentRecord():
            member = ConsumerMember(record.member_id)._replace(**record.value._asdict())
            return current_assignment_record(group_id, member)
        case RegexRecord():
            return regex_record(group_id, record.regex, record.value)


def decoded(record: CoordinatorRecord) -> ConsumerRecord | None:
    reader = FieldReader(record.key)
    return decode_consumer_record(reader.int16(), reader, record.value)


def said(record: CoordinatorRecord) -> ConsumerRecord:
    assert isinstance(record, DecidedRecord)
    return record.says


def golden_records() -> list[CoordinatorRecord]:
    data = GOLDEN.read_bytes()
    found = []
    for at, header in iter_batches(data):
        for record in iter_records(memoryview(data)[at : at + header.size_bytes]):
            if record.key is not None:
                found.append(CoordinatorRecord(record.key, record.value))
    return found


def test_what_kafka_wrote_is_written_again_byte_for_byte() -> None:
    kinds = set()
    for record in golden_records():
        found = decoded(record)
        if found is not None and record.value is not None:
            kinds.add(type(found))
            written = encoded(found)
            assert written == record
            assert said(written) == found
    assert len(kinds) == 6


def test_what_kafka_wrote_is_replayed() -> None:
    shard = GroupShard(lambda: GroupLimits(), lambda: 100)
    for record in golden_records():
        shard.replay(-1, record.key, record.value)
    by_name = {name.partition("-")[2]: group for name, group in shard.groups.items()}
    assert "share" not in by_name, "it was deleted"
    regex, static = by_name["regex"], by_name["static"]
    assert isinstance(regex, ConsumerGroup)
    assert not regex.members
    assert isinstance(static, ConsumerGroup)
    assert not static.owners
    assert isinstance(by_name["turning"], ClassicGroup)


def test_hash_of_topics_is_the_one_that_kafka_stored() -> None:
    """Both groups read a topic of two partitions, on brokers without racks."""
    stored, ids = {}, {}
    for record in golden_records():
        found = decoded(record)
        if isinstance(found, GroupEpochRecord) and found.value and found.value.metadata_hash:
            stored[found.group_id] = found.value.metadata_hash
        if isinstance(found, TargetMemberRecord) and found.value:
            ids[found.group_id] = next(iter(found.value))
    for group_id in ("x-share", "w-static"):
        name = f"{group_id[0]}-t"
        known = topic(name, 2, 0)
        read = TopicImage(name, UUID(bytes=ids[group_id]), known.partitions)
        image = MetadataImage(topics={name: read})
        assert metadata_hash([name, "no such topic"], image) == stored[group_id]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 3244421341483603138),
        (3, -6266602912829716452),
        (8, 6941064856527638883),
        (16, -5131753158909839995),
        (100, -5362810412169982817),
        (240, 7229805477010515663),
        (2000, 8212356305084836938),
    ],
)
def test_xxh3_is_that_of_its_authors(length: int, expected: int) -> None:
    assert xxh3_64(bytes((one * 7 + 3) & 255 for one in range(length))) == expected


@given(
    texts,
    st.builds(GroupEpoch, int32s, int64s),
    st.builds(TargetEpoch, int32s, int64s),
    st.dictionaries(topic_ids, st.frozensets(int32s, max_size=5), max_size=3),
    st.builds(ResolvedRegex, st.frozensets(texts, max_size=3), int64s, int64s),
)
def test_records_of_a_group_read_back(
    name: str,
    epoch: GroupEpoch,
    target_epoch: TargetEpoch,
    target: dict[bytes, frozenset[int]],
    regex: ResolvedRegex,
) -> None:
    assert decoded(group_epoch_record(name, epoch)) == GroupEpochRecord(name, epoch)
    assert decoded(target_epoch_record(name, target_epoch)) == (
        TargetEpochRecord(name, target_epoch)
    )
    assert decoded(target_member_record(name, "m", target)) == (
        TargetMemberRecord(name, "m", target)
    )
    assert decoded(regex_record(name, "r.*", regex)) == RegexRecord(name, "r.*", regex)


@given(subscriptions, int32s, int32s, st.sampled_from(MemberState), held, held)
def test_records_of_a_member_read_back(
    member: ConsumerMember,
    epoch: int,
    previous_epoch: int,
    state: MemberState,
    assigned: dict[bytes, dict[int, int]],
    pending: dict[bytes, dict[int, int]],
) -> None:
    written = member_record("g", member)
    assert decoded(written) == MemberRecord("g", member.member_id, member) == said(written)
    moved = member._replace(
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )
    assert said(member_record("g", moved)) == MemberRecord("g", member.member_id, member)
    written = current_assignment_record("g", moved)
    current = decoded(written)
    assert current == said(written)
    assert isinstance(current, CurrentAssignmentRecord)
    assert current.value is not None
    assert member._replace(**current.value._asdict()) == moved


@given(subscriptions, st.data())
def test_cut_records_are_corrupt_and_never_anything_else(
    member: ConsumerMember, data: st.DataObject
) -> None:
    key, value = member_record("g", member)
    assert value is not None
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(KafkaError) as raised:
        decoded(CoordinatorRecord(key, value[:cut]))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_state_of_another_version_is_unknown() -> None:
    key, value = current_assignment_record("g", ConsumerMember("m", epoch=3))
    assert value is not None
    odd = value[:10] + b"\x63" + value[11:]
    read = decoded(CoordinatorRecord(key, odd))
    assert isinstance(read, CurrentAssignmentRecord)
    assert read.value is not None
    assert read.value.state is MemberState.UNKNOWN


def test_tombstones_name_the_member() -> None:
    for record in member_tombstones("g", "m"):
        read = decoded(record)
        assert isinstance(read, MemberRecord | TargetMemberRecord | CurrentAssignmentRecord)
        assert (read.group_id, read.member_id, read.value) == ("g", "m", None)
