"""Recovering, after an unclean end, the logs that nobody has asked for yet.

Logs are recovered when they are first used. Without this the others would wait until somebody
uses them, and the directory could not be marked clean at the next shutdown. One log after
another of each directory is recovered in a thread, synced, and closed again unless it has
producers; whoever wants one meanwhile opens it.

Owned by the event loop.
"""

import asyncio
import logging

from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.log_directory import LogDirectory
from ottla.storage.log_manager import LogManager

log = logging.getLogger(__name__)

# A full disk needs somebody to make room; recoveries of logs that are not in use can wait.
_FULL_DISK_SECONDS = 30.0


async def recover_unopened(logs: LogManager) -> None:
    """Return once no log needs recovery, but for those in directories that are offline."""
    async with asyncio.TaskGroup() as group:
        for directory in logs.online_directories:
            group.create_task(_recover_in(logs, directory))


async def _recover_in(logs: LogManager, directory: LogDirectory) -> None:
    waiting = [handle for handle in directory.handles.values() if handle.needs_recovery]
    if not waiting:
        return
    log.info("%d logs in %s are to be recovered", len(waiting), directory.path)
    waiting.reverse()
    while waiting and directory.failure is None:
        handle = waiting.pop()
        try:
            await logs.recover(handle)
        except LogDirFailure:
            return  # noted when it was raised
        except DiskFull as full:
            log.warning("%s is not recovered yet: %s", handle.topic_partition, full)
            waiting.append(handle)
            await asyncio.sleep(_FULL_DISK_SECONDS)
    if directory.failure is None:
        log.info("the logs in %s are recovered", directory.path)
