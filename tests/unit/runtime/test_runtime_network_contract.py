"""What every Network owes, on uvloop, on asyncio's loop and in the simulation."""

import asyncio
import random
from typing import TYPE_CHECKING, cast

import pytest

from ottla.runtime.interfaces import File, Listener

if TYPE_CHECKING:
    from conftest import World


class Peer(asyncio.BufferedProtocol):
    """Keeps what it reads; `until` waits for so many bytes, `lost` for the end."""

    def __init__(self, buffer_bytes: int = 4096) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.can_write = asyncio.Event()
        self.can_write.set()
        self._buffer = bytearray(buffer_bytes)
        self._arrived = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self._arrived.set()

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")
        self.can_write.clear()

    def resume_writing(self) -> None:
        self.events.append("resume")
        self.can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.can_write.set()
        self._arrived.set()
        self.lost.set_result(exc)

    async def until(self, count: int) -> bytes:
        while len(self.received) < count and not self.lost.done():
            self._arrived.clear()
            await self._arrived.wait()
        return bytes(self.received)


class Pair:
    """A listener, and one connection to it."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.network = world.runtime.network

    async def __aenter__(self) -> "Pair":
        accepted: asyncio.Queue[Peer] = asyncio.Queue()

        def accept() -> Peer:
            peer = Peer()
            accepted.put_nowait(peer)
            return peer

        self.listener: Listener = await self.network.listen(accept, "127.0.0.1", 0)
        self.client = Peer()
        await self.network.connect(lambda: self.client, "127.0.0.1", self.listener.port)
        self.server = await accepted.get()
        while not self.server.events:
            await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.listener.close()
        for peer in (self.client, self.server):
            peer.transport.abort()
        await asyncio.gather(self.client.lost, self.server.lost)

    @property
    def big(self) -> int:
        """More bytes than fit between two ends of which one does not read."""
        return 1_500_000 if self.world.name == "simulated" else 12_000_000

    def file(self, content: bytes) -> File:
        file = self.world.runtime.disk.open(f"{self.world.directory}/file", create=True)
        file.pwrite(content, 0)
        return file


def test_bytes_arrive_whole_and_in_order_both_ways(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            there = random.Random(1).randbytes(300_000)
            pair.client.transport.write(there[:10])
            pair.client.transport.writelines([there[10:5000], bytearray(there[5000:])])
            assert await pair.server.until(len(there)) == there
            pair.server.transport.write(memoryview(b"back"))
            assert await pair.client.until(4) == b"back"

    world.run(scenario())


def test_both_ends_know_their_names(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            near, far = pair.client.transport, pair.server.transport
            assert near.get_extra_info("peername")[1] == pair.listener.port != 0
            assert near.get_extra_info("sockname") == far.get_extra_info("peername")
            assert near.get_extra_info("peername") == far.get_extra_info("sockname")
            assert near.get_extra_info("nothing", "default") == "default"

    world.run(scenario())


def test_a_machine_has_a_name_that_is_no_address_of_all(world: "World") -> None:
    name = world.runtime.network.host_name()
    assert name
    assert name not in ("0.0.0.0", "::")


def test_closing_flushes_and_the_peer_sees_the_end_after_the_bytes(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            sent = b"x" * 2_000_000
            pair.client.transport.write(sent)
            pair.client.transport.close()
            assert pair.client.transport.is_closing()
            assert await pair.server.until(len(sent)) == sent
            assert await pair.server.lost is None
            assert await pair.client.lost is None
            assert pair.server.events == ["made", "eof", "lost"]

    world.run(scenario())


def test_a_slow_reader_pauses_the_writer(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            pair.server.transport.pause_reading()
            sent = b"y" * pair.big
            pair.client.transport.write(sent)
            assert pair.client.events == ["made", "pause"]
            assert pair.client.transport.get_write_buffer_size() > 0
            pair.server.transport.resume_reading()
            await pair.client.can_write.wait()
            assert pair.client.events == ["made", "pause", "resume"]
            assert len(await pair.server.until(len(sent))) == len(sent)

    world.run(scenario())


def test_nothing_arrives_while_reading_is_paused(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            pair.server.transport.pause_reading()
            pair.client.transport.write(b"z")
            await asyncio.sleep(0.05)
            assert pair.server.received == b""
            pair.server.transport.resume_reading()
            assert await pair.server.until(1) == b"z"

    world.run(scenario())


def test_aborting_tells_both_ends(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            pair.client.transport.abort()
            await pair.client.lost
            await pair.server.lost

    world.run(scenario())


def test_a_closed_listener_refuses_but_keeps_its_connections(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            pair.listener.close()
            await asyncio.sleep(0.01)
            with pytest.raises(ConnectionRefusedError):
                await pair.network.connect(Peer, "127.0.0.1", pair.listener.port)
            pair.client.transport.write(b"still")
            assert await pair.server.until(5) == b"still"

    world.run(scenario())


def test_a_port_in_use_cannot_be_listened_on(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            with pytest.raises(OSError, match="in use"):
                await pair.network.listen(Peer, "127.0.0.1", pair.listener.port)

    world.run(scenario())


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 100_000, 5_000_000])
def test_a_file_of_any_size_follows_what_was_written_before(world: "World", size: int) -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            content = random.Random(size).randbytes(size + 20)
            file = pair.file(content)
            pair.server.transport.write(b"before")
            sending = pair.network.send_file(pair.server.transport, b"head", file, 10, size)
            if sending is not None:
                await sending
            pair.server.transport.write(b"after")
            expected = b"beforehead" + content[10 : 10 + size] + b"after"
            assert await pair.client.until(len(expected)) == expected
            file.close()

    world.run(scenario())


def test_a_file_waits_for_a_reader_that_rests(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            content = random.Random(1).randbytes(pair.big)
            file = pair.file(content)
            pair.client.transport.pause_reading()
            sending = pair.network.send_file(pair.server.transport, b"", file, 0, len(content))
            assert sending is not None
            await asyncio.sleep(0.1)
            assert not sending.done()
            pair.client.transport.resume_reading()
            await sending
            assert await pair.client.until(len(content)) == content
            file.close()

    world.run(scenario())


@pytest.mark.parametrize("end", ["peer aborts", "peer closes", "own abort", "own close"])
def test_a_file_transfer_fails_when_the_connection_ends(world: "World", end: str) -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            file = pair.file(bytes(pair.big))
            pair.client.transport.pause_reading()
            sending = pair.network.send_file(pair.server.transport, b"h", file, 0, pair.big)
            assert sending is not None
            await asyncio.sleep(0.05)
            assert not sending.done()
            peer = pair.client if end.startswith("peer") else pair.server
            if end.endswith(("close", "closes")):
                peer.transport.close()
            else:
                peer.transport.abort()
            with pytest.raises(ConnectionError):
                await sending
            pair.server.transport.abort()
            pair.client.transport.resume_reading()
            await pair.server.lost
            await pair.client.lost
            file.close()

    world.run(scenario())


def test_a_file_for_a_closed_connection_fails(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            file = pair.file(bytes(100_000))
            pair.server.transport.close()
            for count in (10, 100_000):
                sending = pair.network.send_file(pair.server.transport, b"h", file, 0, count)
                assert sending is not None
                with pytest.raises(ConnectionError):
                    await sending
            file.close()

    world.run(scenario())


@pytest.mark.parametrize("size", [1000, 50_000])
def test_a_file_that_is_too_short_ends_the_connection(world: "World", size: int) -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            file = pair.file(bytes(500))
            sending = pair.network.send_file(pair.server.transport, b"h", file, 0, size)
            assert sending is not None
            with pytest.raises(ConnectionError):
                await sending
            await pair.client.lost
            file.close()

    world.run(scenario())


def test_a_cancelled_transfer_ends_the_connection(world: "World") -> None:
    async def scenario() -> None:
        async with Pair(world) as pair:
            file = pair.file(bytes(pair.big))
            pair.client.transport.pause_reading()
            sending = pair.network.send_file(pair.server.transport, b"h", file, 0, pair.big)
            assert sending is not None
            sending.cancel()
            await pair.server.lost
            pair.client.transport.resume_reading()
            await pair.client.lost
            assert len(pair.client.received) < pair.big
            file.close()

    world.run(scenario())


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_of_writes_and_files_arrives_in_order(world: "World", seed: int) -> None:
    rng = random.Random(seed)
    reader_rests = seed % 2 == 1

    async def rest(reader: Peer, total: int) -> None:
        while len(reader.received) < total:
            reader.transport.pause_reading()
            await asyncio.sleep(0.002)
            reader.transport.resume_reading()
            await asyncio.sleep(0.002)

    async def scenario() -> None:
        async with Pair(world) as pair:
            content = rng.randbytes(1_500_000)
            file = pair.file(content)
            server = pair.server
            expected = bytearray()
            resting: asyncio.Task[None] | None = None
            if reader_rests:
                resting = asyncio.create_task(rest(pair.client, 1 << 62))
            for _ in range(40):
                head = rng.randbytes(rng.choice([0, 1, 60, 5000, 200_000]))
                if rng.random() < 0.4:
                    server.transport.write(head)
                    expected += head
                    continue
                offset = rng.randint(0, len(content))
                count = min(rng.choice([0, 500, 17_000, 200_000, 1_400_000]), len(content) - offset)
                tail = rng.randbytes(rng.choice([0, 0, 3, 4000, 300_000]))
                sending = pair.network.send_file(server.transport, head, file, offset, count, tail)
                expected += head + content[offset : offset + count] + tail
                if sending is not None:
                    await sending
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
            assert await pair.client.until(len(expected)) == expected
            if resting is not None:
                resting.cancel()
                pair.client.transport.resume_reading()
            file.close()

    world.run(scenario())


def test_offloaded_functions_return_or_raise_and_end_with_close(world: "World") -> None:
    def fail() -> None:
        raise KeyError("why")

    async def scenario() -> None:
        offload = world.runtime.offload
        results = await asyncio.gather(*(offload.run(pow, 2, n) for n in range(10)))
        assert results == [2**n for n in range(10)]
        with pytest.raises(KeyError, match="why"):
            await offload.run(fail)
        offload.close()
        with pytest.raises(RuntimeError, match="closed"):
            await offload.run(fail)

    world.run(scenario())


def test_chance_and_time_keep_their_bounds(world: "World") -> None:
    chance, clock = world.runtime.random, world.runtime.clock
    assert all(0 <= chance.random() < 1 for _ in range(100))
    assert {chance.randint(3, 5) for _ in range(100)} == {3, 4, 5}
    drawn = [chance.uuid4() for _ in range(300)]
    assert len(set(drawn)) == 300
    assert all(each.version == 4 and each.int >> 122 != 62 for each in drawn)
    assert clock.wall_ms() > 1_700_000_000_000

    async def scenario() -> None:
        before = clock.monotonic(), clock.wall_ms()
        await asyncio.sleep(0.02)
        assert clock.monotonic() - before[0] >= 0.019
        assert clock.wall_ms() >= before[1] + 15
        assert asyncio.get_running_loop().time() == pytest.approx(clock.monotonic(), abs=5)

    world.run(scenario())
