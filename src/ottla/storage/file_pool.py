"""How thousands of segments share a few hundred file descriptors.

A broker with ten thousand partitions has tens of thousands of segment files, and a
process may hold a few thousand descriptors. Opening a file for each request would double
the cost of a fetch, so opened files stay open until room is needed: the pool goes round
its files like the hand of a clock and closes the first one that nobody used since the
hand last passed (second chance). A file that a slice in flight points into is pinned and
never closed.

Owned by the log manager; used on the event loop only. A pinned file may be read from an
offload thread.

Invariant: a `PooledFile` is in the ring exactly once while its file is open.
"""

from collections import deque

from ottla.runtime.interfaces import Disk, File
from ottla.storage.failures import DESCRIPTOR_ERRNOS
from ottla.storage.index_cache import IndexCache

OPEN_FILES_MAX = 512
# Of the descriptors of a process; most are for connections.
_SHARE_OF_DESCRIPTORS = 4
# More would not make a broker faster, but holds memory of the kernel for each.
_SHARE_MAX = 4096


def share_of_files(descriptors_max: int) -> int:
    """How many files a pool may keep open in a process with so many descriptors."""
    return max(1, min(descriptors_max // _SHARE_OF_DESCRIPTORS, _SHARE_MAX))


class PooledFile:
    """One path that is opened when needed and closed when others need the room."""

    __slots__ = ("_pool", "creates", "file", "is_referenced", "is_retired", "path", "pins")

    def __init__(self, pool: "FilePool", path: str, *, creates: bool) -> None:
        self._pool = pool
        self.path = path
        self.creates = creates  # the file need not exist before its first use
        self.file: File | None = None
        self.is_referenced = False
        self.is_retired = False
        self.pins = 0

    def use(self) -> File:
        """The open file, good until the next call into the pool unless pinned."""
        self.is_referenced = True
        return self.file or self._pool.open(self)

    def pin(self) -> File:
        """The open file, good until `release`."""
        self.pins += 1
        try:
            return self.use()
        except OSError:
            self.pins -= 1
            raise

    def release(self) -> None:
        """Give one pin back."""
        if self.pins <= 0:
            raise ValueError(f"{self.path} was released more often than it was pinned")
        self.pins -= 1
        if self.is_retired and self.pins == 0:
            self._pool.close(self)

    def retire(self) -> None:
        """The path is no longer part of any log: close it once nobody reads it."""
        self.is_retired = True
        if self.pins == 0:
            self._pool.close(self)

    def close(self) -> None:
        """Close now unless pinned; the next use opens again."""
        if self.pins == 0:
            self._pool.close(self)


class FilePool:
    """At most `capacity` open files, more only while that many are pinned.

    `indexes` bounds what the segments of these files keep in memory.
    """

    __slots__ = ("_capacity", "_disk", "_ring", "indexes")

    def __init__(self, disk: Disk, capacity: int = OPEN_FILES_MAX) -> None:
        if capacity < 1:
            raise ValueError(f"A pool of {capacity} files can hold none")
        self._disk = disk
        self._capacity = capacity
        self._ring: deque[PooledFile] = deque()
        self.indexes = IndexCache()

    @property
    def open_count(self) -> int:
        return len(self._ring)

    def handle(self, path: str, *, creates: bool = False) -> PooledFile:
        """A handle for `path`; nothing is opened yet."""
        return PooledFile(self, path, creates=creates)

    def open(self, handle: PooledFile) -> File:
        """Open the handle's file, closing another where the pool is full."""
        if handle.file is not None:
            return handle.file
        self._make_room(self._capacity)
        try:
            file = self._disk.open(handle.path, create=handle.creates)
        except OSError as error:
            if error.errno not in DESCRIPTOR_ERRNOS:
                raise
            self._make_room(max(1, len(self._ring) // 2))
            file = self._disk.open(handle.path, create=handle.creates)
        handle.creates = False
        handle.file = file
        self._ring.append(handle)
        return file

    def close(self, handle: PooledFile) -> None:
        """Close the handle's file if it is open."""
        file = handle.file
        if file is None:
            return
        handle.file = None
        self._ring.remove(handle)
        file.close()

    def close_all(self) -> None:
        """Close every file, pinned or not: the node is going down."""
        while self._ring:
            handle = self._ring.popleft()
            file, handle.file = handle.file, None
            if file is not None:
                file.close()

    def _make_room(self, capacity: int) -> None:
        ring = self._ring
        # Two rounds: the first takes the second chances away, the second closes.
        for _ in range(2 * len(ring)):
            if len(ring) < capacity:
                return
            handle = ring.popleft()
            if handle.pins or handle.is_referenced:
                handle.is_referenced = False
                ring.append(handle)
                continue
            file, handle.file = handle.file, None
            if file is not None:
                file.close()
