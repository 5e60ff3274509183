"""Partitions, resets and silence between simulated nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from ottla.runtime.simulated import Simulation

PORT = 9092


class Peer(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.reads: list[int] = []
        self.losses: list[Exception | None] = []
        self._buffer = bytearray(1024)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.reads.append(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self.losses.append(exc)


class Wire:
    """Node a connected to node b."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.network = simulation.network
        self.accepted: list[Peer] = []

    def _accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def listen(self) -> None:
        network = self.simulation.runtime("b").network
        await self.simulation.spawn("b", network.listen(self._accept, "", PORT))

    async def connect(self) -> Peer:
        peer = Peer()
        network = self.simulation.runtime("a").network
        await self.simulation.spawn("a", network.connect(lambda: peer, "b", PORT))
        return peer

    async def open(self) -> tuple[Peer, Peer]:
        await self.listen()
        client = await self.connect()
        await asyncio.sleep(1)
        return client, self.accepted[-1]


def _run(scenario: Callable[[Wire], Coroutine[Any, Any, None]], seed: int) -> None:
    with Simulation(seed) as simulation:
        simulation.run(scenario(Wire(simulation)))


@pytest.fixture(params=range(8))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_deaf_link_holds_one_direction_until_it_opens(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        wire.network.block("a", "b")
        a.transport.write(b"question")
        b.transport.write(b"statement")
        await asyncio.sleep(60)
        assert (bytes(a.received), bytes(b.received)) == (b"statement", b"")
        wire.network.unblock("a", "b")
        await asyncio.sleep(1)
        assert b.received == b"question"

    _run(scenario, seed)


def test_a_partition_cuts_between_groups_and_heals(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        wire.network.partition(["a", "c"], ["b"])
        a.transport.write(b"1")
        b.transport.write(b"2")
        await asyncio.sleep(60)
        assert not a.received
        assert not b.received
        assert not wire.network.is_blocked("a", "c")
        wire.network.heal()
        await asyncio.sleep(1)
        assert (bytes(a.received), bytes(b.received)) == (b"2", b"1")

    _run(scenario, seed)


def test_streams_are_cut_and_joined_at_random(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        sent = b""
        for number in range(300):
            frame = bytes([number % 251]) * 50
            a.transport.write(frame)
            sent += frame
        await asyncio.sleep(20)
        assert b.received == sent
        assert any(size % 50 for size in b.reads)

    _run(scenario, seed)


def test_two_writes_sometimes_arrive_in_one_read() -> None:
    largest = []
    for seed in range(20):

        async def scenario(wire: Wire) -> None:
            a, b = await wire.open()
            for _ in range(20):
                a.transport.write(b"x" * 10)
            await asyncio.sleep(1)
            largest.append(max(b.reads))

        _run(scenario, seed)
    assert max(largest) > 10


def test_a_reset_reaches_both_ends(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        assert wire.network.connections("a", "b") == 2
        wire.network.reset("a", "b")
        await asyncio.sleep(1)
        for peer in (a, b):
            assert [type(loss) for loss in peer.losses] == [ConnectionResetError]
        assert wire.network.connections("a", "b") == 0

    _run(scenario, seed)


def test_a_half_open_end_learns_of_it_when_it_sends(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        wire.network.half_open("a", "b")
        await asyncio.sleep(3600)
        assert len(a.losses) == 1
        assert b.losses == []
        b.transport.write(b"anyone?")
        await asyncio.sleep(1)
        assert [type(loss) for loss in b.losses] == [ConnectionResetError]

    _run(scenario, seed)


def test_a_killed_process_ends_its_connections_and_ports(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        wire.simulation.crash("b")
        await asyncio.sleep(1)
        assert len(a.losses) == 1
        assert b.losses == []
        with pytest.raises(ConnectionRefusedError):
            await wire.connect()
        await wire.listen()
        await wire.connect()

    _run(scenario, seed)


def test_a_machine_without_power_is_silent_and_resets_after_its_restart(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, _ = await wire.open()
        wire.simulation.power_loss("b")
        a.transport.write(b"1")
        await asyncio.sleep(600)
        assert a.losses == []
        with pytest.raises(TimeoutError):
            await wire.connect()
        await wire.listen()
        a.transport.write(b"2")
        await asyncio.sleep(1)
        assert [type(loss) for loss in a.losses] == [ConnectionResetError]
        await wire.connect()

    _run(scenario, seed)


def test_a_restarted_machine_resets_what_its_former_life_had_open(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, _ = await wire.open()
        wire.simulation.power_loss("b")
        await wire.listen()
        await asyncio.sleep(600)
        assert a.losses == []
        a.transport.write(b"anyone?")
        await asyncio.sleep(1)
        assert [type(loss) for loss in a.losses] == [ConnectionResetError]

    _run(scenario, seed)


def test_connecting_through_a_blocked_link_waits_or_times_out(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        await wire.listen()
        wire.simulation.runtime("a")
        wire.network.block("b", "a")
        with pytest.raises(TimeoutError):
            await wire.connect()
        connecting = asyncio.ensure_future(wire.connect())
        await asyncio.sleep(5)
        wire.network.heal()
        await connecting
        await asyncio.sleep(5)
        assert len(wire.accepted[0].losses) == 1

    _run(scenario, seed)


def test_an_unknown_host_does_not_resolve() -> None:
    async def scenario(wire: Wire) -> None:
        with pytest.raises(OSError, match="no node is called nowhere"):
            await wire.simulation.runtime("a").network.connect(Peer, "nowhere", 1)

    _run(scenario, 1)


def test_latency_can_be_set_for_each_direction() -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        wire.network.set_latency("a", "b", 5.0, 5.0)
        a.transport.write(b"x")
        b.transport.write(b"y")
        await asyncio.sleep(1)
        assert (bytes(a.received), bytes(b.received)) == (b"y", b"")
        await asyncio.sleep(200)
        assert b.received == b"x"

    _run(scenario, 1)


def test_writing_during_a_file_transfer_is_an_error(seed: int) -> None:
    async def scenario(wire: Wire) -> None:
        a, b = await wire.open()
        runtime = wire.simulation.runtime("a")
        file = runtime.disk.open("/f", create=True)
        file.pwrite(bytes(2_000_000), 0)
        b.transport.pause_reading()
        sending = runtime.network.send_file(a.transport, b"h", file, 0, 2_000_000)
        assert sending is not None
        with pytest.raises(RuntimeError, match="under way"):
            a.transport.write(b"too early")
        b.transport.resume_reading()
        await sending
        a.transport.write(b"now")

    _run(scenario, seed)


def test_a_protocol_that_fails_loses_its_connection_and_fails_the_run() -> None:
    class Broken(Peer):
        def buffer_updated(self, nbytes: int) -> None:
            raise ValueError("cannot read this")

    broken = Broken()

    async def scenario(wire: Wire) -> None:
        network = wire.simulation.runtime("b").network
        await network.listen(lambda: broken, "b", PORT)
        client = await wire.connect()
        client.transport.write(b"x")
        await asyncio.sleep(1)
        assert [type(loss) for loss in broken.losses] == [ValueError]

    with pytest.raises(BaseExceptionGroup, match="unhandled"):
        _run(scenario, 1)
