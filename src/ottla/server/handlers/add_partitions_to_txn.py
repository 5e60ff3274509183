"""AddPartitionsToTxn: make partitions part of a transaction, or ask whether they are.

Versions 0 to 5. Up to 3 for one transaction, by its producer; from 4 on for many, by brokers, which
may also only verify (KIP-890). One partition that cannot be added keeps the others out, too.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from ottla.coordinators.transaction.metadata import ProducerIdentity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.producers import EPOCH_BUMPING_VERSION
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

PRODUCER_FENCED_FROM = 2
BATCHED_FROM = 4
EPOCH_BUMPING_FROM = 5

Codes = Mapping[TopicPartition, ErrorCode]


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    if call.version >= BATCHED_FROM:
        return _handle_batch(services, call, request)
    codes = _add(
        services,
        call,
        request.v3_and_below_transactional_id,
        ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        request.v3_and_below_topics,
    )
    if isinstance(codes, Awaitable):
        return _answer_later(request, codes)
    return _answer(request, codes)


async def _answer_later(request: Any, codes: Awaitable[Codes]) -> Fields:
    return _answer(request, await codes)


def _answer(request: Any, codes: Codes) -> Fields:
    return {"results_by_topic_v3_and_below": _results(request.v3_and_below_topics, codes)}


async def _handle_batch(services: Services, call: Call, request: Any) -> Fields:
    results = []
    for one in request.transactions:
        producer = ProducerIdentity(one.producer_id, one.producer_epoch)
        codes = _add(
            services,
            call,
            one.transactional_id,
            producer,
            one.topics,
            verify_only=one.verify_only,
        )
        results.append(
            {
                "transactional_id": one.transactional_id,
                "topic_results": _results(
                    one.topics, await codes if isinstance(codes, Awaitable) else codes
                ),
            }
        )
    return {"error_code": ErrorCode.NONE, "results_by_transaction": results}


def _add(
    services: Services,
    call: Call,
    transactional_id: str,
    producer: ProducerIdentity,
    topics: Sequence[Any],
    *,
    verify_only: bool = False,
) -> Codes | Awaitable[Codes]:
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
    )
    image = services.image
    if transactional_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A transaction has no transactional id")
    missing = {one for one in partitions if image.partition(*one) is None}
    if missing:
        return {
            one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if one in missing
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for one in partitions
        }
    if verify_only:
        return services.transactions.verify(transactional_id, producer, partitions)
    code = services.transactions.add_partitions(
        transactional_id,
        producer,
        partitions,
        client_version=EPOCH_BUMPING_VERSION if call.version >= EPOCH_BUMPING_FROM else 0,
    )
    if isinstance(code, Awaitable):
        return _for_each(call, partitions, code)
    return dict.fromkeys(partitions, _told(call, code))


async def _for_each(
    call: Call, partitions: frozenset[TopicPartition], code: Awaitable[ErrorCode]
) -> Codes:
    return dict.fromkeys(partitions, _told(call, await code))


def _told(call: Call, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and call.version < PRODUCER_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _results(topics: Sequence[Any], codes: Codes) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": codes[TopicPartition(topic.name, index)],
                }
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
