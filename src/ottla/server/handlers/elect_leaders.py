"""ElectLeaders: give partitions their preferred leader back, or any leader where there is none.

Versions 0 to 2; version 0 knows the preferred election only. No list of partitions means all of
them, of which only those are told that changed or could not.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ottla.metadata.partitions import ElectedPartition, ElectionType, decide_elect_leaders
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    election_type = given(request, "election_type", ElectionType.PREFERRED)
    asked = None
    if request.topic_partitions == ():
        return {"error_code": ErrorCode.NONE, "replica_election_results": []}
    if request.topic_partitions is not None:
        asked = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    code = ErrorCode.NONE
    try:
        elected = await services.metadata.submit(
            lambda image: decide_elect_leaders(image, election_type, asked)
        )
    except KafkaError as error:
        code = error.code
        elected = [ElectedPartition(one, error.code, error.message) for one in asked or ()]
    if request.topic_partitions is None:
        results = _by_topic(services, elected)
    else:
        results = _as_asked(request, elected)
    return {"error_code": code, "replica_election_results": results}


def _by_topic(services: Services, elected: Sequence[ElectedPartition]) -> list[Fields]:
    found: defaultdict[str, list[ElectedPartition]] = defaultdict(list)
    for one in elected:
        found[one.topic_partition.topic].append(one)
    return [_topic(name, found[name]) for name in services.image.topics]


def _as_asked(request: Any, elected: Sequence[ElectedPartition]) -> list[Fields]:
    left = iter(elected)
    return [
        _topic(topic.topic, [next(left) for _ in topic.partitions])
        for topic in request.topic_partitions
    ]


def _topic(name: str, elected: Sequence[ElectedPartition]) -> Fields:
    return {
        "topic": name,
        "partition_result": [
            {
                "partition_id": one.topic_partition.partition,
                "error_code": one.error_code,
                "error_message": one.error_message,
            }
            for one in elected
        ],
    }
