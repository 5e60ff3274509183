"""One segment of a partition log: appending to it, and finding places in it.

The `.log` file holds batches as they came. A reader wants "the first batch that reaches
offset X": the sparse offset index says where to start, and a scan of batch headers does the
rest. Most reads need neither: they ask for the end of the log, where the positions of the
latest batches are still in memory, or they go on where a read of this segment ended.

What is not in memory or in the page cache is waited for, unless the caller must not: then
WouldWait says what a thread has to read first.

Owned by its PartitionLog, on the event loop; files and indexes are in `segment_indexes`.

Invariants: [0, size) of the file is whole batches with increasing offsets. The batches that
`_recent_*` describes are the last ones of the segment, without a gap in positions.
"""

from array import array
from bisect import bisect_left, bisect_right
from functools import partial
from struct import Struct

from ottla.protocol.batches import LOG_OVERHEAD_BYTES, BatchHeader
from ottla.protocol.ids import Offset
from ottla.runtime.interfaces import Buffer, Disk, Offload
from ottla.storage.batch_headers import CorruptSegmentError
from ottla.storage.core.offset_index import OffsetIndex
from ottla.storage.core.time_index import TimestampOffset
from ottla.storage.file_pool import FilePool
from ottla.storage.files.names import FileState
from ottla.storage.segment_indexes import INDEX_KINDS, UNKNOWN_MS, IndexedSegment
from ottla.storage.slices import SMALL_BYTES_MAX
from ottla.storage.would_wait import WouldWait

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

_EVERYTHING_BELOW = (1 << 63) - 1


class Segment(IndexedSegment):
    __slots__ = (
        "_block",
        "_cursors",
        "_is_preallocated",
        "_recent_floor",
        "_recent_last_offsets",
        "_recent_positions",
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
        super().__init__(
            disk,
            pool,
            directory,
            base_offset,
            size=size,
            index_interval_bytes=index_interval_bytes,
            index_bytes_max=index_bytes_max,
            created_ms=created_ms,
            roll_jitter_ms=roll_jitter_ms,
            state=state,
        )
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")
        # Offsets above it are known to be in the recent batches or nowhere in this segment.
        self._recent_floor = base_offset - 1 if size == 0 else _EVERYTHING_BELOW
        self._cursors: dict[int, int] = {}
        self._is_preallocated = False  # the file goes on with zeros behind `size`
        # What a scan read last, and from where.
        self._block: tuple[int, bytes | bytearray] = (0, b"")

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
        segment.has_txn_file = False
        return segment

    def copy_to(self, pool: FilePool, max_timestamp: TimestampOffset | None) -> "Segment":
        """A segment over the same files as they are now, for a thread to read."""
        copy = Segment(
            self._disk,
            pool,
            self._directory,
            self.base_offset,
            size=self.size,
            index_interval_bytes=self.index_interval_bytes,
            index_bytes_max=self._index_bytes_max,
            created_ms=self.created_ms,
            state=self._log_state,
        )
        copy._index_state = self._index_state
        copy._max_timestamp = max_timestamp
        return copy

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

    def preallocate(self, size: int) -> None:
        """Give the file its full length at once."""
        self.log.use().truncate(size)
        self._is_preallocated = True

    def undo_failed_append(self) -> None:
        """Cut off what a failed write may have left behind the known end."""
        self._cut_off(self.size)

    def _cut_off(self, size: int) -> None:
        self.log.use().truncate(size)
        self._is_preallocated = False

    # Looking things up.

    def position_of(self, offset: int, may_wait: bool = True) -> int | None:
        """Where the first batch that reaches `offset` starts; None if none does."""
        if offset > self._recent_floor:
            slot = bisect_left(self._recent_last_offsets, offset)
            if slot < len(self._recent_last_offsets):
                return self._recent_positions[slot]
            return None
        position = self._cursors.get(offset)
        if position is not None:
            return position
        position = self._index_at_hand(may_wait).lookup(Offset(offset)).position
        return self._scan_for(offset, position, may_wait)

    def _index_at_hand(self, may_wait: bool) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            if not may_wait:
                raise WouldWait(self._fetch_indexes)
            return self.offset_index
        return index

    async def _fetch_indexes(self, offload: Offload) -> None:
        state = self._index_state
        loaded = await offload.run(self.read_indexes)
        if state is not self._index_state:
            return  # the files were renamed meanwhile; who asks again finds them
        if loaded is not None:
            self.adopt_indexes(loaded)
        elif self._offset_index is None:
            self._load_indexes()

    async def _fetch_range(self, position: int, length: int, offload: Offload) -> None:
        file = self.log.pin()
        try:
            await offload.run(file.pread, length, position)
        finally:
            self.log.release()

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
            index = self._offset_index
            if index is None:
                return None
            position = index.lookup_position(offset)
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

    def whole_batches_end(
        self, start: int, bytes_max: int, limit: int, may_wait: bool = True
    ) -> int:
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
            position = max(self._index_at_hand(may_wait).floor_position(wanted), start)
        unpack = _BATCH_SPAN.unpack_from
        next_offset = -1
        while position < limit:
            block, at = self._block_at(position, limit, may_wait)
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

    def first_batch_size(self, position: int, may_wait: bool = True) -> int:
        """The size of the batch at `position`."""
        block, at = self._block_at(position, self.size, may_wait)
        length: int = _BATCH_SPAN.unpack_from(block, at)[1]
        return length + LOG_OVERHEAD_BYTES

    def _scan_for(self, offset: int, position: int, may_wait: bool) -> int | None:
        unpack = _BATCH_SPAN.unpack_from
        size = self.size
        while position < size:
            block, at = self._block_at(position, size, may_wait)
            block_start, block_end = position - at, len(block) - _BATCH_SPAN_BYTES
            while at <= block_end:
                base_offset, length, delta = unpack(block, at)
                if base_offset + delta >= offset:
                    return block_start + at
                at += length + LOG_OVERHEAD_BYTES
            position = block_start + at
        return None

    def _block_at(self, position: int, size: int, may_wait: bool) -> tuple[bytes | bytearray, int]:
        """Bytes of the file with at least a header at `position`, and where in them it lies.

        A reader looks for a place and then for how far it may go from there: one read mostly
        serves both, as batches in the file do not change.
        """
        block_start, block = self._block
        at = position - block_start
        if at >= 0 and len(block) - at >= _BATCH_SPAN_BYTES:
            return block, at
        wanted = min(_SCAN_BLOCK_BYTES, size - position)
        file = self.log.use()
        found = file.pread(wanted, position) if may_wait else file.pread_resident(wanted, position)
        if found is None:
            raise WouldWait(partial(self._fetch_range, position, wanted))
        block = found
        if len(block) < _BATCH_SPAN_BYTES:
            raise CorruptSegmentError(f"{self.log.path} ends inside the header at {position}")
        self._block = (position, block)
        return block, 0

    # Beginning and ending.

    def reset_indexes(self) -> None:
        super().reset_indexes()
        self._forget_positions()

    def become_inactive(self) -> None:
        """No more batches come: the indexes can be saved for good."""
        if self._is_preallocated:
            self._cut_off(self.size)
        self.close_time_index()
        self._forget_positions()

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop every batch that reaches `offset`, from files and indexes; the new end.

        The new end is below `offset` if a batch lies across it, as batches are never cut.
        """
        position = self.position_of(offset)
        if position is not None:
            offset = min(offset, self.header_at(position).base_offset)
        self._drop_index_tail(offset)
        if position is not None:
            self._cut_off(position)
            self.size = position
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp_ms = UNKNOWN_MS
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
