"""AddOffsetsToTxn: offsets of a group are to be committed with the transaction.

Versions 0 to 4. What becomes part of the transaction is the partition that holds the group's
offsets; TxnOffsetCommit follows. From transactions v2 on clients leave this out.
"""

from collections.abc import Awaitable
from typing import Any

from ottla.coordinators.transaction.metadata import ProducerIdentity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.internal_topics import OFFSETS_TOPIC
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

PRODUCER_FENCED_FROM = 2


async def handle(services: Services, call: Call, request: Any) -> Fields:
    try:
        index = await services.groups.locate(request.group_id)
        added = services.transactions.add_partitions(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            frozenset((TopicPartition(OFFSETS_TOPIC, index),)),
            client_version=0,
        )
        code = await added if isinstance(added, Awaitable) else added
    except KafkaError as error:
        code = error.code
    if code is ErrorCode.PRODUCER_FENCED and call.version < PRODUCER_FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": code}
