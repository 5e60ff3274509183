"""What cleaning leaves of one batch: all of it, some records, its header alone, or nothing.

Offsets never change. A batch that loses records keeps its base offset, its last offset and
with it its last sequence number; a batch that loses all of them goes, unless its header is
what a producer's next sequence or epoch is checked against after the log is read again, or
what says where the log ends.

A tombstone must stay readable for delete.retention.ms after it was first cleaned, so that a
reader who is that far behind learns of the deletion. That time is written into the batch
itself: the base timestamp becomes the delete horizon, and an attribute bit says so (KIP-534).
Times relative to it are written anew; otherwise the bytes of kept records are copied as they
are, which is what makes cleaning fast.

Pure, but for the codec libraries that it loads. Generators yield between runs of records, so that
the shell can let others run.
"""

from collections.abc import Generator, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.protocol.batches import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    ControlType,
    build_batch,
    iter_records,
    parse_control_key,
    read_varint,
    read_varlong,
    write_crc,
)
from ottla.protocol.codecs import Codec, compress, decompress
from ottla.storage.core.compaction_map import DIGEST_BYTES, OffsetMap, compact_key, walk_records
from ottla.storage.core.compaction_transactions import CleanedTransactions

# So many records take about a quarter of a millisecond.
PAUSE_RECORDS = 256


class LastOfProducer(NamedTuple):
    """What a log remembers of a producer, and must find again in its batches."""

    last_data_offset: int | None  # None if its last batch is a marker
    producer_epoch: int


class Retained(NamedTuple):
    """A batch of the cleaned log."""

    batch: bytes | bytearray | memoryview
    last_offset: int
    max_timestamp_ms: int


class FilterStatistics:
    __slots__ = ("records_kept", "records_read", "records_without_key")

    def __init__(self) -> None:
        self.records_read = 0
        self.records_kept = 0
        self.records_without_key = 0


class BatchFilter:
    """Decides batch by batch, in the order of the log, what stays of it."""

    __slots__ = (
        "_decompressed_bytes_max",
        "_delete_retention_ms",
        "_end_offset",
        "_map",
        "_now_ms",
        "_producers",
        "_transactions",
        "statistics",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        *,
        producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
        round_end_offset: int,
        decompressed_bytes_max: int,
        statistics: FilterStatistics | None = None,
    ) -> None:
        """`round_end_offset` is the first offset that must not be cleaned."""
        self._map = offset_map
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._end_offset = round_end_offset
        self._decompressed_bytes_max = decompressed_bytes_max
        self.statistics = statistics or FilterStatistics()

    def filter(
        self, header: BatchHeader, batch: memoryview
    ) -> Generator[int, None, Retained | None]:
        """What stays of `batch`; None if nothing does."""
        self.statistics.records_read += header.records_count
        must_stay = header.next_offset == self._end_offset or self._is_last_of_producer(header)
        if header.attributes & CONTROL_MASK:
            return self._filter_control(header, batch, must_stay)
        if self._transactions.on_data_batch(header):
            return self._emptied(header) if must_stay else None
        return (yield from self._filter_data(header, batch, must_stay))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _filter_control(
        self, header: BatchHeader, batch: memoryview, must_stay: bool
    ) -> Retained | None:
        is_removable = self._transactions.on_control_batch(header, _control_type(header, batch))
        horizon_ms = header.delete_horizon_ms
        is_over = is_removable and horizon_ms is not None and horizon_ms <= self._now_ms
        if is_over or not header.records_count:
            return self._emptied(header) if must_stay else None
        self.statistics.records_kept += header.records_count
        if is_removable and horizon_ms is None:
            return self._with_delete_horizon(header, batch, None)
        return _as_it_is(header, batch)

    def _filter_data(
        self, header: BatchHeader, batch: memoryview, must_stay: bool
    ) -> Generator[int, None, Retained | None]:
        codec = header.attributes & CODEC_MASK
        section = batch[HEADER_BYTES:]
        data = (
            bytes(section)
            if not codec or not header.records_count
            else decompress(header.codec, section, size_max=self._decompressed_bytes_max)
        )
        offsets, latest_offset = self._map.offsets.get, self._map.latest_offset
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        base_offset = header.base_offset
        kept: list[tuple[int, int, int]] = []
        keep = kept.append
        has_tombstones = False
        walk = walk_records(data, header.records_count)
        for _ in range(0, header.records_count + 1, PAUSE_RECORDS):
            for start, end, delta, key, has_value in islice(walk, PAUSE_RECORDS):
                offset = base_offset + delta
                if offset <= latest_offset:
                    if key is None:
                        self.statistics.records_without_key += 1
                        continue
                    if offsets(key if len(key) < DIGEST_BYTES else compact_key(key), -1) > offset:
                        continue
                    if not has_value and not keeps_tombstones:
                        continue
                if not has_value:
                    has_tombstones = True
                keep((start, end, offset))
            yield 0
        self.statistics.records_kept += len(kept)
        if not kept:
            return self._emptied(header) if must_stay else None
        # Where the map ends inside the batch, older records of its last keys are still there:
        # its tombstones have not begun to age.
        is_covered = header.last_offset <= latest_offset
        if has_tombstones and horizon_ms is None and is_covered:
            return self._with_delete_horizon(header, batch, {offset for _, _, offset in kept})
        if len(kept) == header.records_count:
            return _as_it_is(header, batch)
        return _thinned(header, data, kept)

    def _with_delete_horizon(
        self, header: BatchHeader, batch: memoryview, offsets: set[int] | None
    ) -> Retained:
        """The records at `offsets`, or all, with the time at which tombstones may go."""
        records = [
            record
            for record in iter_records(batch, decompressed_bytes_max=self._decompressed_bytes_max)
            if offsets is None or record.offset in offsets
        ]
        rebuilt = build_batch(
            records,
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            last_offset_delta=header.last_offset_delta,
            delete_horizon_ms=self._now_ms + self._delete_retention_ms,
        )
        latest_ms = max(record.timestamp_ms for record in records)
        return Retained(rebuilt, header.last_offset, latest_ms)

    def _emptied(self, header: BatchHeader) -> Retained:
        """The header alone, which still tells offsets, sequence and epoch."""
        flags = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
        batch = _packed(
            header, b"", header.attributes & flags, NO_TIMESTAMP, header.max_timestamp, 0
        )
        return Retained(batch, header.last_offset, header.max_timestamp)


def _control_type(header: BatchHeader, batch: memoryview) -> ControlType | None:
    """None where there is no record any more. A type that Kafka has not given out stays."""
    for record in iter_records(batch):
        control_type = parse_control_key(record.key)
        return ControlType.LEADER_CHANGE if control_type is None else control_type
    return None


def _as_it_is(header: BatchHeader, batch: memoryview) -> Retained:
    return Retained(batch, header.last_offset, header.max_timestamp)


def _thinned(header: BatchHeader, data: bytes, kept: list[tuple[int, int, int]]) -> Retained:
    """Some records of a batch, byte for byte: they are relative to what does not change."""
    body = b"".join([data[start:end] for start, end in _runs(kept)])
    max_timestamp_ms = header.max_timestamp
    if not header.attributes & TIMESTAMP_TYPE_MASK:
        deltas = [_timestamp_delta(data, start, end) for start, end, _ in kept]
        max_timestamp_ms = header.base_timestamp + max(deltas)
    if header.codec is not Codec.NONE:
        body = compress(header.codec, body)
    batch = _packed(
        header, body, header.attributes, header.base_timestamp, max_timestamp_ms, len(kept)
    )
    return Retained(batch, header.last_offset, max_timestamp_ms)


def _runs(kept: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Places of kept records, neighbours joined."""
    runs: list[tuple[int, int]] = []
    run_start, run_end, _ = kept[0]
    for start, end, _ in kept:
        if start > run_end:
            runs.append((run_start, run_end))
            run_start = start
        run_end = end
    runs.append((run_start, run_end))
    return runs


def _timestamp_delta(data: bytes, start: int, end: int) -> int:
    _, pos = read_varint(data, start, end)
    return read_varlong(data, pos + 1, end)[0]


def _packed(
    header: BatchHeader,
    body: bytes,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    records_count: int,
) -> bytearray:
    batch = bytearray(HEADER_BYTES + len(body))
    batch[HEADER_BYTES:] = body
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        header.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        records_count,
    )
    write_crc(batch, 0)
    return batch
