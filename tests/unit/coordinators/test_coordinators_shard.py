"""Offsets of a shard: committing, expiring, deleting, and transactions that are still open."""

from uuid import UUID

import pytest

from ottla.coordinators.group.effects import Moment
from ottla.coordinators.group.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    MemberMetadata,
    OffsetKey,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from ottla.coordinators.group.requests import GroupLimits
from ottla.coordinators.group.shard import CommitRequest, GroupShard, WantedOffset
from ottla.coordinators.group.states import GroupState
from ottla.protocol.errors import ErrorCode, KafkaError

GROUP = "g"
TOPIC_ID = UUID(int=5)
OTHER_ID = UUID(int=6)
RETENTION_MS = 1000
# A consumer subscription of version 0 to the topic "read".
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\4read" + b"\xff\xff\xff\xff"


def at(time_ms: int) -> Moment:
    return Moment(time_ms, time_ms)


def new_shard() -> GroupShard:
    return GroupShard(lambda: GroupLimits(0), lambda: 10)


def replay(shard: GroupShard, records: list[CoordinatorRecord], producer_id: int = -1) -> None:
    for record in records:
        shard.replay(producer_id, *record)


def commit(
    shard: GroupShard, time_ms: int, *topics: str, generation: int = -1, retention_ms: int = -1
) -> None:
    request = CommitRequest(GROUP, "", None, generation, retention_ms, 9)
    wanted = [WantedOffset(topic, TOPIC_ID, 0, 42, 3, "note") for topic in topics]
    records, codes = shard.decide_commit(request, wanted, at(time_ms))
    assert set(codes) == {ErrorCode.NONE}
    replay(shard, records)


def load_group(shard: GroupShard, *, emptied_at_ms: int | None, protocol_type: str) -> None:
    members = ()
    if emptied_at_ms is None:
        members = (MemberMetadata("m", None, "c", "/h", 1000, 1000, SUBSCRIPTION, b""),)
    group = GroupMetadata(
        protocol_type,
        3,
        "range" if members else None,
        "m" if members else None,
        emptied_at_ms or 0,
        members,
    )
    replay(shard, [group_record(GROUP, group)])
    shard.on_loaded(at(0))


def fetch(shard: GroupShard, topic: str, topic_id: UUID = TOPIC_ID, stable: bool = True) -> int:
    found = shard.offsets.fetch(GROUP, (topic, 0), topic_id=topic_id, require_stable=stable)
    return -2 if found.is_unstable else found.offset


def test_offset_of_an_earlier_topic_of_the_same_name_does_not_count() -> None:
    shard = new_shard()
    commit(shard, 0, "t")
    assert fetch(shard, "t") == fetch(shard, "t", UUID(int=0)) == 42
    assert fetch(shard, "t", OTHER_ID) == -1


def test_note_that_is_too_long_fails_its_partition_only() -> None:
    shard = new_shard()
    request = CommitRequest(GROUP, "", None, -1, -1, 9)
    wanted = [WantedOffset("t", TOPIC_ID, n, 1, -1, "x" * (10 + n)) for n in range(2)]
    records, codes = shard.decide_commit(request, wanted, at(0))
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert len(records) == 1


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_member_of_a_group_that_is_gone_is_refused(version: int, code: ErrorCode) -> None:
    request = CommitRequest(GROUP, "m", None, 3, -1, version)
    with pytest.raises(KafkaError) as caught:
        new_shard().decide_commit(request, [], at(0))
    assert caught.value.code is code


def test_self_assigned_consumer_keeps_offsets_for_the_retention_after_each_commit() -> None:
    shard = new_shard()
    commit(shard, 0, "old", "new")
    commit(shard, 500, "new")
    assert shard.decide_expire(GROUP, RETENTION_MS, at(999)) == []
    records = shard.decide_expire(GROUP, RETENTION_MS, at(1000))
    assert records == [offset_tombstone(OffsetKey(GROUP, "old", 0))]
    replay(shard, records)
    records = shard.decide_expire(GROUP, RETENTION_MS, at(1500))
    assert records[-1] == group_tombstone(GROUP)
    replay(shard, records)
    assert not shard.groups
    assert not shard.offsets.of(GROUP)


def test_empty_group_keeps_offsets_for_the_retention_after_it_became_empty() -> None:
    shard = new_shard()
    commit(shard, 0, "t")
    load_group(shard, emptied_at_ms=5000, protocol_type="consumer")
    assert shard.decide_expire(GROUP, RETENTION_MS, at(5999)) == []
    assert len(shard.decide_expire(GROUP, RETENTION_MS, at(6000))) == 2


def test_live_group_loses_offsets_of_topics_that_it_no_longer_reads() -> None:
    shard = new_shard()
    commit(shard, 0, "read", "left")
    load_group(shard, emptied_at_ms=None, protocol_type="consumer")
    assert shard.decide_expire(GROUP, RETENTION_MS, at(1000)) == [
        offset_tombstone(OffsetKey(GROUP, "left", 0))
    ]


def test_live_group_of_another_kind_loses_nothing() -> None:
    shard = new_shard()
    commit(shard, 0, "t")
    load_group(shard, emptied_at_ms=None, protocol_type="connect")
    assert shard.decide_expire(GROUP, RETENTION_MS, at(10**9)) == []


def test_retention_that_a_commit_asked_for_counts_before_the_brokers() -> None:
    shard = new_shard()
    commit(shard, 0, "t", retention_ms=50)
    assert shard.decide_expire(GROUP, RETENTION_MS, at(49)) == []
    assert len(shard.decide_expire(GROUP, RETENTION_MS, at(50))) == 2


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    shard = new_shard()
    commit(shard, 0, "read", "left")
    load_group(shard, emptied_at_ms=None, protocol_type="consumer")
    places = [("read", 0), ("left", 0), ("never", 0)]
    records, codes = shard.decide_delete_offsets(GROUP, places, has_writes_in_flight=False)
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
    assert records == [offset_tombstone(OffsetKey(GROUP, "left", 0))]
    records, _ = shard.decide_delete_offsets(GROUP, places, has_writes_in_flight=True)
    assert offset_tombstone(OffsetKey(GROUP, "never", 0)) in records


def test_group_with_members_cannot_be_deleted() -> None:
    shard = new_shard()
    load_group(shard, emptied_at_ms=None, protocol_type="connect")
    with pytest.raises(KafkaError) as caught:
        shard.decide_delete_group(GROUP)
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(KafkaError) as caught:
        shard.decide_delete_offsets(GROUP, [], has_writes_in_flight=False)
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP


def test_deleted_group_is_dead_until_the_log_has_it_and_gone_after() -> None:
    shard = new_shard()
    commit(shard, 0, "a", "b")
    records = shard.decide_delete_group(GROUP)
    assert shard.groups[GROUP].state is GroupState.DEAD
    with pytest.raises(KafkaError) as caught:
        commit(shard, 0, "a")
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    replay(shard, records)
    assert not shard.groups
    assert shard.offsets == new_shard().offsets


def test_offset_of_an_open_transaction_counts_once_it_commits() -> None:
    shard = new_shard()
    commit(shard, 0, "t")
    record = offset_record(OffsetKey(GROUP, "t", 0), CommittedOffset(50, topic_id=TOPIC_ID))
    for producer_id, is_commit, expected in ((7, False, 42), (8, True, 50)):
        replay(shard, [record], producer_id)
        assert fetch(shard, "t") == -2
        assert fetch(shard, "t", stable=False) == 42
        assert shard.decide_expire(GROUP, RETENTION_MS, at(10**9)) == []
        shard.replay_marker(producer_id, is_commit=is_commit)
        assert fetch(shard, "t") == expected


def test_group_without_offsets_stays_while_a_transaction_is_open() -> None:
    shard = new_shard()
    load_group(shard, emptied_at_ms=1, protocol_type="consumer")
    record = offset_record(OffsetKey(GROUP, "t", 0), CommittedOffset(50))
    replay(shard, [record], producer_id=7)
    assert shard.decide_expire(GROUP, RETENTION_MS, at(10**9)) == []
    shard.replay_marker(7, is_commit=False)
    assert shard.decide_expire(GROUP, RETENTION_MS, at(10**9)) == [group_tombstone(GROUP)]


def test_offsets_of_topics_that_are_gone_are_forgotten_in_every_group() -> None:
    shard = new_shard()
    commit(shard, 0, "gone", "kept")
    other = offset_record(OffsetKey("other", "gone", 1), CommittedOffset(1))
    replay(shard, [other], producer_id=9)
    replay(shard, shard.decide_forget_topics(frozenset(("gone",))))
    assert list(shard.offsets.of(GROUP)) == [("kept", 0)]
    assert not shard.offsets.has_open_transaction("other")


def test_group_that_nobody_joined_after_all_leaves_nothing() -> None:
    shard = new_shard()
    shard.classic_or_new(GROUP, at(0))
    shard.forget_if_unused(GROUP)
    assert not shard.groups
    commit(shard, 0, "t")
    shard.forget_if_unused(GROUP)
    assert GROUP in shard.groups
