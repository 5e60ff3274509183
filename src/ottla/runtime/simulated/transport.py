"""One end of a simulated TCP connection, as asyncio's protocols see it.

Bytes leave through a queue of what was written, are cut at random places, travel for the
latency of the link at that moment, and arrive in order. What the receiver has not taken yet
counts against a window, so a slow reader makes the writer's buffer grow and `pause_writing`
comes, as with a kernel.

The order of events on one connection never depends on the order in which the loop runs its
callbacks: each event is queued with its arrival time, and every callback takes from the front.

Stricter than a real transport in one thing: writing while a `send_file` is under way raises,
since on a real machine it would mix up the bytes of two answers.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.runtime.interfaces import Buffer, File
from ottla.runtime.simulated.incarnation import Incarnation

HIGH_WATER_BYTES = 64 * 1024
# Largest piece that arrives at once; what loopback delivers to a 64 KiB read.
CHUNK_BYTES_MAX = 64 * 1024
# Windows are drawn small enough that backpressure happens in every simulation.
WINDOW_BYTES_MIN = 4 * 1024
WINDOW_BYTES_MAX = 512 * 1024


class Fabric(Protocol):
    """What a connection's end asks of the network between the nodes."""

    rng: random.Random

    def latency(self, source: str, target: str) -> float: ...

    def is_blocked(self, source: str, target: str) -> bool: ...

    def has_power(self, node: str) -> bool:
        """Whether the node's kernel answers, even if no process of it lives."""

    def forget(self, end: "SimulatedTransport") -> None: ...


# Kernels act for nodes whose processes are dead, so packets travel outside of every node's life.
_KERNEL = Context()


class _End:
    """Markers in the stream of bytes."""


FIN = _End()
RESET = _End()


@dataclass(slots=True)
class _FilePart:
    file: File
    offset: int
    count: int
    done: "asyncio.Future[None]"


@dataclass(slots=True)
class _Arrival:
    when: float
    content: bytes | _End


class SimulatedTransport(asyncio.Transport):
    def __init__(
        self,
        fabric: Fabric,
        incarnation: Incarnation,
        context: Context,
        sockname: tuple[str, int],
        peername: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self._loop = asyncio.get_running_loop()
        self._fabric = fabric
        self._context = context
        self._protocol: asyncio.BufferedProtocol | None = None
        self._outgoing: deque[memoryview | _FilePart | _End] = deque()
        self._outgoing_bytes = 0
        self._in_flight: deque[_Arrival] = deque()  # from the peer, towards us
        self._received: deque[bytes | _End] = deque()
        self._unread_bytes = 0  # sent by the peer, not yet taken by our protocol
        self._window = fabric.rng.randint(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
        self._tiny_chunks = fabric.rng.random() * 0.3
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_paused_reading = False
        self._has_paused_protocol = False
        self._is_closing = False
        self._has_written_eof = False
        self._is_lost = False
        self._file_part: _FilePart | None = None
        self.incarnation = incarnation
        self.peer: SimulatedTransport | None = None

    def start(self, protocol: asyncio.BufferedProtocol, peer: "SimulatedTransport") -> None:
        self.peer = peer
        if self._is_lost:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        self._soon(self._deliver)

    def get_protocol(self) -> asyncio.BaseProtocol:
        if self._protocol is None:
            raise RuntimeError("the connection is not made yet")
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if not isinstance(protocol, asyncio.BufferedProtocol):
            raise TypeError("a simulated transport feeds BufferedProtocols only")
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused_reading = True

    def resume_reading(self) -> None:
        if self._is_paused_reading:
            self._is_paused_reading = False
            self._soon(self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._maybe_pause_protocol()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._outgoing_bytes

    def unsent_bytes(self) -> int:
        part = self._file_part
        return self._outgoing_bytes + (0 if part is None else part.count)

    def write(self, data: Buffer) -> None:
        self.incarnation.check()
        if self._file_part is not None and not self._is_closing:
            raise RuntimeError("written to a transport while a send_file is under way")
        if self._has_written_eof:
            raise RuntimeError("written to a transport after write_eof")
        if self._is_closing or not data:
            return
        self._outgoing.append(memoryview(bytes(data)))
        self._outgoing_bytes += len(data)
        if self._fabric.rng.random() < 0.5:
            self._pump()
        else:
            self._soon(self._pump)
        self._maybe_pause_protocol()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._has_written_eof and not self._is_closing:
            self._has_written_eof = True
            self._outgoing.append(FIN)
            self._soon(self._pump)

    def send_file(
        self, head: bytes, file: File, offset: int, count: int, tail: bytes
    ) -> asyncio.Future[None]:
        self.write(head)
        done: asyncio.Future[None] = self._loop.create_future()
        done.add_done_callback(self._on_file_done)
        self._file_part = _FilePart(file, offset, count, done)
        self._outgoing.append(self._file_part)
        if tail:
            self._outgoing.append(memoryview(tail))
            self._outgoing_bytes += len(tail)
        self._pump()
        return done

    def close(self) -> None:
        """Send what is buffered, then end."""
        if self._is_closing:
            return
        self.incarnation.check()
        self._is_closing = True
        if not self._has_written_eof:
            self._outgoing.append(FIN)
        self._fail_file(ConnectionAbortedError("the connection was closed during a send_file"))
        self._soon(self._pump)

    def abort(self) -> None:
        """End at once. What a kernel tells the peer then depends on what was left unread."""
        if not self._is_lost:
            self.incarnation.check()
            self.drop(None, tell_peer=self._farewell())

    def drop(self, error: Exception | None, *, tell_peer: _End | None) -> None:
        """Lose the connection from this end; the protocol hears of it."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        if tell_peer is not None and self.peer is not None:
            self._send(tell_peer)
        self._discard()
        self._fail_file(ConnectionResetError("the connection was lost during a send_file"))
        self._fabric.forget(self)
        self._soon(self._tell_lost, error)

    def vanish(self, *, kernel_survives: bool) -> None:
        """End with the process behind this end; only a kernel can still tell the peer."""
        if kernel_survives:
            self._send(self._farewell())
        self._is_lost = self._is_closing = True
        self._discard()
        self._fabric.forget(self)

    def kick(self) -> None:
        """Look again at what waits: the link may be open now."""
        self._loop.call_soon(self._arrive, context=_KERNEL)

    def _discard(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._received.clear()
        self._unread_bytes = 0

    def _farewell(self) -> _End:
        """What a kernel sends when a socket is closed; it resets if bytes were left unread."""
        return RESET if self._unread_bytes > 0 or self._coin() else FIN

    def _coin(self) -> bool:
        return self._fabric.rng.random() < 0.5

    def _soon(self, callback: Any, *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context)

    def _tell_lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # Outgoing: queue -> window -> the peer's in-flight queue.

    def _pump(self) -> None:
        peer = self.peer
        if peer is None or self._is_lost:
            return
        while self._outgoing:
            first = self._outgoing[0]
            if isinstance(first, _End):
                self._outgoing.popleft()
                self._send(first)
                continue
            room = self._window - peer._unread_bytes
            if room <= 0:
                break
            try:
                piece = self._take(min(room, self._chunk_bytes()))
            except OSError as error:
                self._fail_file(error)
                self.drop(error, tell_peer=RESET)
                return
            if piece:
                peer._unread_bytes += len(piece)
                self._send(piece)
        self._maybe_resume_protocol()
        if self._is_closing and not self._outgoing and not self._is_lost:
            self._is_lost = True
            if self._unread_bytes > 0:
                self._send(RESET)
            self._discard()
            self._fabric.forget(self)
            self._soon(self._tell_lost, None)

    def _take(self, size: int) -> bytes:
        """Up to `size` bytes from the front of the queue."""
        first = self._outgoing[0]
        if isinstance(first, _FilePart):
            wanted = min(size, first.count)
            piece = first.file.pread(wanted, first.offset)
            if len(piece) != wanted:
                raise ConnectionAbortedError(f"{first.file.path} ended {first.count} bytes early")
            first.offset += wanted
            first.count -= wanted
            if first.count == 0:
                self._outgoing.popleft()
                self._file_part = None
                if not first.done.done():
                    first.done.set_result(None)
            return piece
        if isinstance(first, _End):
            raise RuntimeError("a marker is not data")
        piece = bytes(first[:size])
        if len(piece) == len(first):
            self._outgoing.popleft()
        else:
            self._outgoing[0] = first[size:]
        self._outgoing_bytes -= len(piece)
        return piece

    def _chunk_bytes(self) -> int:
        rng = self._fabric.rng
        if rng.random() < self._tiny_chunks:
            return rng.randint(1, 16)
        return rng.randint(1, CHUNK_BYTES_MAX)

    def _send(self, content: bytes | _End) -> None:
        peer = self.peer
        if peer is None:
            return
        latency = self._fabric.latency(self.incarnation.node, peer.incarnation.node)
        when = self._loop.time() + latency
        if peer._in_flight:
            when = max(when, peer._in_flight[-1].when)
        peer._in_flight.append(_Arrival(when, content))
        self._loop.call_at(when, peer._arrive, context=_KERNEL)

    def _maybe_pause_protocol(self) -> None:
        if self._outgoing_bytes > self._high and not self._has_paused_protocol and self._protocol:
            self._has_paused_protocol = True
            self._protocol.pause_writing()

    def _maybe_resume_protocol(self) -> None:
        if self._has_paused_protocol and self._outgoing_bytes <= self._low and self._protocol:
            self._has_paused_protocol = False
            self._protocol.resume_writing()

    def _fail_file(self, error: Exception) -> None:
        part, self._file_part = self._file_part, None
        if part is not None and not part.done.done():
            part.done.set_exception(error)

    def _on_file_done(self, done: "asyncio.Future[None]") -> None:
        if done.cancelled() and self._file_part is not None and self._file_part.done is done:
            self._file_part = None
            self.abort()

    # Incoming: in-flight queue -> received queue -> the protocol's buffer.

    def _arrive(self) -> None:
        peer = self.peer
        if peer is None or self._fabric.is_blocked(peer.incarnation.node, self.incarnation.node):
            return
        now = self._loop.time()
        while self._in_flight and self._in_flight[0].when <= now:
            content = self._in_flight.popleft().content
            if self._is_lost:
                self._refuse(content)
            elif content is RESET:
                reset = ConnectionResetError("the peer reset the connection")
                self.drop(reset, tell_peer=None)
            else:
                self._received.append(content)
                self._soon(self._deliver)

    def _refuse(self, content: bytes | _End) -> None:
        """Data for a connection that this end has forgotten is answered with a reset."""
        if not isinstance(content, _End) and self._fabric.has_power(self.incarnation.node):
            self._send(RESET)

    def _deliver(self) -> None:
        """Hand some bytes to the protocol; others get their turn before the next."""
        if self._is_lost or self._is_closing or self._is_paused_reading or not self._received:
            return
        protocol = self._protocol
        if protocol is None:
            return
        first = self._received.popleft()
        try:
            if isinstance(first, _End):
                self._on_eof(protocol)
            else:
                self._feed(protocol, self._coalesce(first))
        except Exception as error:  # noqa: BLE001  (a protocol's defect closes its connection)
            self._loop.call_exception_handler(
                {"message": "protocol failed on received data", "exception": error}
            )
            self.drop(error, tell_peer=RESET)
            return
        if self._received:
            self._soon(self._deliver)

    def _coalesce(self, data: bytes) -> bytes:
        """Sometimes what was sent in pieces is read at once."""
        while self._received and len(data) < CHUNK_BYTES_MAX and self._coin():
            following = self._received[0]
            if isinstance(following, _End):
                break
            data += following
            self._received.popleft()
        return data

    def _feed(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        with memoryview(protocol.get_buffer(-1)) as buffer:
            size = min(len(buffer), len(data))
            if size == 0:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:size] = data[:size]
        if size < len(data):
            self._received.appendleft(data[size:])
        self._unread_bytes -= size
        if self.peer is not None:
            self.peer._soon(self.peer._pump)
        protocol.buffer_updated(size)

    def _on_eof(self, protocol: asyncio.BufferedProtocol) -> None:
        if not protocol.eof_received():
            self.close()
