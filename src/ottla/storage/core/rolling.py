"""When a log closes its active segment and begins another.

Retention and compaction touch whole closed segments only, and indexes count offsets and
positions in 32 bits from a segment's start; so a segment must end by size, by age, when an
index is full, or when the next offset is too far from its first.

Pure. Age is measured between the timestamps of records, not by the clock, so that a replica
that copies an old log does not put years into one segment; the clock counts only for records
without timestamps.
"""

from enum import Enum, auto
from typing import NamedTuple

from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX

NEVER_MS = (1 << 63) - 1


class RollReason(Enum):
    SIZE = auto()
    AGE = auto()
    INDEX_FULL = auto()
    OFFSET_OVERFLOW = auto()


class AgeLimits(NamedTuple):
    """How late a batch may be, by its timestamp and by the clock, and still belong to a segment."""

    timestamp_ms_max: int
    wall_ms_max: int


def age_limits(
    *, size_bytes: int, first_batch_timestamp_ms: int, created_ms: int, age_ms_max: int
) -> AgeLimits:
    """They are known once a segment has its first batch, and spare work with all later ones.

    `first_batch_timestamp_ms` is the largest timestamp of the segment's first batch.
    """
    if not size_bytes:
        return AgeLimits(NEVER_MS, NEVER_MS)
    if first_batch_timestamp_ms >= 0:
        return AgeLimits(first_batch_timestamp_ms + age_ms_max, NEVER_MS)
    return AgeLimits(NEVER_MS, created_ms + age_ms_max)


def should_roll(
    *,
    size_bytes: int,
    size_bytes_max: int,
    limits: AgeLimits,
    is_index_full: bool,
    base_offset: int,
    append_bytes: int,
    append_timestamp_ms: int,
    append_last_offset: int,
    now_ms: int,
) -> RollReason | None:
    """Why an append must go to a new segment, None if it may go to this one."""
    if size_bytes + append_bytes > size_bytes_max:
        return RollReason.SIZE
    if append_timestamp_ms > limits.timestamp_ms_max or now_ms > limits.wall_ms_max:
        return RollReason.AGE
    if is_index_full:
        return RollReason.INDEX_FULL
    if not 0 <= append_last_offset - base_offset <= RELATIVE_OFFSET_MAX:
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
