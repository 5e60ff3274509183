"""How many connections a broker takes, who waits for a place, and who is turned away."""

import asyncio
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api import ApiKey
from ottla.server.connection_limits import (
    BURST_SECONDS,
    ConnectionLimits,
    LimitSettings,
    ListenerLimits,
)
from support.broker_room import PORT, BrokerRoom, in_broker_room
from support.sim_client import SimClient


async def is_served(client: SimClient, seconds_max: float = 0.5) -> bool:
    """False if nobody answers; ConnectionError if the broker hangs up."""
    try:
        await client.ask(ApiKey.API_VERSIONS, 0, {}, seconds_max=seconds_max)
    except TimeoutError:
        return False
    return True


def start_asking(client: SimClient) -> "asyncio.Task[Any]":
    return asyncio.create_task(client.ask(ApiKey.API_VERSIONS, 0, {}, seconds_max=1000))


async def alter(room: BrokerRoom, client: SimClient, name: str, value: str) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value}]
    fields = {
        "resources": [{"resource_type": 4, "resource_name": "1", "configs": configs}],
        "validate_only": False,
    }
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
    assert answer.responses[0].error_code == 0, answer


def test_who_comes_when_all_places_are_taken_waits_for_one() -> None:
    async def story(room: BrokerRoom) -> None:
        first, second = room.new_client(), room.new_client()
        assert await is_served(first)
        assert await is_served(second)
        third = start_asking(room.new_client())
        await asyncio.sleep(30)
        fourth = start_asking(room.new_client())
        await asyncio.sleep(1)
        assert not third.done()
        assert await is_served(first)
        second.disconnect()
        await asyncio.wait_for(third, 1)
        assert not fourth.done()
        first.disconnect()
        await asyncio.wait_for(fourth, 1)

    in_broker_room(story, {"max.connections": "2"})


def test_no_more_wait_than_a_backlog_would_hold() -> None:
    async def story(room: BrokerRoom) -> None:
        assert await is_served(room.client)
        waiting = [start_asking(room.new_client()) for _ in range(3)]
        await asyncio.sleep(1)
        with pytest.raises(ConnectionError):
            await is_served(room.new_client())
        waiting[0].cancel()
        room.client.disconnect()
        await asyncio.gather(waiting[1], return_exceptions=True)

    in_broker_room(story, {"max.connections": "1", "socket.listen.backlog.size": "3"})


def test_one_who_gives_up_waiting_leaves_the_queue() -> None:
    async def story(room: BrokerRoom) -> None:
        assert await is_served(room.client)
        impatient = room.new_client()
        assert not await is_served(impatient)  # and it hangs up
        patient = start_asking(room.new_client())
        await asyncio.sleep(1)
        room.client.disconnect()
        await asyncio.wait_for(patient, 1)

    in_broker_room(story, {"max.connections": "1"})


def test_an_address_that_has_its_share_is_turned_away() -> None:
    async def story(room: BrokerRoom) -> None:
        assert await is_served(room.new_client())
        assert await is_served(room.new_client())
        with pytest.raises(ConnectionError):
            await is_served(room.new_client())
        for _ in range(3):
            other = SimClient(room.simulation.runtime("other"), "broker", PORT)
            assert await is_served(other)
        other = SimClient(room.simulation.runtime("other"), "broker", PORT)
        with pytest.raises(ConnectionError):
            await is_served(other)

    in_broker_room(
        story, {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "other:3"}
    )


def test_connections_that_come_too_fast_wait_for_their_turn() -> None:
    async def story(room: BrokerRoom) -> None:
        start = room.now
        burst = int(2 * BURST_SECONDS)
        asked = [start_asking(room.new_client()) for _ in range(burst + 6)]
        await asyncio.sleep(0.1)
        assert sum(one.done() for one in asked) == burst
        await asyncio.gather(*asked)
        assert 2.9 < room.now - start < 3.5

    in_broker_room(story, {"max.connection.creation.rate": "2"})


def test_limits_change_while_the_broker_runs() -> None:
    async def story(room: BrokerRoom) -> None:
        assert await is_served(room.client)
        waiting = start_asking(room.new_client())
        await asyncio.sleep(1)
        assert not waiting.done()
        await alter(room, room.client, "max.connections", "3")
        await asyncio.wait_for(waiting, 1)
        third = room.new_client()
        assert await is_served(third)
        await alter(room, third, "max.connections", "1")
        await asyncio.sleep(1)
        assert sum(len(one.connections) for one in room.broker._acceptors) == 1

    in_broker_room(story, {"max.connections": "1"})


def test_a_listener_has_limits_of_its_own() -> None:
    async def story(room: BrokerRoom) -> None:
        assert await is_served(room.client)
        assert not await is_served(room.new_client())
        other = SimClient(room.simulation.runtime("client"), "broker", PORT + 1)
        assert await is_served(other)

    in_broker_room(
        story,
        {
            "listeners": f"PLAINTEXT://:{PORT},OTHER://:{PORT + 1},CONTROLLER://:0",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": f"PLAINTEXT://broker:{PORT},OTHER://broker:{PORT + 1}",
            "listener.name.plaintext.max.connections": "1",
        },
    )


def test_brokers_do_not_wait_for_places_that_clients_have() -> None:
    limits = ConnectionLimits(LimitSettings(ListenerLimits(2), protected_listener="INTERNAL"))
    for _ in range(2):
        limits.take("CLIENTS", "a", 0.0)
    assert limits.seconds_until_room("CLIENTS", 0.0) == inf
    assert limits.seconds_until_room("INTERNAL", 0.0) == 0
    limits.take("INTERNAL", "b", 0.0)
    assert limits.excess("CLIENTS") == 1
    assert limits.excess("INTERNAL") == 0


@given(st.lists(st.floats(0, 2), max_size=60), st.integers(1, 5))
def test_no_stretch_of_time_has_more_connections_than_rate_and_burst_allow(
    gaps: list[float], rate: int
) -> None:
    limits = ConnectionLimits(LimitSettings(ListenerLimits(per_second_max=rate)))
    now, taken = 0.0, []
    for gap in gaps:
        now += gap
        now += limits.seconds_until_room("L", now)
        limits.take("L", "h", now)
        taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            allowed = rate * (BURST_SECONDS + taken[last] - taken[first])
            assert last - first + 1 <= allowed + 1e-6
