"""One segment of a partition log: its `.log` file and the three indexes beside it.

The `.log` file holds batches as they came. A reader wants "the first batch that reaches
offset X": the sparse offset index says where to start, and a scan of batch headers does the
rest. Most reads need neither: they ask for the end of the log, where the positions of the
latest batches are still in memory, or they go on where a read of this segment ended.

Indexes are kept in memory and written when the segment is flushed, rolled or closed. That
loses nothing: after a crash every segment at or above the recovery point is scanned and its
indexes are built anew, and no recovery point passes a segment whose indexes are not synced.

Owned by its PartitionLog, on the event loop.

Invariants: [0, size) of the file is whole batches with increasing offsets. The batches that
`_recent_*` describes are the last ones of the segment, without a gap in positions.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct

from ottla.protocol.batches import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from ottla.protocol.ids import Offset
from ottla.runtime.interfaces import Buffer, Disk
from ottla.storage.batch_headers import CorruptSegmentError, iter_headers
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX, CorruptIndexError
from ottla.storage.core.offset_index import OffsetIndex
from ottla.storage.core.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.storage.core.time_index import NO_TIMESTAMP_MS, TimeIndex, TimestampOffset
from ottla.storage.core.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.file_pool import FilePool
from ottla.storage.files.names import FileKind, FileState, segment_file_name
from ottla.storage.slices import SMALL_BYTES_MAX

# Base offset, length and last offset delta: what a scan by offset needs of a header.
_BATCH_SPAN = Struct(">qi11xi")
_BATCH_SPAN_BYTES = _BATCH_SPAN.size

# One read covers the default index interval and the batch that starts in it, mostly.
_SCAN_BLOCK_BYTES = 8_192
# The batches whose positions stay in memory: more than a follower usually lags behind.
# Two eight-byte numbers each, for the active segment of every partition in use.
_RECENT_BATCHES_MAX = 128
# Readers that go on where they stopped; more of them than this fall back on the index.
_CURSORS_MAX = 64

_UNKNOWN = -(1 << 63)
_EVERYTHING_BELOW = (1 << 63) - 1

INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


class Segment:
    __slots__ = (
        "_block",
        "_cursors",
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
        "_recent_floor",
        "_recent_last_offsets",
        "_recent_positions",
        "_time_index",
        "_time_unsaved",
        "_txn_index",
        "_txn_unsaved",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
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
        self._index_bytes_max = index_bytes_max
        self._index_cache = pool.indexes
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None
        self._offset_unsaved = bytearray()
        self._time_unsaved = bytearray()
        self._txn_unsaved = bytearray()
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp_ms = _UNKNOWN
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")
        # Offsets above it are known to be in the recent batches or nowhere in this segment.
        self._recent_floor = base_offset - 1 if size == 0 else _EVERYTHING_BELOW
        self._cursors: dict[int, int] = {}
        self._block: tuple[int, bytes] = (0, b"")  # what a scan read last, and from where

    @classmethod
    def create(
        cls,
        disk: Disk,
        pool: FilePool,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes_max: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        is_lazy: bool = False,
    ) -> "Segment":
        """An empty segment; files of that name, left by a crash, are emptied.

        A lazy one has no file before its first batch, and must not need one: thousands of
        partitions may be created that are never written to.
        """
        segment = cls(
            disk,
            pool,
            directory,
            base_offset,
            size=0,
            index_interval_bytes=index_interval_bytes,
            index_bytes_max=index_bytes_max,
            created_ms=created_ms,
            roll_jitter_ms=roll_jitter_ms,
        )
        segment.log.creates = True
        if not is_lazy:
            file = segment.log.use()
            if file.size():
                file.truncate(0)
            for kind in INDEX_KINDS:
                if disk.exists(segment.path(kind)):
                    disk.remove(segment.path(kind))
        segment._adopt_empty_indexes()
        return segment

    def path(self, kind: FileKind, state: FileState | None = None) -> str:
        """Where a file of this segment is, or would be in another `state`."""
        if state is None:
            state = self._log_state if kind is FileKind.LOG else self._index_state
        return f"{self._directory}/{segment_file_name(Offset(self.base_offset), kind, state)}"

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size} bytes)"

    # Appending.

    def append(self, records: Buffer, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch. After an OSError nothing but the file's tail may have changed."""
        position = self.size
        log = self.log
        (log.file or log.use()).pwrite(records, position)
        log.is_referenced = True
        self._note_batch(position, size, last_offset, max_timestamp_ms)
        self.size = position + size

    def append_batches(self, records: Buffer, headers: list[tuple[int, BatchHeader]]) -> None:
        """Write several batches at once; `headers` are their places in `records`."""
        start = self.size
        self.log.use().pwrite(records, start)
        for place, header in headers:
            self._note_batch(
                start + place, header.size_bytes, header.last_offset, header.max_timestamp
            )
        self.size = start + len(records)

    def _note_batch(
        self, position: int, size: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Remember a written batch: largest timestamp, sparse indexes, latest positions."""
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        largest = self._max_timestamp
        if largest is None:
            largest = self.max_timestamp
        if max_timestamp_ms > largest[0]:
            self._max_timestamp = TimestampOffset(max_timestamp_ms, Offset(last_offset))
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._add_index_entry(position, last_offset)
        self.bytes_since_index_entry += size
        recent = self._recent_last_offsets
        if len(recent) >= _RECENT_BATCHES_MAX:
            half = _RECENT_BATCHES_MAX // 2
            self._recent_floor = recent[half - 1]
            del recent[:half]
            del self._recent_positions[:half]
        recent.append(last_offset)
        self._recent_positions.append(position)

    def _add_index_entry(self, position: int, last_offset: int) -> None:
        offset_index, time_index = self.offset_index, self.time_index
        self._offset_unsaved += offset_index.append(Offset(last_offset), position)
        largest = self.max_timestamp
        self._time_unsaved += time_index.maybe_append(largest.timestamp_ms, largest.offset)
        self.is_index_full = offset_index.is_full or time_index.is_full
        self.is_index_saved = False
        self.bytes_since_index_entry = 0

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction to the transaction index."""
        self._txn_unsaved += self.txn_index.append(aborted)
        self.is_index_saved = False

    def undo_failed_append(self) -> None:
        """Cut off what a failed write may have left behind the known end."""
        self.log.use().truncate(self.size)

    # Indexes.

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
            self._txn_index = TransactionIndex(
                Offset(self.base_offset), self._read_index(FileKind.TRANSACTION_INDEX)
            )
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
        if self._first_timestamp_ms == _UNKNOWN:
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
        self._first_timestamp_ms = _UNKNOWN
        self.bytes_since_index_entry = 0
        self.is_index_full = False
        self.is_index_saved = False
        self._forget_positions()

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

    def become_inactive(self) -> None:
        """Close the time index with the largest timestamp: retention reads it from there."""
        largest = self.max_timestamp
        if largest.timestamp_ms > self.time_index.last.timestamp_ms:
            self._time_unsaved += self.time_index.maybe_append(
                largest.timestamp_ms, largest.offset, is_segment_closing=True
            )
            self.is_index_saved = False
        self._forget_positions()

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

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Read both indexes from their files; from the log itself if they are no good."""
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
            return self._rebuild_indexes()
        if len(offset_index) and offset_index.entry(len(offset_index) - 1).position >= self.size:
            return self._rebuild_indexes()
        self._offset_index, self._time_index = offset_index, time_index
        self.is_index_full = offset_index.is_full or time_index.is_full
        self._index_cache.note_loaded(self)
        return offset_index, time_index

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        txn_index = self._txn_index
        self.reset_indexes()
        self._txn_index = txn_index
        for position, header in self.headers():
            self.note_recovered_batch(
                position, header.size_bytes, header.last_offset, header.max_timestamp
            )
        return self.offset_index, self.time_index

    def _adopt_empty_indexes(self) -> None:
        base_offset, bytes_max = Offset(self.base_offset), self._index_bytes_max
        self._offset_index = OffsetIndex(base_offset, index_bytes_max=bytes_max)
        self._time_index = TimeIndex(base_offset, index_bytes_max=bytes_max)
        self._txn_index = TransactionIndex(base_offset)
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

    # Looking things up.

    def position_of(self, offset: int) -> int | None:
        """Where the first batch that reaches `offset` starts; None if none does."""
        if offset > self._recent_floor:
            slot = bisect_left(self._recent_last_offsets, offset)
            if slot < len(self._recent_last_offsets):
                return self._recent_positions[slot]
            return None
        position = self._cursors.get(offset)
        if position is not None:
            return position
        position = self.offset_index.lookup(Offset(offset)).position
        return self._scan_for(offset, position)

    def read_small(self, offset: int, bytes_max: int, end_offset: int) -> bytes | bytearray | None:
        """Whole batches from the one that holds `offset` on, all below `end_offset`.

        At most `bytes_max` bytes, but the first batch whole. One read of the file finds the place
        and the records. None where it does not: the offset is not here, there is much to read,
        the disk would have to be waited for.
        """
        if offset > self._recent_floor:
            return self._read_recent(offset, bytes_max, end_offset)
        if bytes_max > SMALL_BYTES_MAX:
            return None
        position = self._cursors.get(offset)
        if position is None:
            position = self.offset_index.lookup_position(offset)
        log = self.log
        block = (log.file or log.use()).pread_resident(
            min(bytes_max + _SCAN_BLOCK_BYTES, self.size - position), position
        )
        if block is None:
            return None
        unpack = _BATCH_SPAN.unpack_from
        block_end = len(block)
        last_header = block_end - _BATCH_SPAN_BYTES
        start = end = 0
        next_offset = -1
        while end <= last_header:
            base_offset, length, delta = unpack(block, end)
            batch_end = end + length + LOG_OVERHEAD_BYTES
            last_offset = base_offset + delta
            if last_offset < offset:
                start = end = batch_end
                continue
            is_first = next_offset < 0
            if batch_end > block_end or last_offset >= end_offset:
                break
            if not is_first and batch_end - start > bytes_max:
                break
            end = batch_end
            next_offset = last_offset + 1
        if next_offset < 0:
            return None
        if position + end < self.size:
            self.remember_cursor(next_offset, position + end)
        return block[start:end]

    def _read_recent(
        self, offset: int, bytes_max: int, end_offset: int
    ) -> bytes | bytearray | None:
        last_offsets, positions = self._recent_last_offsets, self._recent_positions
        slot = bisect_left(last_offsets, offset)
        count = len(last_offsets)
        if slot == count:
            return None
        start = positions[slot]
        end = self.size
        if last_offsets[-1] >= end_offset:
            end = positions[bisect_left(last_offsets, end_offset)]
        if end - start > bytes_max:
            fitting = bisect_right(positions, start + bytes_max) - 1
            end = positions[max(fitting, slot + 1)] if slot + 1 < count else self.size
        if not 0 < end - start <= SMALL_BYTES_MAX:
            return None
        log = self.log
        return (log.file or log.use()).pread_resident(end - start, start)

    def whole_batches_end(self, start: int, bytes_max: int, limit: int) -> int:
        """The last batch boundary in [start, start + bytes_max], not past `limit`.

        `start` and `limit` are boundaries themselves.
        """
        wanted = start + bytes_max
        if wanted >= limit:
            return limit
        recent = self._recent_positions
        if recent and recent[0] <= wanted:
            boundary: int = recent[bisect_right(recent, wanted) - 1]
            return max(boundary, start)
        position = start
        if bytes_max > self.index_interval_bytes:
            position = max(self.offset_index.floor_position(wanted), start)
        unpack = _BATCH_SPAN.unpack_from
        next_offset = -1
        while position < limit:
            block, at = self._block_at(position, limit)
            block_start, block_end = position - at, len(block) - _BATCH_SPAN_BYTES
            while at <= block_end:
                base_offset, length, delta = unpack(block, at)
                end = block_start + at + length + LOG_OVERHEAD_BYTES
                if end > wanted:
                    position = block_start + at
                    if next_offset >= 0:
                        self.remember_cursor(next_offset, position)
                    return position
                next_offset = base_offset + delta + 1
                at += length + LOG_OVERHEAD_BYTES
            position = block_start + at
        return limit

    def remember_cursor(self, next_offset: int, position: int) -> None:
        """A reader was given everything below `next_offset`, and will ask for it next."""
        cursors = self._cursors
        if len(cursors) >= _CURSORS_MAX:
            cursors.clear()
        cursors[next_offset] = position

    def first_batch_size(self, position: int) -> int:
        """The size of the batch at `position`."""
        return self.header_at(position).size_bytes

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

    def _scan_for(self, offset: int, position: int) -> int | None:
        unpack = _BATCH_SPAN.unpack_from
        size = self.size
        while position < size:
            block, at = self._block_at(position, size)
            block_start, block_end = position - at, len(block) - _BATCH_SPAN_BYTES
            while at <= block_end:
                base_offset, length, delta = unpack(block, at)
                if base_offset + delta >= offset:
                    return block_start + at
                at += length + LOG_OVERHEAD_BYTES
            position = block_start + at
        return None

    def _block_at(self, position: int, size: int) -> tuple[bytes, int]:
        """Bytes of the file with at least a header at `position`, and where in them it lies.

        A reader looks for a place and then for how far it may go from there: one read mostly
        serves both, as batches in the file do not change.
        """
        block_start, block = self._block
        at = position - block_start
        if at >= 0 and len(block) - at >= _BATCH_SPAN_BYTES:
            return block, at
        block = self.log.use().pread(min(_SCAN_BLOCK_BYTES, size - position), position)
        if len(block) < _BATCH_SPAN_BYTES:
            raise CorruptSegmentError(f"{self.log.path} ends inside the header at {position}")
        self._block = (position, block)
        return block, 0

    # Cutting and deleting.

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop every batch that reaches `offset`, from files and indexes; the new end.

        The new end is below `offset` if a batch lies across it, as batches are never cut.
        """
        position = self.position_of(offset)
        if position is not None:
            offset = min(offset, self.header_at(position).base_offset)
        self._drop_index_tail(offset)
        if position is not None:
            self.log.use().truncate(position)
            self.size = position
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp_ms = _UNKNOWN
        self.bytes_since_index_entry = 0
        self._forget_positions()
        self.become_active(offset)
        self._max_timestamp = self._find_max_timestamp()
        self.save_indexes()
        return offset

    def _drop_index_tail(self, offset: int) -> None:
        self.save_indexes()
        self.offset_index.truncate_to(Offset(offset))
        self.time_index.truncate_to(Offset(offset))
        self.txn_index.truncate_to(Offset(offset))
        self.is_index_full = False
        self.is_index_saved = False

    def _find_max_timestamp(self) -> TimestampOffset:
        largest = self.time_index.last
        start = self.offset_index.lookup(largest.offset).position
        for _, header in self.headers(start):
            if header.max_timestamp > largest.timestamp_ms:
                largest = TimestampOffset(header.max_timestamp, Offset(header.last_offset))
        return largest

    def _forget_positions(self) -> None:
        self._cursors.clear()
        self._block = (0, b"")
        del self._recent_last_offsets[:]
        del self._recent_positions[:]
        self._recent_floor = _EVERYTHING_BELOW

    def become_active(self, next_offset: int) -> None:
        """Batches from `next_offset` on will be appended here."""
        self._recent_floor = next_offset - 1

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
