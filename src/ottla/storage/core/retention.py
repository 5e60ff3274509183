"""Which segments of a log have outlived their retention.

Segments go from the oldest on, one after another: the first that must stay keeps all that
follow it, so that the log never gets a hole. Nothing at or above the high watermark goes, or
the log start offset could pass it. When even the active segment is to go, the log rolls
first; an active segment without records stays.

Pure. The caller gives, for a segment without timestamps, the time its file was last written.

Invariant: what is deleted is a prefix of the segments, and one segment remains.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from ottla.protocol.ids import Offset


class SegmentFacts(NamedTuple):
    base_offset: Offset
    size_bytes: int


class DeletionReason(Enum):
    LOG_START_OFFSET = auto()
    SIZE = auto()
    TIME = auto()


class Retention(NamedTuple):
    deletions: list[tuple[Offset, DeletionReason]]  # base offsets, oldest first
    must_roll: bool  # before the deletions
    log_start_offset: Offset


_Breach = Callable[[SegmentFacts, SegmentFacts | None], bool]


def decide_retention(
    segments: Sequence[SegmentFacts],
    *,
    largest_timestamp_of: Callable[[Offset], int],
    is_delete_policy: bool,
    retention_bytes: int,
    retention_ms: int,
    now_ms: int,
    high_watermark: Offset,
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> Retention:
    """What to delete now. `segments` are in order, the last one is active.

    `largest_timestamp_of` a segment, by base offset, may cost a look at the disk; it is asked
    about those that go and the first that stays.
    A compacted topic without the policy `delete` only loses what lies below its log start
    offset. Negative `retention_bytes` or `retention_ms` mean for ever.
    """
    log = _Log(segments, high_watermark, log_start_offset, log_end_offset)
    log.delete_while(
        lambda _, following: following is not None and following.base_offset <= log.start_offset,
        DeletionReason.LOG_START_OFFSET,
    )
    if is_delete_policy and retention_bytes >= 0:
        surplus_bytes = sum(segment.size_bytes for segment in log.segments) - retention_bytes

        def is_surplus(segment: SegmentFacts, _: SegmentFacts | None) -> bool:
            nonlocal surplus_bytes
            surplus_bytes -= segment.size_bytes
            return surplus_bytes >= 0

        log.delete_while(is_surplus, DeletionReason.SIZE)
    if is_delete_policy and retention_ms >= 0:
        log.delete_while(
            lambda segment, _: now_ms - largest_timestamp_of(segment.base_offset) > retention_ms,
            DeletionReason.TIME,
        )
    return Retention(log.deletions, log.must_roll, log.start_offset)


class _Log:
    """The log as it would be after the deletions decided so far."""

    def __init__(
        self,
        segments: Sequence[SegmentFacts],
        high_watermark: Offset,
        start_offset: Offset,
        end_offset: Offset,
    ) -> None:
        self.segments = list(segments)
        self.start_offset = start_offset
        self.deletions: list[tuple[Offset, DeletionReason]] = []
        self.must_roll = False
        self._high_watermark = high_watermark
        self._end_offset = end_offset

    def delete_while(self, is_breached: _Breach, reason: DeletionReason) -> None:
        count = 0
        for segment in self.segments:
            following = self.segments[count + 1] if count + 1 < len(self.segments) else None
            upper_bound = self._end_offset if following is None else following.base_offset
            if following is None and segment.size_bytes == 0:
                break
            if upper_bound > self._high_watermark or not is_breached(segment, following):
                break
            count += 1
        if not count:
            return
        self.deletions += [(segment.base_offset, reason) for segment in self.segments[:count]]
        if count == len(self.segments):
            self.must_roll = True
            self.segments.append(SegmentFacts(self._end_offset, 0))
        del self.segments[:count]
        self.start_offset = max(self.start_offset, self.segments[0].base_offset)
