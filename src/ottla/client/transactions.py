"""A producer whose every step is placed by its caller: transactions of batches made elsewhere.

librdkafka and Java's producer encode records themselves and hide the requests of a transaction
behind threads. Here a caller has finished batches, perhaps from other machines, and decides when a
producer id is taken, partitions are added and the transaction ends. That order is what makes a
retry after a crash safe, so it must not be hidden.

Requests take the versions in which a client names the partitions of a transaction itself, which
every broker since Kafka 2.5 serves. A step may be repeated within its deadline: all of
them are idempotent for one producer epoch, and batches carry sequence numbers. When a step raises,
what it did is unknown; the way to know is `take_producer_id`, which ends what was left open.

Shell; belongs to the thread of its `Client`.

Invariant: the sequence numbers of a partition are consecutive over acknowledged batches of one
producer epoch, so a broker drops what it already has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from time import monotonic, sleep
from typing import Any, NamedTuple

from ottla.client.client import Client, CoordinatorType
from ottla.client.connection import Connection
from ottla.client.errors import STALE_METADATA, Unreachable, code_of, is_retriable, raise_for
from ottla.client.metadata import TopicPartition, by_topic
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    MAGIC,
    PRODUCER_ID_AT,
    TRANSACTIONAL_MASK,
    check_batch,
    read_header,
)
from ottla.protocol.crc_change import changed_crc
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import decode_response, given

ACKS_ALL = -1
DELIVERY_TIMEOUT_MS = 120_000  # Kafka's default of delivery.timeout.ms
TRANSACTION_TIMEOUT_MS = 60_000  # Kafka's default of transaction.timeout.ms

NO_PRODUCER_ID = -1
IN_FLIGHT_MAX = 5  # a broker remembers the last five batches of a producer, no more
REQUEST_BYTES = 1 << 20  # enough to keep a broker busy, and in one of its read buffers
_SEQUENCE_MASK = 0x7FFFFFFF

# The last versions in which the client itself says which partitions a transaction has.
_PRODUCE_VERSION_MAX = 11
_ADD_PARTITIONS_VERSION_MAX = 3
_TXN_OFFSET_COMMIT_VERSION_MAX = 4
_END_TXN_VERSION_MAX = 4

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_PRODUCER_FIELDS = Struct(">qhi")
_ATTRIBUTES = Struct(">h")
_CRC = Struct(">I")


class ProducerFenced(KafkaError):
    """Another producer has taken the transactional id since."""


class Batch(NamedTuple):
    """A finished batch in memory that may be changed."""

    partition: TopicPartition
    data: memoryview


class MarkedOffset(NamedTuple):
    offset: int
    metadata: str


@dataclass(slots=True)
class _Request:
    """A produce request under way."""

    connection: Connection
    batches: list[Batch]


@dataclass(slots=True)
class _Round:
    """One attempt at delivering batches: what is under way and what must be sent again."""

    under_way: dict[int, deque[_Request]] = field(default_factory=dict)
    again: list[Batch] = field(default_factory=list)
    failed_partitions: set[TopicPartition] = field(default_factory=set)
    reason: KafkaError | None = None

    def fail(self, batches: Iterable[Batch], reason: KafkaError) -> None:
        for batch in batches:
            self.again.append(batch)
            self.failed_partitions.add(batch.partition)
        self.reason = self.reason or reason


class BatchProducer:
    """Produces finished batches, in transactions if it has a transactional id."""

    def __init__(
        self,
        client: Client,
        transactional_id: str | None = None,
        *,
        acks: int = ACKS_ALL,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        in_flight_max: int = IN_FLIGHT_MAX,
        request_bytes: int = REQUEST_BYTES,
    ) -> None:
        """`acks` other than all gives up idempotence: a batch may be written twice."""
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self._acks = acks
        self._transaction_timeout_ms = transaction_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._in_flight_max = max(1, min(in_flight_max, IN_FLIGHT_MAX))
        self._request_bytes = request_bytes
        self._sequences: dict[TopicPartition, int] = {}

    def take_producer_id(self) -> None:
        """InitProducerId: end what the id's last owner left open, and fence that owner."""
        what = "A producer id cannot be taken"
        if self.transactional_id is not None:
            what = f"Transactional id '{self.transactional_id}' cannot be taken"
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": self._transaction_timeout_ms,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": -1,
        }

        def attempt() -> Any:
            node_id = None
            if self.transactional_id is not None:
                node_id = self.client.coordinator(
                    CoordinatorType.TRANSACTION, self.transactional_id
                )
            response = self.client.ask(ApiKey.INIT_PRODUCER_ID, fields, node_id=node_id)
            raise_for(response.error_code, what)
            return response

        response = self.client.retrying(attempt)
        self.producer_id = int(response.producer_id)
        self.producer_epoch = int(response.producer_epoch)
        self._sequences.clear()

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """AddPartitionsToTxn: must come before any batch for these partitions."""
        topics = [
            {"name": topic, "partitions": numbers}
            for topic, numbers in by_topic(partitions).items()
        ]
        if not topics:
            return
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.producer_epoch,
            "v3_and_below_topics": topics,
        }

        def attempt() -> None:
            response = self._ask_coordinator(
                ApiKey.ADD_PARTITIONS_TO_TXN, fields, _ADD_PARTITIONS_VERSION_MAX
            )
            answers = [
                (entry.name, result.partition_index, int(result.partition_error_code))
                for entry in response.results_by_topic_v3_and_below
                for result in entry.results_by_partition
            ]
            # One bad partition fails the others, so its error is the one to tell.
            not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
            for topic, number, code in sorted(answers, key=lambda a: a[2] == not_attempted):
                self._raise_for(code, f"{topic}-{number} cannot join the transaction")

        self.client.retrying(attempt)

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, MarkedOffset]) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit: the offsets count once the transaction commits."""
        self.add_group(group_id)
        self.commit_group_offsets(group_id, offsets)

    def add_group(self, group_id: str) -> None:
        """AddOffsetsToTxn: the group's offsets become part of the transaction."""
        fields = {**self._identity(), "group_id": group_id}

        def attempt() -> None:
            response = self._ask_coordinator(ApiKey.ADD_OFFSETS_TO_TXN, fields, None)
            self._raise_for(response.error_code, f"Group '{group_id}' cannot join the transaction")

        self.client.retrying(attempt)

    def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, MarkedOffset]
    ) -> None:
        """TxnOffsetCommit, as a group without members."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offsets[TopicPartition(topic, number)].offset,
                        "committed_metadata": offsets[TopicPartition(topic, number)].metadata,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(offsets).items()
        ]
        fields = {**self._identity(), "group_id": group_id, "topics": topics}

        def attempt() -> None:
            node_id = self.client.coordinator(CoordinatorType.GROUP, group_id)
            response = self._ask(
                node_id, ApiKey.TXN_OFFSET_COMMIT, fields, _TXN_OFFSET_COMMIT_VERSION_MAX
            )
            for entry in response.topics:
                for answer in entry.partitions:
                    what = f"Group '{group_id}' cannot commit {entry.name}-{answer.partition_index}"
                    self._raise_for(answer.error_code, what)

        self.client.retrying(attempt)

    def end_transaction(self, *, is_commit: bool) -> None:
        """EndTxn: everything of the transaction counts, or nothing of it."""
        fields = {**self._identity(), "committed": is_commit}

        def attempt() -> None:
            response = self._ask_coordinator(ApiKey.END_TXN, fields, _END_TXN_VERSION_MAX)
            self._raise_for(response.error_code, "The transaction cannot be ended")

        self.client.retrying(attempt)

    def produce(self, batches: Iterable[Batch]) -> None:
        """Write the batches, those of a partition in this order; return once all are acknowledged.

        The batches are changed in place: they carry this producer's id and sequence afterwards.
        """
        pending: Sequence[Batch] = [self._claim(batch) for batch in batches]
        deadline = monotonic() + self._delivery_timeout_ms / 1000
        pause_ms = float(self.client.config.retry_backoff_ms)
        in_flight_max = self._in_flight_max
        while pending:
            attempt = _Round()
            try:
                self._deliver(pending, attempt, in_flight_max)
            except BaseException:
                self.client.close()  # answers that are still under way belong to nobody now
                raise
            if not attempt.again:
                return
            reason = attempt.reason or Unreachable("The batches were not acknowledged")
            if monotonic() + pause_ms / 1000 >= deadline:
                raise reason
            if reason.code in STALE_METADATA:
                for topic in {batch.partition.topic for batch in attempt.again}:
                    self.client.forget_topic(topic)
            sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, float(self.client.config.retry_backoff_ms_max))
            order = {id(batch): number for number, batch in enumerate(pending)}
            pending = sorted(attempt.again, key=lambda batch: order[id(batch)])
            in_flight_max = 1  # in order, now that something went wrong

    def _claim(self, batch: Batch) -> Batch:
        if self.producer_id == NO_PRODUCER_ID:
            return batch
        sequence = self._sequences.get(batch.partition, 0)
        count = claim_batch(
            batch.data,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=self.transactional_id is not None,
        )
        self._sequences[batch.partition] = (sequence + count) & _SEQUENCE_MASK
        return batch

    def _deliver(self, batches: Sequence[Batch], attempt: _Round, in_flight_max: int) -> None:
        """Send every batch once; what must be sent again is in `attempt`."""
        building: dict[int, list[Batch]] = {}
        leaders = self._leaders(batches, attempt)
        for batch in batches:
            if batch.partition in attempt.failed_partitions:
                attempt.again.append(batch)  # a later batch must not pass an earlier one
                continue
            leader = leaders[batch.partition]
            request = building.setdefault(leader, [])
            size = sum(len(other.data) for other in request) + len(batch.data)
            if request and (
                size > self._request_bytes
                or any(other.partition == batch.partition for other in request)
            ):
                self._send(leader, building.pop(leader), attempt, in_flight_max)
                building[leader] = request = []
            request.append(batch)
        for leader, request in building.items():
            self._send(leader, request, attempt, in_flight_max)
        for leader in attempt.under_way:
            while attempt.under_way[leader]:
                self._receive(leader, attempt)

    def _leaders(self, batches: Sequence[Batch], attempt: _Round) -> dict[TopicPartition, int]:
        """Who leads the partitions; asked now, as connections are busy once batches are sent."""
        leaders: dict[TopicPartition, int] = {}
        for partition in dict.fromkeys(batch.partition for batch in batches):
            try:
                leaders[partition] = self.client.leader(*partition)
                self.client.broker(leaders[partition])
            except KafkaError as error:
                self._keep_or_raise(attempt, [], error)
                attempt.failed_partitions.add(partition)
        return leaders

    def _send(self, leader: int, batches: list[Batch], attempt: _Round, in_flight_max: int) -> None:
        under_way = attempt.under_way.setdefault(leader, deque())
        while len(under_way) >= in_flight_max:
            self._receive(leader, attempt)
        grouped: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), data in batches:
            grouped.setdefault(topic, []).append({"index": number, "records": data})
        fields = {
            "transactional_id": self.transactional_id,
            "acks": self._acks,
            "timeout": self.client.config.request_timeout_ms,
            "topic_data": [
                {"name": topic, "partition_data": data} for topic, data in grouped.items()
            ],
        }
        try:
            connection = self.client.broker(leader)
            version = connection.version_of(ApiKey.PRODUCE, highest=_PRODUCE_VERSION_MAX)
            if self._acks == 0:
                connection.send_without_answer(ApiKey.PRODUCE, fields, version=version)
                return
            connection.send(ApiKey.PRODUCE, fields, version=version)
        except KafkaError as error:
            self._keep_or_raise(attempt, batches, error)
            return
        under_way.append(_Request(connection, batches))

    def _receive(self, leader: int, attempt: _Round) -> None:
        request = attempt.under_way[leader].popleft()
        if not request.connection.is_open:
            attempt.fail(request.batches, Unreachable("The connection was lost"))
            return
        try:
            frame = request.connection.receive()
        except KafkaError as error:
            self._keep_or_raise(attempt, request.batches, error)
            return
        response = decode_response(frame.api_key, frame.version, frame.data)[1]
        sent = {batch.partition: batch for batch in request.batches}
        for entry in response.responses:
            for answer in entry.partition_responses:
                partition = TopicPartition(entry.name, int(answer.index))
                batch = sent.pop(partition, None)
                if batch is not None:
                    self._on_answer(batch, answer, attempt)
        if sent:
            attempt.fail(sent.values(), Unreachable("The broker did not answer for every batch"))

    def _on_answer(self, batch: Batch, answer: Any, attempt: _Round) -> None:
        code = code_of(int(answer.error_code))
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return
        if code is ErrorCode.CORRUPT_MESSAGE:
            check_batch(batch.data, 0, len(batch.data))  # or it was damaged before it was sent
        message = given(answer, "error_message", None)
        said = f"{code.name}: {message}" if message else code.name
        what = f"A batch for {batch.partition} was refused: {said}"
        follows_failure = batch.partition in attempt.failed_partitions
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and follows_failure:
            attempt.fail([batch], KafkaError(code, what))
            return
        self._keep_or_raise(attempt, [batch], self._error(code, what))

    def _keep_or_raise(self, attempt: _Round, batches: list[Batch], error: KafkaError) -> None:
        """Have the batches sent again, if the error may pass."""
        if not is_retriable(error):
            raise error
        attempt.fail(batches, error)

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def _ask_coordinator(
        self, api_key: ApiKey, fields: Mapping[str, Any], highest: int | None
    ) -> Any:
        if self.transactional_id is None:
            raise ValueError("a producer without transactional id has no transactions")
        node_id = self.client.coordinator(CoordinatorType.TRANSACTION, self.transactional_id)
        return self._ask(node_id, api_key, fields, highest)

    def _ask(
        self, node_id: int, api_key: ApiKey, fields: Mapping[str, Any], highest: int | None
    ) -> Any:
        connection = self.client.broker(node_id)
        version = connection.version_of(api_key, highest=highest)
        return connection.ask(api_key, fields, version=version)

    def _raise_for(self, number: int, what: str) -> None:
        code = code_of(int(number))
        if code is not ErrorCode.NONE:
            raise self._error(code, f"{what}: {code.name}")

    def _error(self, code: ErrorCode, what: str) -> KafkaError:
        return ProducerFenced(code, what) if code in _FENCED else KafkaError(code, what)


def claim_batch(
    data: memoryview,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> int:
    """Write into a batch who produces it, and renew its CRC; how many records it has.

    The records are not read: the CRC follows the change, so what another machine's disk did to
    them is found by the broker.
    """
    header = read_header(data)
    if header.magic != MAGIC or header.size_bytes != len(data):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"A batch claims {header.size_bytes} bytes where there are {len(data)}",
        )
    attributes = header.attributes & ~TRANSACTIONAL_MASK
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    before = bytes(data[ATTRIBUTES_AT:HEADER_BYTES])
    _ATTRIBUTES.pack_into(data, ATTRIBUTES_AT, attributes)
    _PRODUCER_FIELDS.pack_into(data, PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    after = bytes(data[ATTRIBUTES_AT:HEADER_BYTES])
    crc = changed_crc(header.crc, before, after, bytes_behind=len(data) - HEADER_BYTES)
    _CRC.pack_into(data, CRC_AT, crc)
    return header.records_count
