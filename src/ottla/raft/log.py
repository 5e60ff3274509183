"""The files of `__cluster_metadata-0`: segments, epochs and snapshots.

Unlike a partition of a topic, this log is read once, from its newest snapshot to its end, when
a node starts, and then only appended to; nobody waits for a lookup in the middle.

Blocking shell over `runtime.disk`; owned by raft/driver.py, which calls it from a thread, one
call at a time. Invariants: batches lie in offset order without gaps from the first segment's
base offset; what `sync` returned for survives a power cut; a snapshot with its final name is whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from uuid import UUID

from ottla.protocol.batches import HEADER_BYTES, check_batch, read_header
from ottla.protocol.errors import InvariantError, KafkaError
from ottla.protocol.ids import NO_EPOCH, Epoch, Offset
from ottla.raft.batches import BATCH_BYTES_MAX, MetadataBatch, parse_batch
from ottla.raft.snapshots import (
    PART_SUFFIX,
    SUFFIX,
    Snapshot,
    SnapshotId,
    parse_snapshot,
    parse_snapshot_name,
)
from ottla.raft.wire_records import CorruptRecordError
from ottla.runtime.interfaces import Buffer, Disk, File
from ottla.storage.core.leader_epochs import LeaderEpochs
from ottla.storage.files.checkpoint import decode_leader_epochs, encode_leader_epochs
from ottla.storage.files.names import FileKind, FileState, parse_segment_file_name
from ottla.storage.files.names import segment_file_name as segment_name
from ottla.storage.files.partition_metadata import encode_partition_metadata

DIRECTORY_NAME = "__cluster_metadata-0"
TOPIC_ID = UUID(int=1)
EPOCHS_FILE_NAME = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE_NAME = "partition.metadata"
READ_CHUNK_BYTES = 4 * 1024 * 1024
INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


class MetadataLog:
    def __init__(self, disk: Disk, directory: str) -> None:
        self.directory = directory
        self.log_end_offset = Offset(0)
        self.last_epoch = NO_EPOCH
        self._disk = disk
        self._segments: list[Offset] = []
        self._active: File | None = None
        self._active_bytes = 0
        self._epochs = LeaderEpochs()

    @property
    def log_start_offset(self) -> Offset:
        return self._segments[0]

    @property
    def active_segment_bytes(self) -> int:
        return self._active_bytes

    def open(self) -> None:
        """Find the segments, cut what a crash left half written, and be ready to append."""
        disk = self._disk
        disk.mkdir(self.directory)
        names = disk.listdir(self.directory)
        for name in names:
            if name.endswith(PART_SUFFIX):
                disk.remove(f"{self.directory}/{name}")
        if PARTITION_METADATA_FILE_NAME not in names:
            disk.write_atomic(
                f"{self.directory}/{PARTITION_METADATA_FILE_NAME}",
                encode_partition_metadata(TOPIC_ID),
            )
        found = [parsed for name in names if (parsed := parse_segment_file_name(name)) is not None]
        self._segments = sorted(
            parsed.offset
            for parsed in found
            if parsed.kind is FileKind.LOG and parsed.state is FileState.LIVE
        )
        newest = self.newest_snapshot()
        if not self._segments:
            self._start_segment(Offset(0) if newest is None else newest.end_offset)
        epochs_path = f"{self.directory}/{EPOCHS_FILE_NAME}"
        if disk.exists(epochs_path):
            entries = decode_leader_epochs(disk.read_bytes(epochs_path), epochs_path)
            self._epochs = LeaderEpochs(entries)
        self._recover_active()
        if newest is not None and newest.end_offset > self.log_end_offset:
            self._restart_at(newest)

    def _recover_active(self) -> None:
        """Learn where the log ends; a batch cut short at the end was never acknowledged."""
        base = self._segments[-1]
        self._active = self._disk.open(self._path(base), create=True)
        self._active_bytes = 0
        self.log_end_offset = base
        entries = self._epochs.entries
        self.last_epoch = entries[-1].epoch if entries else NO_EPOCH
        for position, batch in self._whole_batches(self._active):
            self._active_bytes = position + len(batch)
            header = read_header(batch)
            self.log_end_offset = Offset(header.next_offset)
            self._note_epoch(Epoch(header.partition_leader_epoch), Offset(header.base_offset))
        if self._active.size() > self._active_bytes:
            self._active.truncate(self._active_bytes)
            self._active.sync()
            self._drop_indexes(base)
        self._epochs.truncate_tail(self.log_end_offset)
        entries = self._epochs.entries
        self.last_epoch = entries[-1].epoch if entries else NO_EPOCH

    def _restart_at(self, snapshot: SnapshotId) -> None:
        """The log ended before its newest snapshot, which therefore replaces it."""
        for base in list(self._segments):
            self._remove_segment(base)
        self._segments = []
        self._close_active()
        self._start_segment(snapshot.end_offset)
        self._active = self._disk.open(self._path(snapshot.end_offset))
        self._active_bytes = 0
        self.log_end_offset = snapshot.end_offset
        self.last_epoch = snapshot.epoch

    def _path(self, base: Offset, kind: FileKind = FileKind.LOG) -> str:
        return f"{self.directory}/{segment_name(base, kind)}"

    def _start_segment(self, base: Offset) -> None:
        self._disk.open(self._path(base), create=True).close()
        self._disk.sync_dir(self.directory)
        self._segments.append(base)

    def _drop_indexes(self, base: Offset) -> None:
        """Indexes that another program wrote know nothing of our appends; Kafka rebuilds them."""
        for kind in INDEX_KINDS:
            path = self._path(base, kind)
            if self._disk.exists(path):
                self._disk.remove(path)

    def _remove_segment(self, base: Offset) -> None:
        self._disk.remove(self._path(base))
        self._drop_indexes(base)

    def _note_epoch(self, epoch: Epoch, base_offset: Offset) -> None:
        if epoch != self.last_epoch:
            self._epochs.assign(epoch, base_offset)
            self.last_epoch = epoch

    def append(self, batches: Sequence[Buffer]) -> None:
        """Write batches whose offsets follow the log's end; durable only after `sync`."""
        if self._active is None:
            raise InvariantError("the metadata log is closed")
        if self._active_bytes == 0 or self._drop_indexes_once:
            self._drop_indexes(self._segments[-1])
            self._drop_indexes_once = False
        epoch_before = self.last_epoch
        for batch in batches:
            header = read_header(batch)
            if header.base_offset != self.log_end_offset:
                raise InvariantError(
                    f"a batch at {header.base_offset} cannot follow offset {self.log_end_offset}"
                )
            self._note_epoch(Epoch(header.partition_leader_epoch), Offset(header.base_offset))
            self.log_end_offset = Offset(header.next_offset)
        if self.last_epoch != epoch_before:
            self._disk.write_atomic(
                f"{self.directory}/{EPOCHS_FILE_NAME}", encode_leader_epochs(self._epochs.entries)
            )
        self._active.pwritev(batches, self._active_bytes)
        self._active_bytes += sum(len(batch) for batch in batches)

    _drop_indexes_once = True

    def sync(self) -> None:
        if self._active is not None:
            self._active.sync()

    def append_and_sync(self, batches: Sequence[Buffer]) -> Offset:
        """Append durably; returns the offset after the last record."""
        self.append(batches)
        self.sync()
        return self.log_end_offset

    def roll(self) -> None:
        """Start a new segment, so that the full one can be deleted by and by."""
        if self._active_bytes == 0:
            return
        self.sync()
        self._close_active()
        self._start_segment(self.log_end_offset)
        self._active = self._disk.open(self._path(self.log_end_offset))
        self._active_bytes = 0

    def read_from(self, offset: Offset) -> Iterator[MetadataBatch]:
        """Every batch that holds a record at `offset` or after."""
        for number, base in enumerate(self._segments):
            following = self._segments[number + 1 :]
            if following and following[0] <= offset:
                continue
            file = self._disk.open(self._path(base), writable=False)
            try:
                expected = base
                for _, batch in self._whole_batches(file):
                    header = read_header(batch)
                    if header.next_offset > offset:
                        yield parse_batch(batch, header)
                    expected = Offset(header.next_offset)
            finally:
                file.close()
            if following and expected != following[0]:
                raise CorruptRecordError(
                    f"{file.path} ends at offset {expected}, the next segment begins at"
                    f" {following[0]}"
                )

    def _whole_batches(self, file: File) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of each batch, up to the first that is damaged or cut short."""
        position, size = 0, file.size()
        chunk, chunk_start = b"", 0
        while size - position >= HEADER_BYTES:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = file.pread(READ_CHUNK_BYTES, position), position, 0
            needed = read_header(chunk, at).size_bytes
            if not HEADER_BYTES <= needed <= min(size - position, BATCH_BYTES_MAX):
                return
            if at + needed > len(chunk):
                wanted = max(needed, READ_CHUNK_BYTES)
                chunk, chunk_start, at = file.pread(wanted, position), position, 0
            try:
                check_batch(chunk, at, at + needed)
            except KafkaError:
                return  # the caller decides whether a log may end here
            yield position, chunk[at : at + needed]
            position += needed

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

    def delete_before(self, snapshot: SnapshotId) -> None:
        """Drop older snapshots, and segments that hold nothing after `snapshot`."""
        for older in self.snapshots():
            if older < snapshot:
                self._disk.remove(f"{self.directory}/{older.file_name}")
        while len(self._segments) > 1 and self._segments[1] <= snapshot.end_offset:
            self._remove_segment(self._segments.pop(0))
        self._disk.sync_dir(self.directory)

    def trim(self, retention_bytes: int, oldest_ms: int) -> None:
        """Drop snapshots, oldest first, that are too much or too old; the newest always stays."""
        snapshots = self.snapshots()
        for older, newer in pairwise(snapshots):
            is_old = self._disk.mtime_ms(f"{self.directory}/{older.file_name}") < oldest_ms
            if not is_old and self.size_bytes() <= retention_bytes:
                return
            self.delete_before(newer)

    def size_bytes(self) -> int:
        """Of all segments and snapshots."""
        names = [segment_name(base, FileKind.LOG) for base in self._segments]
        names += [snapshot.file_name for snapshot in self.snapshots()]
        return sum(self._disk.size(f"{self.directory}/{name}") for name in names)

    def _close_active(self) -> None:
        if self._active is not None:
            self._active.close()
            self._active = None

    def close(self) -> None:
        self.sync()
        self._close_active()
