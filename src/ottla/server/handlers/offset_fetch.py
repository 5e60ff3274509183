"""OffsetFetch: where a group goes on reading.

Versions 1 to 10; from 8 on for several groups at once, from 10 on with topics by id. Without topics
(null, from version 2 on) all offsets of the group are told. From 9 on a member of a consumer group
names its epoch, and one that is behind is told to catch up first. With `require_stable` (from 7 on)
an offset that an open transaction is about to move is UNSTABLE_OFFSET_COMMIT.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.coordinators.group.offsets import NO_FETCHED_OFFSET, FetchedOffset
from ottla.coordinators.group.shard import GroupShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.protocol.uuids import ZERO
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

TOP_LEVEL_ERROR_FROM = 2
GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
NO_MEMBER_EPOCH = -1


class Wanted(NamedTuple):
    """A topic as asked; no name if its id is not known."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[int]


def handle(services: Services, call: Call, request: Any) -> Fields:
    require_stable = given(request, "require_stable", False)
    if call.version >= GROUPS_FROM:
        return {
            "groups": [
                _group(
                    services,
                    call.version,
                    one.group_id,
                    one.topics,
                    require_stable,
                    given(one, "member_id", None),
                    given(one, "member_epoch", NO_MEMBER_EPOCH),
                )
                for one in request.groups
            ]
        }
    answer = _group(services, call.version, request.group_id, request.topics, require_stable)
    if call.version < TOP_LEVEL_ERROR_FROM and answer["error_code"] is not ErrorCode.NONE:
        return {"topics": _failed(request.topics, answer["error_code"])}
    return answer


def _group(
    services: Services,
    version: int,
    group_id: str,
    topics: Any,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = NO_MEMBER_EPOCH,
) -> Fields:
    answer: dict[str, Any] = {"group_id": group_id, "error_code": ErrorCode.NONE}
    try:
        shard = services.groups.offsets_shard(group_id, member_id, member_epoch)
    except KafkaError as error:
        return {**answer, "error_code": error.code, "topics": []}
    wanted = (
        _all(services, version, shard, group_id)
        if topics is None
        else [_wanted(services, version, topic) for topic in topics]
    )
    answer["topics"] = [
        {
            "name": one.name or "",
            "topic_id": one.topic_id,
            "partitions": [
                _partition(shard, group_id, one, index, require_stable) for index in one.partitions
            ],
        }
        for one in wanted
    ]
    return answer


def _wanted(services: Services, version: int, topic: Any) -> Wanted:
    if version >= TOPIC_IDS_FROM:
        topic_id = topic.topic_id or ZERO
        return Wanted(services.topic_name(topic_id.bytes), topic_id, topic.partition_indexes)
    topic_id = services.topic_id(topic.name) or ZERO
    return Wanted(topic.name, topic_id, topic.partition_indexes)


def _all(services: Services, version: int, shard: GroupShard, group_id: str) -> Iterable[Wanted]:
    """All that the group committed; a topic that is gone has no id to be named by."""
    partitions: dict[str, list[int]] = {}
    for topic, index in sorted(shard.offsets.of(group_id)):
        partitions.setdefault(topic, []).append(index)
    for topic, indexes in partitions.items():
        topic_id = services.topic_id(topic)
        if topic_id is not None or version < TOPIC_IDS_FROM:
            yield Wanted(topic, topic_id or ZERO, indexes)


def _partition(
    shard: GroupShard, group_id: str, wanted: Wanted, index: int, require_stable: bool
) -> Fields:
    code = ErrorCode.NONE
    found: FetchedOffset = NO_FETCHED_OFFSET
    if wanted.name is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = shard.offsets.fetch(
            group_id,
            (wanted.name, index),
            topic_id=wanted.topic_id,
            require_stable=require_stable,
        )
        if found.is_unstable:
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": code,
    }


def _failed(topics: Any, code: ErrorCode) -> list[Fields]:
    """Version 1 has no error of the whole; every partition says it."""
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": -1,
                    "metadata": "",
                    "error_code": code,
                }
                for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]
