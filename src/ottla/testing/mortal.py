"""An outside world that can end at once, so that a broker in this process can be killed.

A process that is killed leaves its files as they are; its connections and locks go with it. In
process, somebody has to take them away: `die` closes every file, lock, listener and connection,
and refuses whatever a dying task still tries to write. What `File.pwrite` wrote stays, as it
would; a power cut is the simulation's business.

Owned by the broker's event loop; `die` is called on it.
"""

from __future__ import annotations

import errno
from dataclasses import replace

from ottla.runtime.interfaces import DEFAULT_SOCKET_OPTIONS, Runtime, SocketOptions
from ottla.runtime.real import real_runtime
from ottla.runtime.real_disk import RealDisk, RealFile, RealLock
from ottla.runtime.real_network import ProtocolFactory, RealListener, RealNetwork

# How many files may be remembered before closed ones are forgotten.
_FILES_BETWEEN_SWEEPS = 256


class MortalDisk(RealDisk):
    """Files and locks that close when the broker dies."""

    __slots__ = ("_files", "_is_dead", "_locks", "_sweep_at")

    def __init__(self) -> None:
        self._files: list[RealFile] = []
        self._locks: list[RealLock] = []
        self._is_dead = False
        self._sweep_at = _FILES_BETWEEN_SWEEPS

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        """Open a file that `die` will close."""
        self._refuse_if_dead(path)
        file = super().open(path, create=create, writable=writable)
        self._files.append(file)
        if len(self._files) >= self._sweep_at:
            self._files = [kept for kept in self._files if kept.fileno() >= 0]
            self._sweep_at = len(self._files) + _FILES_BETWEEN_SWEEPS
        return file

    def lock(self, path: str) -> RealLock:
        """Take a lock that `die` will release."""
        self._refuse_if_dead(path)
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file, unless dead."""
        self._refuse_if_dead(path)
        super().write_atomic(path, data)

    def mkdir(self, path: str) -> None:
        """Create a directory, unless dead."""
        self._refuse_if_dead(path)
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        """Rename, unless dead."""
        self._refuse_if_dead(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file, unless dead."""
        self._refuse_if_dead(path)
        super().remove(path)

    def rmtree(self, path: str) -> None:
        """Remove a directory, unless dead."""
        self._refuse_if_dead(path)
        super().rmtree(path)

    def die(self) -> None:
        """Close everything and take no more."""
        self._is_dead = True
        for file in self._files:
            file.close()
        for lock in self._locks:
            lock.release()

    def _refuse_if_dead(self, path: str) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "the broker was killed", path)


class MortalNetwork(RealNetwork):
    """Listeners and connections that end when the broker dies."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[RealListener] = []

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
    ) -> RealListener:
        """Listen until `die`."""
        listener = await super().listen(factory, host, port, options)
        self._listeners.append(listener)
        return listener

    def die(self) -> None:
        """Reset every connection and stop listening."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections.values()):
            connection.transport.abort()


class MortalRuntime:
    """A real runtime, and the means to end it."""

    def __init__(self) -> None:
        self._disk = MortalDisk()
        self._network = MortalNetwork()
        self.runtime: Runtime = replace(real_runtime(), disk=self._disk, network=self._network)

    def die(self) -> None:
        """End it as `kill -9` ends a process, save that threads finish what they began."""
        self._disk.die()
        self._network.die()

    def close(self) -> None:
        """Let go of the threads."""
        self.runtime.offload.close()
