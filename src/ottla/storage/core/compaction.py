"""Which part of a compacted log is to be cleaned, how urgently, and in which pieces.

A log is clean up to its checkpoint and dirty behind it. Cleaning costs a read of the dirty part
and a copy of the whole, so a log is cleaned when enough of it is dirty, or when a record has
waited for max.compaction.lag.ms. Not everything dirty may be cleaned: the active segment is
still written to, records at or above the last stable offset may yet be aborted or lost,
records younger than min.compaction.lag.ms are promised to readers, and what is not synced yet
has no durable copy to fall back on.

Segments are copied in groups, each of which becomes one segment, so that a log that shrinks
does not end as thousands of small files.

Pure.

Invariant: first_dirty_offset <= first_uncleanable_offset, and the latter is the base offset
of a segment unless it equals the former.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.protocol.ids import Offset
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX
from ottla.storage.core.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

# A time index keeps a slot for the end of its segment, and rounding may cost one more.
_SPARE_ENTRIES = 2


class CompactionSegment(NamedTuple):
    base_offset: Offset
    size_bytes: int


class CompactionBounds(NamedTuple):
    """How far a log may be cleaned, and what decides whether it should be."""

    checkpoint: Offset | None  # up to where it was cleaned last, exclusive
    log_start_offset: Offset
    log_end_offset: Offset
    last_stable_offset: Offset
    synced_end_offset: Offset
    min_lag_ms: int
    max_lag_ms: int


class CleanableLog(NamedTuple):
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int  # by how much max.compaction.lag.ms is exceeded; 0 if it is not

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, dirty_ratio_min: float) -> bool:
        """Whether cleaning it is worth its cost now."""
        if self.delay_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.dirty_ratio > dirty_ratio_min


def decide_cleanable(
    segments: Sequence[CompactionSegment],
    bounds: CompactionBounds,
    *,
    now_ms: int,
    largest_timestamp_ms: Callable[[int], int],
    first_timestamp_ms: Callable[[int], int],
) -> CleanableLog:
    """What of a log may be cleaned now. `segments` are in order, the last one is active.

    The timestamps of a segment are asked for by its place, as they may have to be read.
    """
    bases = [segment.base_offset for segment in segments]
    active = len(segments) - 1
    first_dirty = _first_dirty(bounds)
    first_dirty_at = max(bisect_right(bases, first_dirty) - 1, 0)
    uncleanable = min(bounds.last_stable_offset, bounds.synced_end_offset, bases[active])
    uncleanable_at = max(bisect_right(bases, uncleanable) - 1, 0)
    if bounds.min_lag_ms > 0:
        for at in range(first_dirty_at, uncleanable_at):
            if largest_timestamp_ms(at) > now_ms - bounds.min_lag_ms:
                uncleanable_at = at
                break
    end_offset = bases[uncleanable_at]
    delay_ms = 0
    clean_until_ms = now_ms - bounds.max_lag_ms
    if clean_until_ms > 0:
        stamps = [first_timestamp_ms(at) for at in range(first_dirty_at, active)]
        earliest_ms = min((stamp for stamp in stamps if stamp > 0), default=clean_until_ms)
        delay_ms = max(clean_until_ms - earliest_ms, 0)
    if end_offset <= first_dirty:
        clean = sum(segment.size_bytes for segment in segments[: first_dirty_at + 1])
        return CleanableLog(first_dirty, first_dirty, clean, 0, delay_ms)
    return CleanableLog(
        first_dirty,
        end_offset,
        sum(s.size_bytes for s in segments if s.base_offset < first_dirty),
        sum(s.size_bytes for s in segments[first_dirty_at:uncleanable_at]),
        delay_ms,
    )


def _first_dirty(bounds: CompactionBounds) -> Offset:
    """The checkpoint, unless retention or a truncation has made it void."""
    checkpoint = bounds.checkpoint
    if checkpoint is None or not bounds.log_start_offset <= checkpoint <= bounds.log_end_offset:
        return bounds.log_start_offset
    return checkpoint


def group_segments(
    segments: Sequence[CompactionSegment],
    *,
    end_offset: Offset,
    segment_bytes: int,
    index_bytes_max: int,
    index_interval_bytes: int,
) -> list[list[CompactionSegment]]:
    """Cut `segments` into runs, each of which fits one segment. `end_offset` is theirs.

    Size and indexes are counted as if nothing were removed. Empty segments join any run.
    """
    entries_max = index_bytes_max // TIME_ENTRY_BYTES - _SPARE_ENTRIES
    bytes_max = min(segment_bytes, entries_max * (index_interval_bytes + 1))
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    groups: list[list[CompactionSegment]] = []
    total = 0
    for segment, end in zip(segments, ends, strict=True):
        total += segment.size_bytes
        if (
            groups
            and total <= bytes_max
            and (
                segment.size_bytes == 0
                or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            total = segment.size_bytes
    return groups
