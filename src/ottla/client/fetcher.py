"""Raw record batches of one partition, in order, with the next fetch already under way.

The broker answers one fetch while the client decodes the answer before it, so that neither waits
for the other. Where the next fetch begins is known as soon as an answer has arrived: it follows
from the headers of its batches, before any record is looked at.

An answer begins with the batch that holds the wanted offset, so its first records may lie below it,
and it may end in the middle of a batch: what is cut off comes again.

Shell over one connection, which it must have for itself until it is closed or exhausted: it belongs
to the thread of its client. The records of a chunk are valid until the next chunk is asked for.
"""

from collections.abc import Iterator
from struct import Struct
from time import monotonic
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.config import PARTITION_FETCH_BYTES
from ottla.client.connection import Connection, Frame
from ottla.client.errors import CorruptBatch, code_of, is_retriable
from ottla.client.fetch_response import (
    TOPIC_ID_VERSION,
    AbortedTransaction,
    FetchedPartition,
    parse_fetch_response,
)
from ottla.client.metadata import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
)
from ottla.protocol.errors import ErrorCode, KafkaError

_SESSIONLESS_EPOCH = -1  # the broker keeps nothing between two fetches
_BASE_AND_LENGTH = Struct(">qi")
_INT = Struct(">i")
_HEAD_BYTES = 4096


class Chunk(NamedTuple):
    """The whole batches of one answer; none if the broker had nothing to send in time."""

    records: memoryview
    next_offset: int
    aborted_transactions: tuple[AbortedTransaction, ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class PartitionFetcher:
    """Fetches [start_offset, end_offset) of one partition; without an end, for ever.

    `poll_timeout_ms` bounds how long it goes on without any progress; None waits for ever.
    """

    def __init__(
        self,
        client: Client,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int | None = None,
        *,
        poll_timeout_ms: int | None = None,
    ) -> None:
        self._client = client
        self._topic_partition = topic_partition
        self._offset = start_offset
        self._end_offset = end_offset
        self._poll_timeout_ms = poll_timeout_ms
        # A short range needs no more than Kafka's default; a long one is then fetched in pieces as
        # large as they may be, as each piece costs the broker and this process the same again.
        self._partition_bytes = min(PARTITION_FETCH_BYTES, client.config.partition_fetch_bytes)
        # Answers hold at most what was asked for, or one batch that is larger, and some head.
        self._buffer = bytearray(self._partition_bytes + _HEAD_BYTES)
        self._connection: Connection | None = None
        self._sent_offset: int | None = None
        self._replica: int | None = None  # the follower that the leader sent us to

    @property
    def next_offset(self) -> int:
        """The offset from which the next chunk will be."""
        return self._offset

    def __iter__(self) -> Iterator[Chunk]:
        """Chunks up to the end offset; the fetcher is closed whatever happens."""
        try:
            while self._end_offset is None or self._offset < self._end_offset:
                yield self.next_chunk()
        finally:
            self.close()

    def next_chunk(self) -> Chunk:
        """The next chunk that holds a batch; REQUEST_TIMED_OUT if none came in time.

        OFFSET_OUT_OF_RANGE goes to the caller, who alone knows what it means.
        """
        timeout_ms = self._poll_timeout_ms
        deadline = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        while True:
            chunk = self._client.retrying(self._attempt, timeout_ms=timeout_ms)
            if len(chunk.records):
                return chunk
            if deadline is not None and monotonic() >= deadline:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{self._topic_partition} sent nothing from offset {self._offset} on within "
                    f"{timeout_ms} ms; it ends at {chunk.high_watermark}",
                )

    def close(self) -> None:
        """Give up what is under way. An answer still to come makes its connection useless."""
        connection, self._connection = self._connection, None
        self._sent_offset = None
        if connection is not None and connection.pending_count:
            connection.close()

    def _attempt(self) -> Chunk:
        try:
            if self._sent_offset != self._offset or self._connection is None:
                self.close()
                self._send()
            return self._receive()
        except KafkaError as error:
            self.close()
            self._replica = None
            if is_retriable(error):
                self._client.forget_topic(self._topic_partition.topic)
            raise

    def _send(self) -> None:
        topic, partition = self._topic_partition
        client, config = self._client, self._client.config
        known = client.partition(topic, partition)
        leader = client.leader(topic, partition)
        connection = client.broker(leader if self._replica is None else self._replica)
        topic_id = client.topic(topic).topic_id
        highest = None if topic_id is not None else TOPIC_ID_VERSION - 1
        version = connection.version_of(ApiKey.FETCH, highest=highest)
        fields = {
            "replica_id": -1,
            "max_wait": config.fetch_wait_ms,
            "min_bytes": config.fetch_bytes_min,
            "max_bytes": max(config.fetch_bytes, self._partition_bytes),
            "isolation_level": int(config.is_read_committed),
            "session_id": 0,
            "session_epoch": _SESSIONLESS_EPOCH,
            "topics": [
                {
                    "topic": topic,
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": known.leader_epoch,
                            "fetch_offset": self._offset,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": self._partition_bytes,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": config.client_rack,
        }
        connection.send(ApiKey.FETCH, fields, version=version)
        self._connection = connection
        self._sent_offset = self._offset

    def _receive(self) -> Chunk:
        """The answer under way; the fetch after it is sent before this returns."""
        if self._connection is None:
            raise ValueError("nothing is under way")
        frame = self._connection.receive(
            self._buffer, extra_wait_ms=self._client.config.fetch_wait_ms
        )
        self._sent_offset = None
        if len(frame.data) > len(self._buffer):
            self._buffer = bytearray(len(frame.data))
        answer = self._only_partition(frame)
        self._raise_for(answer.error_code)
        size, next_offset = whole_batches(self._topic_partition, answer.records)
        if not size:
            self._on_nothing_whole(answer)
        elif next_offset <= self._offset:
            raise self._corrupt(f"the broker sent batches up to {next_offset - 1}")
        else:
            self._offset = next_offset
            if self._end_offset is None or next_offset < self._end_offset:
                self._grow()
                self._send()
        return Chunk(
            answer.records[:size],
            self._offset,
            answer.aborted_transactions,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
        )

    def _grow(self) -> None:
        """Ask for all that the configuration allows from now on."""
        bytes_max = self._client.config.partition_fetch_bytes
        if self._partition_bytes < bytes_max:
            self._partition_bytes = bytes_max
            self._buffer = bytearray(bytes_max + _HEAD_BYTES)

    def _on_nothing_whole(self, answer: FetchedPartition) -> None:
        if len(answer.records):
            # Brokers send a first batch whole whatever its size (KIP-74).
            raise self._corrupt(f"the broker sent {len(answer.records)} bytes, less than it claims")
        if answer.preferred_read_replica >= 0:
            self._replica = answer.preferred_read_replica
            self._connection = None

    def _only_partition(self, frame: Frame) -> FetchedPartition:
        try:
            response = parse_fetch_response(frame.version, frame.data, frame.body_start)
        except KafkaError as error:
            raise self._corrupt(str(error)) from error
        self._raise_for(response.error_code)
        answers = [answer for topic in response.topics for answer in topic.partitions]
        if len(answers) == 1 and answers[0].partition == self._topic_partition.partition:
            return answers[0]
        raise self._corrupt(f"the broker answered for {len(answers)} partitions")

    def _raise_for(self, number: int) -> None:
        code = code_of(number)
        if code is ErrorCode.CORRUPT_MESSAGE:
            raise self._corrupt(f"the broker says so ({code.name})")
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{self._topic_partition} at offset {self._offset}: {code.name}")

    def _corrupt(self, why: str) -> CorruptBatch:
        return CorruptBatch(self._topic_partition, self._offset, why)


def whole_batches(topic_partition: TopicPartition, records: memoryview) -> tuple[int, int]:
    """How many bytes of `records` are whole batches, and the offset after the last of them.

    CorruptBatch if a length is one that no batch can have, or the message format not the one read.
    """
    position, end = 0, len(records)
    last = -1
    unpack = _BASE_AND_LENGTH.unpack_from
    while end - position >= HEADER_BYTES:
        base, length = unpack(records, position)
        magic = records[position + MAGIC_AT]
        if length < LENGTH_MIN or magic != MAGIC:
            why = f"it has {length} bytes and message format {magic}; only format {MAGIC} is read"
            raise CorruptBatch(topic_partition, base, why)
        following = position + LOG_OVERHEAD_BYTES + length
        if following > end:
            break
        last, position = position, following
    if last < 0:
        return 0, -1
    base_offset = unpack(records, last)[0]
    delta = _INT.unpack_from(records, last + LAST_OFFSET_DELTA_AT)[0]
    return position, base_offset + delta + 1
