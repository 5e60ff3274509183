"""Compaction: which log is cleaned next, and how that is fitted between the requests.

Cleaning opens every record, which costs Python a microsecond or two for each, and a thread that
computes for seconds holds the interpreter while requests wait: taking turns is up to the
interpreter, five milliseconds each. So the work (`cleaner_work`) is cut into slices of about a
millisecond. A thread performs one, the loop takes its turn and starts the next; there the disk is
also spared (log.cleaner.io.max.bytes.per.second), and there a log that was truncated, deleted
or closed meanwhile is noticed and left alone.

A log whose cleaning fails for what is in it is left uncleaned and told of; the others go on.
A full disk ends a cleaning, which is tried again.

Owned by the event loop: the log's structures are read and changed there alone.

Invariant: a log is cleaned by one worker at a time.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import Offset, TopicPartition
from ottla.runtime.interfaces import Clock, Runtime
from ottla.storage.cleaner_work import (
    CleanedSegmentWriter,
    Source,
    Work,
    build_offset_map,
    clean_segments,
)
from ottla.storage.core.compaction import (
    CleanableLog,
    CompactionBounds,
    CompactionSegment,
    decide_cleanable,
    group_segments,
)
from ottla.storage.core.compaction_filter import BatchFilter, FilterStatistics
from ottla.storage.core.compaction_map import OffsetMap
from ottla.storage.core.compaction_transactions import CleanedTransactions
from ottla.storage.failures import PASSING_ERRNOS, DiskFull, LogDirFailure
from ottla.storage.files.names import FileKind
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import LogDirectory, LogHandle
from ottla.storage.log_manager import LogManager
from ottla.storage.rewriting import DECOMPRESSED_BYTES_MAX
from ottla.storage.segment import Segment

log = logging.getLogger(__name__)

# How long a slice may hold the interpreter: what a request waits for at worst.
SLICE_SECONDS = 0.001
# A slice also ends here, as the time stands still in a simulation.
SLICE_BYTES_MAX = 1 << 20
# Logs that nobody uses which one look round opens to see whether they are dirty.
UNOPENED_PER_ROUND_MAX = 10
# A cleaner that is told to wait for nothing, or to move nothing, still behaves.
BACKOFF_SECONDS_MIN = 0.01
IO_BYTES_PER_SECOND_MIN = 1024.0
MS_PER_SECOND = 1000

LastStableOffsetOf = Callable[[TopicPartition], int | None]


class CleanerSettings(NamedTuple):
    """The broker's log.cleaner.* as they are now."""

    threads: int = 1
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288
    io_bytes_per_second_max: float = float("inf")
    backoff_ms: int = 15_000


class CleaningAborted(Exception):
    """The log changed or the cleaner stops; what was done so far is dropped."""


class CleanerMetrics:
    """What dashboards read of Kafka's LogCleaner and LogCleanerManager."""

    __slots__ = (
        "buffer_utilization",
        "bytes_read",
        "bytes_written",
        "clean_seconds",
        "cleanings",
        "compaction_delay_ms_max",
        "dirty_ratio_max",
        "last_round_ms",
        "segments_replaced",
    )

    def __init__(self) -> None:
        self.cleanings = 0
        self.segments_replaced = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.buffer_utilization = 0.0  # of the last cleaning
        self.clean_seconds = 0.0  # likewise
        self.dirty_ratio_max = 0.0  # of the last look round
        self.compaction_delay_ms_max = 0  # likewise
        self.last_round_ms = 0


class _Candidate(NamedTuple):
    handle: LogHandle
    log: PartitionLog
    cleanable: CleanableLog


class LogCleaner:
    def __init__(
        self,
        runtime: Runtime,
        logs: LogManager,
        *,
        settings: Callable[[], CleanerSettings] = CleanerSettings,
        last_stable_offset_of: LastStableOffsetOf = lambda topic_partition: None,
    ) -> None:
        """`last_stable_offset_of` answers None for a log whose partition is not in use."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._logs = logs
        self._settings = settings
        self._last_stable_offset_of = last_stable_offset_of
        self._in_progress: set[TopicPartition] = set()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopping: asyncio.Event | None = None
        self._unopened = iter(list[LogHandle]())
        self._paid_until = 0.0  # monotonic: the bytes moved so far are paid for by then
        # Per directory, as Kafka counts them; a restart tries them again.
        self.uncleanable: dict[str, set[TopicPartition]] = {}
        self.metrics = CleanerMetrics()

    # Running.

    def start(self) -> None:
        """Clean from now on, until `stop`."""
        self._stopping = asyncio.Event()
        self.metrics.last_round_ms = self._clock.wall_ms()
        self._start_workers()

    def _start_workers(self) -> None:
        for number in range(self._settings().threads):
            if number not in self._tasks or self._tasks[number].done():
                self._tasks[number] = asyncio.create_task(self._work(number))

    async def stop(self) -> None:
        """Return once no log is being cleaned; one under way is left as it was."""
        if self._stopping is None:
            return
        self._stopping.set()
        await asyncio.gather(*self._tasks.values())
        self._tasks.clear()
        self._stopping = None

    async def _work(self, number: int) -> None:
        while self._stopping is not None and not self._stopping.is_set():
            if number >= self._settings().threads:
                return
            is_cleaned = False
            try:
                is_cleaned = await self.clean_dirtiest()
            except Exception:  # whatever it is, other logs must be cleaned
                log.exception("the log cleaner failed")
            self._start_workers()
            if not is_cleaned:
                await self._back_off()

    async def _back_off(self) -> None:
        await self._pause(max(self._settings().backoff_ms / MS_PER_SECOND, BACKOFF_SECONDS_MIN))

    async def _pause(self, seconds: float) -> None:
        if self._stopping is None:
            await asyncio.sleep(seconds)
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    # Choosing.

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if none does."""
        chosen = await self._choose()
        await self._write_checkpoints()
        if chosen is None:
            return False
        topic_partition = chosen.handle.topic_partition
        self._in_progress.add(topic_partition)
        try:
            await self._clean_safely(chosen)
        finally:
            self._in_progress.discard(topic_partition)
        await self._write_checkpoints()
        return True

    async def _choose(self) -> _Candidate | None:
        now_ms = self._clock.wall_ms()
        self.metrics.last_round_ms = now_ms
        for directory in self._logs.directories:
            self.uncleanable_count(directory)  # one that was deleted may come back as another
        found: list[_Candidate] = []
        for handle in self._compacted():
            try:
                candidate = await self._look_at(handle, now_ms)
            except (LogDirFailure, DiskFull):
                continue  # noted when it was raised
            except KafkaError as error:
                log.error("%s cannot be cleaned: %s", handle.topic_partition, error)
                self._give_up(handle)
                continue
            if candidate is not None:
                found.append(candidate)
        ratios = [one.cleanable.dirty_ratio for one in found]
        self.metrics.dirty_ratio_max = max(ratios, default=0.0)
        self.metrics.compaction_delay_ms_max = max(
            (one.cleanable.delay_ms for one in found), default=0
        )
        due = [
            one for one in found if one.cleanable.is_due(one.log.config.min_cleanable_dirty_ratio)
        ]
        return max(due, key=lambda one: one.cleanable.dirty_ratio, default=None)

    def _compacted(self) -> list[LogHandle]:
        """Logs to look at: all that are open, and a few of those that are not."""
        handles = [
            handle
            for handle in map(self._logs.find, self._logs.topic_partitions)
            if handle is not None and self._is_candidate(handle)
        ]
        resting = list(islice(self._unopened, UNOPENED_PER_ROUND_MAX))
        if len(resting) < UNOPENED_PER_ROUND_MAX:
            self._unopened = iter([handle for handle in handles if handle.log is None])
        return [handle for handle in handles if handle.log is not None or handle in resting]

    def _is_candidate(self, handle: LogHandle) -> bool:
        directory = handle.directory
        return (
            directory.failure is None
            and not handle.is_opening
            and not handle.needs_recovery
            and handle.topic_partition not in self._in_progress
            and handle.topic_partition not in self.uncleanable.get(directory.path, ())
            and self._logs.config_of(handle).is_compacted
        )

    async def _look_at(self, handle: LogHandle, now_ms: int) -> _Candidate | None:
        opened = handle.log or await self._logs.borrow(handle)
        if opened is None or handle.log is not opened:
            return None  # deleted meanwhile
        cleanable = self._cleanable(handle, opened, now_ms)
        is_due = cleanable.is_due(opened.config.min_cleanable_dirty_ratio)
        if not is_due and self._logs.give_back(handle):
            return None
        return _Candidate(handle, opened, cleanable)

    def _cleanable(self, handle: LogHandle, opened: PartitionLog, now_ms: int) -> CleanableLog:
        segments = opened.segments
        config = opened.config
        last_stable_offset = self._last_stable_offset_of(opened.topic_partition)
        if last_stable_offset is None:
            unstable = opened.first_unstable_offset
            last_stable_offset = handle.high_watermark
            if unstable is not None:
                last_stable_offset = min(last_stable_offset, unstable)
        try:
            return decide_cleanable(
                _facts(segments),
                CompactionBounds(
                    None if opened.clean_offset is None else Offset(opened.clean_offset),
                    Offset(opened.log_start_offset),
                    Offset(opened.log_end_offset),
                    Offset(last_stable_offset),
                    Offset(opened.recovery_point),
                    config.min_compaction_lag_ms,
                    config.max_compaction_lag_ms,
                ),
                now_ms=now_ms,
                largest_timestamp_ms=lambda at: segments[at].largest_timestamp_ms(),
                first_timestamp_ms=lambda at: segments[at].first_timestamp_ms,
            )
        except OSError as error:
            raise opened.fail(error) from error

    # Cleaning.

    async def _clean_safely(self, chosen: _Candidate) -> None:
        opened = chosen.log
        generation = opened.generation
        started = self._clock.monotonic()
        try:
            self._save_recovery_points(chosen.handle.directory)
            await _Cleaning(self, self._runtime, chosen, self._settings()).run()
        except CleaningAborted as aborted:
            log.info("cleaning %s was given up: %s", opened.topic_partition, aborted)
        except (LogDirFailure, DiskFull) as failure:
            log.warning("cleaning %s was given up: %s", opened.topic_partition, failure)
            await self._back_off()
        except Exception as error:
            if opened.is_closed or opened.failure or opened.generation != generation:
                log.info("%s has changed while it was cleaned: %s", opened.topic_partition, error)
                return
            log.exception("%s cannot be cleaned", opened.topic_partition)
            self._give_up(chosen.handle)
        self.metrics.cleanings += 1
        self.metrics.clean_seconds = self._clock.monotonic() - started

    def _save_recovery_points(self, directory: LogDirectory) -> None:
        """Let a recovery trust what is cleaned: it may take the holes in it for lost records."""
        try:
            directory.write_recovery_points()
        except LogDirFailure as failure:
            raise self._logs.fail(directory, failure.cause) from failure

    def _give_up(self, handle: LogHandle) -> None:
        """Leave a log uncleaned until the next start."""
        self.uncleanable.setdefault(handle.directory.path, set()).add(handle.topic_partition)

    async def run_slices(self, work: Work, is_wanted: Callable[[], bool]) -> None:
        """Perform `work` in a thread, slice by slice, as fast as the disk may be used."""
        while True:
            moved, is_done = await self._runtime.offload.run(_run_slice, work, self._clock)
            await self._spare_disk(moved)
            if not is_wanted():
                raise CleaningAborted("the log has changed")
            if self._stopping is not None and self._stopping.is_set():
                raise CleaningAborted("the broker stops")
            if is_done:
                return

    async def _spare_disk(self, moved: int) -> None:
        rate = self._settings().io_bytes_per_second_max
        now = self._clock.monotonic()
        self._paid_until = max(self._paid_until, now) + moved / max(rate, IO_BYTES_PER_SECOND_MIN)
        if self._paid_until - now > SLICE_SECONDS:
            await self._pause(self._paid_until - now)

    # Checkpoints.

    async def _write_checkpoints(self) -> None:
        for directory in self._logs.online_directories:
            await self._write_checkpoint(directory)

    async def _write_checkpoint(self, directory: LogDirectory) -> None:
        offsets = directory.clean_offsets()
        try:
            await self._runtime.offload.run(directory.write_clean_offsets, offsets)
        except DiskFull:
            return  # the next round writes it
        except LogDirFailure as failure:
            self._logs.fail(directory, failure.cause)

    def uncleanable_count(self, directory: LogDirectory) -> int:
        """Partitions of a directory that are there and cannot be cleaned."""
        marked = self.uncleanable.get(directory.path, set())
        marked &= set(directory.handles)
        return len(marked)


class _Cleaning:
    """One round over one log: the map of its dirty part, then group after group of segments."""

    def __init__(
        self,
        cleaner: LogCleaner,
        runtime: Runtime,
        chosen: _Candidate,
        settings: CleanerSettings,
    ) -> None:
        self._cleaner = cleaner
        self._runtime = runtime
        self._disk = runtime.disk
        self._log = chosen.log
        self._cleanable = chosen.cleanable
        self._now_ms = runtime.clock.wall_ms()
        threads = max(settings.threads, 1)
        self._map = OffsetMap(
            bytes_max=settings.dedupe_buffer_bytes // threads, load_factor=settings.load_factor
        )
        self._read_bytes = settings.io_buffer_bytes // threads // 2
        self._statistics = FilterStatistics()

    async def run(self) -> None:
        """Clean the log as far as the map reaches."""
        opened, cleanable = self._log, self._cleanable
        generation = opened.generation
        opened.settle_replacement()
        segments = [
            s for s in opened.segments if s.base_offset < cleanable.first_uncleanable_offset
        ]
        await self._build_map(segments)
        end_offset = self._map.latest_offset + 1
        covered = [segment for segment in segments if segment.base_offset < end_offset]
        if not covered:
            raise CleaningAborted("nothing of it is dirty")
        self._cleaner.metrics.buffer_utilization = self._map.utilization
        ends = {
            segment.base_offset: end
            for segment, end in zip(
                segments,
                [*(s.base_offset for s in segments[1:]), cleanable.first_uncleanable_offset],
                strict=True,
            )
        }
        transactions = CleanedTransactions(
            opened.aborted_transactions(covered[0].base_offset, ends[covered[-1].base_offset])
        )
        groups = group_segments(
            _facts(covered),
            end_offset=Offset(ends[covered[-1].base_offset]),
            segment_bytes=opened.config.segment_bytes,
            index_bytes_max=opened.config.segment_index_bytes,
            index_interval_bytes=opened.config.index_interval_bytes,
        )
        by_base = {segment.base_offset: segment for segment in covered}
        for group in groups:
            await self._clean_group(
                [by_base[fact.base_offset] for fact in group], ends, transactions
            )
        if opened.generation != generation:
            raise CleaningAborted("the log has changed")
        opened.clean_offset = end_offset
        log.info(
            "cleaned %s up to offset %d: %d of %d records stay",
            opened.topic_partition,
            end_offset,
            self._statistics.records_kept,
            self._statistics.records_read,
        )

    async def _build_map(self, segments: list[Segment]) -> None:
        opened, cleanable = self._log, self._cleanable
        first_dirty = cleanable.first_dirty_offset
        end_offset = cleanable.first_uncleanable_offset
        dirty = [
            (segment, end)
            for segment, end in zip(
                segments, [*(s.base_offset for s in segments[1:]), end_offset], strict=True
            )
            if end > first_dirty
        ]
        if not dirty:
            raise CleaningAborted("nothing of it is dirty")
        work = build_offset_map(
            self._disk,
            [Source(s.path(FileKind.LOG), s.size, end) for s, end in dirty],
            self._map,
            CleanedTransactions(opened.aborted_transactions(first_dirty, end_offset)),
            first_offset=first_dirty,
            read_bytes=self._read_bytes,
        )
        generation = opened.generation
        await self._perform(work, [s for s, _ in dirty], generation)

    async def _clean_group(
        self, group: list[Segment], ends: dict[int, int], transactions: CleanedTransactions
    ) -> None:
        opened = self._log
        generation = opened.generation
        config = opened.config
        writer = CleanedSegmentWriter(
            self._disk,
            opened.directory,
            group[0].base_offset,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
        )
        batch_filter = BatchFilter(
            self._map,
            transactions,
            producers=opened.last_of_producers(),
            now_ms=self._now_ms,
            delete_retention_ms=config.delete_retention_ms,
            round_end_offset=self._cleanable.first_uncleanable_offset,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
            statistics=self._statistics,
        )
        work = clean_segments(
            self._disk,
            [Source(s.path(FileKind.LOG), s.size, ends[s.base_offset]) for s in group],
            batch_filter,
            transactions,
            writer,
            read_bytes=self._read_bytes,
        )
        try:
            await self._perform(work, group, generation)
            await self._offload(writer.finish)
        except BaseException:
            await self._discard(writer)
            raise
        if opened.generation != generation or not opened.holds(group):
            await self._discard(writer)
            raise CleaningAborted("the log has changed")
        metrics = self._cleaner.metrics
        metrics.bytes_read += sum(segment.size for segment in group)
        metrics.bytes_written += writer.size
        metrics.segments_replaced += len(group)
        await self._replace(group, writer.size)

    async def _perform(self, work: Work, segments: list[Segment], generation: int) -> None:
        opened = self._log
        # Retention takes the first ones first, and a truncation changes the generation: asking
        # for two of perhaps thousands will do between slices.
        ends = [segments[0], segments[-1]]

        def is_wanted() -> bool:
            return opened.generation == generation and opened.holds(ends)

        try:
            await self._cleaner.run_slices(work, is_wanted)
        except OSError as error:
            if not is_wanted():
                raise CleaningAborted("its segments were deleted") from error
            raise self._failure(error) from error
        finally:
            work.close()

    async def _replace(self, group: list[Segment], size: int) -> None:
        """Put the cleaned segment in the place of `group`; see storage/replacement.py."""
        opened = self._log
        try:
            replacement = opened.begin_replacement(group, size=size)
            await self._sync_directory()
            if not opened.adopt_replacement(replacement):
                raise CleaningAborted("the log has changed")
            await self._sync_directory()
            if opened.name_replaced_log(replacement):
                await self._sync_directory()
        except OSError as error:
            # Half a replacement, or one that may not be durable, is settled by the next start.
            if opened.is_closed:
                raise CleaningAborted("the log was closed") from error
            raise opened.fail(error) from error

    async def _sync_directory(self) -> None:
        await self._runtime.offload.run(self._disk.sync_dir, self._log.directory)

    async def _offload(self, function: Callable[[], None]) -> None:
        try:
            await self._runtime.offload.run(function)
        except OSError as error:
            raise self._failure(error) from error

    async def _discard(self, writer: CleanedSegmentWriter) -> None:
        try:
            await self._runtime.offload.run(writer.discard)
        except OSError as error:
            log.warning("cleaned files of %s stay behind: %s", self._log.topic_partition, error)

    def _failure(self, error: OSError) -> KafkaError | CleaningAborted:
        opened = self._log
        if opened.is_closed:
            return CleaningAborted("the log was closed")
        if error.errno in PASSING_ERRNOS:
            return DiskFull(opened.directory, error)
        return opened.fail(error)


def _facts(segments: list[Segment]) -> list[CompactionSegment]:
    return [CompactionSegment(Offset(one.base_offset), one.size) for one in segments]


def _run_slice(work: Work, clock: Clock) -> tuple[int, bool]:
    """Perform a piece of `work`; the bytes it moved, and whether it is done."""
    end = clock.monotonic() + SLICE_SECONDS
    moved = 0
    for bytes_moved in work:
        moved += bytes_moved
        if clock.monotonic() >= end or moved >= SLICE_BYTES_MAX:
            return moved, False
    return moved, True
