"""One of the broker's `log.dirs`: its lock, whose it is, its checkpoints, which partitions it has.

Starting must not depend on how many partitions there are: the directory is listed and four
checkpoint files are read, and nothing of a partition is touched until someone uses it.

Owned by the LogManager, on the event loop.

Invariant: the clean-shutdown marker is on disk only while no log in the directory is open.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.ids import Offset, TopicPartition
from ottla.runtime.interfaces import Lock, Runtime
from ottla.storage.batch_headers import CorruptSegmentError
from ottla.storage.failures import (
    PASSING_ERRNOS,
    DiskFull,
    LogDirFailure,
    WrongLogDirError,
)
from ottla.storage.file_pool import FilePool
from ottla.storage.files import clean_shutdown, meta_properties
from ottla.storage.files.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from ottla.storage.files.malformed import MalformedFileError
from ottla.storage.files.names import (
    DirectoryState,
    FileKind,
    FileState,
    parse_partition_directory_name,
    parse_segment_file_name,
)
from ottla.storage.files.partition_metadata import (
    FILE_NAME as PARTITION_METADATA,
)
from ottla.storage.files.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)
from ottla.storage.fullness import Fullness
from ottla.storage.log import PartitionLog
from ottla.storage.segment import Segment

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
# Kept by the raft room, in the same directory unless metadata.log.dir names another.
METADATA_LOG = TopicPartition("__cluster_metadata", 0)


class NodeIdentity(NamedTuple):
    """Who the broker is; every log directory must be of the same."""

    cluster_id: str
    node_id: int


class ClosedSegment(NamedTuple):
    """A segment of a log that nobody has opened."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


class LogHandle:
    """A partition in a log directory, whether or not its log is open."""

    __slots__ = (
        "_topic_id",
        "clean_offset",
        "closed_segments",
        "directory",
        "high_watermark",
        "is_in_use",
        "is_opening",
        "log",
        "log_start_offset",
        "needs_recovery",
        "path",
        "recovery_point",
        "topic_partition",
    )

    def __init__(
        self,
        directory: "LogDirectory",
        topic_partition: TopicPartition,
        path: str,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean_offset: int | None = None,
        needs_recovery: bool = False,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.path = path
        self.log: PartitionLog | None = None
        self.is_opening = False
        self.is_in_use = False  # by more than a look now and then
        self.needs_recovery = needs_recovery
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.clean_offset = clean_offset
        self._topic_id: UUID | None = None
        self.closed_segments: tuple[ClosedSegment, ...] | None = None  # None if not known

    def adopt(self, log: PartitionLog) -> None:
        """The log is open now."""
        self.log = log
        log.clean_offset = self.clean_offset
        self.needs_recovery = False
        self.closed_segments = None

    def let_go(self) -> None:
        """The log was closed: keep what the checkpoints need."""
        if self.log is not None:
            self.recovery_point = self.log.recovery_point
            self.log_start_offset = self.log.log_start_offset
            self.clean_offset = self.log.clean_offset
            self.log = None

    @property
    def topic_id(self) -> UUID | None:
        """From `partition.metadata`; None where that is missing or was never synced."""
        if self._topic_id is None:
            path = f"{self.path}/{PARTITION_METADATA}"
            disk = self.directory.runtime.disk
            try:
                self._topic_id = decode_partition_metadata(disk.read_bytes(path), path)
            except (FileNotFoundError, MalformedFileError):
                return None
        return self._topic_id

    def write_topic_id(self, topic_id: UUID) -> None:
        """Say whose records these are, before there are any. Synced with the first flush."""
        path = f"{self.path}/{PARTITION_METADATA}"
        file = self.directory.runtime.disk.open(path, create=True)
        try:
            data = encode_partition_metadata(topic_id)
            file.pwrite(data, 0)
            file.truncate(len(data))
        finally:
            file.close()
        self._topic_id = topic_id

    def read_closed_segments(self, config: TopicConfig) -> tuple[ClosedSegment, ...]:
        """What the files say, without opening the log; for a thread."""
        disk = self.directory.runtime.disk
        pool = FilePool(disk, 1)
        found = []
        for name in disk.listdir(self.path):
            parsed = parse_segment_file_name(name)
            if parsed is None or parsed.kind is not FileKind.LOG:
                continue
            if parsed.state is FileState.LIVE:
                segment = Segment(
                    disk,
                    pool,
                    self.path,
                    parsed.offset,
                    size=disk.size(f"{self.path}/{name}"),
                    index_interval_bytes=config.index_interval_bytes,
                    index_bytes_max=config.segment_index_bytes,
                    created_ms=0,
                )
                try:
                    largest_ms = segment.largest_timestamp_ms()
                except CorruptSegmentError:  # whoever opens the log sees to it
                    largest_ms = disk.mtime_ms(f"{self.path}/{name}")
                found.append(ClosedSegment(segment.base_offset, segment.size, largest_ms))
        pool.close_all()
        return tuple(found)


class LogDirectory:
    __slots__ = (
        "_last_written",
        "_lock",
        "_saving_start_offsets",
        "broker_epoch",
        "deleted_paths",
        "directory_id",
        "failure",
        "fullness",
        "had_clean_shutdown",
        "handles",
        "is_cordoned",
        "path",
        "runtime",
    )

    def __init__(self, runtime: Runtime, path: str) -> None:
        self.runtime = runtime
        self.path = path
        self.failure: LogDirFailure | None = None
        self.fullness = Fullness()
        self.is_cordoned = False  # takes no new partitions
        self.directory_id: UUID | None = None
        self.had_clean_shutdown = False
        self.broker_epoch: int | None = None
        self.handles: dict[TopicPartition, LogHandle] = {}
        self.deleted_paths: list[str] = []
        self._lock: Lock | None = None
        self._last_written: dict[str, bytes] = {}
        self._saving_start_offsets = asyncio.Lock()  # a later one must not be overtaken

    def start(self, identity: NodeIdentity | None) -> None:
        """Lock, check and list the directory.

        BlockingIOError if another process has it, WrongLogDirError if it is another's;
        any other trouble only takes this directory offline. With an `identity` it must have
        been formatted: an empty one may be the mount point of a disk that is missing.
        """
        disk = self.runtime.disk
        try:
            if identity is None:
                self._make_durably(self.path)
            elif not disk.is_dir(self.path):
                raise MalformedFileError(self.path, "there is no such directory")
            self._lock = disk.lock(f"{self.path}/{LOCK_FILE}")
            self._check_identity(identity)
            self._read_marker()
            self._list_partitions()
        except BlockingIOError:
            raise
        except (OSError, MalformedFileError) as error:
            self.failure = LogDirFailure(self.path, error)

    def _make_durably(self, path: str) -> None:
        """Create the directory and its parents so that a power cut leaves them there."""
        if not path or self.runtime.disk.is_dir(path):
            return
        parent = path.rpartition("/")[0]
        self._make_durably(parent)
        self.runtime.disk.mkdir(path)
        self.runtime.disk.sync_dir(parent or ("/" if path.startswith("/") else "."))

    def _check_identity(self, identity: NodeIdentity | None) -> None:
        path = f"{self.path}/{meta_properties.FILE_NAME}"
        disk = self.runtime.disk
        try:
            found = meta_properties.decode_meta_properties(disk.read_bytes(path), path)
        except FileNotFoundError:
            if identity is None:
                return
            raise MalformedFileError(
                path, "there is no such file; `ottla storage format` makes a new disk one of ours"
            ) from None
        self.directory_id = found.directory_id
        if identity is None:
            return
        if found.cluster_id not in (None, identity.cluster_id):
            raise WrongLogDirError(
                f"{self.path} belongs to cluster {found.cluster_id}, not {identity.cluster_id}"
            )
        if found.node_id not in (None, identity.node_id):
            raise WrongLogDirError(
                f"{self.path} belongs to node {found.node_id}, not {identity.node_id}"
            )

    def _read_marker(self) -> None:
        path = f"{self.path}/{clean_shutdown.FILE_NAME}"
        try:
            self.broker_epoch = clean_shutdown.decode_clean_shutdown(
                self.runtime.disk.read_bytes(path)
            )
        except FileNotFoundError:
            return
        self.had_clean_shutdown = True
        # It must not outlive the first write, even through a power cut.
        self.runtime.disk.remove(path)
        self.runtime.disk.sync_dir(self.path)

    def _list_partitions(self) -> None:
        disk = self.runtime.disk
        damaged: set[str] = set()
        recovery_points = self._read_offsets(RECOVERY_POINTS, damaged)
        start_offsets = self._read_offsets(LOG_START_OFFSETS, damaged)
        high_watermarks = self._read_offsets(HIGH_WATERMARKS, damaged)
        clean_offsets = self._read_offsets(CLEANER_OFFSETS, damaged)
        # Whatever damaged the file that is written with every flush may have met others.
        needs_recovery = not self.had_clean_shutdown or RECOVERY_POINTS in damaged
        for name in disk.listdir(self.path):
            parsed = parse_partition_directory_name(name)
            path = f"{self.path}/{name}"
            if parsed is None or not disk.is_dir(path):
                continue
            topic_partition = parsed.topic_partition
            if parsed.state is DirectoryState.DELETE:
                self.deleted_paths.append(path)
            elif parsed.state is DirectoryState.LIVE and topic_partition != METADATA_LOG:
                self.handles[topic_partition] = LogHandle(
                    self,
                    topic_partition,
                    path,
                    recovery_point=recovery_points.get(topic_partition, Offset(0)),
                    log_start_offset=start_offsets.get(topic_partition, Offset(0)),
                    high_watermark=high_watermarks.get(topic_partition, Offset(0)),
                    clean_offset=clean_offsets.get(topic_partition),
                    needs_recovery=needs_recovery,
                )

    def _read_offsets(self, name: str, damaged: set[str]) -> dict[TopicPartition, Offset]:
        """A checkpoint; without it logs are read from their start, which is where it leads."""
        path = f"{self.path}/{name}"
        try:
            return decode_offsets(self.runtime.disk.read_bytes(path), path)
        except FileNotFoundError:
            return {}
        except MalformedFileError as error:
            log.warning("the checkpoint is of no use and will be written anew: %s", error)
            damaged.add(name)
            return {}

    # Checkpoints.

    def write_recovery_points(self) -> None:
        """Say from where a recovery must read.

        Never in a thread: a value lowered by a truncation must not be overtaken by the one
        before it.
        """
        self._write(
            RECOVERY_POINTS,
            {
                topic_partition: Offset(
                    handle.recovery_point if handle.log is None else handle.log.recovery_point
                )
                for topic_partition, handle in self.handles.items()
            },
        )

    async def save_log_start_offsets(self) -> Mapping[TopicPartition, int]:
        """Keep log start offsets; also those that a file name tells, as names can come back.

        A thread writes them; the offsets that are durable once this returns.
        """
        async with self._saving_start_offsets:
            offsets = self._log_start_offsets()
            await self.runtime.offload.run(self._write, LOG_START_OFFSETS, offsets)
        return offsets

    def _log_start_offsets(self) -> dict[TopicPartition, Offset]:
        offsets = {
            topic_partition: Offset(
                handle.log_start_offset if handle.log is None else handle.log.log_start_offset
            )
            for topic_partition, handle in self.handles.items()
        }
        return {tp: offset for tp, offset in offsets.items() if offset}

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        self._write(HIGH_WATERMARKS, self._note_high_watermarks(high_watermarks))

    async def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """High watermarks change all the time, and lose little by being late."""
        offsets = self._note_high_watermarks(high_watermarks)
        await self.runtime.offload.run(self._write, HIGH_WATERMARKS, offsets)

    def _note_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset]:
        """Those given, and for other partitions the last ones known."""
        for topic_partition, handle in self.handles.items():
            handle.high_watermark = high_watermarks.get(topic_partition, handle.high_watermark)
        return {tp: Offset(handle.high_watermark) for tp, handle in self.handles.items()}

    def clean_offsets(self) -> dict[TopicPartition, Offset]:
        """Up to where each log was compacted, of those that ever were."""
        offsets = {
            topic_partition: handle.clean_offset if handle.log is None else handle.log.clean_offset
            for topic_partition, handle in self.handles.items()
        }
        return {tp: Offset(offset) for tp, offset in offsets.items() if offset is not None}

    def write_clean_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Late ones only make the next cleaning longer, so a thread may write them."""
        if offsets or CLEANER_OFFSETS in self._last_written:
            self._write(CLEANER_OFFSETS, offsets)

    def write_all(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write every checkpoint now."""
        self.write_recovery_points()
        self._write(LOG_START_OFFSETS, self._log_start_offsets())
        self.write_high_watermarks(high_watermarks)
        self.write_clean_offsets(self.clean_offsets())

    def _write(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        if self.failure is not None:
            return
        data = encode_offsets(offsets)
        if self._last_written.get(name) == data:
            return
        try:
            self.runtime.disk.write_atomic(f"{self.path}/{name}", data)
        except OSError as error:
            if error.errno in PASSING_ERRNOS:
                raise DiskFull(self.path, error) from error
            raise LogDirFailure(self.path, error) from error
        self._last_written[name] = data

    # Ending.

    def write_marker(self, broker_epoch: int) -> None:
        """Every log is closed in order: the next start need not recover."""
        self.runtime.disk.write_atomic(
            f"{self.path}/{clean_shutdown.FILE_NAME}",
            clean_shutdown.encode_clean_shutdown(broker_epoch),
        )

    def release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
