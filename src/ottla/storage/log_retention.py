"""A round of retention over all logs: who has too much, and how it goes without a standstill.

Deleting a segment needs the log start offset on disk first: a power cut may undo any of the
deletions, and leave a hole between the rest. Doing that log by log would sync a checkpoint of
all logs for each of them. So a round first decides for all logs of a directory and moves their
start offsets, then writes the checkpoint once, in a thread, then renames files, log after log,
with requests served in between. `Removals` has them removed later.

A log that is not open does not change, so it is looked at once, in a thread, and from then on
what was found there is held against its configuration; it is opened only if something is to go.

Owned by the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.protocol.ids import Offset, TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.storage.core.retention import Retention, SegmentFacts, decide_retention
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import ClosedSegment, LogDirectory, LogHandle
from ottla.storage.log_manager import LogManager

log = logging.getLogger(__name__)

# Each is up to five renames; between two slices others are served.
_SEGMENTS_PER_SLICE = 8
# Closed logs that are decided about before others are served: well under a millisecond.
_CLOSED_LOGS_PER_SLICE = 50

HighWatermarkOf = Callable[[TopicPartition], int | None]


class LogRetention:
    def __init__(self, runtime: Runtime, logs: LogManager) -> None:
        self._runtime = runtime
        self._logs = logs

    async def run(self, high_watermark_of: HighWatermarkOf) -> int:
        """Delete what has outlived its retention; the number of segments.

        `high_watermark_of` answers None for a log whose partition is not in use.
        """
        deleted = 0
        for directory in self._logs.online_directories:
            deleted += await self._run_in(directory, high_watermark_of)
        return deleted

    async def _run_in(self, directory: LogDirectory, high_watermark_of: HighWatermarkOf) -> int:
        found: list[tuple[PartitionLog, Retention]] = []
        for number, handle in enumerate(list(directory.handles.values())):
            high_watermark = high_watermark_of(handle.topic_partition)
            if high_watermark is None:
                high_watermark = handle.high_watermark
            try:
                opened = await self._open_if_needed(handle, high_watermark)
                if opened is not None and not opened.is_closed:
                    retention = opened.advance_past_retention(high_watermark)
                    if retention is not None:
                        found.append((opened, retention))
            except (LogDirFailure, DiskFull):
                continue  # noted when it was raised; other logs may have something to give
            if opened is not None or number % _CLOSED_LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)
        if not found or directory.failure is not None:
            return 0
        saved = await self._save_start_offsets(directory)
        return sum([await self._delete(opened, retention, saved) for opened, retention in found])

    async def _open_if_needed(self, handle: LogHandle, high_watermark: int) -> PartitionLog | None:
        """The log, if it is open or seems to hold something that is to go."""
        if handle.log is not None:
            return handle.log
        if not self._logs.is_ours(handle) or handle.needs_recovery or handle.is_opening:
            return None
        segments = await self._logs.closed_segments_of(handle)
        if not segments or not self._is_any_to_go(handle, segments, high_watermark):
            return None
        return await self._logs.borrow(handle)

    def _is_any_to_go(
        self, handle: LogHandle, segments: Sequence[ClosedSegment], high_watermark: int
    ) -> bool:
        config = self._logs.config_of(handle)
        timestamps = {one.base_offset: one.largest_timestamp_ms for one in segments}
        retention = decide_retention(
            [SegmentFacts(Offset(one.base_offset), one.size_bytes) for one in segments],
            largest_timestamp_of=timestamps.__getitem__,
            is_delete_policy=config.is_deleted_by_retention,
            retention_bytes=config.retention_bytes,
            retention_ms=config.retention_ms,
            now_ms=self._runtime.clock.wall_ms(),
            high_watermark=Offset(high_watermark),
            log_start_offset=Offset(handle.log_start_offset),
            log_end_offset=Offset(handle.recovery_point),  # it was closed in order
        )
        return bool(retention.deletions)

    async def _save_start_offsets(
        self, directory: LogDirectory
    ) -> Mapping[TopicPartition, int] | None:
        """Below which offsets each log may lose its segments now; None if the disk is full."""
        try:
            return await self._logs.under_way.run(directory.save_log_start_offsets())
        except DiskFull as full:
            log.warning("log start offsets are not saved: %s", full)
            return None
        except LogDirFailure as failure:
            self._logs.fail(directory, failure.cause)
            return {}

    async def _delete(
        self, opened: PartitionLog, retention: Retention, saved: Mapping[TopicPartition, int] | None
    ) -> int:
        deleted = 0
        try:
            if not opened.is_closed and retention.must_roll:
                opened.roll_if_it_ends_at(retention.log_start_offset)
            while not opened.is_closed and opened.failure is None:
                if saved is not None:
                    end_offset = saved.get(opened.topic_partition, 0)
                    count = opened.delete_segments_below(end_offset, _SEGMENTS_PER_SLICE)
                    await asyncio.sleep(0)
                else:
                    count = opened.delete_segments_below(opened.log_start_offset, 1)
                    await self._sync_names(opened)
                if not count:
                    break
                deleted += count
        except (LogDirFailure, DiskFull):
            return deleted  # noted when it was raised; other logs may have something to give
        return deleted

    async def _sync_names(self, opened: PartitionLog) -> None:
        """On a full disk, where no checkpoint can be written: one after another leaves no hole."""
        try:
            await self._runtime.offload.run(self._runtime.disk.sync_dir, opened.directory)
        except OSError as error:
            raise opened.fail(error) from error
