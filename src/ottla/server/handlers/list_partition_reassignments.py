"""ListPartitionReassignments: which partitions are on the move to other brokers.

Version 0. No list of topics means all; what is not on the move, or not there, is left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.metadata.image import TopicImage
from ottla.protocol.errors import ErrorCode
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields:
    found = [
        {"name": topic.name, "partitions": partitions}
        for topic, indexes in _asked(services, request)
        if (partitions := _moving(topic, indexes))
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": found}


def _asked(services: Services, request: Any) -> Iterator[tuple[TopicImage, Iterable[int]]]:
    topics = services.image.topics
    if request.topics is None:
        for topic in topics.values():
            yield topic, topic.partitions
        return
    for asked in request.topics:
        if asked.name in topics:
            yield topics[asked.name], asked.partition_indexes


def _moving(topic: TopicImage, indexes: Iterable[int]) -> list[Fields]:
    found: list[Fields] = []
    for index in indexes:
        partition = topic.partitions.get(index)
        if partition is not None and (partition.adding_replicas or partition.removing_replicas):
            found.append(
                {
                    "partition_index": index,
                    "replicas": partition.replicas,
                    "adding_replicas": partition.adding_replicas,
                    "removing_replicas": partition.removing_replicas,
                }
            )
    return found
