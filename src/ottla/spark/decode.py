"""From fetched bytes to Arrow record batches: what is skipped, inflated and checked on the way.

The kernels copy fields; this module decides which batches they see. Control batches are not data.
With read_committed the batches of aborted transactions are left out, as the broker's list names
them: a producer's batches are aborted from the listed offset on until its abort marker. Compressed
batches are inflated first, within a bound. CRCs are checked, unless check.crcs is off.

Rows of several fetches gather in one Arrow batch of up to ROWS_MAX rows or DATA_BYTES_MAX bytes, as
Spark's cost per batch is high. Buffers come from Arrow's pool, which gives back pages that are
mapped already; fresh pages would cost more than the decoding.

Whatever is wrong with the bytes is a `CorruptBatch` that names topic, partition and offset.
One decoder per partition and thread.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from ottla.client.errors import CorruptBatch
from ottla.client.fetch_response import AbortedTransaction
from ottla.client.metadata import TopicPartition
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    ControlType,
    codec_of,
    iter_records,
    parse_control_key,
)
from ottla.protocol.codecs import decompress
from ottla.protocol.errors import KafkaError
from ottla.spark import decode_kernels as kernels
from ottla.spark.schema import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, HEADERS_TYPE

ROWS_MAX = 10_000  # measured: fewer cost Spark more per row, more cost it its caches
DATA_BYTES_MAX = 16 << 20  # of one column in one Arrow batch, but for a single larger record
INFLATED_BYTES_MAX = 1 << 30  # of one batch; Java can hold no more than twice that

_DATA_BYTES_MIN = 64 << 10
_BATCHES_FIRST = 256
_ALL_VALID = 0xFF

_REASONS = {
    kernels.BAD_VARINT: "a number in a record does not end",
    kernels.BAD_RECORD_LENGTH: "a record's length does not fit into the batch",
    kernels.BAD_FIELD_LENGTH: "a key's or value's length does not fit into its record",
    kernels.BAD_HEADERS: "a record's headers do not fit into it",
    kernels.BAD_RECORD_END: "a record does not end where its length says",
    kernels.BAD_BATCH_END: "the records do not end where the batch does",
    kernels.BAD_OFFSET: "a record's offset lies outside of the batch",
    kernels.BAD_TIMESTAMP: "a record's timestamp is beyond what Spark can hold",
    kernels.BAD_BATCH_LENGTH: "the batch claims fewer bytes than its header has",
    kernels.BAD_MAGIC: "the batch is not of message format 2",
    kernels.BAD_COUNT: "the batch claims more records than it has bytes for",
}


class Fetched(Protocol):
    """What the decoder needs of a fetched chunk."""

    @property
    def records(self) -> memoryview: ...

    @property
    def aborted_transactions(self) -> tuple[AbortedTransaction, ...]: ...


class RecordDecoder:
    """Decodes [start_offset, end_offset) of one partition."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        start_offset: int,
        end_offset: int,
        include_headers: bool = False,
        is_read_committed: bool = False,
        check_crcs: bool = True,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self._topic_partition = topic_partition
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._include_headers = include_headers
        self._is_read_committed = is_read_committed
        self._check_crcs = check_crcs
        self._rows_max = rows_max
        self._table = np.empty((_BATCHES_FIRST, kernels.TABLE_COLUMNS), np.int64)
        self._constants = _ConstantColumns(topic_partition, rows_max)
        self._key_bytes = self._value_bytes = _DATA_BYTES_MIN
        self._columns: _Columns | None = None

    def decode(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """The Arrow batches that `fetched` completes; what is left waits for more, or `finish`."""
        source = np.frombuffer(fetched.records, np.uint8)
        table = self._scan(source)
        if self._check_crcs:
            self._verify_crcs(fetched.records, table)
        source, table = self._select(fetched, source, table)
        yield from self._decode(source, table)
        if self._include_headers:  # they are still in the fetched bytes, which will not last
            last = self.finish(source)
            if last is not None:
                yield last

    def skip_to(self, offset: int) -> None:
        """Leave out what lies below: a batch may hold records from before the log's start."""
        self._start_offset = max(self._start_offset, offset)

    def finish(self, source: Any = None) -> pa.RecordBatch | None:
        """The rows that have not been handed out, if there are any."""
        columns, self._columns = self._columns, None
        if columns is None or columns.rows == 0:
            return None
        key_bytes, value_bytes = columns.data_bytes
        self._key_bytes = _grown(key_bytes, columns.rows, self._rows_max)
        self._value_bytes = _grown(value_bytes, columns.rows, self._rows_max)
        arrays = columns.arrays(self._constants)
        if not self._include_headers:
            return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
        arrays.append(columns.headers(source))
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA_WITH_HEADERS)

    def _scan(self, source: Any) -> Any:
        while True:
            status, batches, at = kernels.scan_batches(source, len(source), self._table)
            if status == kernels.DONE:
                return self._table[:batches]
            if status != kernels.FULL:
                base = int.from_bytes(source[at : at + 8].tobytes(), "big", signed=True)
                raise self._corrupt(base, _REASONS[status])
            rows = len(self._table) * 4
            self._table = np.empty((rows, kernels.TABLE_COLUMNS), np.int64)

    def _verify_crcs(self, records: memoryview, table: Any) -> None:
        columns = table[:, [kernels.START, kernels.END, kernels.CRC]].tolist()
        for row, (start, end, claimed) in enumerate(columns):
            crc = crc32c(records[start + ATTRIBUTES_AT : end])
            if crc != claimed:
                raise self._corrupt(
                    int(table[row, kernels.BASE_OFFSET]),
                    f"its CRC is {crc:#010x}, but it claims {claimed:#010x}",
                )

    def _select(self, fetched: Fetched, source: Any, table: Any) -> tuple[Any, Any]:
        """The batches that hold wanted data, and the bytes in which their records lie."""
        base = table[:, kernels.BASE_OFFSET]
        last = base + table[:, kernels.LAST_OFFSET_DELTA]
        attributes = table[:, kernels.ATTRIBUTES]
        unusual = int(np.bitwise_or.reduce(attributes)) if len(table) else 0
        wanted = (last >= self._start_offset) & (base < self._end_offset)
        if unusual & CONTROL_MASK:
            wanted &= (attributes & CONTROL_MASK) == 0
        if unusual & TRANSACTIONAL_MASK and self._is_read_committed:
            aborted = self._aborted_rows(fetched, table)
            if aborted:
                wanted[aborted] = False
        if not wanted.all():
            table = table[wanted]
            unusual = int(np.bitwise_or.reduce(table[:, kernels.ATTRIBUTES])) if len(table) else 0
        if unusual & CODEC_MASK:
            return self._inflate(source, table)
        return source, table

    def _aborted_rows(self, fetched: Fetched, table: Any) -> list[int]:
        """Which batches belong to transactions that were aborted, as the broker lists them."""
        listed = sorted(fetched.aborted_transactions, key=lambda entry: entry.first_offset)
        following = 0
        producers: set[int] = set()
        rows: list[int] = []
        for row, entry in enumerate(table.tolist()):
            last_offset = entry[kernels.BASE_OFFSET] + entry[kernels.LAST_OFFSET_DELTA]
            while following < len(listed) and listed[following].first_offset <= last_offset:
                producers.add(listed[following].producer_id)
                following += 1
            attributes, producer = entry[kernels.ATTRIBUTES], entry[kernels.PRODUCER_ID]
            if attributes & CONTROL_MASK:
                if producer in producers and self._is_abort_marker(fetched.records, entry):
                    producers.discard(producer)
            elif attributes & TRANSACTIONAL_MASK and producer in producers:
                rows.append(row)
        return rows

    def _is_abort_marker(self, records: memoryview, entry: list[int]) -> bool:
        batch = records[entry[kernels.START] : entry[kernels.END]]
        try:
            return any(
                parse_control_key(record.key) is ControlType.ABORT
                for record in iter_records(batch, decompressed_bytes_max=INFLATED_BYTES_MAX)
            )
        except KafkaError as error:
            raise self._corrupt(entry[kernels.BASE_OFFSET], str(error)) from error

    def _inflate(self, source: Any, table: Any) -> tuple[Any, Any]:
        """The records of every batch, inflated where compressed, one after another."""
        pieces: list[bytes] = []
        position = 0
        for row in table:
            start, end = int(row[kernels.DATA_START]), int(row[kernels.DATA_END])
            section = source[start:end].data
            try:
                codec = codec_of(int(row[kernels.ATTRIBUTES]))
                piece = decompress(codec, section, size_max=INFLATED_BYTES_MAX)
            except KafkaError as error:
                raise self._corrupt(int(row[kernels.BASE_OFFSET]), str(error)) from error
            row[kernels.DATA_START] = position
            position += len(piece)
            row[kernels.DATA_END] = position
            pieces.append(piece)
        joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return np.frombuffer(joined, np.uint8), table

    def _decode(self, source: Any, table: Any) -> Iterator[pa.RecordBatch]:
        cursor = np.zeros(kernels.CURSOR_SIZE, np.int64)
        while True:
            columns = self._columns
            if columns is None:
                columns = self._columns = _Columns(
                    self._rows_max, self._key_bytes, self._value_bytes, self._include_headers
                )
            status = columns.decode(source, table, cursor, self._start_offset, self._end_offset)
            if status == kernels.DONE:
                return
            if status != kernels.FULL:
                base = int(table[cursor[kernels.BATCH], kernels.BASE_OFFSET])
                raise self._corrupt(base, _REASONS[status])
            if columns.rows == 0:  # one record is larger than the buffers
                self._key_bytes = self._value_bytes = int(cursor[kernels.NEEDED_BYTES])
                self._columns = None
                continue
            full = self.finish(source)
            if full is not None:
                yield full

    def _corrupt(self, offset: int, why: str) -> CorruptBatch:
        return CorruptBatch(self._topic_partition, offset, why)


def _grown(used_bytes: int, rows: int, rows_max: int) -> int:
    """Room for the next batch, as this one's rows predict it, and some more."""
    predicted = used_bytes * rows_max // rows
    return min(max(predicted + predicted // 4, _DATA_BYTES_MIN), DATA_BYTES_MAX)


class _Columns:
    """The buffers of one Arrow batch while it fills."""

    def __init__(
        self, rows_max: int, key_bytes: int, value_bytes: int, include_headers: bool
    ) -> None:
        self.rows = 0
        self.data_bytes = (0, 0)
        self._nulls = (0, 0)
        self._keys = _BinaryBuffers(rows_max, key_bytes)
        self._values = _BinaryBuffers(rows_max, value_bytes)
        self._offsets, self._offset_view = _allocate(rows_max, np.int64)
        self._timestamps, self._timestamp_view = _allocate(rows_max, np.int64)
        self._types, self._type_view = _allocate(rows_max, np.int32)
        header_rows = rows_max if include_headers else 0
        self._header_positions = np.empty(header_rows, np.int64)
        self._header_counts = np.empty(header_rows, np.int32)
        self._header_sizes = (0, 0, 0)
        self._written = np.zeros(kernels.CURSOR_SIZE, np.int64)

    def decode(
        self, source: Any, table: Any, cursor: Any, start_offset: int, end_offset: int
    ) -> int:
        """Append what fits; `cursor` remembers where in the table to go on."""
        written = self._written
        written[: kernels.ROWS] = cursor[: kernels.ROWS]
        status: int = kernels.decode_records(
            source,
            table,
            len(table),
            written,
            start_offset,
            end_offset,
            self._keys.offsets_view,
            self._keys.data_view,
            self._keys.validity_view,
            self._values.offsets_view,
            self._values.data_view,
            self._values.validity_view,
            self._offset_view,
            self._timestamp_view,
            self._type_view,
            self._header_positions,
            self._header_counts,
        )
        cursor[: kernels.ROWS] = written[: kernels.ROWS]
        cursor[kernels.NEEDED_BYTES] = written[kernels.NEEDED_BYTES]
        numbers = written.tolist()
        self.rows = numbers[kernels.ROWS]
        self.data_bytes = (numbers[kernels.KEY_BYTES], numbers[kernels.VALUE_BYTES])
        self._nulls = (numbers[kernels.KEY_NULLS], numbers[kernels.VALUE_NULLS])
        self._header_sizes = (
            numbers[kernels.HEADERS],
            numbers[kernels.HEADER_KEY_BYTES],
            numbers[kernels.HEADER_VALUE_BYTES],
        )
        return status

    def arrays(self, constants: "_ConstantColumns") -> list[pa.Array]:
        rows = self.rows
        timestamp_type = ARROW_SCHEMA.field("timestamp").type
        return [
            self._keys.array(pa.binary(), rows, self._nulls[0]),
            self._values.array(pa.binary(), rows, self._nulls[1]),
            constants.topic.slice(0, rows),
            constants.partition.slice(0, rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, self._offsets], 0),
            pa.Array.from_buffers(timestamp_type, rows, [None, self._timestamps], 0),
            pa.Array.from_buffers(pa.int32(), rows, [None, self._types], 0),
        ]

    def headers(self, source: Any) -> pa.Array:
        """The headers of all rows, read from the bytes that they were decoded from."""
        rows = self.rows
        count, key_bytes, value_bytes = self._header_sizes
        keys, values = _BinaryBuffers(count, key_bytes), _BinaryBuffers(count, value_bytes)
        list_offsets, list_view = _allocate(rows + 1, np.int32)
        list_view[0] = 0
        validity, validity_view = _allocate((rows + 7) // 8, np.uint8)
        validity_view.fill(_ALL_VALID)
        empty_rows, nulls, is_ascii = kernels.decode_headers(
            source,
            self._header_positions,
            self._header_counts,
            rows,
            list_view,
            validity_view,
            keys.offsets_view,
            keys.data_view,
            values.offsets_view,
            values.data_view,
            values.validity_view,
        )
        key_array = keys.array(pa.string(), count, 0) if is_ascii else keys.lenient_strings(count)
        items = pa.StructArray.from_arrays(
            [key_array, values.array(pa.binary(), count, nulls)],
            fields=list(HEADERS_TYPE.value_type),
        )
        return pa.Array.from_buffers(
            HEADERS_TYPE,
            rows,
            [validity if empty_rows else None, list_offsets],
            empty_rows,
            children=[items],
        )


class _BinaryBuffers:
    """Validity, offsets and data of a column of byte strings."""

    def __init__(self, rows_max: int, data_bytes: int) -> None:
        self._validity, self.validity_view = _allocate((rows_max + 7) // 8, np.uint8)
        self._offsets, self.offsets_view = _allocate(rows_max + 1, np.int32)
        self._data, self.data_view = _allocate(data_bytes, np.uint8)
        self.validity_view.fill(_ALL_VALID)
        self.offsets_view[0] = 0

    def array(self, kind: pa.DataType, rows: int, nulls: int) -> pa.Array:
        validity = self._validity if nulls else None
        return pa.Array.from_buffers(kind, rows, [validity, self._offsets, self._data], nulls)

    def lenient_strings(self, rows: int) -> pa.Array:
        """Strings in which bytes that are not UTF-8 are replaced, as Java does it."""
        given = self.array(pa.binary(), rows, 0).to_pylist()
        return pa.array([item.decode("utf-8", "replace") for item in given], pa.string())


class _ConstantColumns:
    """Columns that are the same for all rows of a partition; batches share them."""

    def __init__(self, topic_partition: TopicPartition, rows_max: int) -> None:
        self.topic = pa.repeat(pa.scalar(topic_partition.topic, pa.string()), rows_max)
        self.partition = pa.repeat(pa.scalar(topic_partition.partition, pa.int32()), rows_max)


def _allocate(items: int, kind: Any) -> tuple[pa.Buffer, Any]:
    """A buffer of Arrow's pool and a view of it."""
    buffer = pa.allocate_buffer(items * np.dtype(kind).itemsize)
    return buffer, np.frombuffer(buffer, kind)
