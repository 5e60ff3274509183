"""Which offset a timestamp leads to (ListOffsets).

Producers' clocks disagree, so timestamps in a log are not in order; "the first record at or
after T" is the first in offset order. The time index says up to which offset nothing is as
late as T, the headers say which batch may hold it, and only that batch is opened.

Functions over segments that the PartitionLog owns. A batch is decompressed within a bound.
"""

from typing import NamedTuple

from ottla.protocol.batches import BatchHeader, iter_records
from ottla.protocol.ids import Offset
from ottla.storage.log_segments import LogSegments
from ottla.storage.segment import Segment


class TimestampAndOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int | None


def find_offset_for_timestamp(
    segments: LogSegments, timestamp_ms: int, *, start_offset: int, decompressed_bytes_max: int
) -> TimestampAndOffset | None:
    """The first record from `start_offset` on whose timestamp is at least `timestamp_ms`."""
    for segment in segments:
        if segment.size == 0 or segment.largest_timestamp_ms() < timestamp_ms:
            continue
        found = _find_in_segment(
            segment,
            timestamp_ms,
            start_offset=start_offset,
            decompressed_bytes_max=decompressed_bytes_max,
        )
        if found is not None:
            return found
    return None


def _find_in_segment(
    segment: Segment, timestamp_ms: int, *, start_offset: int, decompressed_bytes_max: int
) -> TimestampAndOffset | None:
    indexed = segment.time_index.lookup(timestamp_ms)
    offset = max(indexed.offset, start_offset)
    position = segment.offset_index.lookup(Offset(offset)).position
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        batch = segment.batch_at(at, header)
        for record in iter_records(batch, decompressed_bytes_max=decompressed_bytes_max):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return TimestampAndOffset(record.timestamp_ms, record.offset, _epoch_of(header))
    return None


def find_max_timestamp(
    segments: LogSegments, *, decompressed_bytes_max: int
) -> TimestampAndOffset | None:
    """The first record that has the largest timestamp of the log."""
    latest = max(segments, key=lambda segment: segment.max_timestamp.timestamp_ms)
    largest = latest.max_timestamp
    if largest.timestamp_ms < 0:
        return None
    position = latest.offset_index.lookup(largest.offset).position
    for at, header in latest.headers(position):
        if header.max_timestamp != largest.timestamp_ms:
            continue
        batch = latest.batch_at(at, header)
        for record in iter_records(batch, decompressed_bytes_max=decompressed_bytes_max):
            if record.timestamp_ms == largest.timestamp_ms:
                return TimestampAndOffset(record.timestamp_ms, record.offset, _epoch_of(header))
    return None


def _epoch_of(header: BatchHeader) -> int | None:
    epoch = header.partition_leader_epoch
    return epoch if epoch >= 0 else None
