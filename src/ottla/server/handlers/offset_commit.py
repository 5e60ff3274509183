"""OffsetCommit: how far a group has read.

Versions 2 to 10; from 10 on topics are named by id. Each partition is answered on its own; what is
wrong with the group or the member is said of every partition, as the response has no other place.
"""

from collections.abc import Awaitable, Sequence
from typing import Any
from uuid import UUID

from ottla.coordinators.group.shard import CommitRequest, WantedOffset
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import duration_ms, given
from ottla.protocol.uuids import ZERO
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

TOPIC_IDS_FROM = 10
RETENTION_UNTIL = 4
BROKER_RETENTION_MS = -1


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    codes: list[ErrorCode | None] = []  # in the order asked; None where the coordinator decides
    wanted: list[WantedOffset] = []
    for topic in request.topics:
        name, topic_id = _topic(services, call.version, topic)
        image = None if name is None else services.image.topics.get(name)
        for one in topic.partitions:
            if name is None:
                codes.append(ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            if image is None or one.partition_index not in image.partitions:
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            codes.append(None)
            wanted.append(
                WantedOffset(
                    image.name,
                    topic_id,
                    one.partition_index,
                    one.committed_offset,
                    given(one, "committed_leader_epoch", -1),
                    one.committed_metadata,
                )
            )
    commit = CommitRequest(
        request.group_id,
        request.member_id,
        given(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        duration_ms(request.retention_time)
        if call.version <= RETENTION_UNTIL
        else BROKER_RETENTION_MS,
        call.version,
    )
    try:
        decided = services.groups.commit(commit, wanted)
    except KafkaError as error:
        decided = [error.code] * len(wanted)
    if not isinstance(decided, list):
        return _answer_later(request, codes, decided)
    return _answer(request, codes, decided)


def _topic(services: Services, version: int, topic: Any) -> tuple[str | None, UUID]:
    """Name and id of the topic; no name if the id is not known."""
    if version >= TOPIC_IDS_FROM:
        topic_id = topic.topic_id or ZERO
        return services.topic_name(topic_id.bytes), topic_id
    return topic.name, services.topic_id(topic.name) or ZERO


async def _answer_later(
    request: Any, codes: Sequence[ErrorCode | None], decided: Awaitable[list[ErrorCode]]
) -> Fields:
    return _answer(request, codes, await decided)


def _answer(
    request: Any, codes: Sequence[ErrorCode | None], decided: Sequence[ErrorCode]
) -> Fields:
    found = iter(codes)
    rest = iter(decided)
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            code = next(found)
            if code is None:
                code = next(rest)
            partitions.append({"partition_index": one.partition_index, "error_code": code})
        topics.append(
            {
                "name": given(topic, "name", ""),
                "topic_id": given(topic, "topic_id", None),
                "partitions": partitions,
            }
        )
    return {"topics": topics}
