"""Heartbeats of members at rest: recognised as bytes, and nothing that happens is missed by it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from ottla.config.resources import ConfigResourceType
from ottla.coordinators.group.consumer.requests import HeartbeatRequest
from ottla.coordinators.group.membership import Membership
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from support.broker_room import BrokerRoom, in_broker_room
from support.sim_client import SimClient

GROUP = "g"
CONFIG = {"group.consumer.assignment.interval.ms": "0"}


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The members whose heartbeats were parsed and decided upon, one by one."""
    found: list[str] = []
    decide = Membership.consumer_heartbeat

    def consumer_heartbeat(self: Membership, led: Any, request: HeartbeatRequest) -> Any:
        found.append(request.member_id)
        return decide(self, led, request)

    monkeypatch.setattr(Membership, "consumer_heartbeat", consumer_heartbeat)
    return found


class Member:
    def __init__(self, room: BrokerRoom, name: str) -> None:
        self.name = name
        self.client: SimClient = room.new_client()
        self.epoch = 0
        self.owned: set[int] = set()
        self._topic_id: Any = None

    async def join(self) -> None:
        await self._say(rebalance_timeout=60_000, subscribed_topic_names=["t"], topic_partitions=[])
        await self.settle()

    async def settle(self) -> None:
        """Say what it owns, until nothing new is heard."""
        while await self._say(topic_partitions=self._owned()):
            pass

    async def beat(self) -> Any:
        return await self._ask()

    async def _say(self, **more: Any) -> bool:
        """Whether the answer had something new."""
        epoch, owned = self.epoch, set(self.owned)
        answer = await self._ask(**more)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = set()
            for one in answer.assignment.topic_partitions:
                self._topic_id = one.topic_id
                self.owned.update(one.partitions)
        return (epoch, owned) != (self.epoch, self.owned)

    async def _ask(self, **more: Any) -> Any:
        fields = {
            "group_id": GROUP,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **more,
        }
        return await self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)

    def _owned(self) -> list[dict[str, Any]]:
        if not self.owned:
            return []
        return [{"topic_id": self._topic_id, "partitions": sorted(self.owned)}]


async def settled(room: BrokerRoom, *names: str) -> list[Member]:
    """Members of a group that have given and taken, and whose next heartbeat is the same again."""
    await room.create_topic("t", 4)
    asked = {"key_type": 0, "coordinator_keys": [GROUP]}
    await room.client.ask(ApiKey.FIND_COORDINATOR, 4, asked)
    members = [Member(room, name) for name in names]
    for member in members:
        await member.join()
        for other in members:
            if other.epoch:
                await other.settle()
    for member in members:
        await member.settle()
        await member.beat()
    return members


def test_a_member_at_rest_is_not_looked_at_and_hears_the_same(looked_at: list[str]) -> None:
    async def story(room: BrokerRoom) -> None:
        one, two = await settled(room, "one", "two")
        looked_at.clear()
        requests = room.broker.services.metrics.requests
        before = requests[ApiKey.CONSUMER_GROUP_HEARTBEAT]
        for member in (one, two, one, two):
            answer = await member.beat()
            assert answer.error_code == ErrorCode.NONE
            assert (answer.member_id, answer.member_epoch) == (member.name, member.epoch)
            assert answer.assignment is None
        assert looked_at == []
        assert requests[ApiKey.CONSUMER_GROUP_HEARTBEAT] == before + 4
        assert sorted(one.owned | two.owned) == [0, 1, 2, 3]

    in_broker_room(story, CONFIG)


def test_a_member_at_rest_lives_as_long_as_it_is_heard(looked_at: list[str]) -> None:
    async def story(room: BrokerRoom) -> None:
        one, two = await settled(room, "one", "two")
        looked_at.clear()
        began = room.now
        session_s = room.config.group_consumer_session_timeout_ms / 1000
        while room.now < began + 2 * session_s:
            await asyncio.sleep(session_s / 5)
            told = await one.beat()
            if told.member_epoch != one.epoch:
                break
        # `two` was silent, and only for that reason `one` was looked at again.
        assert room.now >= began + session_s
        (given,) = told.assignment.topic_partitions
        assert list(given.partitions) == [0, 1, 2, 3]
        assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    in_broker_room(story, CONFIG)


def test_a_member_at_rest_hears_of_whoever_comes(looked_at: list[str]) -> None:
    async def story(room: BrokerRoom) -> None:
        (one,) = await settled(room, "one")
        late = Member(room, "late")
        await late.join()
        assert not late.owned
        await one.settle()
        await late.settle()
        await one.settle()
        assert (len(one.owned), len(late.owned)) == (2, 2)

    in_broker_room(story, CONFIG)


def test_a_member_at_rest_hears_of_new_partitions(looked_at: list[str]) -> None:
    async def story(room: BrokerRoom) -> None:
        (one,) = await settled(room, "one")
        topics = [{"name": "t", "count": 6, "assignments": None}]
        await room.client.ask(
            ApiKey.CREATE_PARTITIONS, 3, {"topics": topics, "timeout": 5000, "validate_only": False}
        )
        told = await one.beat()
        (given,) = told.assignment.topic_partitions
        assert list(given.partitions) == [0, 1, 2, 3, 4, 5]

    in_broker_room(story, CONFIG)


def test_a_member_at_rest_hears_of_another_interval(looked_at: list[str]) -> None:
    async def story(room: BrokerRoom) -> None:
        (one,) = await settled(room, "one")
        changed = {
            "resource_type": ConfigResourceType.GROUP,
            "resource_name": GROUP,
            "configs": [
                {
                    "name": "consumer.heartbeat.interval.ms",
                    "config_operation": 0,
                    "value": "6000",
                }
            ],
        }
        answer = await room.client.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [changed], "validate_only": False}
        )
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert (await one.beat()).heartbeat_interval == timedelta(seconds=6)

    in_broker_room(story, CONFIG)


def test_a_member_at_rest_hears_that_it_was_fenced(looked_at: list[str]) -> None:
    async def story(room: BrokerRoom) -> None:
        (one,) = await settled(room, "one")
        leaver = Member(room, "one")
        leaver.epoch = -1
        assert (await leaver.beat()).error_code == ErrorCode.NONE
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    in_broker_room(story, CONFIG)
