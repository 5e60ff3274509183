"""Shortening a log: at its end for a new leader, at its start for retention.

A follower whose end differs from its new leader's cuts it off and fetches anew. Retention and
DeleteRecords move the start. Either may be undone by a power cut, in part and in any order, as
no rename or truncation is durable before the next flush; so the checkpoint that recovery goes
by is written first.

Part of PartitionLog; see `log_state` for who owns it.
"""

from itertools import pairwise

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import Offset
from ottla.storage.core.retention import Retention, SegmentFacts, decide_retention
from ottla.storage.log_state import LogState
from ottla.storage.producer_replay import (
    replay_segments,
)
from ottla.storage.segment import Segment


class TrimmableLog(LogState):
    __slots__ = ()

    def truncate_to(self, offset: int) -> bool:
        """Drop every batch that reaches `offset`, as a whole; True if the log changed."""
        self._check_usable()
        if offset < 0:
            raise ValueError(f"a log cannot be truncated to offset {offset}")
        if offset >= self.log_end_offset:
            # This replica may have begun an epoch without writing anything in it.
            self._keep_epochs(self._epochs.truncate_tail(Offset(self.log_end_offset)))
            return False
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        had_producers = len(self._producers) > 0
        try:
            self._lower_recovery_point(offset)
            self._delete_segments([s for s in self._segments if s.base_offset > offset])
            self._active = self._segments.last
            offset = self._active.truncate_to(offset, self._clock.wall_ms())
            self.log_end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._keep_epochs(self._epochs.truncate_tail(Offset(offset)))
            self._rebuild_producers(offset, had_producers=had_producers)
        except OSError as error:
            raise self.fail(error) from error
        self._plan_roll()
        return True

    def _lower_recovery_point(self, offset: int) -> None:
        """What follows in place of the truncated records will not be synced yet.

        A checkpoint that says otherwise must not outlive a crash, so it is lowered first.
        """
        self._settle_replacement()
        if self.clean_offset is not None:
            self.clean_offset = min(self.clean_offset, offset)
        self._generation += 1
        self._has_new_names = True
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._on_recovery_point_lowered()

    def _rebuild_producers(self, end_offset: int, *, had_producers: bool) -> None:
        self._snapshots.load_latest(
            self._producers,
            log_start_offset=self.log_start_offset,
            end_offset=end_offset,
            now_ms=self._clock.wall_ms(),
        )
        if had_producers:
            replay_segments(
                self._producers,
                self._segments,
                log_start_offset=self.log_start_offset,
                end_offset=end_offset,
            )
        self._producers.end_offset = Offset(end_offset)
        self._snapshots.take(self._producers)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop every record and continue at `offset`."""
        self._check_usable()
        try:
            self._lower_recovery_point(offset)
            self._delete_segments(list(self._segments))
            self._active = self._new_segment(offset)
            self._segments.add(self._active)
            self.log_end_offset = offset
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._keep_epochs(self._epochs.clear())
            self._snapshots.remove_all()
            self._producers.clear_and_start_at(Offset(offset))
        except OSError as error:
            raise self.fail(error) from error
        self._plan_roll()

    def advance_log_start_offset(self, offset: int) -> bool:
        """Forget records below `offset` (DeleteRecords); True if that was news."""
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log of {self.topic_partition} cannot start at {offset}, as it ends at"
                f" {self.log_end_offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._producers.on_log_start_offset_incremented(Offset(offset))
        # Not written now: whoever opens the log forgets them again.
        self._epochs.truncate_head(Offset(offset))
        self._note_latest_epoch()
        return True

    def advance_past_retention(self, high_watermark: int) -> Retention | None:
        """Move the log start past what has outlived its retention; None if nothing has."""
        self._check_usable()
        config = self.config
        segments = {segment.base_offset: segment for segment in self._segments}
        try:
            retention = decide_retention(
                [SegmentFacts(Offset(at), segment.size) for at, segment in segments.items()],
                largest_timestamp_of=lambda at: segments[at].largest_timestamp_ms(),
                is_delete_policy=config.is_deleted_by_retention,
                retention_bytes=config.retention_bytes,
                retention_ms=config.retention_ms,
                now_ms=self._clock.wall_ms(),
                high_watermark=Offset(high_watermark),
                log_start_offset=Offset(self.log_start_offset),
                log_end_offset=Offset(self.log_end_offset),
            )
        except OSError as error:
            raise self.fail(error) from error
        if not retention.deletions:
            return None
        self.advance_log_start_offset(retention.log_start_offset)
        return retention

    def roll_if_it_ends_at(self, log_start_offset: int) -> None:
        """Close the active segment so that it can go, unless records came to it meanwhile."""
        if self.log_end_offset == log_start_offset and self._active.size:
            self.roll(is_doomed=True)

    def delete_segments_below(self, offset: int, segments_max: int | None = None) -> int:
        """Delete closed segments whose records all lie below `offset`; how many.

        A power cut may undo any of the deletions and leave a hole between the rest, so the
        caller has saved a log start offset at or above it, or deletes one at a time.
        """
        self._check_usable()
        doomed: list[Segment] = []
        for segment, following in pairwise(self._segments):
            if following.base_offset > offset or len(doomed) == segments_max:
                break
            doomed.append(segment)
        try:
            self._delete_segments(doomed)
        except OSError as error:
            raise self.fail(error) from error
        return len(doomed)

    def delete_old_segments(self, high_watermark: int) -> int:
        """All of it at once, for a log whose start offset nobody has to save."""
        retention = self.advance_past_retention(high_watermark)
        if retention is None:
            return 0
        if retention.must_roll:
            self.roll_if_it_ends_at(retention.log_start_offset)
        return self.delete_segments_below(retention.log_start_offset)
