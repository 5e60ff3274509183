"""DescribeTransactions: what a transactional id is doing.

Version 0. Each id is answered on its own.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields:
    ids = dict.fromkeys(request.transactional_ids)
    return {"transaction_states": [_describe(services, one) for one in ids]}


def _describe(services: Services, transactional_id: str) -> Fields:
    try:
        found = services.transactions.describe(transactional_id)
    except KafkaError as error:
        return {"transactional_id": transactional_id, "error_code": error.code}
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state.label,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
