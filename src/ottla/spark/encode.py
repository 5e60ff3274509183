"""How Arrow batches become Kafka record batches, a partition at a time.

Rows of one Arrow batch go to many partitions; a partition wants few, large batches. So each
partition has an open batch that grows over Arrow batches and is handed on when it is full. A
batch says nothing yet about who produces it: whoever publishes it writes producer id, epoch and
sequence into it, and makes its CRC follow (`client/transactions.py`).

Owned by one task; pure but for the clock and the consumer of batches that it is given.

Invariants: the records of one target leave in the order of its rows; a finished batch holds at
most `batch_bytes_max` bytes before compression, unless one record alone is larger; open batches
together stay below `OPEN_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from ottla.protocol.batches import ATTRIBUTES_AT, CRC_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES
from ottla.protocol.codecs import Codec, compress
from ottla.spark.arrow_columns import (
    NO_BYTES,
    NO_COLUMN,
    NO_HEADERS,
    Bytes,
    HeadersColumn,
    VariableColumn,
    headers_column,
    int32_column,
    variable_column,
)
from ottla.spark.partitioner import Partitioning

pc: Any = import_module("pyarrow.compute")

OPEN_BYTES_MAX = 64 << 20  # a task must not grow with the number of partitions it writes to
_BUFFER_BYTES_FIRST = 16_384
_NO_INT32: npt.NDArray[np.int32] = np.empty(0, np.int32)
_NO_INT32.flags.writeable = False

Numbers = npt.NDArray[np.int64]


class Target(NamedTuple):
    topic: str
    partition: int


class EncodedBatch(NamedTuple):
    """A finished batch. `data` is valid only until the consumer returns."""

    target: Target
    data: memoryview
    records: int


class EncodeError(ValueError):
    """Rows that cannot be written as they are; the sentence says what to change."""


class _OpenBatch(NamedTuple):
    buffer: Bytes
    timestamp_ms: int


@dataclass(slots=True)
class _OpenState:
    """By target, for the compiled function: where the open batch lies and how far it got.

    A target without an open batch has no room, so its first record makes one.
    """

    addresses: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    positions: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    limits: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    records: Numbers = field(default_factory=lambda: np.empty(0, np.int64))

    def add_targets(self, count: int) -> None:
        more = np.zeros(count, np.int64)
        self.addresses = np.append(self.addresses, more)
        self.positions = np.append(self.positions, more)
        self.limits = np.append(self.limits, more)
        self.records = np.append(self.records, more)

    def use(self, target: int, buffer: Bytes, position: int) -> None:
        """Have records of the target written into this buffer from now on."""
        self.addresses[target] = buffer.ctypes.data
        self.positions[target] = position
        self.limits[target] = len(buffer)

    def close(self, target: int) -> None:
        self.positions[target] = self.limits[target] = self.records[target] = 0


@dataclass(slots=True)
class _Topics:
    """The topics seen so far; their partitions are numbered through as targets."""

    number: dict[str, int] = field(default_factory=dict)
    partitions: list[int] = field(default_factory=list)
    first_target: list[int] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)


class BatchEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        *,
        topic: str | None,
        partitions_of: Callable[[str], int],
        consume: Callable[[EncodedBatch], None],
        now_ms: Callable[[], int],
        partitioning: Partitioning = Partitioning.BY_KEY,
        sticky_start: int = 0,
        with_headers: bool = False,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        batch_bytes_max: int,
        record_bytes_max: int,
    ) -> None:
        """`topic` takes every row; without it the column `topic` decides."""
        self._topic = topic
        self._partitions_of = partitions_of
        self._consume = consume
        self._now_ms = now_ms
        self._partitioning = partitioning
        self._sticky_start = sticky_start
        self._with_headers = with_headers
        self._codec = codec
        self._level = level
        self._batch_bytes_max = batch_bytes_max
        self._record_bytes_max = record_bytes_max
        self._topics = _Topics()
        self._sticky_partition: Numbers = np.empty(0, np.int64)
        self._sticky_bytes: Numbers = np.empty(0, np.int64)
        self._open: dict[int, _OpenBatch] = {}
        self._state = _OpenState()
        self._open_bytes = 0
        self._spare: list[Bytes] = []  # of the largest size; fresh memory costs as much as a copy
        self.records = 0

    def add(self, batch: Any) -> None:
        """Encode the rows of one Arrow batch."""
        rows = batch.num_rows
        if not rows:
            return
        names = batch.schema.names
        key = _column(batch, "key") if "key" in names else NO_COLUMN
        value = _column(batch, "value")
        headers = NO_HEADERS
        if self._with_headers and "headers" in names:
            headers = _headers(batch)
        targets = self._targets_of(batch, key, value)
        self._write(targets, key, value, headers)
        self.records += rows
        if self._open_bytes > OPEN_BYTES_MAX:
            self.finish()

    def finish(self) -> None:
        """Hand on every open batch."""
        for target in sorted(self._open):
            self._close(target)

    def _targets_of(
        self, batch: Any, key: VariableColumn, value: VariableColumn
    ) -> npt.NDArray[np.int32]:
        from ottla.spark.encode_kernels import choose_targets

        rows = batch.num_rows
        topic_of_row = self._topic_numbers(batch)
        asked, asked_valid, asked_shift = _NO_INT32, NO_BYTES, 0
        if "partition" in batch.schema.names:
            asked, asked_valid, asked_shift = int32_column(batch.column("partition"))
        by_key = self._partitioning is Partitioning.BY_KEY
        moves_always = self._partitioning is Partitioning.ROUND_ROBIN
        targets = np.empty(rows, np.int32)
        bad_row = choose_targets(
            targets,
            topic_of_row,
            np.asarray(self._topics.partitions, np.int64),
            np.asarray(self._topics.first_target, np.int64),
            asked,
            asked_valid,
            asked_shift,
            key.data,
            key.offsets,
            key.valid,
            key.shift,
            value.offsets,
            by_key,
            self._sticky_partition,
            self._sticky_bytes,
            1 if moves_always else self._batch_bytes_max,
        )
        if bad_row >= 0:
            topic = self._topics.number
            number = int(topic_of_row[bad_row])
            name = next(name for name, n in topic.items() if n == number)
            raise EncodeError(
                f"A row asks for partition {int(asked[bad_row])} of topic {name}, which has "
                f"partitions 0 to {self._topics.partitions[number] - 1}."
            )
        return targets

    def _topic_numbers(self, batch: Any) -> npt.NDArray[np.int64]:
        if self._topic is not None:
            self._learn(self._topic)
            return np.zeros(batch.num_rows, np.int64)
        column = batch.column("topic")
        if column.null_count:
            raise EncodeError(
                "A row has no topic: the column 'topic' is null. Fill it, or name one topic for "
                "every row by the option 'topic'."
            )
        encoded = pc.dictionary_encode(column)
        for name in encoded.dictionary.to_pylist():
            self._learn(name)
        numbers = np.array(
            [self._topics.number[n] for n in encoded.dictionary.to_pylist()], np.int64
        )
        indices: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        result: npt.NDArray[np.int64] = numbers[indices]
        return result

    def _learn(self, topic: str) -> None:
        topics = self._topics
        if topic in topics.number:
            return
        partitions = self._partitions_of(topic)
        topics.number[topic] = len(topics.number)
        topics.partitions.append(partitions)
        topics.first_target.append(len(topics.targets))
        topics.targets.extend(Target(topic, partition) for partition in range(partitions))
        self._sticky_partition = np.append(
            self._sticky_partition, np.int64(self._sticky_start % partitions)
        )
        self._sticky_bytes = np.append(self._sticky_bytes, np.int64(0))
        self._state.add_targets(partitions)

    def _write(
        self,
        targets: npt.NDArray[np.int32],
        key: VariableColumn,
        value: VariableColumn,
        headers: HeadersColumn,
    ) -> None:
        from ottla.spark.encode_kernels import write_rows

        state = self._state
        row = 0
        while row < len(targets):
            row, needed = write_rows(
                row,
                targets,
                state.addresses,
                state.positions,
                state.limits,
                state.records,
                *key,
                *value,
                *headers.lists[1:],
                *headers.names[:2],
                *headers.values,
            )
            if row < len(targets):
                self._make_room(int(targets[row]), needed)

    def _make_room(self, target: int, needed: int) -> None:
        """Make a batch for a record of `needed` bytes, grow the open one, or close it if full."""
        if needed + HEADER_BYTES > self._record_bytes_max:
            raise EncodeError(
                f"A record for topic {self._topics.targets[target].topic} takes "
                f"{needed + HEADER_BYTES} bytes, more than kafka.max.request.size allows "
                f"({self._record_bytes_max}); raise it, and max.message.bytes of the topic."
            )
        position = int(self._state.positions[target])
        if self._state.records[target] and position + needed > self._batch_bytes_max:
            self._close(target)
        batch = self._open.get(target)
        if batch is None:
            buffer = self._buffer_for(HEADER_BYTES + needed)
            self._open[target] = _OpenBatch(buffer, self._now_ms())
            self._open_bytes += len(buffer)
            self._state.use(target, buffer, HEADER_BYTES)
            return
        wanted = position + needed
        size = max(wanted, min(len(batch.buffer) * 4, self._batch_bytes_max))
        grown = np.empty(size, np.uint8)
        grown[:position] = batch.buffer[:position]
        self._open_bytes += size - len(batch.buffer)
        self._open[target] = batch._replace(buffer=grown)
        self._state.use(target, grown, position)

    def _buffer_for(self, size: int) -> Bytes:
        """A buffer of the largest size while a few targets are open, else one that will grow."""
        if self._spare and size <= self._batch_bytes_max and self._open_bytes < OPEN_BYTES_MAX // 2:
            return self._spare.pop()
        return np.empty(max(size, min(_BUFFER_BYTES_FIRST, self._batch_bytes_max)), np.uint8)

    def _close(self, target: int) -> None:
        buffer, timestamp_ms = self._open.pop(target)
        position, records = int(self._state.positions[target]), int(self._state.records[target])
        self._state.close(target)
        self._open_bytes -= len(buffer)
        view = buffer.data[:position]
        if self._codec is not Codec.NONE:
            body = compress(self._codec, bytes(view[HEADER_BYTES:]), self._level)
            view = memoryview(bytearray(HEADER_BYTES) + body)
        write_batch_header(view, codec=self._codec, records=records, timestamp_ms=timestamp_ms)
        if len(view) > self._record_bytes_max:
            raise EncodeError(
                f"A batch for topic {self._topics.targets[target].topic} takes {len(view)} bytes, "
                f"more than kafka.max.request.size allows ({self._record_bytes_max})."
            )
        self._consume(EncodedBatch(self._topics.targets[target], view, records))
        is_largest = len(buffer) == self._batch_bytes_max
        if is_largest and (len(self._spare) + 1) * len(buffer) <= OPEN_BYTES_MAX // 2:
            self._spare.append(buffer)


def write_batch_header(view: memoryview, *, codec: Codec, records: int, timestamp_ms: int) -> None:
    """Fill the first 61 bytes of a batch that no producer has claimed yet."""
    HEADER.pack_into(
        view,
        0,
        0,
        len(view) - LOG_OVERHEAD_BYTES,
        -1,
        2,
        0,
        int(codec),
        records - 1,
        timestamp_ms,
        timestamp_ms,
        -1,
        -1,
        -1,
        records,
    )
    view[CRC_AT : CRC_AT + 4] = crc32c(view[ATTRIBUTES_AT:]).to_bytes(4, "big")


def _column(batch: Any, name: str) -> VariableColumn:
    try:
        return variable_column(batch.column(name))
    except ValueError as error:
        raise EncodeError(str(error)) from error


def _headers(batch: Any) -> HeadersColumn:
    try:
        return headers_column(batch.column("headers"))
    except ValueError as error:
        raise EncodeError(str(error)) from error
