"""OffsetForLeaderEpoch: where a leader epoch ends here, so that others can see where they part.

Versions 2 to 4. A consumer asks after a change of leader (KIP-320); what it gets is bounded
by nothing but the log, as in Kafka.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_answer(services, topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _answer(services: Services, topic: str, asked: Any) -> Fields:
    answer = {"partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    try:
        partition = services.replicas.partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        end = partition.log.end_of_epoch(asked.leader_epoch)
    except KafkaError as error:
        return {**answer, "error_code": error.code}
    if end is not None:
        answer["leader_epoch"], answer["end_offset"] = end.epoch, end.end_offset
    return {**answer, "error_code": ErrorCode.NONE}
