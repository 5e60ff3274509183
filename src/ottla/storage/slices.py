"""Where the records of a read lie: a range of a file, and never the records themselves.

The bytes go from the page cache to the socket (sendfile), or through one `pread`, so a read
costs the same for one record and for a megabyte. The file stays pinned until the holder of
the slice releases it; a segment that is deleted meanwhile stays readable through it.
"""

from typing import NamedTuple, Protocol

from ottla.runtime.interfaces import Buffer, File

# Below this a copy through Python is cheaper than the extra system calls of sendfile.
SMALL_BYTES_MAX = 32 * 1024
# Reads of a cold range pull it into the page cache in pieces of this size.
_WARM_BLOCK_BYTES = 1 << 20
# Available where later segments hold more: nobody needs to count that, or to wait for it.
UNBOUNDED = 1 << 62


class Pin(Protocol):
    def release(self) -> None:
        """The file may be closed now."""


class LogSlice(NamedTuple):
    """[position, position + length) of `file`: whole batches, or nothing."""

    file: File
    position: int
    length: int
    pin: Pin
    available: int  # bytes that a reader without a limit would find here; see UNBOUNDED

    def release(self) -> None:
        """Must be called once, when the bytes are with the kernel or no longer wanted."""
        self.pin.release()

    def read(self) -> bytes:
        """The bytes, for those who need them in memory."""
        return self.file.pread(self.length, self.position)

    def is_resident(self) -> bool:
        """Whether sending the slice would not wait for the disk."""
        return self.length == 0 or self.file.is_resident(self.position, self.length)


class _Nothing:
    """The file and the pin of an empty slice."""

    __slots__ = ()
    path = ""

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return 0

    def pread(self, size: int, offset: int) -> bytes:
        return b""

    def pread_resident(self, size: int, offset: int) -> bytes:
        return b""

    def pwrite(self, data: Buffer, offset: int) -> None:
        raise OSError("An empty slice cannot be written")

    def pwritev(self, buffers: object, offset: int) -> None:
        raise OSError("An empty slice cannot be written")

    def is_resident(self, offset: int, length: int) -> bool:
        return True

    def truncate(self, size: int) -> None:
        raise OSError("An empty slice cannot be truncated")

    def sync(self) -> None:
        return

    def close(self) -> None:
        return

    def release(self) -> None:
        return


_NOTHING = _Nothing()
EMPTY_SLICE = LogSlice(_NOTHING, 0, 0, _NOTHING, 0)


def warm(log_slice: LogSlice) -> None:
    """Read the slice and drop it, so that sending it will not wait. For `Offload.run`."""
    position, end = log_slice.position, log_slice.position + log_slice.length
    while position < end:
        size = min(_WARM_BLOCK_BYTES, end - position)
        if len(log_slice.file.pread(size, position)) < size:
            return  # truncated meanwhile
        position += size
