"""Files on the machine's own disk.

Calls are plain system calls on descriptors: a Python file object would add a buffer of its
own between a write and the kernel, and then a killed process would lose what it wrote.

Short writes are legal for regular files (a signal, a nearly full disk), so every write loops
until all bytes are in or the kernel names an error.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from itertools import islice

from ottla.runtime.interfaces import Buffer

# Linux and macOS refuse more buffers than this in one call.
IOV_MAX = 1024

_fdatasync = getattr(os, "fdatasync", os.fsync)
_RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
# What a file system answers that does not know the page cache.
_CANNOT_TELL = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS))
_F_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the cache


def _sync_descriptor(descriptor: int) -> None:
    if _F_FULLFSYNC is not None:
        fcntl.fcntl(descriptor, _F_FULLFSYNC)
    else:
        _fdatasync(descriptor)


class RealFile:
    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __repr__(self) -> str:
        return f"RealFile({self.path!r})"

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._descriptor, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_resident(self, size: int, offset: int) -> bytes | bytearray | None:
        if _RWF_NOWAIT is None:
            return self.pread(size, offset)
        data = bytearray(size)
        try:
            got = os.preadv(self._descriptor, (data,), offset, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _CANNOT_TELL:
                return self.pread(size, offset)
            raise
        return data if got == size else None

    def pwrite(self, data: Buffer, offset: int) -> None:
        size = len(data)
        written = os.pwrite(self._descriptor, data, offset)
        if written != size:
            with memoryview(data) as view:
                while written < size:
                    written += os.pwrite(self._descriptor, view[written:], offset + written)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        if len(buffers) > IOV_MAX:
            remaining = iter(buffers)
            while chunk := list(islice(remaining, IOV_MAX)):
                self.pwritev(chunk, offset)
                offset += sum(map(len, chunk))
            return
        written = os.pwritev(self._descriptor, buffers, offset)
        if written == sum(map(len, buffers)):
            return
        for buffer in buffers:
            size = len(buffer)
            if written < size:
                self.pwrite(memoryview(buffer)[written:], offset + written)
            written = max(0, written - size)
            offset += size

    def is_resident(self, offset: int, length: int) -> bool:
        if _RWF_NOWAIT is None or length <= 0:
            return True
        probe = [bytearray(1)]
        try:
            os.preadv(self._descriptor, probe, offset, _RWF_NOWAIT)
            if length > 1:
                os.preadv(self._descriptor, probe, offset + length - 1, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _CANNOT_TELL:
                return True
            raise
        return True

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        _sync_descriptor(self._descriptor)

    def close(self) -> None:
        """Close once: by a second call the number may be someone else's."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)  # the kernel drops the lock with the last descriptor


class RealDisk:
    __slots__ = ()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        return RealFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644))

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = RealFile(temporary, os.open(temporary, flags, 0o644))
        try:
            if data:
                file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> RealLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealLock(descriptor)
