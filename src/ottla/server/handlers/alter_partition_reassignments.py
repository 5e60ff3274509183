"""AlterPartitionReassignments: move partitions to other brokers, or stop doing so.

Versions 0 and 1; version 1 can insist on as many replicas as there were. A move to where a
partition is already is done at once.
"""

from typing import Any

from ottla.metadata.partitions import Reassignment, decide_alter_partition_reassignments
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import TopicPartition
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    may_resize: bool = given(request, "allow_replication_factor_change", True)
    asked = [
        Reassignment(TopicPartition(topic.name, one.partition_index), one.replicas)
        for topic in request.topics
        for one in topic.partitions
    ]
    decided = await services.metadata.submit(
        lambda image: decide_alter_partition_reassignments(
            image, asked, allow_replication_factor_change=may_resize
        )
    )
    left = iter(decided)
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "allow_replication_factor_change": may_resize,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.topic_partition.partition,
                        "error_code": one.error_code,
                        "error_message": one.error_message,
                    }
                    for one in (next(left) for _ in topic.partitions)
                ],
            }
            for topic in request.topics
        ],
    }
