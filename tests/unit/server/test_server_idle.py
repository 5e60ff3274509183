"""Connections on which nothing moves are closed, and what they held is given back."""

import asyncio

from ottla.protocol.api import ApiKey
from support.broker_room import BrokerRoom, in_broker_room
from support.sim_client import SimClient

CONFIG = {"connections.max.idle.ms": "10000", "socket.request.max.bytes": "104857600"}


def open_connections(room: BrokerRoom) -> int:
    return sum(len(acceptor.connections) for acceptor in room.broker._acceptors)


async def ask_and_stop_reading(room: BrokerRoom, client: SimClient, records_bytes: int) -> None:
    """Fetch what does not fit into any socket, and take none of it."""
    await client.ask(ApiKey.API_VERSIONS, 0, {})
    stream = client._stream
    assert stream is not None
    assert stream.transport is not None
    stream.transport.pause_reading()
    waiting = asyncio.create_task(
        room.fetch("t", 0, partition_bytes_max=records_bytes, client=client, wait_ms=100_000)
    )
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


def test_a_silent_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def story(room: BrokerRoom) -> None:
        silent = room.new_client()
        await silent.ask(ApiKey.API_VERSIONS, 0, {})
        for _ in range(8):
            await room.client.ask(ApiKey.API_VERSIONS, 0, {})
            await asyncio.sleep(2)
        assert open_connections(room) == 1
        assert silent._stream is not None
        assert silent._stream.is_lost

    in_broker_room(story, CONFIG)


def test_who_waits_for_records_is_not_silent() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        answer = await room.fetch("t", 0, wait_ms=40_000)
        assert answer.error_code == 0

    in_broker_room(story, CONFIG)


def test_a_peer_that_takes_no_answer_loses_its_connection_and_the_files_are_free() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t", max_message_bytes="10000000")
        await room.produce("t", room.batch(4_000_000))
        stuck = room.new_client()
        await ask_and_stop_reading(room, stuck, 10_000_000)
        file = room.broker.replicas.partitions["t", 0].log.segments[-1].log
        assert file.pins == 1
        assert open_connections(room) == 2
        for _ in range(8):
            await room.client.ask(ApiKey.API_VERSIONS, 0, {})
            await asyncio.sleep(2)
        assert open_connections(room) == 1
        assert file.pins == 0

    in_broker_room(story, CONFIG)


def test_a_slow_reader_keeps_its_connection() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t", max_message_bytes="10000000")
        await room.produce("t", room.batch(4_000_000))
        slow = room.new_client()
        await slow.ask(ApiKey.API_VERSIONS, 0, {})
        stream = slow._stream
        assert stream is not None
        transport = stream.transport
        assert transport is not None
        asked = asyncio.create_task(
            room.fetch("t", 0, partition_bytes_max=10_000_000, client=slow, wait_ms=100_000)
        )
        for _ in range(15):
            transport.pause_reading()
            await asyncio.sleep(2)
            transport.resume_reading()
            await asyncio.sleep(0.001)
        transport.resume_reading()
        assert len((await asked).records) > 4_000_000

    in_broker_room(story, CONFIG)
