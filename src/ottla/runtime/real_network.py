"""TCP on the running loop, and files sent without passing through Python.

`send_file` is the hot path of a fetch. uvloop has no `loop.sendfile`, and asyncio's takes the
transport away from its protocol for the time; so bytes go straight from file to socket with
sendfile(2), beside the transport, on a duplicate of its descriptor. The order of bytes stays
exact because of three rules:

- nothing goes around the transport while the transport holds bytes of its own;
- small files go through the transport: a copy costs less than two more system calls, and
  answers written in one turn of the loop leave in one packet;
- nobody writes to the transport until the future is done (the caller's duty).

The wait for room in the socket needs no hook into the transport's buffer. The duplicate is
watched for writability: as long as the transport has bytes left, the kernel wakes both, the
transport takes the room, and we look again. Each wake-up follows room that the peer made, so
nothing spins.

The duplicate keeps the connection open in the kernel, so it has to die with the transport:
every protocol is handed to the loop inside a `_Watch`, which hears of `connection_lost`.
Reads bypass it: its get_buffer and buffer_updated are the protocol's own bound methods.

Owned by the task of the running loop; nothing here is shared between threads.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

from ottla.runtime.interfaces import DEFAULT_SOCKET_OPTIONS, File, SocketOptions
from ottla.runtime.lookout import Lookout

# Below this a copy through the transport is cheaper than sendfile's page by page splicing.
COPY_BYTES_MAX = 16 * 1024
# How much one connection may send before others get their turn of the loop.
SEND_BYTES_PER_TURN_MAX = 2 * 1024 * 1024

_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)

_FORWARDED = ("get_buffer", "buffer_updated", "eof_received", "pause_writing", "resume_writing")

ProtocolFactory = Callable[[], asyncio.BufferedProtocol]


class _Transfer:
    """A head, a range of a file and a tail, and how much of them is left to send."""

    __slots__ = ("_count", "_file", "_head", "_offset", "_tail")

    def __init__(self, head: bytes, file: File, offset: int, count: int, tail: bytes) -> None:
        self._head = memoryview(head)
        self._file = file
        self._offset = offset
        self._count = count
        self._tail = memoryview(tail)

    @property
    def unsent_bytes(self) -> int:
        return len(self._head) + self._count + len(self._tail)

    def send_now(self, out: socket.socket) -> bool:
        """Send what the socket takes, or this turn allows; whether that was all of it."""
        try:
            while self._head:
                more = _MSG_MORE if self._count else 0
                self._head = self._head[out.send(self._head, more) :]
            out_descriptor, in_descriptor = out.fileno(), self._file.fileno()
            allowance = SEND_BYTES_PER_TURN_MAX
            while self._count:
                if allowance <= 0:
                    return False
                wanted = min(self._count, allowance)
                sent = os.sendfile(out_descriptor, in_descriptor, self._offset, wanted)
                if sent == 0:
                    raise ConnectionAbortedError(f"{self._file.path} ended too early")
                self._offset += sent
                self._count -= sent
                allowance -= sent
            while self._tail:
                self._tail = self._tail[out.send(self._tail) :]
        except BlockingIOError:
            return False
        return True


class _Sender:
    """One `send_file` that did not fit into the socket at once."""

    __slots__ = ("_connection", "_is_watching", "_loop", "_transfer", "future")

    def __init__(self, connection: "_Connection", transfer: _Transfer) -> None:
        self._connection = connection
        self._transfer = transfer
        self._is_watching = False
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    @property
    def unsent_bytes(self) -> int:
        return self._transfer.unsent_bytes

    def start(self) -> None:
        self.future.add_done_callback(self._on_done)
        # Bytes that uvloop holds back for the end of this turn are gone in the next one.
        self._loop.call_soon(self._on_room)

    def finish(self, error: BaseException | None) -> None:
        """Stop watching before anybody learns of the end: the descriptor may close at once."""
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._connection.duplicate.fileno())
        self._connection.sender = None
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)

    def _on_room(self) -> None:
        connection = self._connection
        transport = connection.transport
        if self.future.done():
            return
        if transport.is_closing():
            self.finish(ConnectionAbortedError("the connection closed during a file transfer"))
            return
        if transport.get_write_buffer_size() == 0:
            try:
                is_sent = self._transfer.send_now(connection.duplicate)
            except OSError as error:
                transport.abort()
                self.finish(error)
                return
            if is_sent:
                self.finish(None)
                return
        if not self._is_watching:
            self._is_watching = True
            self._loop.add_writer(connection.duplicate.fileno(), self._on_room)

    def _on_done(self, future: asyncio.Future[None]) -> None:
        if future.cancelled() and self._connection.sender is self:
            self.finish(None)
            # Half an answer is out: nothing that follows could be understood.
            self._connection.transport.abort()


class _Connection:
    __slots__ = ("_duplicate", "sender", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.sender: _Sender | None = None
        self._duplicate: socket.socket | None = None

    @property
    def duplicate(self) -> socket.socket:
        if self._duplicate is None:
            descriptor = os.dup(self.transport.get_extra_info("socket").fileno())
            self._duplicate = socket.socket(fileno=descriptor)
            self._duplicate.setblocking(False)
        return self._duplicate

    def close(self, error: Exception | None) -> None:
        if self.sender is not None:
            gone = ConnectionResetError("the connection was lost during a file transfer")
            gone.__cause__ = error
            self.sender.finish(gone)
        if self._duplicate is not None:
            self._duplicate.close()
            self._duplicate = None


class _Watch(asyncio.BufferedProtocol):
    """A protocol as the loop sees it: the caller's own, with open and close overheard."""

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        connections: dict[asyncio.BaseTransport, _Connection],
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
    ) -> None:
        self._protocol = protocol
        self._connections = connections
        self._options = options
        self._transport: asyncio.BaseTransport | None = None
        for name in _FORWARDED:
            setattr(self, name, getattr(protocol, name))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        own_socket = transport.get_extra_info("socket")
        own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _, receive_bytes, send_bytes = self._options
        if receive_bytes >= 0:
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if send_bytes >= 0:
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        self._connections[transport] = _Connection(cast(asyncio.Transport, transport))
        self._protocol.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            connection = self._connections.pop(self._transport, None)
            if connection is not None:
                connection.close(error)
        self._protocol.connection_lost(error)


class RealListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        name = server.sockets[0].getsockname()
        self.host: str = name[0]
        self.port: int = name[1]

    def close(self) -> None:
        self._server.close()


class RealNetwork:
    def __init__(self) -> None:
        self._connections: dict[asyncio.BaseTransport, _Connection] = {}
        self._lookout = Lookout()

    async def resolve(self, host: str) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(one[4][0]) for one in found))

    def host_name(self) -> str:
        return socket.getfqdn()

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
    ) -> RealListener:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Watch(factory(), self._connections, options),
            host or "0.0.0.0",  # an empty host would give every address family a port of its own
            port,
            backlog=options.backlog,
            reuse_address=True,
        )
        return RealListener(server)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: _Watch(factory(), self._connections), host, port
        )
        return transport

    def send_file(
        self,
        transport: asyncio.Transport,
        head: bytes,
        file: File,
        offset: int,
        count: int,
        tail: bytes = b"",
    ) -> asyncio.Future[None] | None:
        if transport.is_closing():
            return _failed(ConnectionAbortedError("the connection is closed"))
        connection = self._connections.get(transport)
        if connection is not None and connection.sender is not None:
            raise RuntimeError("the previous file transfer on this connection is not done")
        if count <= COPY_BYTES_MAX or connection is None:  # unknown to us: it encrypts
            data = file.pread(count, offset)
            if len(data) != count:
                transport.abort()
                return _failed(ConnectionAbortedError(f"{file.path} ended too early"))
            transport.write(b"".join((head, data, tail)))
            return None
        transfer = _Transfer(head, file, offset, count, tail)
        if transport.get_write_buffer_size() == 0:
            try:
                if transfer.send_now(connection.duplicate):
                    return None
            except OSError as error:
                transport.abort()
                return _failed(error)
        connection.sender = _Sender(connection, transfer)
        connection.sender.start()
        return connection.sender.future

    def expect_another(self) -> None:
        self._lookout.stay()

    def unsent_bytes(self, transport: asyncio.Transport) -> int:
        connection = self._connections.get(transport)
        unsent = transport.get_write_buffer_size()
        if connection is not None and connection.sender is not None:
            unsent += connection.sender.unsent_bytes
        return unsent


def _failed(error: Exception) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
