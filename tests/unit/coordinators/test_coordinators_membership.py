"""Members over a real log whose follower can be kept waiting: who is told what, and when."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from pathlib import Path
from typing import Any
from uuid import UUID

from consumer_world import topic

from ottla.config.topic import TopicConfig
from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.requests import HeartbeatRequest
from ottla.coordinators.group.consumer.settings import ConsumerGroupSettings, Context
from ottla.coordinators.group.consumer_protocol import encode_assignment, parse_assignment
from ottla.coordinators.group.effects import Fields, Moment
from ottla.coordinators.group.membership import Membership
from ottla.coordinators.group.pace import JOINS_PER_TURN_MAX
from ottla.coordinators.group.records import OffsetKey, offset_tombstone
from ottla.coordinators.group.requests import GroupLimits, JoinRequest, SyncRequest
from ottla.coordinators.group.shard import GroupShard
from ottla.coordinators.group.turns import GroupLed, group_key
from ottla.coordinators.runtime import CoordinatorRuntime, LoadSettings
from ottla.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import BrokerId, Epoch
from ottla.protocol.primitives import legacy_string
from ottla.replication.partition import Isolation, PartitionState
from ottla.replication.replica_manager import AssignedPartition, ReplicaManager
from ottla.runtime.real import real_runtime
from ottla.storage.log_manager import LogManager

TOPIC = "__consumer_offsets"
ME, FOLLOWER, OTHER = BrokerId(1), BrokerId(2), BrokerId(3)
GROUP = "g"


class World:
    def __init__(self, directory: Path) -> None:
        self.runtime = real_runtime(offload_threads=1)
        self.logs = LogManager(self.runtime, [str(directory)], config_of=lambda _: TopicConfig())
        self.logs.start()
        self.replicas = ReplicaManager(broker_id=ME, logs=self.logs)
        self.timeout_ms = 60_000
        self.settings = ConsumerGroupSettings()
        read = topic("t", 2, 7)
        self.image = MetadataImage(topics={"t": read}, topics_by_raw_id={read.topic_id.bytes: read})
        self.shards: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            self.runtime,
            self.replicas,
            TOPIC,
            new_shard=lambda: GroupShard(lambda: GroupLimits(0), lambda: 100),
            settings=lambda: LoadSettings(10_000, self.timeout_ms),
            on_loaded=lambda led: self.members.on_loaded(led),
            on_unloaded=lambda led: self.members.on_unloaded(led),
        )
        self.members = Membership(
            self.shards,
            now=self.now,
            image=lambda: self.image,
            context=lambda _: Context(self.now(), self.image, self.settings),
        )

    def now(self) -> Moment:
        clock = self.runtime.clock
        return Moment(int(clock.monotonic() * 1000), clock.wall_ms())

    def assign(self, leader: BrokerId, epoch: int, *isr: BrokerId) -> None:
        state = PartitionState(leader, Epoch(epoch), epoch, isr, (ME, FOLLOWER))
        self.replicas.assign(AssignedPartition(TOPIC, 0, UUID(int=9), state))

    async def lead(self, *isr: BrokerId) -> GroupLed:
        self.assign(ME, 1, *isr)
        self.shards.lead(0, Epoch(1))
        async with asyncio.timeout(10):
            while not list(self.shards):
                await asyncio.sleep(0.01)  # a poll: loading has no listener in a test
        return next(iter(self.shards))

    def follow(self) -> None:
        """The follower has everything."""
        partition = self.replicas.partition(TOPIC, 0)
        partition.read(
            partition.log.log_end_offset,
            1,
            isolation=Isolation.READ_UNCOMMITTED,
            at_least_one=False,
            replica_id=FOLLOWER,
        )

    async def close(self) -> None:
        await self.shards.stop()
        self.logs.close()
        self.runtime.offload.close()


def in_a_world(tmp_path: Path, test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        world = World(tmp_path)
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(run())


def joining(member: str, **more: Any) -> HeartbeatRequest:
    fields = {"rebalance_timeout_ms": 5000, "topics": frozenset(("t",)), "owned": {}, **more}
    return HeartbeatRequest(GROUP, member, 0, **fields)


def classic_join(member_id: str = "", new_id: str = "old-1") -> JoinRequest:
    data = b"\0\0\0\0\0\1" + legacy_string("t") + b"\xff\xff\xff\xff"
    return JoinRequest(
        member_id,
        None,
        "c",
        "/h",
        30_000,
        30_000,
        "consumer",
        (("range", data),),
        new_id,
        False,
        True,
    )


async def heard(answer: Fields | Awaitable[Fields]) -> Fields:
    async with asyncio.timeout(10):
        return await answer if isawaitable(answer) else answer


def partitions(answer: Fields) -> list[int]:
    return [one for part in answer["assignment"]["topic_partitions"] for one in part["partitions"]]


def test_nobody_is_told_before_the_log_has_it_and_the_next_decision_waits(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME, FOLLOWER)
        first = world.members.consumer_heartbeat(led, joining("one"))
        second = world.members.consumer_heartbeat(led, joining("two"))
        assert isawaitable(first)
        assert isawaitable(second)
        assert not led.shard.groups, "what is not committed does not count"
        world.follow()
        told = await heard(first)
        assert told["error_code"] is ErrorCode.NONE
        assert partitions(told) == [0, 1]
        assert len(led.in_flight) == 1, "the second decision is under way now, and not before"
        world.follow()
        assert partitions(await heard(second)) == [], "the first one still has them"

    in_a_world(tmp_path, test)


def test_no_group_waits_for_another_whatever_its_name_is(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME, FOLLOWER)
        others = ("", "state of g", "decision of g", "decision g", "decisiong")
        for other in others:
            record = offset_tombstone(OffsetKey(other, "t", 0))
            world.shards.write(led, group_key(other), [record], lambda _: None)
        world.members.consumer_heartbeat(led, joining("one"))
        assert len(led.writes) == len(others) + 1, "it is decided already"

    in_a_world(tmp_path, test)


def test_a_write_that_takes_too_long_is_refused_and_still_counts_when_it_lands(
    tmp_path: Path,
) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME, FOLLOWER)
        world.timeout_ms = 50
        told = await heard(world.members.consumer_heartbeat(led, joining("one")))
        assert told["error_code"] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.follow()
        async with asyncio.timeout(10):
            while led.in_flight or GROUP not in led.shard.groups:
                await asyncio.sleep(0.01)  # a poll: a late landing tells nobody
        await asyncio.sleep(0)  # what waited for the landing runs on the loop
        group = led.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        assert group.wake_at_ms < world.now().monotonic_ms + 60_000, "it has no session"

    in_a_world(tmp_path, test)


def test_those_who_wait_are_told_when_the_broker_resigns(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME, FOLLOWER)
        first = world.members.consumer_heartbeat(led, joining("one"))
        second = world.members.consumer_heartbeat(led, joining("two"))
        third = world.members.heartbeat(led, GROUP, "x", None, 1)
        world.assign(OTHER, 2, OTHER)
        world.shards.resign(0)
        for answer in (first, second, third):
            assert (await heard(answer))["error_code"] is ErrorCode.NOT_COORDINATOR

    in_a_world(tmp_path, test)


def test_a_member_that_is_in_does_not_wait_for_those_who_join(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME)
        epoch = (await heard(world.members.consumer_heartbeat(led, joining("one"))))["member_epoch"]
        names = [f"m{number}" for number in range(4 * JOINS_PER_TURN_MAX)]
        answers = [world.members.consumer_heartbeat(led, joining(name)) for name in names]
        assert isawaitable(answers[-1])
        beat = world.members.consumer_heartbeat(led, HeartbeatRequest(GROUP, "one", epoch))
        assert isinstance(beat, dict), "it is answered at once"
        told = [await heard(one) for one in answers]
        assert {one["error_code"] for one in told} == {ErrorCode.NONE}
        group = led.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        assert list(group.members) == ["one", *names]

    in_a_world(tmp_path, test)


def test_joins_that_wait_for_their_turn_are_refused_once_the_broker_resigned(
    tmp_path: Path,
) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME)
        names = [f"m{number}" for number in range(3 * JOINS_PER_TURN_MAX)]
        answers = [world.members.consumer_heartbeat(led, joining(name)) for name in names]
        world.shards.resign(0)
        codes = [(await heard(one))["error_code"] for one in answers]
        assert codes[:JOINS_PER_TURN_MAX] == [ErrorCode.NONE] * JOINS_PER_TURN_MAX
        assert set(codes[JOINS_PER_TURN_MAX:]) == {ErrorCode.NOT_COORDINATOR}

    in_a_world(tmp_path, test)


def test_a_classic_group_turns_over_and_back(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME)
        joined = await heard(world.members.join(led, GROUP, classic_join()))
        given = encode_assignment({"t": (0, 1)}, 0)
        sync = SyncRequest("old-1", None, joined["generation_id"], None, None, [("old-1", given)])
        await heard(world.members.sync(led, GROUP, sync))
        told = await heard(world.members.consumer_heartbeat(led, joining("new")))
        assert told["error_code"] is ErrorCode.NONE
        assert partitions(told) == [], "the classic member holds everything"
        assert isinstance(led.shard.groups[GROUP], ConsumerGroup)
        beat = await heard(world.members.heartbeat(led, GROUP, "old-1", None, 1))
        assert beat["error_code"] is ErrorCode.REBALANCE_IN_PROGRESS
        again = await heard(world.members.join(led, GROUP, classic_join("old-1")))
        assert again["leader"] == "", "the server assigns"
        sync = SyncRequest("old-1", None, again["generation_id"], None, None, [])
        share = parse_assignment((await heard(world.members.sync(led, GROUP, sync)))["assignment"])
        assert len(share["t"]) == 1
        leaving = HeartbeatRequest(GROUP, "new", -1)
        await heard(world.members.consumer_heartbeat(led, leaving))
        group = led.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        beat = await heard(
            world.members.heartbeat(led, GROUP, "old-1", None, again["generation_id"])
        )
        assert beat["error_code"] is ErrorCode.REBALANCE_IN_PROGRESS

    in_a_world(tmp_path, test)


def test_a_classic_member_that_waits_is_told_to_rejoin_when_its_group_turns(
    tmp_path: Path,
) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME)
        await heard(world.members.join(led, GROUP, classic_join()))
        waiting = world.members.join(led, GROUP, classic_join(new_id="old-2"))
        assert isawaitable(waiting), "the first member has not rejoined yet"
        await heard(world.members.consumer_heartbeat(led, joining("new")))
        assert (await heard(waiting))["error_code"] is ErrorCode.REBALANCE_IN_PROGRESS

    in_a_world(tmp_path, test)


def test_a_member_that_is_not_heard_goes_when_its_session_ends(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.settings = ConsumerGroupSettings(session_timeout_ms=50)
        led = await world.lead(ME)
        await heard(world.members.consumer_heartbeat(led, joining("one")))
        group = led.shard.groups[GROUP]
        async with asyncio.timeout(10):
            while group.members:
                await asyncio.sleep(0.01)  # a poll: an expiry tells nobody

    in_a_world(tmp_path, test)


def test_an_empty_consumer_group_makes_room_for_a_classic_one(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        led = await world.lead(ME)
        await heard(world.members.consumer_heartbeat(led, joining("one")))
        await heard(world.members.consumer_heartbeat(led, HeartbeatRequest(GROUP, "one", -1)))
        stranger = await heard(world.members.join(led, GROUP, classic_join("nobody")))
        assert stranger["error_code"] is ErrorCode.UNKNOWN_MEMBER_ID
        joined = await heard(world.members.join(led, GROUP, classic_join()))
        assert joined["error_code"] is ErrorCode.NONE
        assert isinstance(led.shard.groups[GROUP], ClassicGroup)

    in_a_world(tmp_path, test)
