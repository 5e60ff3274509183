"""DescribeTopicPartitions: partitions in pages, so that no answer is as large as the cluster.

Version 0 (KIP-966). Topics come in the order of their names; a cursor says where the next page
starts.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics import INTERNAL_TOPICS
from ottla.server.dispatch import Call, Fields
from ottla.server.operations import TOPIC_OPERATIONS
from ottla.server.services import Services
from ottla.server.topology import error_of_unknown, partition_fields


def handle(services: Services, call: Call, request: Any) -> Fields:
    image = services.image
    cursor = request.cursor
    asked = sorted({topic.name for topic in request.topics})
    names = asked or sorted(image.topics)
    first_partition = 0
    if cursor is not None:
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            # The cursor is none that this broker gave out for these topics.
            return {"topics": [_refused(name, ErrorCode.INVALID_REQUEST) for name in asked]}
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    limit = services.config.max_request_partition_size_limit
    room = max(1, min(request.response_partition_limit, limit))
    topics: list[Fields] = []
    next_cursor = None
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            unknown = _refused(name, error_of_unknown(name))
            topics.append({**unknown, "topic_authorized_operations": TOPIC_OPERATIONS})
            continue
        indexes = range(first_partition, len(topic.partitions))
        first_partition = 0
        if room == 0:
            next_cursor = {"topic_name": name, "partition_index": indexes.start}
            break
        taken = indexes[:room]
        room -= len(taken)
        topics.append(
            {
                "error_code": ErrorCode.NONE,
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": name in INTERNAL_TOPICS,
                "partitions": [
                    partition_fields(image, call.listener, index, topic.partitions[index])
                    for index in taken
                ],
                "topic_authorized_operations": TOPIC_OPERATIONS,
            }
        )
        if len(taken) < len(indexes):
            next_cursor = {"topic_name": name, "partition_index": taken.stop}
            break
    return {"topics": topics, "next_cursor": next_cursor}


def _refused(name: str, error: ErrorCode) -> Fields:
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }
