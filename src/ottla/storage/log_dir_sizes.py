"""What do the log directories hold, and how much room is left in them?

Answers without opening a log, however many there are. A directory that cannot be read fails here
as it does everywhere.
"""

from typing import NamedTuple
from uuid import UUID

from ottla.protocol.ids import TopicPartition
from ottla.runtime.interfaces import Disk
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.log_directory import LogDirectory
from ottla.storage.log_manager import LogManager


class PartitionSize(NamedTuple):
    topic_partition: TopicPartition
    size_bytes: int


class LogDirDescription(NamedTuple):
    """A line of DescribeLogDirs."""

    path: str
    directory_id: UUID | None
    failure: LogDirFailure | None
    total_bytes: int  # of the volume, -1 if unknown
    usable_bytes: int
    partitions: list[PartitionSize]
    is_cordoned: bool = False


async def describe_log_dirs(logs: LogManager, disk: Disk) -> list[LogDirDescription]:
    return [await _describe(logs, disk, directory) for directory in logs.directories]


async def _describe(logs: LogManager, disk: Disk, directory: LogDirectory) -> LogDirDescription:
    sizes: list[PartitionSize] = []
    failure: LogDirFailure | None = None
    try:
        if directory.failure is not None:
            raise directory.failure
        total, usable = disk.free_bytes(directory.path)
        for topic_partition, handle in list(directory.handles.items()):
            try:
                closed = await logs.closed_segments_of(handle)
            except DiskFull:
                continue  # it cannot be looked at now
            size = sum(one.size_bytes for one in closed)
            if handle.log is not None:
                size = handle.log.size_bytes()
            sizes.append(PartitionSize(topic_partition, size))
    except (OSError, LogDirFailure) as error:
        failure = error if isinstance(error, LogDirFailure) else logs.fail(directory, error)
        total, usable, sizes = -1, -1, []
    return LogDirDescription(
        directory.path,
        directory.directory_id,
        failure,
        total,
        usable,
        sizes,
        directory.is_cordoned,
    )
