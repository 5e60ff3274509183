"""What a thread does while a log is cleaned: read segments, write `.cleaned` files.

The log goes on being written and read meanwhile, by the event loop. So nothing here touches a
Segment or anything else that the loop owns: sources are paths and sizes, which do not change
as long as the segment is part of its log, and the result is files that nobody else knows of.

Work is a generator that yields after a fraction of a millisecond, with the bytes that it has
read and written since. Whoever drives it decides how long the interpreter may be held and
how fast the disk may be used, and may drop it at any point and call `discard`.

Invariant: batches whose CRC is wrong are never copied, as the copy would have a right one.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    iter_batches,
    iter_records,
    parse_control_key,
    read_header,
)
from ottla.protocol.codecs import decompress
from ottla.protocol.ids import Offset
from ottla.runtime.interfaces import Buffer, Disk, File
from ottla.storage.batch_headers import CorruptSegmentError
from ottla.storage.core.compaction_filter import PAUSE_RECORDS, BatchFilter
from ottla.storage.core.compaction_map import DIGEST_BYTES, OffsetMap, compact_key, walk_records
from ottla.storage.core.compaction_transactions import CleanedTransactions
from ottla.storage.core.offset_index import OffsetIndex
from ottla.storage.core.time_index import NO_TIMESTAMP_MS, TimeIndex
from ottla.storage.core.transaction_index import TransactionIndex
from ottla.storage.files.names import FileKind, FileState, segment_file_name
from ottla.storage.rewriting import DECOMPRESSED_BYTES_MAX

# Smaller reads would cost more in calls than they save in memory.
READ_BYTES_MIN = 16 << 10

Work = Generator[int, None, None]


class Source(NamedTuple):
    """A segment to be read: [start, size) of its file."""

    path: str
    size: int
    end_offset: int  # exclusive: the base offset of the segment after it
    start: int = 0


def build_offset_map(
    disk: Disk,
    sources: Sequence[Source],
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
    *,
    first_offset: int,
    read_bytes: int,
) -> Work:
    """Enter the keys of the dirty segments `sources`, until the map is full."""
    for source in sources:
        for header, batch, block_bytes in _read_batches(disk, source, read_bytes):
            yield block_bytes
            if header.is_control:
                records = iter_records(batch)
                types = [parse_control_key(record.key) for record in records]
                transactions.on_control_batch(header, types[0] if types else None)
            elif not transactions.on_data_batch(header):
                yield from _enter(header, batch, offset_map, first_offset)
                if offset_map.is_full:
                    return
            if header.last_offset >= first_offset:
                offset_map.latest_offset = header.last_offset
        offset_map.latest_offset = source.end_offset - 1


def _enter(
    header: BatchHeader, batch: memoryview, offset_map: OffsetMap, first_offset: int
) -> Work:
    """Enter the keys of one batch."""
    if not header.records_count or header.last_offset < first_offset:
        return
    section = batch[HEADER_BYTES:]
    data = (
        decompress(header.codec, section, size_max=DECOMPRESSED_BYTES_MAX)
        if header.attributes & CODEC_MASK
        else bytes(section)
    )
    offsets = offset_map.offsets
    room = offset_map.entries_max - header.records_count
    base_offset = header.base_offset
    walk = walk_records(data, header.records_count)
    for _ in range(0, header.records_count + 1, PAUSE_RECORDS):
        for _, _, delta, key, _ in islice(walk, PAUSE_RECORDS):
            offset = base_offset + delta
            if key is None or offset < first_offset:
                continue
            if len(offsets) <= room:
                offsets[key if len(key) < DIGEST_BYTES else compact_key(key)] = offset
            elif not offset_map.put(key, offset):
                return
        yield 0


def clean_segments(
    disk: Disk,
    sources: Sequence[Source],
    batch_filter: BatchFilter,
    transactions: CleanedTransactions,
    writer: "CleanedSegmentWriter",
    *,
    read_bytes: int,
) -> Work:
    """Copy what is to stay of `sources` into one segment."""
    for source in sources:
        for header, batch, block_bytes in _read_batches(disk, source, read_bytes):
            if block_bytes:
                yield block_bytes + writer.write_out()
            else:
                yield 0
            retained = yield from batch_filter.filter(header, batch)
            if retained is not None:
                writer.append(retained.batch, retained.last_offset, retained.max_timestamp_ms)
            if transactions.kept:
                writer.note_aborted(transactions)
        yield writer.write_out()


def _read_batches(
    disk: Disk, source: Source, read_bytes: int
) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    """Header and bytes of every batch; with the first of a block, how much was read for it."""
    file = disk.open(source.path, writable=False)
    try:
        position, wanted = source.start, max(read_bytes, READ_BYTES_MIN)
        while position < source.size:
            block = file.pread(min(wanted, source.size - position), position)
            used, block_bytes = 0, len(block)
            with memoryview(block) as view:
                for at, header in iter_batches(block):
                    used = at + header.size_bytes
                    batch = view[at:used]
                    if header.magic != MAGIC or crc32c(batch[ATTRIBUTES_AT:]) != header.crc:
                        raise CorruptSegmentError(
                            f"{source.path} has no sound batch at {position + at}"
                        )
                    yield header, batch, block_bytes
                    block_bytes = 0
            position += used
            wanted = max(read_bytes, READ_BYTES_MIN)
            if not used:
                wanted = _size_of_next(source, block, position)
    finally:
        file.close()


def _size_of_next(source: Source, block: bytes, position: int) -> int:
    """A batch does not fit into the block that was read: how large it is."""
    left = source.size - position
    if len(block) >= HEADER_BYTES:
        length = read_header(block).batch_length
        if len(block) < length + LOG_OVERHEAD_BYTES <= left and length >= LENGTH_MIN:
            return length + LOG_OVERHEAD_BYTES
    raise CorruptSegmentError(f"{source.path} has no whole batch at {position}")


class CleanedSegmentWriter:
    """The `.cleaned` files of a segment in the making."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes_max: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = Offset(base_offset)
        self._index_interval_bytes = index_interval_bytes
        self._offset_index = OffsetIndex(self._base_offset, index_bytes_max=index_bytes_max)
        self._time_index = TimeIndex(self._base_offset, index_bytes_max=index_bytes_max)
        self._txn_index = TransactionIndex(self._base_offset)
        self._bytes_since_entry = 0
        self._largest_ms, self._largest_offset = NO_TIMESTAMP_MS, self._base_offset
        self._waiting: list[Buffer] = []
        self._file: File | None = None
        self.size = 0  # of the log file, what is waiting included
        self._written = 0

    def append(self, batch: Buffer, last_offset: int, max_timestamp_ms: int) -> None:
        """Add a batch. It must stay as it is until `write_out`."""
        if max_timestamp_ms > self._largest_ms:
            self._largest_ms, self._largest_offset = max_timestamp_ms, Offset(last_offset)
        if self._bytes_since_entry > self._index_interval_bytes:
            self._offset_index.append(Offset(last_offset), self.size)
            self._time_index.maybe_append(self._largest_ms, self._largest_offset)
            self._bytes_since_entry = 0
        size = len(batch)
        self._bytes_since_entry += size
        self.size += size
        self._waiting.append(batch)

    def note_aborted(self, transactions: CleanedTransactions) -> None:
        for aborted in transactions.kept:
            self._txn_index.append(aborted)
        transactions.kept.clear()

    def write_out(self) -> int:
        """Write what is waiting; how many bytes that was."""
        if not self._waiting:
            return 0
        self._open().pwritev(self._waiting, self._written)
        self._waiting.clear()
        written = self.size - self._written
        self._written = self.size
        return written

    def finish(self) -> None:
        """Complete all files, durably. Their names will be synced as those of `.swap` files."""
        file = self._open()
        file.sync()
        file.close()
        self._file = None
        if self._largest_ms > self._time_index.last.timestamp_ms:
            self._time_index.maybe_append(
                self._largest_ms, self._largest_offset, is_segment_closing=True
            )
        self._write_file(FileKind.OFFSET_INDEX, self._offset_index.data)
        self._write_file(FileKind.TIME_INDEX, self._time_index.data)
        if len(self._txn_index):
            self._write_file(FileKind.TRANSACTION_INDEX, self._txn_index.data)

    def discard(self) -> None:
        """Remove what there is."""
        self._waiting.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
        for kind in FileKind:
            if self._disk.exists(self._path(kind)):
                self._disk.remove(self._path(kind))

    def _open(self) -> File:
        if self._file is None:
            self._file = self._emptied(FileKind.LOG)
        return self._file

    def _emptied(self, kind: FileKind) -> File:
        file = self._disk.open(self._path(kind), create=True)
        if file.size():
            file.truncate(0)
        return file

    def _write_file(self, kind: FileKind, data: bytes) -> None:
        file = self._emptied(kind)
        try:
            if data:
                file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()

    def _path(self, kind: FileKind) -> str:
        name = segment_file_name(self._base_offset, kind, FileState.CLEANED)
        return f"{self._directory}/{name}"
