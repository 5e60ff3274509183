"""From which offset on a segment may hold records as late as a timestamp.

An entry (T, offset) says: no record at or below `offset` in this segment is later than T.
So entries are added only when the largest timestamp so far has grown, whatever order the
producers' clocks write in. A timestamp and a relative offset, 8 and 4 bytes, big-endian:
`.timeindex`.

Pure. `maybe_append` returns the bytes that the shell owes the file at `size_bytes` before it.

Invariant: timestamps strictly increase, offsets do not decrease.
"""

from bisect import bisect_left, bisect_right
from itertools import islice
from operator import le, lt
from struct import Struct
from typing import NamedTuple

from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import Offset
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX, CorruptIndexError, whole_entries

_ENTRY = Struct(">qi")
_TIMESTAMP = Struct(">q")
_RELATIVE = Struct(">i")
ENTRY_BYTES = _ENTRY.size

NO_TIMESTAMP_MS = -1


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: Offset


class TimeIndex:
    __slots__ = ("_data", "_entries", "base_offset", "entries_max", "last")

    def __init__(
        self, base_offset: Offset, *, index_bytes_max: int, data: bytes | bytearray = b""
    ) -> None:
        """Adopt the bytes of a file. Raises CorruptIndexError if they cannot be one."""
        self.base_offset = base_offset
        self.entries_max = index_bytes_max // ENTRY_BYTES
        # A lone entry of zeros is one: records of 1970 at the base offset.
        is_lone = len(data) == ENTRY_BYTES
        self._data: bytes | bytearray = data if is_lone else whole_entries(data, ENTRY_BYTES)
        self._entries = len(self._data) // ENTRY_BYTES
        self.last = self._find_last()
        if self._entries:
            if self.last.timestamp_ms < self._timestamp_at(0):
                raise CorruptIndexError("the last timestamp is less than the first")
            if self.last.offset < base_offset:
                raise CorruptIndexError(f"the last offset lies before base offset {base_offset}")

    def __len__(self) -> int:
        return self._entries

    @property
    def data(self) -> bytes:
        """The file's whole content."""
        return bytes(self._data)

    @property
    def size_bytes(self) -> int:
        return self._entries * ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        # The slot left over takes the segment's largest timestamp when it rolls.
        return self._entries >= self.entries_max - 1

    def entry(self, slot: int) -> TimestampOffset:
        if not 0 <= slot < self._entries:
            raise IndexError(f"entry {slot} of {self._entries}")
        timestamp_ms, relative = _ENTRY.unpack_from(self._data, slot * ENTRY_BYTES)
        return TimestampOffset(timestamp_ms, Offset(self.base_offset + relative))

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The last entry at or before `timestamp_ms`; (-1, base offset) if there is none."""
        slot = bisect_right(range(self._entries), timestamp_ms, key=self._timestamp_at) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        return self.entry(slot)

    def maybe_append(
        self, timestamp_ms: int, offset: Offset, *, is_segment_closing: bool = False
    ) -> bytes:
        """Add an entry if `timestamp_ms` is a new maximum; return its bytes, or none."""
        if self.is_full and not (is_segment_closing and self._entries < self.entries_max):
            raise InvariantError(f"time index is full with {self._entries} entries")
        if self._entries and offset < self.last.offset:
            raise InvariantError(f"offset {offset} is below {self.last.offset}")
        if self._entries and timestamp_ms < self.last.timestamp_ms:
            raise InvariantError(f"timestamp {timestamp_ms} is below {self.last.timestamp_ms}")
        if timestamp_ms <= self.last.timestamp_ms:
            return b""
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise InvariantError(f"offset {offset} is out of reach of {self.base_offset}")
        entry = _ENTRY.pack(timestamp_ms, relative)
        self._writable().extend(entry)
        self._entries += 1
        self.last = TimestampOffset(timestamp_ms, offset)
        return entry

    def truncate_to(self, offset: Offset) -> bool:
        """Forget entries at or above `offset`; True if there were any."""
        keep = bisect_left(range(self._entries), offset - self.base_offset, key=self._relative_at)
        if keep == self._entries:
            return False
        del self._writable()[keep * ENTRY_BYTES :]
        self._entries = keep
        self.last = self._find_last()
        return True

    def clear(self) -> None:
        self.truncate_to(self.base_offset)

    def check_order(self) -> None:
        """Read every entry; CorruptIndexError unless both columns keep their order."""
        entries = list(_ENTRY.iter_unpack(self._data))
        timestamps = [entry[0] for entry in entries]
        relatives = [entry[1] for entry in entries]
        if relatives and relatives[0] < 0:
            raise CorruptIndexError(f"the first offset lies before {self.base_offset}")
        if not all(map(lt, timestamps, islice(timestamps, 1, None))):
            raise CorruptIndexError("the timestamps do not increase")
        if not all(map(le, relatives, islice(relatives, 1, None))):
            raise CorruptIndexError("the offsets decrease")

    def _find_last(self) -> TimestampOffset:
        if not self._entries:
            return TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        return self.entry(self._entries - 1)

    def _timestamp_at(self, slot: int) -> int:
        timestamp_ms: int = _TIMESTAMP.unpack_from(self._data, slot * ENTRY_BYTES)[0]
        return timestamp_ms

    def _relative_at(self, slot: int) -> int:
        relative: int = _RELATIVE.unpack_from(self._data, slot * ENTRY_BYTES + 8)[0]
        return relative

    def _writable(self) -> bytearray:
        data = self._data
        if not isinstance(data, bytearray):
            data = self._data = bytearray(data)
        return data
