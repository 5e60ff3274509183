"""Produce: append batches, one per partition, and answer as the acks ask for.

Versions 3 to 13 (advertised from 0: old librdkafka turns compression off otherwise). Raw: the
batches are validated, patched and written where they lie in the connection's buffer. acks=0
gets no answer, and a failure closes the connection, the only sign such a client can notice;
acks=1 is answered at once; acks=all once the high watermark has passed the batch.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.coordinators.transaction.metadata import ProducerIdentity
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_MASK,
    read_header,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import RequestHeader
from ottla.protocol.ids import Offset, TopicPartition
from ottla.protocol.internal_topics import INTERNAL_TOPICS
from ottla.protocol.produce import (
    PartitionProduceResult,
    ProduceRequest,
    encode_produce_response,
    parse_produce,
)
from ottla.protocol.repeated_produce import RepeatedProduce
from ottla.replication.partition import Partition
from ottla.server.connection import Answer, Behind, Connection, Deferred, Expected
from ottla.server.services import Services
from ottla.server.transaction_guards import FirstBatch, Guards, Operation, guards_for
from ottla.storage.core.batch_validation import RecordsRefusedError, RequestRefusedError
from ottla.storage.core.producer_state import NO_VERIFICATION_GUARD

ZSTD_FROM = 7
ADMIN_CLIENT_ID = "__admin_client"  # whoever calls itself so may write where brokers keep state
ABORTABLE_FROM = 11  # the client knows TRANSACTION_ABORTABLE
ADD_PARTITIONS_FROM = 12  # a produce makes its partitions part of the transaction (KIP-890)
_ERROR_NONE = int(ErrorCode.NONE)
_PRODUCE = int(ApiKey.PRODUCE)
_ATTRIBUTES_LOW_BYTE_AT = ATTRIBUTES_AT + 1
# With these no log was looked at, or none that could say where it starts.
_WITHOUT_LOG_START = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

_COORDINATOR_IS_BUSY = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    )
)

Results = list[tuple[str | bytes, list[PartitionProduceResult]]]


def handle(
    services: Services, connection: Connection, header: RequestHeader, buffer: memoryview, end: int
) -> Answer | Deferred:
    version = header.api_version
    request = parse_produce(version, buffer, header.body_start, end)
    repeated = _repeated(services, version, request, buffer[header.start : end])
    connection.expect(header, None if repeated is None else _expected(services, repeated))
    if request.transactional_id is not None:
        return _produce_in_transaction(services, header, request, request.transactional_id)
    return _append_all(services, header, request, None)


def _append_all(
    services: Services, header: RequestHeader, request: ProduceRequest, guards: Guards | None
) -> Answer | Deferred:
    version = header.api_version
    acks = request.acks
    results: Results = []
    waiting: list[tuple[Partition, Offset]] = []
    has_failed = False
    append = services.replicas.append
    for topic, partitions in request.topics:
        name = topic if isinstance(topic, str) else services.topic_name(topic)
        counters = services.metrics.topics[name] if name else None
        answers = []
        for index, records in partitions:
            try:
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                if not -1 <= acks <= 1:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                if name in INTERNAL_TOPICS and header.client_id != ADMIN_CLIENT_ID:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                if records is None:
                    raise RequestRefusedError(ErrorCode.INVALID_RECORD, "There are no records")
                if len(records) > _ATTRIBUTES_LOW_BYTE_AT:
                    attributes = records[_ATTRIBUTES_LOW_BYTE_AT]
                    if attributes & TRANSACTIONAL_MASK and guards is None:
                        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                    if version < ZSTD_FROM and attributes & CODEC_MASK == Codec.ZSTD:
                        raise RequestRefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
                if guards is None:
                    partition, appended = append(name, index, records, acks=acks)
                else:
                    guard = guards.get(TopicPartition(name, index), NO_VERIFICATION_GUARD)
                    if isinstance(guard, KafkaError):
                        raise RequestRefusedError(guard.code, guard.message)
                    partition, appended = services.replicas.append_guarded(
                        name, index, records, acks=acks, guard=guard
                    )
            except KafkaError as error:
                has_failed = True
                answers.append(_refused(services, name, index, error))
                continue
            answers.append(
                PartitionProduceResult(
                    index,
                    _ERROR_NONE,
                    appended.base_offset,
                    appended.log_append_time_ms,
                    appended.log_start_offset,
                    None,
                )
            )
            if counters is not None and not appended.is_duplicate:
                counters.bytes_in += len(records)
                counters.messages_in += appended.last_offset - appended.base_offset + 1
            if acks == -1 and partition.in_sync.high_watermark <= appended.last_offset:
                waiting.append((partition, Offset(appended.last_offset + 1)))
        if counters is not None:
            counters.produce_requests += 1
            counters.failed_produce_requests += has_failed
        results.append((topic, answers))
    if acks == 0:
        if has_failed:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a produce with acks=0 failed")
        return None
    if waiting:
        return _when_committed(
            services, version, header.correlation_id, request.timeout_ms, results, waiting
        )
    return encode_produce_response(version, header.correlation_id, results)


def _repeated(
    services: Services, version: int, request: ProduceRequest, frame: memoryview
) -> RepeatedProduce | None:
    """The request as one to expect again, unless it must be looked at each time."""
    repeated = RepeatedProduce.of(version, request, frame)
    if repeated is None:
        return None
    topic = repeated.topic
    name = topic if isinstance(topic, str) else services.topic_name(topic)
    return None if name is None or name in INTERNAL_TOPICS else repeated


def _expected(services: Services, repeated: RepeatedProduce) -> Expected:
    """Does as `handle` for one partition that the client has written to before."""
    topic, index, acks = repeated.topic, repeated.partition, repeated.acks
    requests, topics = services.metrics.requests, services.metrics.topics
    append = services.replicas.append

    def answer(buffer: memoryview, start: int, end: int) -> bytes | Deferred | None:
        asked = repeated.records_in(buffer, start, end)
        if asked is None:
            return None
        correlation_id, records = asked
        if (
            len(records) <= _ATTRIBUTES_LOW_BYTE_AT
            or records[_ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_MASK
        ):
            return None  # cut off, or part of a transaction
        name = topic if isinstance(topic, str) else services.topic_name(topic)
        if name is None:
            return None  # it was deleted
        requests[_PRODUCE] += 1
        counters = topics[name]
        counters.produce_requests += 1
        try:
            partition, appended = append(name, index, records, acks=acks)
        except KafkaError as error:
            counters.failed_produce_requests += 1
            refused = _refused(services, name, index, error)
            return encode_produce_response(repeated.version, correlation_id, [(topic, [refused])])
        base_offset, last_offset, append_time_ms, log_start_offset, is_duplicate = appended
        if not is_duplicate:
            counters.bytes_in += len(records)
            counters.messages_in += last_offset - base_offset + 1
        if acks == -1 and partition.in_sync.high_watermark <= last_offset:
            stored = PartitionProduceResult(
                index, _ERROR_NONE, base_offset, append_time_ms, log_start_offset
            )
            return _when_committed(
                services,
                repeated.version,
                correlation_id,
                repeated.timeout_ms,
                [(topic, [stored])],
                [(partition, Offset(last_offset + 1))],
            )
        return repeated.encode_answer(correlation_id, base_offset, append_time_ms, log_start_offset)

    return answer


def _refused(
    services: Services, name: str | None, index: int, error: KafkaError
) -> PartitionProduceResult:
    log_start_offset = -1
    if error.code not in _WITHOUT_LOG_START and not isinstance(error, RequestRefusedError):
        partition = services.replicas.partitions.get((name or "", index))
        if partition is not None and partition.is_open:
            log_start_offset = partition.log.log_start_offset
    return PartitionProduceResult(
        index,
        error.code,
        log_start_offset=log_start_offset,
        error_message=error.message,
        record_errors=error.record_errors if isinstance(error, RecordsRefusedError) else (),
    )


def _produce_in_transaction(
    services: Services, header: RequestHeader, request: ProduceRequest, transactional_id: str
) -> Answer | Deferred:
    """Ask the coordinator about batches that may begin a transaction, then append."""
    batches = _transactional_batches(services, request)
    if len({one.producer for one in batches}) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The records are of more than one producer"
        )
        return _append_all(services, header, request, {one.at: error for one in batches})
    operation = Operation.VERIFY
    if header.api_version >= ADD_PARTITIONS_FROM:
        operation = Operation.ADD
    elif header.api_version >= ABORTABLE_FROM:
        operation = Operation.VERIFY_WITH_ABORTABLE
    guards = guards_for(services, transactional_id, batches, operation)
    if isinstance(guards, Awaitable):
        return Deferred(_append_later(services, header, _copied(request), guards))
    return _append_all(services, header, request, _told(guards))


async def _append_later(
    services: Services, header: RequestHeader, request: ProduceRequest, guards: Awaitable[Guards]
) -> Answer:
    answer = _append_all(services, header, request, _told(await guards))
    return await answer.answer if isinstance(answer, Deferred) else answer


def _transactional_batches(services: Services, request: ProduceRequest) -> list[FirstBatch]:
    found = []
    for topic, partitions in request.topics:
        name = topic if isinstance(topic, str) else services.topic_name(topic)
        for index, records in partitions:
            if name is None or records is None or len(records) < HEADER_BYTES:
                continue
            batch = read_header(records, 0)
            if batch.is_transactional and batch.producer_id >= 0:
                producer = ProducerIdentity(batch.producer_id, batch.producer_epoch)
                found.append(FirstBatch(TopicPartition(name, index), producer, batch.base_sequence))
    return found


def _copied(request: ProduceRequest) -> ProduceRequest:
    """The request apart from the buffer that it came in, which others use meanwhile."""
    topics = [
        (
            topic,
            [
                (index, None if records is None else memoryview(bytearray(records)))
                for index, records in partitions
            ],
        )
        for topic, partitions in request.topics
    ]
    return request._replace(topics=topics)


def _told(guards: Guards) -> Guards:
    """Older clients do not try again for the coordinator's errors; for this one they do."""
    return {
        at: KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"The coordinator says {guard.code.name}")
        if isinstance(guard, KafkaError) and guard.code in _COORDINATOR_IS_BUSY
        else guard
        for at, guard in guards.items()
    }


def _when_committed(
    services: Services,
    version: int,
    correlation_id: int,
    timeout_ms: int,
    results: Results,
    waiting: list[tuple[Partition, Offset]],
) -> Deferred:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def on_done(expired: bool) -> None:
        if future.cancelled():
            return
        for number, (topic, answers) in enumerate(results):
            results[number] = (topic, [_settle(topic, one, error_of) for one in answers])
        future.set_result(encode_produce_response(version, correlation_id, results))

    def error_of(topic: str | bytes, index: int) -> int:
        for partition, offset in waiting:
            key = partition.topic if isinstance(topic, str) else partition.topic_id.bytes
            if (key, partition.index) != (topic, index):
                continue
            if partition.failure is not None:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if not partition.is_leader:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            if partition.high_watermark < offset:
                return ErrorCode.REQUEST_TIMED_OUT
            if not partition.has_enough_replicas():
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _ERROR_NONE

    operation = services.replicas.await_commit(waiting, timeout_ms, on_done)
    future.add_done_callback(lambda _: operation.cancel())
    return Deferred(future, Behind.ALL)


def _settle(
    topic: str | bytes,
    answer: PartitionProduceResult,
    error_of: Callable[[str | bytes, int], int],
) -> PartitionProduceResult:
    if answer.error_code != _ERROR_NONE:
        return answer
    error = error_of(topic, answer.partition)
    if error == _ERROR_NONE:
        return answer
    return answer._replace(error_code=error, base_offset=-1)
