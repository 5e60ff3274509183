"""What all open logs need now and then: syncs, checkpoints, forgetting idle producers.

The duties are the server's to schedule. A log is synced in a thread, as that may take the disk a
second; checkpoints of which a late one does no harm are written there too.

Owned by the event loop.
"""

from collections.abc import Awaitable, Callable, Mapping

from ottla.protocol.ids import TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.flushing import FlushJob
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import LogDirectory
from ottla.storage.log_manager import LogManager


class LogUpkeep:
    def __init__(self, runtime: Runtime, logs: LogManager) -> None:
        self._runtime = runtime
        self._logs = logs

    async def flush_rolled(self) -> None:
        """Sync rolled segments, whatever the flush settings: recovery would have to read them."""
        await self._flush_all(lambda log: log.has_unsynced_segments, only_inactive=True)

    async def flush_due(self) -> None:
        """Sync logs whose records have waited for `flush.ms`."""
        await self._flush_all(lambda log: log.is_flush_due, only_inactive=False)

    async def _flush_all(
        self, is_wanted: Callable[[PartitionLog], bool], *, only_inactive: bool
    ) -> None:
        for handle in self._logs.handles:
            log = handle.log
            if log is None or log.failure is not None or log.is_closed or not is_wanted(log):
                continue
            try:
                job = log.begin_flush(only_inactive=only_inactive)
            except (LogDirFailure, DiskFull):
                continue  # noted when it was raised; the next round tries again
            if job is not None:
                await self._logs.under_way.run(self._flush(log, job))

    async def _flush(self, log: PartitionLog, job: FlushJob) -> None:
        try:
            await self._runtime.offload.run(job.run)
        except OSError as error:
            log.abandon_flush(job, error)
            return
        finally:
            job.release()
        log.finish_flush(job)

    async def save_recovery_points(self) -> None:
        async def save(directory: LogDirectory) -> None:
            directory.write_recovery_points()

        await self._save_in_each(save)

    async def save_log_start_offsets(self) -> None:
        async def save(directory: LogDirectory) -> None:
            await self._logs.under_way.run(directory.save_log_start_offsets())

        await self._save_in_each(save)

    async def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        async def save(directory: LogDirectory) -> None:
            await self._logs.under_way.run(directory.save_high_watermarks(high_watermarks))

        await self._save_in_each(save)

    async def _save_in_each(self, save: Callable[[LogDirectory], Awaitable[None]]) -> None:
        for directory in self._logs.online_directories:
            try:
                await save(directory)
            except DiskFull as full:
                # Older ones only make a recovery longer; the next round tries again.
                self._logs.note_full(directory, full)
            except LogDirFailure as failure:
                self._logs.fail(directory, failure.cause)

    async def look_for_room(self) -> None:
        self._logs.look_for_room()

    async def expire_producers(self) -> None:
        """Forget producers that were idle too long, in logs that are open."""
        for handle in self._logs.handles:
            if handle.log is not None:
                handle.log.expire_producers()
