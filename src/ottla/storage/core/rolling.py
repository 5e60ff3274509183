"""When a log closes its active segment and begins another.

Retention and compaction touch whole closed segments only, and indexes count offsets and
positions in 32 bits from a segment's start; so a segment must end by size, by age, when an
index is full, or when the next offset is too far from its first.

Pure. Age is measured between the timestamps of records, not by the clock, so that a replica
that copies an old log does not put years into one segment; the clock counts only for records
without timestamps.
"""

from enum import Enum, auto

from ottla.protocol.ids import Offset
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX


class RollReason(Enum):
    SIZE = auto()
    AGE = auto()
    INDEX_FULL = auto()
    OFFSET_OVERFLOW = auto()


def should_roll(
    *,
    segment_base_offset: Offset,
    segment_size_bytes: int,
    first_batch_timestamp_ms: int | None,
    created_ms: int,
    jitter_ms: int,
    is_index_full: bool,
    append_size_bytes: int,
    append_max_timestamp_ms: int,
    append_last_offset: Offset,
    segment_bytes_max: int,
    segment_ms_max: int,
    now_ms: int,
) -> RollReason | None:
    """Why the append must go to a new segment, None if it may go to this one.

    `first_batch_timestamp_ms` is the largest timestamp of the segment's first batch.
    """
    if segment_size_bytes > segment_bytes_max - append_size_bytes:
        return RollReason.SIZE
    if segment_size_bytes > 0:
        if first_batch_timestamp_ms is not None and first_batch_timestamp_ms >= 0:
            age_ms = append_max_timestamp_ms - first_batch_timestamp_ms
        else:
            age_ms = now_ms - created_ms
        if age_ms > segment_ms_max - jitter_ms:
            return RollReason.AGE
    if is_index_full:
        return RollReason.INDEX_FULL
    if not 0 <= append_last_offset - segment_base_offset <= RELATIVE_OFFSET_MAX:
        return RollReason.OFFSET_OVERFLOW
    return None


def segment_ms_max(*, segment_ms: int, is_compacted: bool, compaction_lag_ms_max: int) -> int:
    """How old a segment may grow: a compacted topic promises a largest delay of compaction."""
    if is_compacted and compaction_lag_ms_max > 0:
        return min(segment_ms, compaction_lag_ms_max)
    return segment_ms


def jitter_bound_ms(*, segment_ms: int, segment_jitter_ms: int) -> int:
    """A segment's jitter is drawn from [0, this), so that partitions do not all roll at once."""
    return min(segment_ms, segment_jitter_ms)
