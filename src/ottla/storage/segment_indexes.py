"""One segment's files: the `.log` file and the three indexes beside it.

Indexes are kept in memory and written when the segment is flushed, rolled or closed. That
loses nothing: after a crash every segment at or above the recovery point is scanned and its
indexes are built anew, and no recovery point passes a segment whose indexes are not synced.
Those of closed segments are read when they are first needed, a few megabytes each: who must
not wait for the disk has a thread read them (`read_indexes`).

Appending and looking things up are in `segment`. Owned by its PartitionLog, on the event loop.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.batches import HEADER, HEADER_BYTES, BatchHeader
from ottla.protocol.ids import Offset
from ottla.runtime.interfaces import Disk
from ottla.storage.batch_headers import CorruptSegmentError, iter_headers
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX, CorruptIndexError
from ottla.storage.core.offset_index import OffsetIndex
from ottla.storage.core.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.storage.core.time_index import NO_TIMESTAMP_MS, TimeIndex, TimestampOffset
from ottla.storage.core.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.file_pool import FilePool
from ottla.storage.files.names import FileKind, FileState, segment_file_name

INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

UNKNOWN_MS = -(1 << 63)


class LoadedIndexes(NamedTuple):
    """What index files hold, read by a thread."""

    offset_index: OffsetIndex
    time_index: TimeIndex


class IndexedSegment:
    __slots__ = (
        "_directory",
        "_disk",
        "_first_timestamp_ms",
        "_index_bytes_max",
        "_index_cache",
        "_index_state",
        "_log_state",
        "_max_timestamp",
        "_offset_index",
        "_offset_unsaved",
        "_time_index",
        "_time_unsaved",
        "_txn_index",
        "_txn_unsaved",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "has_txn_file",
        "index_interval_bytes",
        "is_index_full",
        "is_index_saved",
        "log",
        "offset_max",
        "roll_jitter_ms",
        "size",
    )

    def __init__(
        self,
        disk: Disk,
        pool: FilePool,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_interval_bytes: int,
        index_bytes_max: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        state: FileState = FileState.LIVE,
    ) -> None:
        self._disk = disk
        self._directory = directory
        # Files of a cleaned segment wear a suffix until those that it replaces are gone.
        self._log_state = self._index_state = state
        self.base_offset = base_offset
        self.offset_max = base_offset + RELATIVE_OFFSET_MAX
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.log = pool.handle(self.path(FileKind.LOG))
        self.bytes_since_index_entry = 0
        self.is_index_full = False
        self.is_index_saved = True
        self.index_interval_bytes = index_interval_bytes
        self.has_txn_file = True  # or may have one: most never do, and none is looked for then
        self._index_bytes_max = index_bytes_max
        self._index_cache = pool.indexes
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None
        self._offset_unsaved = bytearray()
        self._time_unsaved = bytearray()
        self._txn_unsaved = bytearray()
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp_ms = UNKNOWN_MS

    def path(self, kind: FileKind, state: FileState | None = None) -> str:
        """Where a file of this segment is, or would be in another `state`."""
        if state is None:
            state = self._log_state if kind is FileKind.LOG else self._index_state
        return f"{self._directory}/{segment_file_name(Offset(self.base_offset), kind, state)}"

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size} bytes)"

    # Indexes.

    def _add_index_entry(self, position: int, last_offset: int) -> None:
        offset_index, time_index = self.offset_index, self.time_index
        if offset_index.is_full or time_index.is_full:
            return  # what is left is found by a scan; the next append rolls
        self._offset_unsaved += offset_index.append(Offset(last_offset), position)
        largest = self.max_timestamp
        self._time_unsaved += time_index.maybe_append(largest.timestamp_ms, largest.offset)
        self.is_index_full = offset_index.is_full or time_index.is_full
        self.is_index_saved = False
        self.bytes_since_index_entry = 0

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction to the transaction index."""
        self._txn_unsaved += self.txn_index.append(aborted)
        self.has_txn_file = True
        self.is_index_saved = False

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        return self._load_indexes()[1] if index is None else index

    @property
    def txn_index(self) -> TransactionIndex:
        if self._txn_index is None:
            data = self._read_index(FileKind.TRANSACTION_INDEX) if self.has_txn_file else b""
            self._txn_index = TransactionIndex(Offset(self.base_offset), data)
            self.has_txn_file = bool(data)
        return self._txn_index

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the first batch that has it."""
        if self._max_timestamp is None:
            if self._time_index is None:
                self._max_timestamp = self._read_last_time_entry()
            if self._max_timestamp is None:
                self._max_timestamp = self.time_index.last
        return self._max_timestamp

    @property
    def known_max_timestamp(self) -> TimestampOffset | None:
        """The largest timestamp, if no file has to be asked for it."""
        return self._max_timestamp

    def learn_from(self, copy: "IndexedSegment") -> None:
        """Take what was read for a copy of this segment, which is still the same."""
        if self._max_timestamp is None:
            self._max_timestamp = copy._max_timestamp
        if copy._offset_index is not None and copy._time_index is not None and copy.is_index_saved:
            self.adopt_indexes(LoadedIndexes(copy._offset_index, copy._time_index))

    def _read_last_time_entry(self) -> TimestampOffset | None:
        """Only the end of the index file, which is all that retention asks of most segments."""
        try:
            file = self._disk.open(self.path(FileKind.TIME_INDEX), writable=False)
        except FileNotFoundError:
            return None
        try:
            size = file.size()
            data = file.pread(TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES) if size else b""
        finally:
            file.close()
        if size % TIME_ENTRY_BYTES or not any(data):
            return None  # torn, or the zeros that Kafka reserves: it must be read in full
        try:
            index = TimeIndex(
                Offset(self.base_offset), index_bytes_max=self._index_bytes_max, data=data
            )
        except CorruptIndexError:
            return None
        return index.last

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 if it has none or there is no batch."""
        if self._first_timestamp_ms == UNKNOWN_MS:
            if self.size < HEADER_BYTES:
                return NO_TIMESTAMP_MS
            self._first_timestamp_ms = self.header_at(0).max_timestamp
        return self._first_timestamp_ms

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp for retention: the file's own time if no record has one."""
        largest = self.max_timestamp.timestamp_ms
        if largest >= 0:
            return largest
        return self._disk.mtime_ms(self.path(FileKind.LOG)) if self.size else self.created_ms

    def reset_indexes(self) -> None:
        """Start the indexes anew; the caller notes every batch again."""
        self._adopt_empty_indexes()
        self._offset_unsaved.clear()
        self._time_unsaved.clear()
        self._txn_unsaved.clear()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP_MS, Offset(self.base_offset))
        self._first_timestamp_ms = UNKNOWN_MS
        self.bytes_since_index_entry = 0
        self.is_index_saved = False

    def note_recovered_batch(
        self, position: int, size: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Index a batch that recovery found in the file."""
        self.note_recovered_run(0, max_timestamp_ms, last_offset)
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._add_index_entry(position, last_offset)
        self.bytes_since_index_entry += size

    def note_recovered_run(self, size: int, largest_ms: int, largest_offset: int) -> None:
        """Batches that recovery found one behind the other, too few for an index entry."""
        largest = self._max_timestamp
        if largest is None or largest_ms > largest[0]:
            self._max_timestamp = TimestampOffset(largest_ms, Offset(largest_offset))
        self.bytes_since_index_entry += size

    def close_time_index(self) -> None:
        """End it with the largest timestamp: retention reads it from there."""
        largest, index = self.max_timestamp, self.time_index
        if largest.timestamp_ms > index.last.timestamp_ms and index.entries_max:
            self._time_unsaved += index.maybe_append(
                largest.timestamp_ms, largest.offset, is_segment_closing=True
            )
            self.is_index_saved = False

    def save_indexes(self) -> None:
        """Bring the index files up to date. Not yet durable: see `sync_files`."""
        if self.is_index_saved:
            return
        offset_index, time_index = self.offset_index, self.time_index
        self._save(FileKind.OFFSET_INDEX, offset_index.size_bytes, self._offset_unsaved)
        self._save(FileKind.TIME_INDEX, time_index.size_bytes, self._time_unsaved)
        if self._txn_index is not None:
            size = self._txn_index.size_bytes
            if size or self._disk.exists(self.path(FileKind.TRANSACTION_INDEX)):
                self._save(FileKind.TRANSACTION_INDEX, size, self._txn_unsaved)
        self.is_index_saved = True

    def keep_indexes_if_room(self) -> None:
        """The segment is closed: its indexes stay in memory for as long as others need no room."""
        self._index_cache.note_loaded(self)

    def forget_indexes(self) -> None:
        """Give the memory of saved indexes back; the next lookup reads them again."""
        if not self.is_index_saved:
            return
        if self._time_index is not None:
            self._max_timestamp = self.max_timestamp
        self._offset_index = self._time_index = self._txn_index = None

    def index_bytes(self) -> int:
        """Memory that `forget_indexes` would free, nearly."""
        return sum(
            index.size_bytes
            for index in (self._offset_index, self._time_index, self._txn_index)
            if index is not None
        )

    @property
    def has_indexes(self) -> bool:
        """Whether offset and time index are in memory."""
        return self._offset_index is not None

    def read_indexes(self) -> LoadedIndexes | None:
        """Read both indexes from their files; None if they are no good. A thread may."""
        base_offset, bytes_max = Offset(self.base_offset), self._index_bytes_max
        try:
            offset_index = OffsetIndex(
                base_offset,
                index_bytes_max=bytes_max,
                data=self._read_index(FileKind.OFFSET_INDEX),
            )
            time_index = TimeIndex(
                base_offset,
                index_bytes_max=bytes_max,
                data=self._read_index(FileKind.TIME_INDEX),
            )
        except CorruptIndexError:
            return None
        if len(offset_index) and offset_index.entry(len(offset_index) - 1).position >= self.size:
            return None
        return LoadedIndexes(offset_index, time_index)

    def adopt_indexes(self, loaded: LoadedIndexes) -> None:
        """Take what a thread has read, unless somebody was faster."""
        if self._offset_index is None:
            offset_index, time_index = loaded
            self._offset_index, self._time_index = offset_index, time_index
            self.is_index_full = offset_index.is_full or time_index.is_full
            self._index_cache.note_loaded(self)

    def _load_indexes(self) -> LoadedIndexes:
        """Read both indexes; from the log itself if their files are no good."""
        loaded = self.read_indexes()
        if loaded is None:
            return self._rebuild_indexes()
        self.adopt_indexes(loaded)
        return loaded

    def _rebuild_indexes(self) -> LoadedIndexes:
        txn_index = self._txn_index
        self.reset_indexes()
        self._txn_index = txn_index
        for position, header in self.headers():
            self.note_recovered_batch(
                position, header.size_bytes, header.last_offset, header.max_timestamp
            )
        return LoadedIndexes(self.offset_index, self.time_index)

    def _adopt_empty_indexes(self) -> None:
        base_offset, bytes_max = Offset(self.base_offset), self._index_bytes_max
        self._offset_index = OffsetIndex(base_offset, index_bytes_max=bytes_max)
        self._time_index = TimeIndex(base_offset, index_bytes_max=bytes_max)
        self._txn_index = TransactionIndex(base_offset)
        self.is_index_full = self._offset_index.is_full or self._time_index.is_full
        self.is_index_saved = False

    def _read_index(self, kind: FileKind) -> bytes:
        try:
            return self._disk.read_bytes(self.path(kind))
        except FileNotFoundError:
            return b""

    def _save(self, kind: FileKind, size: int, unsaved: bytearray) -> None:
        file = self._disk.open(self.path(kind), create=True)
        try:
            saved = size - len(unsaved)
            if file.size() > saved:
                file.truncate(saved)  # a truncated index, or the zeros Kafka reserves
            if unsaved:
                file.pwrite(unsaved, saved)
        finally:
            file.close()
        unsaved.clear()

    # Reading batches.

    def header_at(self, position: int) -> BatchHeader:
        data = self.log.use().pread(HEADER_BYTES, position)
        if len(data) < HEADER_BYTES:
            raise CorruptSegmentError(f"{self.log.path} ends inside the header at {position}")
        return BatchHeader._make(HEADER.unpack(data))

    def headers(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from the batch boundary `position` on."""
        limit = self.size if end is None else end
        return iter_headers(self.log.use, position, limit)

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        """The whole batch, for those who must open it."""
        return self.log.use().pread(header.size_bytes, position)

    def read_next_offset(self) -> int:
        """The offset after the last batch, found by scanning from the last index entry."""
        index = self.offset_index
        position = index.lookup(index.last_offset).position
        if position >= self.size:
            position = 0
        next_offset = self.base_offset
        for _, header in self.headers(position):
            next_offset = header.next_offset
        return next_offset

    # Names.

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted` and return their new paths, to be removed later."""
        marked = []
        for kind in (FileKind.LOG, *INDEX_KINDS):
            path = self.path(kind)
            if self._disk.exists(path):
                target = self.path(kind, FileState.DELETED)
                self._disk.rename(path, target)
                marked.append(target)
        self.log.retire()
        return marked

    def rename_indexes(self, state: FileState) -> None:
        """Give the index files the names of another state."""
        for kind in INDEX_KINDS:
            path = self.path(kind)
            if self._disk.exists(path):
                self._disk.rename(path, self.path(kind, state))
        self._index_state = state

    def rename_log(self, state: FileState) -> None:
        """Give the log file the name of another state; who reads it is not disturbed."""
        path = self.path(FileKind.LOG, state)
        self._disk.rename(self.log.path, path)
        self.log.path = path
        self._log_state = state

    def move_to(self, pool: FilePool) -> None:
        """Let another pool open the log file from now on."""
        creates = self.log.creates
        self.log.retire()
        self.log = pool.handle(self.path(FileKind.LOG), creates=creates)
        self._index_cache = pool.indexes
