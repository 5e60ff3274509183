"""A simulated node's disk: the `Disk` interface, its faults, and the count of its operations.

The disk outlives the node's processes: each life of the node gets its own `MountedDisk` onto
one `SimulatedDisk`. Files that a dead life left open answer nothing but NodeDown.

Every call that changes something counts as one operation, so that a test can cut the power
after each one in turn and see what recovery makes of it.
"""

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence

from ottla.runtime.interfaces import Buffer
from ottla.runtime.simulated.incarnation import Incarnation, PowerCut
from ottla.runtime.simulated.inodes import (
    Change,
    DirectoryNode,
    FileNode,
    NameEffect,
    Names,
    Node,
    Survival,
    Truncate,
    Write,
)
from ottla.runtime.simulated.trace import Trace

CAPACITY_BYTES = 1 << 40

OnOperation = Callable[[str, str], None]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _absolute(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


class SimulatedDisk:
    """One machine's disk, as a test sees it."""

    def __init__(self, rng: random.Random, trace: Trace, wall_ms: Callable[[], int]) -> None:
        self.names = Names()
        self.wall_ms = wall_ms
        self.operations = 0
        self.cold_read_probability = 0.0
        self.rng = rng
        self._trace = trace
        self._observers: list[OnOperation] = []
        self._cut_at: int | None = None
        self._has_power = True
        self._on_power_cut: Callable[[], None] = lambda: None
        self._io_failures: list[tuple[str, bool, bool]] = []
        self._sync_failures: dict[str, int] = {}
        self._space_left: int | None = None
        self._open_files_max: int | None = None
        self.locks: dict[FileNode, Incarnation] = {}

    def on_operation(self, callback: OnOperation) -> None:
        """Call `callback(kind, path)` before each operation that changes something."""
        self._observers.append(callback)

    def on_power_cut(self, callback: Callable[[], None]) -> None:
        self._on_power_cut = callback

    def cut_power_after(self, operations: int) -> None:
        """Let that many more operations pass; the next is under way when the power fails."""
        self._cut_at = self.operations + operations

    def fail_io(self, prefix: str, *, reads: bool = True, writes: bool = True) -> None:
        """Answer EIO for every path that starts with `prefix`, until `heal`."""
        self._io_failures.append((_absolute(prefix), reads, writes))

    def fail_sync(self, prefix: str, *, times: int = 1) -> None:
        """Let the next syncs below `prefix` fail, each losing what it should have saved.

        As on Linux, the kernel forgets the pages whose write-back failed: they stay visible,
        a later sync succeeds, and they are still not on the platter.
        """
        self._sync_failures[_absolute(prefix)] = times

    def limit_space(self, growth_bytes: int | None) -> None:
        """Answer ENOSPC once files have grown by so much more; None lifts the limit."""
        self._space_left = growth_bytes

    def limit_open_files(self, count: int | None) -> None:
        """Answer EMFILE to a process that has so many files open; None lifts the limit."""
        self._open_files_max = count

    def heal(self) -> None:
        self._io_failures.clear()
        self._sync_failures.clear()
        self._space_left = None
        self._open_files_max = None

    def lose_power(self, survival: Survival | None = None) -> None:
        """Fall back to what was saved, and of the rest to what the seed lets survive."""
        self._cut_at = None
        self._has_power = True
        self.locks.clear()
        self.names.lose_power(self.rng, survival)
        for file in self.names.files():
            file.lose_power(self.rng, survival)

    def forget_locks(self, incarnation: Incarnation) -> None:
        """The kernel drops the locks of a process that is gone."""
        for node in [node for node, holder in self.locks.items() if holder is incarnation]:
            del self.locks[node]

    def space(self) -> tuple[int, int]:
        left = CAPACITY_BYTES if self._space_left is None else self._space_left
        return CAPACITY_BYTES, left

    def reading(self, path: str) -> None:
        self._check_power()
        if any(reads and path.startswith(prefix) for prefix, reads, _ in self._io_failures):
            raise _error(errno.EIO, path)

    def changing(self, kind: str, path: str) -> None:
        """Count an operation. A failing one is not counted: it changed nothing."""
        self._check_power()
        for callback in self._observers:
            callback(kind, path)
        if any(writes and path.startswith(prefix) for prefix, _, writes in self._io_failures):
            raise _error(errno.EIO, path)
        self.operations += 1
        self._trace.note(f"disk {kind} {path}")

    def changed(self) -> None:
        """Close an operation: it is under way in the kernel, and now the power may fail."""
        if self._cut_at is not None and self.operations > self._cut_at:
            self._has_power = False
            self._on_power_cut()
            self._check_power()

    def is_cut_off(self) -> bool:
        """Whether the operation under way is the one that the power cut interrupts."""
        return self._cut_at is not None and self.operations > self._cut_at

    def take_sync_failure(self, path: str) -> bool:
        for prefix, times in self._sync_failures.items():
            if times > 0 and path.startswith(prefix):
                self._sync_failures[prefix] = times - 1
                return True
        return False

    def take_space(self, wanted: int) -> int:
        """How many of the `wanted` bytes of growth the disk has room for."""
        if self._space_left is None:
            return wanted
        granted = min(wanted, self._space_left)
        self._space_left -= granted
        return granted

    def check_descriptors(self, open_count: int, path: str) -> None:
        if self._open_files_max is not None and open_count >= self._open_files_max:
            raise _error(errno.EMFILE, path)

    def _check_power(self) -> None:
        if not self._has_power:
            raise PowerCut("the disk has no power")


class SimulatedFile:
    __slots__ = ("_disk", "_incarnation", "_is_open", "_is_writable", "_node", "_on_close", "path")

    def __init__(
        self,
        disk: SimulatedDisk,
        incarnation: Incarnation,
        path: str,
        node: FileNode,
        *,
        writable: bool,
        on_close: Callable[[], None],
    ) -> None:
        self.path = path
        self._on_close = on_close
        self._disk = disk
        self._incarnation = incarnation
        self._node = node
        self._is_open = True
        self._is_writable = writable

    def __repr__(self) -> str:
        return f"SimulatedFile({self.path!r} on {self._incarnation!r})"

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        self._check()
        return len(self._node.visible)

    def pread(self, size: int, offset: int) -> bytes:
        self._check()
        self._disk.reading(self.path)
        return bytes(self._node.visible[offset : offset + size])

    def pread_resident(self, size: int, offset: int) -> bytes | None:
        if not self.is_resident(offset, size):
            return None
        data = self.pread(size, offset)
        return data if len(data) == size else None

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._write(bytes(data), offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._write(b"".join(buffers), offset)

    def is_resident(self, offset: int, length: int) -> bool:
        self._check()
        cold = self._disk.cold_read_probability
        return not cold or self._disk.rng.random() >= cold

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        self._disk.changing("truncate", self.path)
        self._change(Truncate(size))

    def sync(self) -> None:
        self._check()
        self._disk.changing("sync", self.path)
        if self._disk.take_sync_failure(self.path):
            self._node.lose_pending(self._disk.rng)
            raise _error(errno.EIO, self.path)
        if not self._disk.is_cut_off():
            self._node.sync()
        self._disk.changed()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._on_close()

    def _write(self, data: bytes, offset: int) -> None:
        self._check(writing=True)
        self._disk.changing("write", self.path)
        growth = max(0, offset + len(data) - len(self._node.visible))
        missing = growth - self._disk.take_space(growth)
        written = data[: max(0, len(data) - missing)] if missing else data
        if written:
            self._change(Write(offset, written))
        if missing:
            raise _error(errno.ENOSPC, self.path)

    def _change(self, change: Change) -> None:
        self._node.change(change)
        self._node.mtime_ms = self._disk.wall_ms()
        self._disk.changed()

    def _check(self, *, writing: bool = False) -> None:
        self._incarnation.check()
        if not self._is_open or (writing and not self._is_writable):
            raise _error(errno.EBADF, self.path)


class SimulatedLock:
    __slots__ = ("_disk", "_incarnation", "_node")

    def __init__(self, disk: SimulatedDisk, incarnation: Incarnation, node: FileNode) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._node: FileNode | None = node

    def release(self) -> None:
        node, self._node = self._node, None
        if node is not None and self._incarnation.is_alive:
            self._disk.locks.pop(node, None)


class MountedDisk:
    """The disk as one life of its node uses it."""

    def __init__(self, disk: SimulatedDisk, incarnation: Incarnation) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self.open_count = 0

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimulatedFile:
        path = self._opening(path)
        node = self._find(path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = self._create(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        self.open_count += 1
        return SimulatedFile(
            self._disk,
            self._incarnation,
            path,
            node,
            writable=writable,
            on_close=self._on_file_closed,
        )

    def _on_file_closed(self) -> None:
        self.open_count -= 1

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._file(self._opening(path)).visible)

    def write_atomic(self, path: str, data: bytes) -> None:
        path = self._reading(path)
        file = self.open(f"{path}.tmp", create=True)
        if file.size():
            file.truncate(0)
        if data:
            file.pwrite(data, 0)
        file.sync()
        file.close()
        self.rename(f"{path}.tmp", path)
        self.sync_dir(posixpath.dirname(path))

    def exists(self, path: str) -> bool:
        return self._find(self._reading(path)) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(self._reading(path)), DirectoryNode)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(self._reading(path)).visible)

    def size(self, path: str) -> int:
        return len(self._file(self._reading(path)).visible)

    def mtime_ms(self, path: str) -> int:
        return self._present(self._reading(path)).mtime_ms

    def mkdir(self, path: str) -> None:
        path = self._reading(path)
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            return
        if node is not None:
            raise _error(errno.EEXIST, path)
        parent_path, name = posixpath.split(path)
        self.mkdir(parent_path)
        self._disk.changing("mkdir", path)
        made = DirectoryNode(mtime_ms=self._disk.wall_ms())
        self._change_names(NameEffect(self._directory(parent_path), name, made))

    def rename(self, source: str, target: str) -> None:
        source, target = self._reading(source), self._reading(target)
        node = self._present(source)
        source_parent, source_name = self._parent(source)
        target_parent, target_name = self._parent(target)
        replaced = target_parent.visible.get(target_name)
        if replaced is node:
            return
        if isinstance(node, FileNode) and isinstance(replaced, DirectoryNode):
            raise _error(errno.EISDIR, target)
        if isinstance(node, DirectoryNode):
            if isinstance(replaced, FileNode):
                raise _error(errno.ENOTDIR, target)
            if replaced is not None and replaced.visible:
                raise _error(errno.ENOTEMPTY, target)
            if f"{target}/".startswith(f"{source}/"):
                raise _error(errno.EINVAL, target)
        self._disk.changing("rename", source)
        self._change_names(
            NameEffect(source_parent, source_name, None),
            NameEffect(target_parent, target_name, node),
        )

    def remove(self, path: str) -> None:
        path = self._reading(path)
        self._file(path)
        self._unlink("remove", path)

    def rmtree(self, path: str) -> None:
        path = self._reading(path)
        for name, node in sorted(self._directory(path).visible.items()):
            if isinstance(node, DirectoryNode):
                self.rmtree(f"{path}/{name}")
            else:
                self._unlink("remove", f"{path}/{name}")
        self._unlink("rmdir", path)

    def sync_dir(self, path: str) -> None:
        path = self._opening(path)
        directory = self._directory(path)
        self._disk.changing("sync_dir", path)
        if self._disk.take_sync_failure(path):
            raise _error(errno.EIO, path)
        if not self._disk.is_cut_off():
            self._disk.names.sync(directory)
        self._disk.changed()

    def free_bytes(self, path: str) -> tuple[int, int]:
        self._present(self._reading(path))
        return self._disk.space()

    def lock(self, path: str) -> SimulatedLock:
        path = self._reading(path)
        node = self._find(path) or self._create(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        if node in self._disk.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock", path)
        self._disk.locks[node] = self._incarnation
        return SimulatedLock(self._disk, self._incarnation, node)

    def _reading(self, path: str) -> str:
        self._incarnation.check()
        path = _absolute(path)
        self._disk.reading(path)
        return path

    def _opening(self, path: str) -> str:
        path = self._reading(path)
        self._disk.check_descriptors(self.open_count, path)
        return path

    def _create(self, path: str) -> FileNode:
        parent, name = self._parent(path)
        self._disk.changing("create", path)
        node = FileNode(mtime_ms=self._disk.wall_ms())
        self._change_names(NameEffect(parent, name, node))
        return node

    def _unlink(self, kind: str, path: str) -> None:
        parent, name = self._parent(path)
        self._disk.changing(kind, path)
        self._change_names(NameEffect(parent, name, None))

    def _change_names(self, *effects: NameEffect) -> None:
        self._disk.names.change(*effects)
        for effect in effects:
            effect.directory.mtime_ms = self._disk.wall_ms()
        self._disk.changed()

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._disk.names.root
        for name in path.split("/"):
            if not name:
                continue
            if node is None:
                return None
            if isinstance(node, FileNode):
                return None
            node = node.visible.get(name)
        return node

    def _present(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._present(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._present(path)
        if isinstance(node, FileNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent, name = posixpath.split(path)
        return self._directory(parent), name
