"""TxnOffsetCommit: how far a group has read, if the transaction is committed.

Versions 0 to 5. From 3 on the consumer that read says which member it is, and is refused if another
has taken its place (KIP-447). From 5 on the partition that holds the offsets becomes part of the
transaction here; before, AddOffsetsToTxn has done it, and that is verified.
"""

from collections.abc import Awaitable, Sequence
from typing import Any

from ottla.coordinators.group.shard import CommitRequest, WantedOffset
from ottla.coordinators.runtime import ProducerWrite
from ottla.coordinators.transaction.metadata import ProducerIdentity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.internal_topics import OFFSETS_TOPIC
from ottla.protocol.messages import given
from ottla.server.commit_partitions import CommitPartitions
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services
from ottla.server.transaction_guards import FirstBatch, Operation, guards_for
from ottla.storage.core.producer_state import NO_SEQUENCE

LOAD_IN_PROGRESS_FROM = 2
ABORTABLE_FROM = 4
ADD_PARTITIONS_FROM = 5
BROKER_RETENTION_MS = -1


async def handle(services: Services, call: Call, request: Any) -> Fields:
    partitions = CommitPartitions()
    for topic in request.topics:
        image = services.image.topics.get(topic.name)
        partitions.add(topic, image, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    wanted = partitions.wanted
    decided: Sequence[ErrorCode] = ()
    if wanted:
        try:
            decided = await _commit(services, call, request, wanted)
        except KafkaError as error:
            decided = [error.code] * len(wanted)
    return partitions.answer([_told(call, one) for one in decided])


async def _commit(
    services: Services, call: Call, request: Any, wanted: Sequence[WantedOffset]
) -> Sequence[ErrorCode]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    at = TopicPartition(OFFSETS_TOPIC, services.groups.partition_index(request.group_id))
    operation = Operation.VERIFY
    if call.version >= ADD_PARTITIONS_FROM:
        operation = Operation.ADD
    elif call.version >= ABORTABLE_FROM:
        operation = Operation.VERIFY_WITH_ABORTABLE
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    guards = guards_for(
        services,
        request.transactional_id,
        [FirstBatch(at, producer, NO_SEQUENCE)],
        operation,
    )
    guard = (await guards if isinstance(guards, Awaitable) else guards)[at]
    if isinstance(guard, KafkaError):
        raise guard
    decided = services.groups.commit_in_transaction(
        CommitRequest(
            request.group_id,
            given(request, "member_id", ""),
            given(request, "group_instance_id", None),
            given(request, "generation_id", -1),
            BROKER_RETENTION_MS,
            call.version,
            is_transactional=True,
        ),
        wanted,
        ProducerWrite(*producer, guard),
    )
    return await decided if isinstance(decided, Awaitable) else decided


def _told(call: Call, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOAD_IN_PROGRESS_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # old clients do not expect it (KAFKA-7296)
    if code is ErrorCode.STALE_MEMBER_EPOCH:
        return ErrorCode.ILLEGAL_GENERATION  # producers know no other word for it
    return code
