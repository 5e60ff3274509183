"""Fetch: records of many partitions, now or as soon as there are enough of them.

Versions 4 to 18. Raw: the answer is a list of byte strings and file ranges, and records go from
the file to the socket without passing through Python where they are large. Followers take the
same way with a replica id; their fetch offset is what moves the high watermark.

With fewer than `min_bytes` at hand the request waits, watching its partitions, at most
`max_wait_ms`. An error, a diverging epoch or records of an older segment are sent at once.
Ranges that the page cache does not hold are read by a thread first, so that one consumer of old
data does not hold up the others.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeAlias

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    RecordsSlot,
    encode_fetch_response_parts,
    parse_fetch,
)
from ottla.protocol.frames import RequestHeader
from ottla.protocol.repeated_fetch import RepeatedFetch
from ottla.replication.partition import Isolation, Partition
from ottla.replication.purgatory import DelayedOperation
from ottla.server.connection import Answer, Connection, Deferred, Expected, FileRange, Part
from ottla.server.fetch_sessions import Context, TopicKey
from ottla.server.services import Services
from ottla.storage.slices import SMALL_BYTES_MAX, UNBOUNDED, LogSlice, warm
from ottla.storage.would_wait import Prepare, WouldWait, prepare_all

LEADER_FROM = 16  # the field is older, but only with KIP-951 do brokers fill it in
_ISOLATIONS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
_LEADER_ERRORS = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
_ERROR_NONE = int(ErrorCode.NONE)
_FETCH = int(ApiKey.FETCH)
# How often threads are asked for what lies cold: a log, an index, two places in a file. Whoever
# needs more, as pages go faster than they come, waits for the disk.
PREPARATIONS_MAX = 8

_Key: TypeAlias = tuple[TopicKey, int]


def handle(
    services: Services, connection: Connection, header: RequestHeader, buffer: memoryview, end: int
) -> Answer | Deferred:
    version = header.api_version
    request = parse_fetch(version, buffer, header.body_start, end)
    if request.isolation_level not in (0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The isolation level must be 0 or 1")
    repeated = RepeatedFetch.of(version, request, buffer[header.start : end])
    connection.expect(header, None if repeated is None else _expected(services, repeated))
    # Of a partition that is named twice, Kafka takes the last word.
    wanted = list(
        {
            (topic, one[0]): (topic, one)
            for topic, partitions in request.topics
            for one in partitions
        }.values()
    )
    try:
        context = services.fetch_sessions.begin(
            request.session_id,
            request.session_epoch,
            wanted,
            request.forgotten_topics,
            uses_topic_ids=version >= 13,
            now_ms=services.runtime.clock.wall_ms(),
        )
    except KafkaError as error:
        return _load(
            encode_fetch_response_parts(
                header.api_version, header.correlation_id, 0, int(error.code), 0, []
            ),
            may_wait=False,
        )
    return _Fetch(services, header, request, context).begin()


def _expected(services: Services, repeated: RepeatedFetch) -> Expected:
    """Answers the same fetch again if there is nothing to decide and little to read."""
    topic, index = repeated.topic, repeated.partition
    requests, topics = services.metrics.requests, services.metrics.topics
    partitions = services.replicas.partitions

    def answer(buffer: memoryview, start: int, end: int) -> bytes | None:
        asked = repeated.offset_in(buffer, start, end)
        if asked is None:
            return None
        correlation_id, offset = asked
        name = topic if isinstance(topic, str) else services.topic_name(topic) or ""
        partition = partitions.get((name, index))
        counters = topics.get(name)
        if partition is None or counters is None:
            return None
        found = partition.read_small(
            offset,
            min(repeated.bytes_max, services.config.fetch_max_bytes),
            repeated.leader_epoch,
            is_read_committed=repeated.is_read_committed,
        )
        if found is None:
            return None
        high_watermark, last_stable_offset, log_start_offset, records = found
        length = len(records)
        if length < repeated.min_bytes:
            return None
        requests[_FETCH] += 1
        counters.fetch_requests += 1
        counters.bytes_out += length
        return repeated.encode_answer(
            correlation_id, high_watermark, last_stable_offset, log_start_offset, records
        )

    return answer


class _Fetch:
    """One fetch request, read as often as it takes."""

    __slots__ = (
        "_context",
        "_errors",
        "_header",
        "_request",
        "_results",
        "_services",
        "_slices",
        "_to_prepare",
    )

    def __init__(
        self, services: Services, header: RequestHeader, request: FetchRequest, context: Context
    ) -> None:
        self._services = services
        self._header = header
        self._request = request
        self._context = context
        self._results: list[tuple[TopicKey, FetchPartitionResult]] = []
        self._slices: list[LogSlice] = []
        # What a thread must do first, and what came of it where it failed.
        self._to_prepare: list[tuple[_Key, Prepare]] = []
        self._errors: dict[_Key, KafkaError] = {}

    def begin(self) -> Answer | Deferred:
        is_enough = self.read(may_wait=False)
        if self._to_prepare:
            return Deferred(self._prepare_and_answer())
        if is_enough or self._is_impatient:
            return self.answer()
        return Deferred(self.wait())

    @property
    def _is_impatient(self) -> bool:
        return self._request.max_wait_ms <= 0 or not self._context.wanted

    async def _prepare_and_answer(self) -> Answer:
        """Let threads open logs and read what the page cache lacks until all can be answered."""
        for attempt in range(PREPARATIONS_MAX):
            self._release()
            keys, prepares = zip(*self._to_prepare, strict=True)
            outcomes = await prepare_all(prepares, self._services.runtime.offload)
            for key, outcome in zip(keys, outcomes, strict=True):
                if isinstance(outcome, KafkaError):
                    self._errors[key] = outcome
                elif isinstance(outcome, BaseException):
                    raise outcome
            is_enough = self.read(may_wait=attempt == PREPARATIONS_MAX - 1)
            if not self._to_prepare:
                break
        if is_enough or self._is_impatient:
            answer = self.answer()
            return await answer.answer if isinstance(answer, Deferred) else answer
        return await self.wait()

    def read(self, *, may_wait: bool) -> bool:
        """Look at every partition; whether the answer should be sent as it stands.

        As in Apache Kafka `min_bytes` counts what there is, up to each partition's own limit,
        not what fits into whole batches; whoever reads an older segment does not wait at all.
        """
        request = self._request
        bytes_left = min(request.max_bytes, self._services.config.fetch_max_bytes)
        bytes_wanted = min(request.min_bytes, bytes_left)
        bytes_read = 0
        is_enough = bytes_wanted <= 0
        self._results = results = []
        self._to_prepare = []
        for topic, asked in self._context.wanted:
            try:
                result = self._read_one(
                    topic, asked, bytes_left, at_least_one=not bytes_read, may_wait=may_wait
                )
            except WouldWait as wait:
                self._to_prepare.append(((topic, asked.partition), wait.prepare))
                continue
            results.append((topic, result))
            if result.records is not None:
                available, length = result.records.available, result.records_length
                bytes_read += length
                bytes_left -= length
                limit = asked.partition_max_bytes
                bytes_wanted -= available if available < limit else limit
                if bytes_wanted <= 0 or available == UNBOUNDED:
                    is_enough = True
            elif result.error_code or result.diverging_epoch is not None:
                is_enough = True
        return is_enough

    def answer(self) -> Answer | Deferred:
        """The response; where the page cache lacks some of it, after a thread has read that."""
        parts = self._encode()
        answer = _load(parts, may_wait=False)
        return Deferred(self._warm(parts)) if answer is None else answer

    def wait(self) -> Awaitable[Answer]:
        """The answer once a partition makes enough progress, or time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._release()

        def try_complete(expired: bool) -> bool:
            if future.done():
                return True
            if not self.read(may_wait=True) and not expired:
                self._release()
                return False
            future.set_result(None)
            return True

        operation = DelayedOperation(
            loop, self._partitions(), self._request.max_wait_ms / 1000, try_complete
        )
        future.add_done_callback(lambda _: operation.cancel())
        return self._answer_after(future)

    async def _answer_after(self, future: "asyncio.Future[None]") -> Answer:
        try:
            await future
        except asyncio.CancelledError:
            self._release()  # records may have been found in the same turn
            raise
        answer = self.answer()
        return await answer.answer if isinstance(answer, Deferred) else answer

    async def _warm(self, parts: list[bytes | RecordsSlot]) -> Answer:
        slices: list[LogSlice] = [part.records for part in parts if not isinstance(part, bytes)]
        try:
            for one in slices:
                await self._services.runtime.offload.run(warm, one)
            return _load(parts, may_wait=True)
        except BaseException:
            for one in slices:
                one.release()
            raise

    def _partitions(self) -> list[Partition]:
        found = []
        for topic, asked in self._context.wanted:
            name = topic if isinstance(topic, str) else self._services.topic_name(topic)
            partition = self._services.replicas.partitions.get((name or "", asked.partition))
            if partition is not None:
                found.append(partition)
        return found

    def _read_one(
        self,
        topic: TopicKey,
        asked: FetchPartition,
        bytes_left: int,
        *,
        at_least_one: bool,
        may_wait: bool,
    ) -> FetchPartitionResult:
        services = self._services
        request = self._request
        partition = None
        try:
            if isinstance(topic, str):
                partition = services.replicas.partition(topic, asked.partition)
            else:
                name = services.topic_name(topic)
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                partition = services.replicas.partition(name, asked.partition)
            if self._errors and (topic, asked.partition) in self._errors:
                raise self._errors[topic, asked.partition]
            bytes_max = min(asked.partition_max_bytes, bytes_left)
            read = partition.read(
                asked.fetch_offset,
                bytes_max if bytes_max > 0 else 0,
                isolation=_ISOLATIONS[request.isolation_level],
                at_least_one=at_least_one,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                replica_id=request.replica_id,
                may_wait=may_wait,
            )
        except KafkaError as error:
            leader = None
            knows_leader = self._header.api_version >= LEADER_FROM
            if partition is not None and error.code in _LEADER_ERRORS and knows_leader:
                leader = (partition.state.leader, partition.leader_epoch)
            return FetchPartitionResult(
                asked.partition,
                int(error.code),
                aborted_transactions=() if partition is None else None,
                current_leader=leader,
            )
        records = read.records
        length = 0
        if records is not None and records.length:
            length = records.length
            self._slices.append(records)
        return FetchPartitionResult(
            asked.partition,
            _ERROR_NONE,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            records,
            length,
            read.aborted,
            -1,
            read.diverging,
        )

    def _encode(self) -> list[bytes | RecordsSlot]:
        context = self._context
        session = context.session
        topics: dict[TopicKey, list[FetchPartitionResult]] = {}
        metrics, known = self._services.metrics, self._services.image.topics
        counted = metrics.topics
        for topic, result in self._results:
            if session is None or session.is_news(topic, result) or not context.is_incremental:
                topics.setdefault(topic, []).append(result)
            name = topic if isinstance(topic, str) else self._services.topic_name(topic)
            if name is None:
                continue
            counters = counted.get(name) or metrics.topic(name, known)
            if counters is not None:
                counters.fetch_requests += 1
                counters.bytes_out += result.records_length
                counters.failed_fetch_requests += result.error_code != _ERROR_NONE
        self._slices = []
        header = self._header
        return encode_fetch_response_parts(
            header.api_version,
            header.correlation_id,
            0,
            _ERROR_NONE,
            context.session_id,
            list(topics.items()),
        )

    def _release(self) -> None:
        for one in self._slices:
            one.release()
        self._slices = []


def _load(parts: list[bytes | RecordsSlot], *, may_wait: bool) -> Answer:
    """The answer with small ranges copied in; None if it would wait for the disk and may not.

    Ranges that were copied are released, the others once they are sent.
    """
    answer: list[Part] = []
    plain: list[bytes | bytearray] = []
    copied: list[LogSlice] = []
    for part in parts:
        if isinstance(part, bytes):
            plain.append(part)
            continue
        records: LogSlice = part.records
        if part.length > SMALL_BYTES_MAX:
            if not may_wait and not records.is_resident():
                return None
            answer += plain
            plain.clear()
            answer.append(
                FileRange(records.file, records.position, records.length, records.release)
            )
            continue
        read = records.file.pread if may_wait else records.file.pread_resident
        data = read(part.length, records.position)
        if data is None:
            return None
        if len(data) != part.length:
            raise InvariantError(f"{records.file.path} lacks bytes at {records.position}")
        plain.append(data)
        copied.append(records)
    for records in copied:
        records.release()
    return [*answer, *plain] if answer else b"".join(plain)
