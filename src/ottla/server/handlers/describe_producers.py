"""DescribeProducers: who writes to a partition, and which transactions are open there.

Version 0.
"""

from typing import Any

from ottla.metadata.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _describe(services, topic.name, index) for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _describe(services: Services, topic: str, index: int) -> Fields:
    try:
        check_topic_name(topic)
        partition = services.replicas.partition(topic, index)
        partition.check_epoch(-1)
        producers = partition.log.active_producers()
    except KafkaError as error:
        return {
            "partition_index": index,
            "error_code": error.code,
            "error_message": error.message,
            "active_producers": [],
        }
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.transaction_first_offset,
            }
            for producer in producers
        ],
    }
