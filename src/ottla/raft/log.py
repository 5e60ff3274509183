"""The directory `__cluster_metadata-0`: the metadata log and its snapshots.

The segments are those of any partition (storage/log.py); what differs is that every append is
synced before it counts, that nothing expires by itself, and that a snapshot, not retention,
allows old segments to go. A log that ends before its newest snapshot was lost in part, and
the snapshot replaces it.

Shell over storage and `runtime.disk`, owned by raft/driver.py. Used on the event loop, apart from
`open` and the reading at start, which may run in a thread while nobody else uses the log, and
`write_snapshot`, which touches no segment. Invariant: a snapshot with its final name is whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import check_batch
from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import NO_EPOCH, Epoch, Offset, TopicPartition
from ottla.protocol.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.raft.batches import BATCH_BYTES_MAX, MetadataBatch, parse_batch
from ottla.raft.snapshots import (
    PART_SUFFIX,
    SUFFIX,
    Snapshot,
    SnapshotId,
    parse_snapshot,
    parse_snapshot_name,
)
from ottla.runtime.interfaces import Buffer, Runtime
from ottla.storage.file_pool import FilePool
from ottla.storage.files.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.files.partition_metadata import encode_partition_metadata
from ottla.storage.flushing import FlushJob
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import OpenOptions, open_log

TOPIC_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
DIRECTORY_NAME = str(TOPIC_PARTITION)
TOPIC_ID = UUID(int=1)
SEGMENT_BYTES = 1024 * 1024 * 1024
SEGMENT_MS = 7 * 24 * 60 * 60 * 1000
READ_CHUNK_BYTES = BATCH_BYTES_MAX
OPEN_FILES_MAX = 8


def log_config(*, segment_bytes: int, segment_ms: int) -> TopicConfig:
    """Segments go when a snapshot covers them, at once, and never by age or size."""
    return TopicConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        file_delete_delay_ms=0,
        max_message_bytes=BATCH_BYTES_MAX,
    )


class MetadataLog:
    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_ms: int = SEGMENT_MS,
    ) -> None:
        self.directory = directory
        self._runtime = runtime
        self._disk = runtime.disk
        self._config = log_config(segment_bytes=segment_bytes, segment_ms=segment_ms)
        self._pool = FilePool(runtime.disk, OPEN_FILES_MAX)
        self._opened: PartitionLog | None = None
        self._restarted_epoch = NO_EPOCH  # of the snapshot that replaced the log

    @property
    def _log(self) -> PartitionLog:
        if self._opened is None:
            raise InvariantError("the metadata log is not open")
        return self._opened

    @property
    def log_start_offset(self) -> Offset:
        return Offset(self._log.log_start_offset)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self._log.log_end_offset)

    @property
    def last_epoch(self) -> Epoch:
        latest = self._log.latest_epoch
        return self._restarted_epoch if latest is None else latest

    def open(self) -> None:
        """Recover what a crash left half written, and be ready to append."""
        self._disk.mkdir(self.directory)
        names = self._disk.listdir(self.directory)
        for name in names:
            if name.endswith(PART_SUFFIX):
                self._disk.remove(f"{self.directory}/{name}")
        if PARTITION_METADATA not in names:
            self._disk.write_atomic(
                f"{self.directory}/{PARTITION_METADATA}", encode_partition_metadata(TOPIC_ID)
            )
        newest = self.newest_snapshot()
        snapshot_end = Offset(0) if newest is None else newest.end_offset
        options = OpenOptions(
            config=self._config, had_clean_shutdown=False, recovery_point=snapshot_end
        )
        self._opened = open_log(
            self._runtime, self._pool, TOPIC_PARTITION, TOPIC_ID, self.directory, options
        )
        if newest is not None and snapshot_end > self.log_end_offset:
            self._opened.truncate_fully_and_start_at(snapshot_end)
        if newest is not None and self._opened.latest_epoch is None:
            self._restarted_epoch = newest.epoch

    def append(self, batches: Sequence[Buffer]) -> None:
        """Write batches whose offsets follow the log's end; durable only after a flush."""
        self._log.append_as_follower(b"".join(batches))

    def begin_flush(self) -> FlushJob | None:
        return self._log.begin_flush()

    def finish_flush(self, job: FlushJob) -> Offset:
        """Where the durable part of the log ends now."""
        self._log.finish_flush(job)
        return Offset(self._log.recovery_point)

    def read_from(self, offset: Offset) -> Iterator[MetadataBatch]:
        """Every batch that holds a record at `offset` or after."""
        log = self._log
        while offset < log.log_end_offset:
            part = log.read(
                offset, READ_CHUNK_BYTES, end_offset=log.log_end_offset, at_least_one=True
            )
            try:
                content = part.read()
            finally:
                part.release()
            place = 0
            while place < len(content):
                header = check_batch(content, place, len(content))
                end = place + header.size_bytes
                yield parse_batch(content[place:end], header)
                offset, place = Offset(header.next_offset), end

    def snapshots(self) -> list[SnapshotId]:
        """The snapshots that are there, oldest first."""
        found = (parse_snapshot_name(name) for name in self._disk.listdir(self.directory))
        return sorted(snapshot for snapshot in found if snapshot is not None)

    def newest_snapshot(self) -> SnapshotId | None:
        snapshots = self.snapshots()
        return snapshots[-1] if snapshots else None

    def read_snapshot(self, snapshot: SnapshotId) -> Snapshot:
        path = f"{self.directory}/{snapshot.file_name}"
        return parse_snapshot(self._disk.read_bytes(path), path)

    def write_snapshot(self, snapshot: SnapshotId, batches: Iterable[Buffer]) -> int:
        """Write a snapshot so that it appears whole or not at all; returns its size."""
        path = f"{self.directory}/{snapshot.file_name}"
        part = path.removesuffix(SUFFIX) + PART_SUFFIX
        if self._disk.exists(part):
            self._disk.remove(part)
        file = self._disk.open(part, create=True)
        size = 0
        try:
            for batch in batches:
                file.pwrite(batch, size)
                size += len(batch)
            file.sync()
        finally:
            file.close()
        self._disk.rename(part, path)
        self._disk.sync_dir(self.directory)
        return size

    def trim(self, *, retention_bytes: int, oldest_ms: int) -> None:
        """Drop snapshots that are too much or too old, oldest first, and the log before them.

        The newest snapshot always stays. Call it when all that was appended is durable.
        """
        self._log.roll()
        snapshots = self.snapshots()
        for older, newer in pairwise(snapshots):
            is_old = self._disk.mtime_ms(f"{self.directory}/{older.file_name}") < oldest_ms
            if not is_old and self.size_bytes() <= retention_bytes:
                return
            self._disk.remove(f"{self.directory}/{older.file_name}")
            self._log.advance_log_start_offset(newer.end_offset)
            self._log.delete_old_segments(newer.end_offset)
            self._log.remove_deleted_files()

    def size_bytes(self) -> int:
        """Of all segments and snapshots."""
        sizes = (self._disk.size(f"{self.directory}/{s.file_name}") for s in self.snapshots())
        return self._log.size_bytes() + sum(sizes)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._pool.close_all()
