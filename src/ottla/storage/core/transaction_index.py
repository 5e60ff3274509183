"""Which aborted transactions a reader of committed records must skip in a segment.

One entry for each aborted transaction, written when its abort marker is: 2 bytes of version,
then producer id, first offset, last offset (of the marker) and the last stable offset at that
moment, 8 bytes each, big-endian: `.txnindex`. The last stable offset tells a reader when it
has seen every aborted transaction that can reach into its range.

Pure. `append` returns the bytes that the shell owes the file at `size_bytes` before it.

Invariant: last offsets strictly increase, last stable offsets do not decrease.
"""

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import Offset, ProducerId
from ottla.storage.core.index_bytes import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">18xq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the abort marker, inclusive
    last_stable_offset: Offset


class AbortedTransactions(NamedTuple):
    transactions: list[AbortedTransaction]
    is_complete: bool  # no later segment can add to them


class TransactionIndex:
    __slots__ = ("_data", "_entries", "base_offset")

    def __init__(self, base_offset: Offset, data: bytes | bytearray = b"") -> None:
        """Adopt the bytes of a file. Raises CorruptIndexError if they cannot be one."""
        self.base_offset = base_offset
        # A torn last entry is what a crash leaves; the marker behind it is replayed.
        self._data = bytearray(data[: len(data) - len(data) % ENTRY_BYTES])
        self._entries = len(self._data) // ENTRY_BYTES
        for version, _, _, last_offset, _ in _ENTRY.iter_unpack(self._data):
            if version != VERSION:
                raise CorruptIndexError(f"version {version} of an aborted transaction is unknown")
            if last_offset < base_offset:
                raise CorruptIndexError(
                    f"an aborted transaction ends at {last_offset}, before {base_offset}"
                )

    def __len__(self) -> int:
        return self._entries

    @property
    def data(self) -> bytes:
        """The file's whole content."""
        return bytes(self._data)

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    @property
    def transactions(self) -> list[AbortedTransaction]:
        return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(self._data)]

    def append(self, aborted: AbortedTransaction) -> bytes:
        """Add an aborted transaction and return its bytes."""
        if self._entries and aborted.last_offset <= self._last_offset_at(self._entries - 1):
            raise InvariantError(f"{aborted} does not end after the one before it")
        entry = _ENTRY.pack(VERSION, *aborted)
        self._data += entry
        self._entries += 1
        return entry

    def collect(self, fetch_offset: Offset, end_offset: Offset) -> AbortedTransactions:
        """Aborted transactions that touch [fetch_offset, end_offset)."""
        found: list[AbortedTransaction] = []
        first = bisect_left(range(self._entries), fetch_offset, key=self._last_offset_at)
        # The entry before the first that matters may already say that there are no more.
        for slot in range(max(first - 1, 0), self._entries):
            aborted = self._entry(slot)
            if slot >= first and aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return AbortedTransactions(found, is_complete=True)
        return AbortedTransactions(found, is_complete=False)

    def truncate_to(self, offset: Offset) -> bool:
        """Forget transactions that end at or above `offset`; True if there were any."""
        keep = bisect_left(range(self._entries), offset, key=self._last_offset_at)
        if keep == self._entries:
            return False
        del self._data[keep * ENTRY_BYTES :]
        self._entries = keep
        return True

    def clear(self) -> None:
        self._data.clear()
        self._entries = 0

    def _entry(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._data, slot * ENTRY_BYTES)[1:])

    def _last_offset_at(self, slot: int) -> Offset:
        last_offset: Offset = _LAST_OFFSET.unpack_from(self._data, slot * ENTRY_BYTES)[0]
        return last_offset
