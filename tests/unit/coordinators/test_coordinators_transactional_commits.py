"""Offsets in a transaction are taken from who is a member, and from nobody else (KIP-447)."""

from uuid import UUID

import pytest

from ottla.coordinators.group.consumer.member import ClassicMetadata, ConsumerMember
from ottla.coordinators.group.consumer.records import current_assignment_record, member_record
from ottla.coordinators.group.effects import Moment
from ottla.coordinators.group.records import GroupMetadata, MemberMetadata, group_record
from ottla.coordinators.group.requests import GroupLimits
from ottla.coordinators.group.shard import CommitRequest, GroupShard, WantedOffset
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC_ID = UUID(int=5)
NOW = Moment(0, 0)
CLASSIC, CONSUMER, EMPTY = "classic", "consumer", "empty"
GENERATION = 3
Says = tuple[str, str | None, int]  # member, instance, generation or epoch


def shard() -> GroupShard:
    """A classic group, one that is empty, and a consumer group."""
    found = GroupShard(lambda: GroupLimits(0), lambda: 10)
    members = (
        MemberMetadata("m", None, "c", "/h", 1000, 1000, b"", b""),
        MemberMetadata("s", "box", "c", "/h", 1000, 1000, b"", b""),
    )
    held = {TOPIC_ID.bytes: {0: 4, 1: 5}}
    records = [
        group_record(CLASSIC, GroupMetadata("consumer", GENERATION, "range", "m", 0, members)),
        group_record(EMPTY, GroupMetadata("consumer", GENERATION, None, None, 0, ())),
    ]
    for member in (
        ConsumerMember("m", epoch=5, previous_epoch=4, assigned=held),
        ConsumerMember("old", epoch=5, classic=ClassicMetadata(1000, ())),
    ):
        records.append(member_record(CONSUMER, member))
        records.append(current_assignment_record(CONSUMER, member))
    for record in records:
        found.replay(-1, *record)
    found.on_loaded(NOW)
    return found


def commit(group: str, says: Says, partition: int = 0) -> ErrorCode:
    member_id, instance_id, generation = says
    request = CommitRequest(
        group, member_id, instance_id, generation, -1, version=5, is_transactional=True
    )
    wanted = [WantedOffset("t", TOPIC_ID, partition, 42, -1, None)]
    try:
        _, codes = shard().decide_commit(request, wanted, NOW)
    except KafkaError as error:
        return error.code
    return codes[0]


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (("m", None, 3), ErrorCode.NONE),
        (("s", "box", 3), ErrorCode.NONE),
        (("", None, -1), ErrorCode.NONE),  # a producer that was not told whose it is
        (("m", None, 2), ErrorCode.ILLEGAL_GENERATION),
        (("m", None, 4), ErrorCode.ILLEGAL_GENERATION),
        (("m", None, -1), ErrorCode.ILLEGAL_GENERATION),
        (("gone", None, 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None, 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (("m", "box", 3), ErrorCode.FENCED_INSTANCE_ID),
        (("m", "shelf", 3), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_of_a_classic_group_only_the_present_generation_commits(
    says: Says, code: ErrorCode
) -> None:
    assert commit(CLASSIC, says) is code


@pytest.mark.parametrize(
    ("says", "partition", "code"),
    [
        (("m", None, 5), 0, ErrorCode.NONE),
        (("m", None, 4), 0, ErrorCode.NONE),  # it has held this one since then
        (("m", None, 4), 1, ErrorCode.STALE_MEMBER_EPOCH),
        (("m", None, 6), 0, ErrorCode.STALE_MEMBER_EPOCH),
        (("m", None, -1), 0, ErrorCode.STALE_MEMBER_EPOCH),
        (("gone", None, 5), 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (("old", None, 6), 0, ErrorCode.ILLEGAL_GENERATION),  # it speaks the classic protocol
        (("", None, -1), 0, ErrorCode.NONE),
    ],
)
def test_of_a_consumer_group_only_who_holds_the_partition_commits(
    says: Says, partition: int, code: ErrorCode
) -> None:
    assert commit(CONSUMER, says, partition) is code


@pytest.mark.parametrize(
    ("group", "says", "code"),
    [
        (EMPTY, ("", None, -1), ErrorCode.NONE),
        (EMPTY, ("m", None, 3), ErrorCode.UNKNOWN_MEMBER_ID),
        ("no such group", ("", None, -1), ErrorCode.NONE),
        ("no such group", ("m", None, 3), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_who_names_a_generation_of_a_group_without_members_is_refused(
    group: str, says: Says, code: ErrorCode
) -> None:
    assert commit(group, says) is code


def test_a_group_that_is_being_deleted_takes_nothing() -> None:
    found = shard()
    found.decide_delete_group(EMPTY)
    request = CommitRequest(EMPTY, "", None, -1, -1, version=5, is_transactional=True)
    with pytest.raises(KafkaError) as refused:
        found.decide_commit(request, [], NOW)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
