"""A log whose closed segments can be replaced by cleaned ones while it is in use.

Part of PartitionLog; see `log_state` for who owns it, `replacement` for the order of things and
`cleaner` for who calls this.
"""

from ottla.protocol.ids import Offset
from ottla.storage.core.compaction_filter import LastOfProducer
from ottla.storage.files.names import FileState
from ottla.storage.log_trimming import TrimmableLog
from ottla.storage.replacement import Replacement, Stage
from ottla.storage.segment import Segment


class ReplaceableLog(TrimmableLog):
    __slots__ = ()

    @property
    def segments(self) -> list[Segment]:
        """In order; the last one is active. Only this log may change them."""
        return list(self._segments)

    @property
    def generation(self) -> int:
        """Grows whenever records are cut off at the end."""
        return self._generation

    def last_of_producers(self) -> dict[int, LastOfProducer]:
        """What cleaning must leave for the producer state to be found again."""
        return {
            entry.producer_id: LastOfProducer(
                entry.batches[-1].last_offset if entry.batches else None, entry.epoch
            )
            for entry in self._producers.entries()
        }

    def holds(self, segments: list[Segment]) -> bool:
        """Whether the log is in use and all of these are still part of it."""
        return (
            not self.is_closed
            and self.failure is None
            and all(segment in self._segments for segment in segments)
        )

    def settle_replacement(self) -> None:
        """Undo or complete a replacement that was interrupted, as by a full disk."""
        try:
            self._settle_replacement()
        except OSError as error:
            raise self.fail(error) from error

    def begin_replacement(self, replaced: list[Segment], *, size: int) -> Replacement:
        """The `.cleaned` files of `replaced` are durable: call them `.swap`.

        The directory must be synced before `adopt_replacement`, and between that and
        `name_replaced_log`.
        """
        self._check_usable()
        self._settle_replacement()
        first, last = replaced[0], replaced[-1]
        segment = Segment(
            self._disk,
            self._pool,
            self.directory,
            first.base_offset,
            size=size,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes_max=self.config.segment_index_bytes,
            # Retention goes by it where no record is left.
            created_ms=max(segment.largest_timestamp_ms() for segment in (first, last)),
            state=FileState.SWAP,
        )
        self._replacement = Replacement(self._disk, self.directory, replaced, segment)
        return self._replacement

    def adopt_replacement(self, replacement: Replacement) -> bool:
        """Serve from the cleaned segment from now on; False if the log has changed meanwhile."""
        if self._replacement is not replacement or not self.holds(replacement.replaced):
            return False
        replaced, segment = replacement.replaced, replacement.segment
        self._segments.replace(replaced, segment)
        replacement.stage = Stage.ADOPTED
        paths: list[str] = []
        try:
            for old in replaced:
                paths += old.mark_deleted()
                if old.base_offset != segment.base_offset:
                    self._snapshots.remove(Offset(old.base_offset))
            segment.rename_indexes(FileState.LIVE)
        except OSError as error:
            raise self.fail(error) from error
        self._removals.add(paths, self.config.file_delete_delay_ms)
        return True

    def name_replaced_log(self, replacement: Replacement) -> bool:
        """Take the suffix off the log file; False if there is nothing left to do."""
        if self._replacement is not replacement:
            return False
        replacement.name_log()
        self._replacement = None
        return True
