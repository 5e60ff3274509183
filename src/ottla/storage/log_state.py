"""What a partition log is made of and keeps in order, whatever it is used for.

The segments with the active one last, the leader epochs and the producer state that follow
from the records, and the offsets around them; when to roll to another segment, what to sync,
and what to do when the disk fails. Appending and reading are in `log`, cutting off at either
end in `log_trimming`.

Durability. A written batch survives a killed process at once. It survives a power cut after
a flush: inline before the append returns where `flush.messages` is due, else on the log
manager's ticks. `recovery_point` is the offset below which everything is synced.

Owned by the event loop; `FlushJob.run` alone may run in a thread.

Invariants: log_start_offset <= log_end_offset; recovery_point <= log_end_offset; every
segment but the last is closed to writes; `_active` is the last of `_segments`.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    BatchHeader,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import Epoch, Offset, TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.storage.core.batch_validation import ValidationRules
from ottla.storage.core.leader_epochs import Durability, EpochEnd, LeaderEpochs
from ottla.storage.core.producer_state import (
    ActiveProducer,
    ProducerState,
)
from ottla.storage.core.rolling import (
    NEVER_MS,
    AgeLimits,
    age_limits,
    jitter_bound_ms,
    segment_ms_max,
    should_roll,
)
from ottla.storage.failures import DESCRIPTOR_ERRNOS, PASSING_ERRNOS, DiskFull, LogDirFailure
from ottla.storage.file_pool import FilePool
from ottla.storage.files.checkpoint import LEADER_EPOCHS, encode_leader_epochs
from ottla.storage.files.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.flushing import FlushJob
from ottla.storage.log_segments import LogSegments
from ottla.storage.producer_snapshot_files import ProducerSnapshotFiles
from ottla.storage.removals import Removals
from ottla.storage.replacement import Replacement
from ottla.storage.segment import Segment


class LoadedLog(NamedTuple):
    """What opening a directory found; see storage/recovery.py."""

    segments: LogSegments
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshotFiles
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    has_new_names: bool


class LogState:
    __slots__ = (
        "_active",
        "_clock",
        "_codec_number",
        "_disk",
        "_epochs",
        "_flush_messages",
        "_generation",
        "_has_new_names",
        "_is_new_directory",
        "_is_own_plain",
        "_is_plain",
        "_latest_epoch",
        "_message_bytes_max",
        "_on_failure",
        "_on_recovery_point_lowered",
        "_on_refusal",
        "_pool",
        "_producers",
        "_removals",
        "_replacement",
        "_roll_after_timestamp_ms",
        "_roll_at_wall_ms",
        "_rules",
        "_runtime",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "_timestamp_ahead_ms_max",
        "clean_offset",
        "config",
        "directory",
        "failure",
        "high_watermark",
        "is_closed",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        runtime: Runtime,
        pool: FilePool,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        directory: str,
        config: TopicConfig,
        loaded: LoadedLog,
        on_failure: Callable[[LogDirFailure], None],
        on_recovery_point_lowered: Callable[[], None],
        on_refusal: Callable[[DiskFull], None],
        removals: Removals,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._pool = pool
        self._on_failure = on_failure
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self._on_refusal = on_refusal
        self._removals = removals
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.failure: LogDirFailure | None = None
        self.is_closed = False
        self._segments = loaded.segments
        self._active = loaded.segments.last
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        self.last_flush_ms = self._clock.wall_ms()
        self._has_new_names = loaded.has_new_names
        # Its name and metadata may never have been synced.
        self._is_new_directory = loaded.has_new_names or loaded.log_end_offset == 0
        self._generation = 0
        self._replacement: Replacement | None = None
        # Up to where the log was compacted, exclusive; None if it never was.
        self.clean_offset: int | None = None
        self._latest_epoch = -1
        self._note_latest_epoch()
        self.update_config(config)

    def __repr__(self) -> str:
        offsets = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"PartitionLog({self.topic_partition}, {offsets})"

    def update_config(self, config: TopicConfig) -> None:
        """Take another configuration; it counts from the next append on."""
        self.config = config
        self._rules = ValidationRules(config)
        self._codec_number = (
            -1 if self._rules.target_codec is None else int(self._rules.target_codec)
        )
        self._is_plain = (
            config.message_timestamp_type == "CreateTime"
            and config.message_timestamp_before_max_ms == NEVER_MS
            and not config.is_compacted
        )
        self._is_own_plain = (
            config.message_timestamp_type == "CreateTime" and self._codec_number < 0
        )
        self._message_bytes_max = config.max_message_bytes
        self._timestamp_ahead_ms_max = config.message_timestamp_after_max_ms
        self._segment_bytes = config.segment_bytes
        self._flush_messages = config.flush_messages
        self._plan_roll()

    # Failing.

    def fail(self, cause: BaseException) -> LogDirFailure:
        """Give the directory up; every later use raises the same failure.

        But not for a log that is closed: a topic that was deleted takes its files away from
        whoever is still at work on them.
        """
        if self.failure is None:
            self.failure = LogDirFailure(self.directory.rpartition("/")[0], cause)
            if not self.is_closed:
                self._on_failure(self.failure)
        return self.failure

    def _refuse_or_fail(self, error: OSError) -> KafkaError:
        """What to tell who asked for something that changed nothing."""
        return self._refuse(error) if error.errno in PASSING_ERRNOS else self.fail(error)

    def _refuse(self, error: OSError) -> DiskFull:
        refusal = DiskFull(self.directory, error)
        self._on_refusal(refusal)
        return refusal

    # Rolling.

    def _segment_for(
        self,
        size: int,
        max_timestamp_ms: int,
        first_offset: int,
        last_offset: int,
        now_ms: int,
    ) -> Segment:
        """The active segment, after a roll if this append is not for the present one."""
        self._check_usable()
        segment = self._active
        reason = should_roll(
            size_bytes=segment.size,
            size_bytes_max=self._segment_bytes,
            limits=AgeLimits(self._roll_after_timestamp_ms, self._roll_at_wall_ms),
            is_index_full=segment.is_index_full,
            base_offset=segment.base_offset,
            append_bytes=size,
            append_timestamp_ms=max_timestamp_ms,
            append_last_offset=last_offset,
            now_ms=now_ms,
        )
        if reason is None:
            return segment
        self.roll(first_offset)
        return self._active

    def roll(self, first_offset: int | None = None, *, is_doomed: bool = False) -> None:
        """Close the active segment and begin another, at the log's end or `first_offset`.

        One that `is_doomed` is deleted next: its indexes are not wanted any more.
        """
        self._check_usable()
        base_offset = max(self.log_end_offset, first_offset or 0)
        active = self._active
        if active.size == 0 and active.base_offset == base_offset:
            return  # it is as fresh as a new one
        try:
            if not is_doomed:
                self._close_active()
            segment = self._new_segment(base_offset)
            self._producers.end_offset = Offset(base_offset)
            self._snapshots.take(self._producers)
        except (OSError, DiskFull) as error:
            active.become_active(self.log_end_offset)  # it stays the one that is appended to
            if isinstance(error, DiskFull):
                raise
            raise self._refuse_or_fail(error) from error
        if active.size == 0:
            self._delete_segments([active])  # it holds nothing, and never will
        self._segments.add(segment)
        self._active = segment
        # That one may have been the first: what it would have held never was.
        self.log_start_offset = max(self.log_start_offset, self._segments.first.base_offset)
        self._plan_roll()

    def _close_active(self) -> None:
        active = self._active
        active.become_inactive()
        active.save_indexes()
        if active.size and self.recovery_point == self.log_end_offset:
            # No later flush would come back to this segment for its indexes.
            self._perform(self.begin_flush(is_closing=True))
        active.keep_indexes_if_room()

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment.create(
            self._disk,
            self._pool,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes_max=self.config.segment_index_bytes,
            created_ms=self._clock.wall_ms(),
            roll_jitter_ms=self._draw_jitter_ms(),
        )
        self._has_new_names = True
        return segment

    def _draw_jitter_ms(self) -> int:
        bound = jitter_bound_ms(
            segment_ms=self.config.segment_ms, segment_jitter_ms=self.config.segment_jitter_ms
        )
        return self._runtime.random.randint(0, bound - 1) if bound > 0 else 0

    def _on_first_batch(self) -> None:
        """The active segment is no longer empty, and may not have had a file before."""
        self._has_new_names = True
        if self.config.preallocate:
            try:
                self._active.preallocate(self._segment_bytes)
            except OSError as error:
                if error.errno not in PASSING_ERRNOS:  # else it grows as others do
                    raise self.fail(error) from error
        self._plan_roll()

    def _plan_roll(self) -> None:
        """Work out once when the active segment is too old."""
        config, segment = self.config, self._active
        age_ms_max = segment_ms_max(
            segment_ms=config.segment_ms,
            is_compacted=config.is_compacted,
            compaction_lag_ms_max=config.max_compaction_lag_ms,
        )
        self._roll_after_timestamp_ms, self._roll_at_wall_ms = age_limits(
            size_bytes=segment.size,
            first_batch_timestamp_ms=segment.first_timestamp_ms if segment.size else -1,
            created_ms=segment.created_ms,
            age_ms_max=age_ms_max - segment.roll_jitter_ms,
        )

    def _delete_segments(self, segments: list[Segment]) -> None:
        """Take segments out of the log; their files go once no reader can hold them."""
        if self._replacement is not None and self._replacement.concerns(segments):
            self._settle_replacement()
        paths: list[str] = []
        for segment in segments:
            self._segments.remove(segment)
            paths += segment.mark_deleted()
            self._snapshots.remove(Offset(segment.base_offset))
        if paths:
            self._removals.add(paths, self.config.file_delete_delay_ms)
            self._has_new_names = True

    def remove_deleted_files(self) -> None:
        """Remove the files of deleted segments now, without waiting for their delay."""
        self._removals.remove_all()

    def _settle_replacement(self) -> None:
        """Undo or complete, durably, a replacement of segments that is under way."""
        replacement, self._replacement = self._replacement, None
        if replacement is not None:
            replacement.settle()

    # Leader epochs.

    @property
    def latest_epoch(self) -> Epoch | None:
        return Epoch(self._latest_epoch) if self._latest_epoch >= 0 else None

    def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """Where `epoch`, or the newest before it, ends; None if this log cannot tell."""
        return self._epochs.end_of(Epoch(epoch), log_end_offset=Offset(self.log_end_offset))

    def epoch_for_offset(self, offset: int) -> Epoch | None:
        return self._epochs.epoch_for_offset(Offset(offset))

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record, durably, that `epoch` begins at `start_offset`. DiskFull leaves it undone."""
        if epoch < 0:
            return  # older tools write none
        before = self._epochs.entries
        durability = self._epochs.assign(Epoch(epoch), Offset(start_offset))
        try:
            self._keep_epochs(durability, is_refusable=True)
        except DiskFull:
            self._epochs = LeaderEpochs(before)
            self._note_latest_epoch()
            raise

    def _assign_epoch_of(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch != self._latest_epoch:
            self.assign_epoch(header.partition_leader_epoch, header.base_offset)

    def _keep_epochs(self, durability: Durability, *, is_refusable: bool = False) -> None:
        self._note_latest_epoch()
        if durability is Durability.UNCHANGED:
            return
        try:
            self._disk.write_atomic(
                f"{self.directory}/{LEADER_EPOCHS}", encode_leader_epochs(self._epochs.entries)
            )
        except OSError as error:
            if is_refusable and error.errno in PASSING_ERRNOS:
                raise self._refuse(error) from error
            raise self.fail(error) from error

    def _note_latest_epoch(self) -> None:
        latest = self._epochs.latest
        self._latest_epoch = -1 if latest is None else latest.epoch

    # Producers and transactions.

    @property
    def producers(self) -> ProducerState:
        """For verification of transactions; the log alone applies what was written."""
        return self._producers

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that readers of committed records must not pass."""
        unstable = self._producers.first_unstable_offset
        return None if unstable is None else max(unstable, self.log_start_offset)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transaction markers below it are decided for good."""
        self.high_watermark = high_watermark
        self._producers.on_high_watermark_updated(Offset(high_watermark))

    def active_producers(self) -> list[ActiveProducer]:
        return self._producers.describe()

    def expire_producers(self) -> int:
        """Forget producers that were idle too long; how many."""
        return self._producers.expire(self._clock.wall_ms())

    # Flushing.

    def flush(self) -> None:
        """Return once everything that is in the log would survive a power cut."""
        self._perform(self.begin_flush())

    def _perform(self, job: FlushJob | None) -> None:
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            raise self.abandon_flush(job, error) from error
        finally:
            job.release()
        self.finish_flush(job)

    def _maybe_flush(self) -> None:
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.flush()

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a rolled segment waits to be synced."""
        return self.recovery_point < self._active.base_offset

    @property
    def is_flush_due(self) -> bool:
        """Whether records have waited for `flush.ms`."""
        return (
            self.recovery_point < self.log_end_offset
            and self._clock.wall_ms() - self.last_flush_ms >= self.config.flush_ms
        )

    def begin_flush(
        self, *, only_inactive: bool = False, is_closing: bool = False
    ) -> FlushJob | None:
        """What to sync now; None if nothing. `finish_flush` or `abandon_flush` must follow.

        The active segment's indexes are left out, as a recovery would build them; but not when
        `is_closing`, as then the next start trusts them.
        """
        self._check_usable()
        end_offset = self._active.base_offset if only_inactive else self.log_end_offset
        is_synced = end_offset <= self.recovery_point and not self._has_new_names
        if self._is_empty or (is_synced and not is_closing):
            return None
        job = FlushJob(self._disk, end_offset, self._generation)
        try:
            for segment in self._segments.from_floor(self.recovery_point):
                is_active = segment is self._active
                if is_active and only_inactive:
                    continue
                if is_closing and is_active:
                    segment.become_inactive()
                if is_closing or not is_active:
                    segment.save_indexes()
                job.add_segment(segment, with_indexes=is_closing or not is_active)
            job.paths += self._snapshots.take_unsynced()
        except OSError as error:
            job.release()
            raise self._refuse_or_fail(error) from error
        if self._has_new_names or is_closing:
            job.directories.append(self.directory)
        if self._is_new_directory:
            job.paths.append(f"{self.directory}/{PARTITION_METADATA}")
            job.directories.append(self.directory.rpartition("/")[0])
        self._has_new_names = self._is_new_directory = False
        return job

    def abandon_flush(self, job: FlushJob, error: OSError) -> KafkaError:
        """The job did not run to its end; what that means."""
        if error.errno not in DESCRIPTOR_ERRNOS:
            # After a failed sync the kernel may have dropped the pages: trying again would lie.
            return self.fail(error)
        self._has_new_names = True
        self._is_new_directory = self._is_new_directory or len(job.directories) > 1
        self._snapshots.put_back_unsynced(job.paths)
        return self._refuse(error)

    def finish_flush(self, job: FlushJob) -> None:
        """The job ran: what it covered is durable, unless it was truncated meanwhile."""
        self.last_flush_ms = self._clock.wall_ms()
        if job.generation == self._generation:
            self.recovery_point = max(self.recovery_point, job.end_offset)

    # Ending.

    def close(self) -> None:
        """Close in order: flushed, with indexes and a producer snapshot that can be trusted."""
        if self.is_closed:
            return
        if self.failure is None:
            try:
                self._producers.end_offset = Offset(self.log_end_offset)
                self._snapshots.take(self._producers)
                self._settle_replacement()
            except OSError as error:
                raise self.fail(error) from error
            is_untouched = self._is_empty or (
                self.recovery_point == self.log_end_offset
                and self._active.is_index_saved
                and not self._has_new_names
                and not self._snapshots.has_unsynced
            )
            if not is_untouched:
                self._perform(self.begin_flush(is_closing=True))
        self.abandon()

    @property
    def _is_empty(self) -> bool:
        """Nothing was ever written: there may be no file, and nothing to lose."""
        return self.log_end_offset == 0 and self._active.size == 0

    def abandon(self) -> None:
        """Close the files and write nothing: the directory is gone or about to be."""
        self.is_closed = True
        for segment in self._segments:
            segment.log.retire()

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_closed:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The log of {self.topic_partition} is closed"
            )
