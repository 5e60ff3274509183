"""CreatePartitions: give topics more partitions.

Versions 0 to 3.
"""

from typing import Any

from ottla.metadata.topics import NewPartitions, decide_create_partitions
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    wanted = [
        NewPartitions(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]
    grown = await services.metadata.submit(
        lambda image: decide_create_partitions(
            image,
            wanted,
            chance=services.runtime.random,
            validate_only=request.validate_only,
        )
    )
    return {
        "results": [
            {
                "name": result.name,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in grown
        ]
    }
