"""Where in a segment file to start looking for an offset.

The index is sparse: one entry about every `index.interval.bytes`, so a lookup answers with
the last entry at or below the wanted offset and the reader scans batch headers from there.
An entry is a relative offset and a file position, 4 bytes each, big-endian: `.index`.

Pure. `append` returns the bytes that the shell owes the file at `size_bytes` before it.

Invariant: relative offsets strictly increase and lie in [0, 2^31).
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt
from struct import Struct
from typing import NamedTuple

from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import Offset
from ottla.storage.core.index_bytes import RELATIVE_OFFSET_MAX, CorruptIndexError, whole_entries

_ENTRY = Struct(">ii")
ENTRY_BYTES = _ENTRY.size
_INT32 = "i"


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class OffsetIndex:
    """Two columns of native integers, which a binary search walks without Python code."""

    __slots__ = ("_positions", "_relatives", "base_offset", "entries_max")

    def __init__(
        self, base_offset: Offset, *, index_bytes_max: int, data: bytes | bytearray = b""
    ) -> None:
        """Adopt the bytes of a file. Raises CorruptIndexError if they cannot be one."""
        self.base_offset = base_offset
        self.entries_max = index_bytes_max // ENTRY_BYTES
        # No entry is all zeros: the first batch of a segment, at position 0, is not indexed.
        fields = array(_INT32, bytes(whole_entries(data, ENTRY_BYTES)))
        if sys.byteorder == "little":
            fields.byteswap()
        self._relatives = fields[0::2]
        self._positions = fields[1::2]
        if self._relatives and self._relatives[-1] < 0:
            raise CorruptIndexError(
                f"the last offset lies {-self._relatives[-1]} before base offset {base_offset}"
            )

    def __len__(self) -> int:
        return len(self._relatives)

    @property
    def data(self) -> bytes:
        """The file's whole content."""
        pairs = zip(self._relatives, self._positions, strict=True)
        return b"".join(_ENTRY.pack(*pair) for pair in pairs)

    @property
    def size_bytes(self) -> int:
        return len(self._relatives) * ENTRY_BYTES

    @property
    def _last_relative(self) -> int:
        return self._relatives[-1] if self._relatives else -1

    @property
    def is_full(self) -> bool:
        return len(self._relatives) >= self.entries_max

    @property
    def last_offset(self) -> Offset:
        """The offset of the last entry, the base offset if there is none."""
        return Offset(self.base_offset + max(self._last_relative, 0))

    def entry(self, slot: int) -> OffsetPosition:
        if not 0 <= slot < len(self._relatives):
            raise IndexError(f"entry {slot} of {len(self._relatives)}")
        return OffsetPosition(
            Offset(self.base_offset + self._relatives[slot]), self._positions[slot]
        )

    def lookup(self, offset: Offset) -> OffsetPosition:
        """The last entry at or below `offset`; (base offset, 0) if there is none."""
        slot = bisect_right(self._relatives, offset - self.base_offset) - 1
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def lookup_position(self, offset: int) -> int:
        """Only the position of `lookup`, for readers in a hurry."""
        slot = bisect_right(self._relatives, offset - self.base_offset) - 1
        return self._positions[slot] if slot >= 0 else 0

    def floor_position(self, position: int) -> int:
        """The last indexed batch boundary at or before file position `position`; 0 if none."""
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """The first entry at or past file position `position`, or None past the last."""
        slot = bisect_left(self._positions, position)
        return self.entry(slot) if slot < len(self._positions) else None

    def append(self, offset: Offset, position: int) -> bytes:
        """Add an entry and return its bytes."""
        relative = offset - self.base_offset
        if self.is_full:
            raise InvariantError(f"offset index is full with {len(self)} entries")
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise InvariantError(f"offset {offset} is out of reach of {self.base_offset}")
        if relative <= self._last_relative:
            raise InvariantError(f"offset {offset} is not above {self.last_offset}")
        self._relatives.append(relative)
        self._positions.append(position)
        return _ENTRY.pack(relative, position)

    def truncate_to(self, offset: Offset) -> bool:
        """Forget entries at or above `offset`; True if there were any."""
        keep = bisect_left(self._relatives, offset - self.base_offset)
        if keep == len(self._relatives):
            return False
        del self._relatives[keep:]
        del self._positions[keep:]
        return True

    def clear(self) -> None:
        self.truncate_to(self.base_offset)

    def check_order(self) -> None:
        """Read every entry; CorruptIndexError unless offsets and positions both increase."""
        if self._relatives and self._relatives[0] < 0:
            raise CorruptIndexError(f"the first offset lies before {self.base_offset}")
        for column, name in ((self._relatives, "offset"), (self._positions, "position")):
            if not all(map(lt, column, islice(column, 1, None))):
                raise CorruptIndexError(f"the {name}s do not increase")
