"""One client connection: bytes in, frames out to the dispatcher, answers back in order.

Frames are parsed where they landed. All connections share one read buffer, because a frame
is used up before the loop reads again; a connection takes a buffer of its own only while it
holds half a frame, so ten thousand idle connections cost no buffers. A buffer grows with the
bytes that have arrived, never with the length that a stranger announced.

Answers leave in the order of the requests. A request that can be answered at once is answered
in the same call, with no task or future. One that waits holds the answers behind it; requests
behind it are started only if it says so: a produce, whose order is settled by its append (as a
producer with several requests in flight needs), and commits of offsets among each other. While
a client does not read its answers, nothing more of it is read.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from struct import Struct
from typing import NamedTuple, Protocol, TypeAlias, cast

from ottla.protocol.errors import KafkaError
from ottla.protocol.frames import RequestHeader, parse_header
from ottla.runtime.interfaces import File, Network
from ottla.server.read_buffers import ReadBuffers

log = logging.getLogger(__name__)

LENGTH = Struct(">i")
ABOUT = Struct(">I")  # API key and version, which a request begins with
# A request header has 8 bytes before its client id; nothing shorter can be answered.
REQUEST_BYTES_MIN = 8
# Small answers to requests that came together leave together, so many of them (each is two parts):
# a client that asks for much and reads nothing is then noticed, and its next request waits.
SMALL_ANSWER_BYTES = 4096
OUT_PARTS_MAX = 64
# What a client sends that waits for each answer: one request, and not a batch of records.
SMALL_REQUEST_BYTES = 4096
# Answers that wait behind a produce with acks=all. Producers keep five in flight; a client
# that pipelines hundreds is read no further until some are answered.
PENDING_ANSWERS_MAX = 64


class FileRange(NamedTuple):
    """Bytes of a file within an answer. `release` is called once they are sent."""

    file: File
    position: int
    length: int
    release: Callable[[], None]


Part: TypeAlias = bytes | bytearray | FileRange
# An answer without its length prefix; None where the protocol wants silence (acks=0).
Answer: TypeAlias = bytes | list[Part] | None


class Behind(Enum):
    """Which requests may be started while one before them waits for its answer."""

    NONE = auto()
    ALIKE = auto()  # of the same API and version; others might look at what it has yet to do
    ALL = auto()


class Deferred(NamedTuple):
    """An answer that comes later."""

    answer: Awaitable[Answer]
    behind: Behind = Behind.NONE


class Expected(Protocol):
    """The way around the dispatcher for a request that differs little from the last one."""

    def __call__(self, buffer: memoryview, start: int, end: int) -> bytes | Deferred | None:
        """Answer the request in [start, end); None if it is not the expected one."""


class Dispatch(Protocol):
    def __call__(
        self, connection: "Connection", header: RequestHeader, buffer: memoryview, end: int
    ) -> Answer | Deferred: ...


class ConnectionOwner(Protocol):
    """The listener's side of a connection."""

    name: str
    request_bytes_max: int
    network: Network
    dispatch: Dispatch
    buffers: ReadBuffers

    def on_connected(self, connection: "Connection") -> bool:
        """Register it; False refuses it."""

    def on_disconnected(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_alike",
        "_awaits_room",
        "_buffers",
        "_expected",
        "_filled",
        "_is_blocked",
        "_is_draining",
        "_is_in_call",
        "_is_reading",
        "_is_write_paused",
        "_out",
        "_own",
        "_own_view",
        "_pending",
        "_room",
        "bytes_in",
        "client_software",
        "is_closed",
        "is_idle",
        "owner",
        "peer_host",
        "sending",
        "transport",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self.owner = owner
        self._buffers = owner.buffers
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.client_software = ("unknown", "unknown")
        self.is_idle = False  # cleared by traffic, set by the idle sweep
        self.is_closed = False
        self.bytes_in = 0
        self._expected: dict[int, Expected] = {}  # by API key and version
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._filled = 0
        self._out: list[bytes | bytearray] = []
        self._pending: deque[asyncio.Future[Answer] | Answer] = deque()
        self._room = 0  # reserved for a request that has come in part
        self._awaits_room = False
        self._is_blocked = False  # an answer must be complete before more is started
        self._alike: int | None = None  # API key and version of what alone may be started
        self._is_draining = False
        self._is_write_paused = False
        self._is_in_call = False
        self._is_reading = True
        self.sending: asyncio.Future[None] | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = peer[0] if peer else ""
        if not self.owner.on_connected(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self.transport = None
        self._give_back()
        self._free_room()
        waiting, self._pending = self._pending, deque()
        for pending in waiting:
            if not isinstance(pending, asyncio.Future):
                _release(pending)
            elif not pending.done():
                self._pending.append(pending)
                # Not at once: what was started in this turn takes its first step before.
                asyncio.get_running_loop().call_soon(pending.cancel)
            elif not pending.cancelled() and pending.exception() is None:
                _release(pending.result())
        self.owner.on_disconnected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._own_view
        return self._buffers.shared if own is None else own[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.is_idle = False
        self.bytes_in += nbytes
        own = self._own_view
        if own is None:
            self._take_frames(self._buffers.shared, nbytes)
        else:
            self._take_frames(own, self._filled + nbytes)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._resume()

    def close(self) -> None:
        """Close once what was written is sent."""
        if not self.is_closed:
            self.is_closed = True
            if self.transport is not None:
                self.transport.close()

    def abort(self) -> None:
        self.is_closed = True
        if self.transport is not None:
            self.transport.abort()

    def hold(self) -> None:
        """Answer nothing until `release`: the broker is not ready.

        Called while the connection is made, when uvloop does not pause yet: it starts to read
        right after. So reading is paused a turn later, and what came until then is kept.
        """
        self._is_blocked = True
        asyncio.get_running_loop().call_soon(self._update_reading)

    def release(self) -> None:
        self._is_blocked = False
        self._resume()

    def expect(self, header: RequestHeader, expected: Expected | None) -> None:
        """Offer requests of this API and version to `expected` from now on, before all others."""
        about = header.api_key << 16 | header.api_version
        if expected is not None:
            self._expected[about] = expected
        else:
            self._expected.pop(about, None)

    def close_when_quiet(self) -> None:
        """Take no further request; close once those under way are answered."""
        self._is_draining = True
        self._update_reading()
        self._maybe_close()

    @property
    def unsent_bytes(self) -> int:
        """Of answers that the peer has yet to make room for."""
        transport = self.transport
        return 0 if transport is None else self.owner.network.unsent_bytes(transport)

    @property
    def is_answering(self) -> bool:
        return bool(self._pending) or self.sending is not None

    def _maybe_close(self) -> None:
        if self._is_draining and not self.is_answering:
            self.close()

    # Frames in

    def _take_frames(self, view: memoryview, end: int) -> None:
        """Dispatch each whole frame in `view[:end]`, then keep what is left.

        Called only while nothing must be waited for, as reading is paused otherwise, and by a
        connection on hold, which keeps everything.
        """
        position = 0
        self._is_in_call = True
        bytes_max = self.owner.request_bytes_max
        goes_on = not self._is_blocked
        while goes_on and end - position >= 4:
            (length,) = LENGTH.unpack_from(view, position)
            if not REQUEST_BYTES_MIN <= length <= bytes_max:
                self._refuse(
                    f"a request of {length} bytes; allowed are {REQUEST_BYTES_MIN} to {bytes_max}"
                )
                break
            start = position + 4
            if start + length > end:
                break
            (about,) = ABOUT.unpack_from(view, start)
            if self._alike is not None and about != self._alike:
                self._is_blocked = True
                goes_on = False
                break
            position = start + length
            goes_on = self._dispatch(about, view, start, position)
        self._is_in_call = False
        if self.is_closed:
            return
        if position < end or self._own is not None:
            self._keep(view, position, end)
        parts = len(self._out)
        if parts:
            self._flush()
            if parts == 2 and end <= SMALL_REQUEST_BYTES:
                self.owner.network.expect_another()
        if not (goes_on and self._is_reading):
            self._update_reading()

    @property
    def _must_wait(self) -> bool:
        return (
            self._is_blocked
            or self._is_draining
            or self._is_write_paused
            or self._awaits_room
            or self.sending is not None
            or len(self._pending) >= PENDING_ANSWERS_MAX
        )

    def _dispatch(self, about: int, view: memoryview, start: int, end: int) -> bool:
        """Start one request; whether the next may be started as well."""
        expected = self._expected.get(about)
        answer: Answer | Deferred
        try:
            answer = None if expected is None else expected(view, start, end)
            if answer is None:
                header = parse_header(view, start, end)
                answer = self.owner.dispatch(self, header, view, end)
        except KafkaError as error:
            self._refuse(str(error))
            return False
        if type(answer) is bytes and not self._pending:
            size = len(answer)
            out = self._out
            out.append(LENGTH.pack(size))
            out.append(answer)
            if size <= SMALL_ANSWER_BYTES and len(out) < OUT_PARTS_MAX:
                return True
            self._flush()
            return not (self.is_closed or self._must_wait)
        if isinstance(answer, Deferred):
            self._defer(answer, about)
        elif answer is not None:
            self._pending.append(answer)
            self._send_ready()
        return not (self.is_closed or self._must_wait)

    def _refuse(self, reason: str) -> None:
        """What cannot be parsed cannot be answered: as Kafka does, close the connection."""
        log.info("closing the connection of %s: %s", self.peer_host, reason)
        self._flush()
        self.close()

    def _keep(self, view: memoryview, position: int, end: int) -> None:
        """Hold the bytes behind the last whole frame until more arrive."""
        left = end - position
        own = self._own
        if position:
            self._free_room()
        if left == 0:
            self._give_back()
            self._filled = 0
            return
        wanted, frame_bytes = left + 1, 0
        if left >= 4:
            frame_bytes = 4 + LENGTH.unpack_from(view, position)[0]
            # Room for the whole frame, but never more than twice what has arrived.
            wanted = max(wanted, min(frame_bytes, 2 * left))
            if frame_bytes > left and not self._room and not self._awaits_room:
                self._ask_room(frame_bytes)
        if own is None or len(own) < wanted:
            grown = self._buffers.lend(wanted, frame_bytes)
            grown[:left] = view[position:end]
            self._give_back()
            self._own = grown
            self._own_view = memoryview(grown)
        elif position:
            view[:left] = bytes(view[position:end])
        self._filled = left

    def _ask_room(self, size: int) -> None:
        if self._buffers.reserve(self, size):
            self._room = size
        else:
            self._awaits_room = True
            self._update_reading()

    def on_room(self, size: int) -> None:
        """The rest of the request may be read now."""
        if self.transport is None:
            self._buffers.free(self, size)
            return
        self._room = size
        self._awaits_room = False
        self._resume()

    def _free_room(self) -> None:
        if self._room or self._awaits_room:
            size, self._room, self._awaits_room = self._room, 0, False
            self._buffers.free(self, size)

    def _give_back(self) -> None:
        own = self._own
        if own is not None:
            self._own = self._own_view = None
            self._buffers.give_back(own)

    # Answers out

    def _defer(self, deferred: Deferred, about: int) -> None:
        future = asyncio.ensure_future(deferred.answer)
        self._pending.append(future)
        self._is_blocked = deferred.behind is Behind.NONE
        if deferred.behind is Behind.ALIKE:
            self._alike = about
        future.add_done_callback(self._on_answer_ready)

    def _on_answer_ready(self, future: "asyncio.Future[Answer]") -> None:
        if future.cancelled():
            return
        if self.transport is None:
            # It came after all. One that was there before was given up with the connection.
            if future in self._pending and future.exception() is None:
                _release(future.result())
            return
        error = future.exception()
        if isinstance(error, KafkaError):
            self._refuse(str(error))
            return
        if error is not None:
            log.error("a request of %s failed", self.peer_host, exc_info=error)
            self.abort()
            return
        self._send_ready()
        self._resume()

    def _send_ready(self) -> None:
        """Send the answers at the head of the queue that are complete."""
        pending = self._pending
        while pending and self.sending is None:
            head = pending[0]
            if isinstance(head, asyncio.Future):
                if not head.done():
                    return
                head = head.result()
            pending.popleft()
            if not pending:
                self._is_blocked = False
                self._alike = None
            if isinstance(head, bytes):
                self._out.append(LENGTH.pack(len(head)))
                self._out.append(head)
            elif head is not None:
                self._out.append(LENGTH.pack(_length(head)))
                self._send_parts(head)
        if not self._is_in_call:
            self._flush()
            self._maybe_close()

    def _send_parts(self, parts: list[Part]) -> None:
        """An answer with ranges of files in it, which the kernel sends by itself."""
        transport = self.transport
        if transport is None or self.is_closed:
            _release(parts)
            return
        out = self._out
        number = 0
        while number < len(parts):
            part = parts[number]
            number += 1
            if not isinstance(part, FileRange):
                out.append(part)
                continue
            head = b"".join(out)
            out.clear()
            tail = b""
            if number < len(parts) and isinstance(parts[number], bytes):
                # What follows goes along, or it would wait for a turn of its own.
                tail = cast(bytes, parts[number])
                number += 1
            sent = self.owner.network.send_file(
                transport, head, part.file, part.position, part.length, tail
            )
            if sent is None:
                part.release()
                continue
            self.sending = sent
            sent.add_done_callback(partial(self._on_sent, part, parts[number:]))
            return

    def _on_sent(self, part: FileRange, rest: list[Part], sent: "asyncio.Future[None]") -> None:
        self.sending = None
        part.release()
        if sent.cancelled() or sent.exception() is not None:
            _release(rest)
            self.abort()
            return
        self._send_parts(rest)
        self._send_ready()
        self._resume()

    def _flush(self) -> None:
        out = self._out
        if out and self.sending is None and self.transport is not None:
            self.transport.write(b"".join(out) if len(out) > 1 else out[0])
            out.clear()

    def _resume(self) -> None:
        """Go on with frames that arrived while an answer was awaited."""
        if self.is_closed or self._is_in_call:
            return
        own = self._own_view
        if own is not None and not self._must_wait:
            self._take_frames(own, self._filled)
        else:
            self._update_reading()

    def _update_reading(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._must_wait == self._is_reading:
            self._is_reading = not self._is_reading
            if self._is_reading:
                transport.resume_reading()
            else:
                transport.pause_reading()


def _length(parts: list[Part]) -> int:
    return sum(part.length if isinstance(part, FileRange) else len(part) for part in parts)


def _release(answer: Answer) -> None:
    """Give back the files of an answer that is not sent."""
    if isinstance(answer, list):
        for part in answer:
            if isinstance(part, FileRange):
                part.release()
