"""How much memory the indexes of closed segments may take.

A consumer that reads a terabyte from the start passes a thousand segments, each with five
megabytes of indexes. They are read from their files when first needed and forgotten, the
first loaded first, once all of them together are more than the bound.

Owned by the log manager, through its FilePool; used on the event loop only.
"""

from collections import deque
from typing import Protocol

# A dozen full segments of the default size; a lookup elsewhere reads its index again.
INDEX_BYTES_MAX = 64 << 20


class IndexHolder(Protocol):
    def index_bytes(self) -> int:
        """What the loaded indexes take."""

    def forget_indexes(self) -> None:
        """Give the memory back, unless the indexes have yet to be saved."""


class IndexCache:
    __slots__ = ("_bytes_max", "_loaded", "_total_bytes")

    def __init__(self, bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._loaded: deque[tuple[IndexHolder, int]] = deque()
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        return self._total_bytes

    def note_loaded(self, holder: IndexHolder) -> None:
        """`holder` has read its indexes; others may have to forget theirs."""
        size = holder.index_bytes()
        self._loaded.append((holder, size))
        self._total_bytes += size
        while self._total_bytes > self._bytes_max and len(self._loaded) > 1:
            oldest, freed = self._loaded.popleft()
            self._total_bytes -= freed
            if oldest is not holder:
                oldest.forget_indexes()
