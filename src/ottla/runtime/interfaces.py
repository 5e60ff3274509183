"""What the rest of Ottla may ask of the outside world, and nothing more.

Every effect (time, chance, files, sockets, threads) passes through one of these
interfaces, so that the same broker runs on a real machine and, from one seed, inside
a simulation that loses power and cuts cables. `make check` fails when a module above
this room imports `time`, `random`, `os`, `socket` or `threading`, or calls `open`.

The event loop is asyncio's own in both worlds: code above uses `asyncio.Future`,
`create_task` and `loop.call_later` freely.

Ordering duties:
- What `File.pwrite` wrote survives a killed process at once, a power cut only after `sync`.
- A created, renamed or removed name survives a power cut only after `Disk.sync_dir` of its
  directory. `Disk.write_atomic` does all of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump, also backwards."""

    def monotonic(self) -> float:
        """Seconds that never go back; the event loop's time."""


class Random(Protocol):
    def random(self) -> float:
        """A float in [0, 1)."""

    def randint(self, low: int, high: int) -> int:
        """An integer in [low, high], both included."""

    def uuid4(self) -> UUID:
        """A random UUID whose Base64 form does not start with a dash, as Kafka draws them."""


class File(Protocol):
    """A regular file. Calls block, as the page cache answers in microseconds; what may wait
    for the platter (`sync`, cold reads) belongs into `Offload.run`."""

    path: str

    def fileno(self) -> int:
        """The descriptor, or -1 where there is none (simulation)."""

    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def pread_resident(self, size: int, offset: int) -> bytes | bytearray | None:
        """All of the `size` bytes, or None where reading them would wait (best effort)."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """All of `data`, or OSError."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """All buffers one after another, or OSError."""

    def is_resident(self, offset: int, length: int) -> bool:
        """Whether reading this range would not wait for the disk (best effort)."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once content and size would survive a power cut."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are plain strings. Errors are OSError with the usual errno."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace `path` so that a crash leaves the old or the new content, durably."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def mkdir(self, path: str) -> None:
        """Create the directory and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`."""

    def remove(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""

    def lock(self, path: str) -> Lock:
        """Take the lock file `path`; BlockingIOError if another process holds it."""


class Offload(Protocol):
    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function off the loop. Inline, but later, in a simulation."""

    def resize(self, threads_max: int) -> None:
        """Run what is handed in from now on in so many threads."""

    def close(self) -> None:
        """Wait for what is under way and refuse more."""


class Listener(Protocol):
    host: str
    port: int  # the real one where 0 was asked for

    def close(self) -> None:
        """Stop accepting. Open connections stay."""


class SocketOptions(NamedTuple):
    """What a listener asks of the kernel; -1 leaves a size to the system."""

    backlog: int = 1024
    receive_buffer_bytes: int = -1  # of each connection
    send_buffer_bytes: int = -1  # likewise


DEFAULT_SOCKET_OPTIONS = SocketOptions()


class Network(Protocol):
    async def resolve(self, host: str) -> list[str]:
        """The addresses of a host, as peers show them; OSError if it has none."""

    def host_name(self) -> str:
        """The name under which others may know this machine; asks the resolver, so it blocks."""

    async def listen(
        self,
        factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
    ) -> Listener: ...

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.Transport: ...

    def send_file(
        self,
        transport: asyncio.Transport,
        head: bytes,
        file: File,
        offset: int,
        count: int,
        tail: bytes = b"",
    ) -> "asyncio.Future[None] | None":
        """Send `head`, `count` bytes of `file`, and `tail`, after all that was written before.

        None means that all of it is with the kernel already. Otherwise nothing may be
        written to the transport until the future is done; it fails with ConnectionError if
        the peer is gone. The file must stay open until then.
        """

    def expect_another(self) -> None:
        """A small request was answered at once: whoever sent it may send the next at once."""

    def unsent_bytes(self, transport: asyncio.Transport) -> int:
        """What was written or is being sent and is not with the kernel yet."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """One node's outside world."""

    clock: Clock
    random: Random
    disk: Disk
    network: Network
    offload: Offload
    descriptors_max: int = 1024  # files and connections that the process may have open
