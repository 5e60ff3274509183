"""Where in a segment file to start looking for an offset.

The index is sparse: one entry about every `index.interval.bytes`, so a lookup answers with
the last entry at or below the wanted offset and the reader scans batch headers from there.
An entry is a relative offset and a file position, 4 bytes each, big-endian: `.index`.

Pure. `append` returns the bytes that the shell owes the file at `size_bytes` before it.

Invariant: relative offsets strictly increase and lie in [0, 2^31).
"""

from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt
from struct import Struct
from typing import NamedTuple

from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import Offset
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX, CorruptIndexError, whole_entries

_ENTRY = Struct(">ii")
_FIELD = Struct(">i")
ENTRY_BYTES = _ENTRY.size


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class OffsetIndex:
    __slots__ = ("_data", "_entries", "_last_relative", "base_offset", "entries_max")

    def __init__(
        self, base_offset: Offset, *, index_bytes_max: int, data: bytes | bytearray = b""
    ) -> None:
        """Adopt the bytes of a file. Raises CorruptIndexError if they cannot be one."""
        self.base_offset = base_offset
        self.entries_max = index_bytes_max // ENTRY_BYTES
        # No entry is all zeros: the first batch of a segment, at position 0, is not indexed.
        self._data: bytes | bytearray = whole_entries(data, ENTRY_BYTES)
        self._entries = len(self._data) // ENTRY_BYTES
        self._last_relative = self._relative_at(self._entries - 1) if self._entries else -1
        if self._entries and self._last_relative < 0:
            raise CorruptIndexError(
                f"the last offset lies {-self._last_relative} before base offset {base_offset}"
            )

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
        return self._entries >= self.entries_max

    @property
    def last_offset(self) -> Offset:
        """The offset of the last entry, the base offset if there is none."""
        return Offset(self.base_offset + max(self._last_relative, 0))

    def entry(self, slot: int) -> OffsetPosition:
        if not 0 <= slot < self._entries:
            raise IndexError(f"entry {slot} of {self._entries}")
        relative, position = _ENTRY.unpack_from(self._data, slot * ENTRY_BYTES)
        return OffsetPosition(Offset(self.base_offset + relative), position)

    def can_append(self, offset: Offset) -> bool:
        """Whether `offset` can be written relative to the base offset."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def lookup(self, offset: Offset) -> OffsetPosition:
        """The last entry at or below `offset`; (base offset, 0) if there is none."""
        relative = offset - self.base_offset
        if relative >= self._last_relative:  # consumers near the end ask for nothing else
            slot = self._entries - 1
        else:
            slot = bisect_right(range(self._entries), relative, key=self._relative_at) - 1
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """The first entry at or past file position `position`, or None past the last."""
        slot = bisect_left(range(self._entries), position, key=self._position_at)
        return self.entry(slot) if slot < self._entries else None

    def append(self, offset: Offset, position: int) -> bytes:
        """Add an entry and return its bytes."""
        relative = offset - self.base_offset
        if self._entries >= self.entries_max:
            raise InvariantError(f"offset index is full with {self._entries} entries")
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise InvariantError(f"offset {offset} is out of reach of {self.base_offset}")
        if relative <= self._last_relative:
            raise InvariantError(f"offset {offset} is not above {self.last_offset}")
        entry = _ENTRY.pack(relative, position)
        self._writable().extend(entry)
        self._entries += 1
        self._last_relative = relative
        return entry

    def truncate_to(self, offset: Offset) -> bool:
        """Forget entries at or above `offset`; True if there were any."""
        keep = bisect_left(range(self._entries), offset - self.base_offset, key=self._relative_at)
        if keep == self._entries:
            return False
        del self._writable()[keep * ENTRY_BYTES :]
        self._entries = keep
        self._last_relative = self._relative_at(keep - 1) if keep else -1
        return True

    def clear(self) -> None:
        self.truncate_to(self.base_offset)

    def check_order(self) -> None:
        """Read every entry; CorruptIndexError unless offsets and positions both increase."""
        if self._entries and self._relative_at(0) < 0:
            raise CorruptIndexError(f"the first offset lies before {self.base_offset}")
        for column, name in enumerate(("offset", "position")):
            values = [entry[column] for entry in _ENTRY.iter_unpack(self._data)]
            if not all(map(lt, values, islice(values, 1, None))):
                raise CorruptIndexError(f"the {name}s do not increase")

    def _relative_at(self, slot: int) -> int:
        relative: int = _FIELD.unpack_from(self._data, slot * ENTRY_BYTES)[0]
        return relative

    def _position_at(self, slot: int) -> int:
        position: int = _FIELD.unpack_from(self._data, slot * ENTRY_BYTES + 4)[0]
        return position

    def _writable(self) -> bytearray:
        data = self._data
        if not isinstance(data, bytearray):
            data = self._data = bytearray(data)
        return data
