"""OffsetDelete: forget offsets of partitions that the group no longer reads.

Version 0. Topics that a member of the group is subscribed to keep theirs.
"""

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    known = services.image.topics
    places = [
        (topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if topic.name in known and one.partition_index in known[topic.name].partitions
    ]
    try:
        decided: Sequence[ErrorCode] | Awaitable[Sequence[ErrorCode]]
        decided = services.groups.delete_offsets(request.group_id, places)
        if inspect.isawaitable(decided):
            decided = await decided
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    codes = dict(zip(places, decided, strict=True))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "error_code": ErrorCode.NONE,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": codes.get((topic.name, one.partition_index), unknown),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }
