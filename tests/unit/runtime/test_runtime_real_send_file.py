"""sendfile beside the transport: no descriptor is left over, no turn of the loop is wasted."""

import asyncio
import os
import socket
from typing import TYPE_CHECKING, cast

import pytest

from ottla.runtime import real_network
from ottla.runtime.interfaces import SocketOptions

if TYPE_CHECKING:
    from conftest import World

SIZE = 12_000_000


class Server(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(64)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(cast(asyncio.Transport, transport))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        raise AssertionError("nobody talks to this server")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


async def _connected(world: "World") -> tuple[Server, asyncio.Transport, socket.socket]:
    server = Server()
    listener = await world.runtime.network.listen(lambda: server, "127.0.0.1", 0)
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", listener.port))
    transport = await server.made
    listener.close()
    return server, transport, client


def test_connections_leave_no_descriptor_behind(real_world: "World") -> None:
    async def scenario(ending: str) -> None:
        server, transport, client = await _connected(real_world)
        file = real_world.runtime.disk.open(f"{real_world.directory}/f", create=True)
        file.truncate(SIZE)
        sending = real_world.runtime.network.send_file(transport, b"h", file, 0, SIZE)
        assert sending is not None
        if ending == "peer":
            client.close()
        elif ending == "abort":
            transport.abort()
        else:
            sending.cancel()
        await asyncio.wait([sending])
        if ending != "cancel":
            assert isinstance(sending.exception(), ConnectionError)
        await server.lost
        client.close()
        file.close()
        await asyncio.sleep(0.05)

    real_world.run(scenario("abort"))
    before = _descriptors()
    for ending in ("peer", "abort", "cancel") * 3:
        real_world.run(scenario(ending))
    assert _descriptors() <= before


def test_a_reader_that_rests_costs_no_wake_ups(
    real_world: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    on_room = real_network._Sender._on_room

    def counted(sender: real_network._Sender) -> None:
        nonlocal turns
        turns += 1
        on_room(sender)

    monkeypatch.setattr(real_network._Sender, "_on_room", counted)

    async def scenario(buffered: int) -> int:
        nonlocal turns
        server, transport, client = await _connected(real_world)
        file = real_world.runtime.disk.open(f"{real_world.directory}/f", create=True)
        file.truncate(SIZE)
        transport.write(bytes(buffered))
        sending = real_world.runtime.network.send_file(transport, b"h", file, 0, SIZE)
        assert sending is not None
        await asyncio.sleep(0.1)
        turns = 0
        await asyncio.sleep(0.2)
        resting = turns
        left = SIZE + 1 + buffered
        while left:
            left -= len(await asyncio.get_running_loop().sock_recv(client, 1 << 20))
        await sending
        client.close()
        await server.lost
        file.close()
        return resting

    assert real_world.run(scenario(0)) == 0
    assert real_world.run(scenario(SIZE)) == 0


def test_two_transfers_at_once_on_one_connection_are_refused(real_world: "World") -> None:
    async def scenario() -> None:
        server, transport, client = await _connected(real_world)
        network = real_world.runtime.network
        file = real_world.runtime.disk.open(f"{real_world.directory}/f", create=True)
        file.truncate(SIZE)
        sending = network.send_file(transport, b"h", file, 0, SIZE)
        assert sending is not None
        with pytest.raises(RuntimeError, match="not done"):
            network.send_file(transport, b"h", file, 0, SIZE)
        client.close()
        with pytest.raises(ConnectionError):
            await sending
        await server.lost
        file.close()

    real_world.run(scenario())


def test_a_listener_gives_its_connections_the_buffers_that_were_asked_for() -> None:
    async def scenario() -> None:
        network = real_network.RealNetwork()
        made: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()

        class Accepted(asyncio.BufferedProtocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.put_nowait(transport)

            def get_buffer(self, sizehint: int) -> bytearray:
                return bytearray(1)

        listener = await network.listen(
            Accepted,
            "127.0.0.1",
            0,
            SocketOptions(5, receive_buffer_bytes=30_000, send_buffer_bytes=40_000),
        )
        client = await network.connect(Accepted, listener.host, listener.port)
        sizes = set()
        for _ in range(2):
            taken = (await made.get()).get_extra_info("socket")
            sizes.add(
                tuple(
                    taken.getsockopt(socket.SOL_SOCKET, option)
                    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
                )
            )
        assert (60_000, 80_000) in sizes  # the kernel doubles them, for its own use
        client.close()
        listener.close()

    asyncio.run(scenario())
