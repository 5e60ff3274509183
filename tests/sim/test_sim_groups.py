"""A whole broker in a simulation, killed and cut off while members of a consumer group work.

Members read what they were told, commit as they go, and stop reading when they have not been heard
for a session. No two of them ever read one partition, and whoever takes over a partition goes on at
or behind the last commit that was acknowledged, never before it.

OTTLA_SEEDS says how many seeds (5 in `make test`); a failing seed replays identically:
OTTLA_SEED=n OTTLA_SEEDS=1.
"""

import asyncio
import os
from typing import Any
from uuid import UUID

import pytest

from ottla.config.broker import BrokerConfig
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import NodeDown
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient

FIRST_SEED = int(os.environ.get("OTTLA_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("OTTLA_SEEDS", "5")))
PORT = 9092
PARTITIONS = 5
GROUP = "g"
SESSION_S = 6.0
HEARTBEAT_S = 0.5
# A member that was not heard for this long knows that it may have been replaced.
READING_S_MAX = SESSION_S * 0.9
LIVES = 8
UNKNOWN = (ConnectionError, TimeoutError)
RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
START_OVER = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.STALE_MEMBER_EPOCH,
)
CONFIG = {
    "log.flush.interval.messages": "1",
    "log.initial.task.delay.ms": "500",
    "offsets.topic.num.partitions": "1",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.min.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "100",
}


class Member:
    """One process of a consumer group."""

    def __init__(self, world: "World", name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.epoch = 0
        self.reads: set[int] = set()
        self.heard_at = -SESSION_S
        self.is_over = False
        self._client = SimClient(world.simulation.runtime(f"client-{name}"), "broker", PORT)
        self._wants_all = True

    @property
    def is_reading(self) -> bool:
        return self.world.now() < self.heard_at + READING_S_MAX

    async def live(self) -> None:
        while not self.is_over:
            try:
                await self._heartbeat(self.epoch)
                for partition in sorted(self.reads):
                    await self._work(partition)
            except UNKNOWN:
                self._wants_all = True
            await asyncio.sleep(self.world.chance.uniform(0.5, 1.0) * HEARTBEAT_S)
        self._client.disconnect()

    async def leave(self) -> None:
        self.is_over = True
        self.reads.clear()
        self._client = SimClient(  # the other one may be in the middle of a request
            self.world.simulation.runtime(f"client-{self.name}"), "broker", PORT
        )
        try:
            await self._heartbeat(-1 if self.instance_id is None else -2)
        except UNKNOWN:
            return  # it is noticed when its session ends

    async def _heartbeat(self, epoch: int) -> None:
        sent_at = self.world.now()
        wants_all = self._wants_all or epoch == 0
        owned = [{"topic_id": self.world.topic_id, "partitions": sorted(self.reads)}]
        answer = await self._client.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            {
                "group_id": GROUP,
                "member_id": self.name,
                "member_epoch": epoch,
                "instance_id": self.instance_id,
                "rack_id": None,
                "rebalance_timeout": 5000 if wants_all else -1,
                "subscribed_topic_names": ["t"] if wants_all else None,
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": owned if self.reads else [],
            },
        )
        code = answer.error_code
        if code == ErrorCode.NONE and epoch >= 0 and not self.is_over:
            self._wants_all = False
            self.epoch = answer.member_epoch
            self.heard_at = sent_at
            if answer.assignment is not None:
                self.reads = {
                    one for topic in answer.assignment.topic_partitions for one in topic.partitions
                }
            self.world.check()
        elif code in START_OVER:
            self.reads.clear()
            self.epoch = 0
        elif code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.reads.clear()
        else:
            assert code in (ErrorCode.NONE, *RETRIED), answer

    async def _work(self, partition: int) -> None:
        """Go on where the group was, and commit; as long as nobody else can be reading."""
        if self.is_over or partition not in self.reads or not self.is_reading:
            return
        acknowledged = self.world.committed[partition]
        position = await self._position(partition)
        if position is None:
            return
        assert position >= acknowledged, f"partition {partition} went back to {position}"
        if self.is_reading and partition in self.reads and await self._commit(partition, position):
            self.world.committed[partition] = max(self.world.committed[partition], position + 1)

    async def _position(self, partition: int) -> int | None:
        topics = [{"name": "t", "partition_indexes": [partition]}]
        asked = {"group_id": GROUP, "member_id": self.name, "member_epoch": self.epoch}
        answer = await self._client.ask(
            ApiKey.OFFSET_FETCH,
            9,
            {"groups": [{**asked, "topics": topics}], "require_stable": True},
        )
        group = answer.groups[0]
        if group.error_code != ErrorCode.NONE:
            assert group.error_code in (*RETRIED, *START_OVER), answer
            return None
        return max(int(group.topics[0].partitions[0].committed_offset), 0)

    async def _commit(self, partition: int, position: int) -> bool:
        offset = {
            "partition_index": partition,
            "committed_offset": position + 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = await self._client.ask(
            ApiKey.OFFSET_COMMIT,
            9,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": self.epoch,
                "member_id": self.name,
                "group_instance_id": self.instance_id,
                "topics": [{"name": "t", "partitions": [offset]}],
            },
        )
        code = answer.topics[0].partitions[0].error_code
        assert code in (ErrorCode.NONE, *RETRIED, *START_OVER), answer
        return bool(code == ErrorCode.NONE)


class World:
    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.chance = self.simulation.random
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.members: list[Member] = []
        self.topic_id = UUID(int=0)
        self.checks = 0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def check(self) -> None:
        readers: dict[int, str] = {}
        for member in self.members:
            if member.is_reading and not member.is_over:
                for partition in member.reads:
                    other = readers.setdefault(partition, member.name)
                    assert other == member.name, f"{other} and {member.name} read {partition}"
        self.checks += 1

    async def serve(self) -> None:
        """Keep a broker running: whenever it dies, another starts on the same disk."""
        config = BrokerConfig.from_properties(single_node_properties("/data", PORT, CONFIG))
        while True:
            runtime = self.simulation.runtime("broker")

            async def live(runtime: Any = runtime) -> None:
                format_if_needed(runtime, config)
                await Broker(runtime, config).start()
                await asyncio.get_running_loop().create_future()

            try:
                await self.simulation.spawn("broker", live())
            except NodeDown:
                await asyncio.sleep(self.chance.uniform(0.1, 2))

    async def disturb(self) -> None:
        for _ in range(self.chance.randint(2, 5)):
            await asyncio.sleep(self.chance.uniform(0.5, 8))
            fault = self.chance.choice(["crash", "power", "reset", "cut off"])
            victim = self.chance.choice(self.members).name
            if fault == "crash":
                self.simulation.crash("broker")
            elif fault == "power":
                self.simulation.power_loss("broker")
            elif fault == "reset":
                self.simulation.network.reset("broker", f"client-{victim}")
            else:
                self.simulation.network.partition(["broker"], [f"client-{victim}"])
                await asyncio.sleep(self.chance.uniform(1, 3 * SESSION_S))
                self.simulation.network.heal()

    async def ask_until_known(self, key: ApiKey, version: int, fields: Any) -> Any:
        client = SimClient(self.simulation.runtime("admin"), "broker", PORT)
        try:
            while True:
                try:
                    return await client.ask(key, version, fields)
                except UNKNOWN:
                    await asyncio.sleep(0.2)
        finally:
            client.disconnect()

    async def prepare(self) -> None:
        asked = {"name": "t", "num_partitions": PARTITIONS, "replication_factor": 1}
        await self.ask_until_known(ApiKey.CREATE_TOPICS, 5, {"topics": [asked]})
        found = await self.ask_until_known(
            ApiKey.METADATA, 12, {"topics": [{"topic_id": None, "name": "t"}]}
        )
        self.topic_id = found.topics[0].topic_id
        while True:
            fields = {"key": GROUP, "key_type": 0}
            answer = await self.ask_until_known(ApiKey.FIND_COORDINATOR, 2, fields)
            if answer.error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.2)

    async def populate(self) -> list["asyncio.Task[None]"]:
        """Members come and go; some are killed, some are static and come back."""
        tasks = []
        for number in range(LIVES):
            instance_id = self.chance.choice([None, None, f"box-{number % 2}"])
            names = {one.instance_id for one in self.members if not one.is_over}
            member = Member(self, f"m{number}", None if instance_id in names else instance_id)
            self.members.append(member)
            tasks.append(asyncio.create_task(member.live()))
            await asyncio.sleep(self.chance.uniform(0.1, 6))
            alive = [one for one in self.members if not one.is_over]
            if len(alive) > 2 and self.chance.random() < 0.6:
                victim = self.chance.choice(alive)
                if self.chance.random() < 0.5:
                    await victim.leave()
                else:
                    victim.is_over = True
                    victim.reads.clear()
        return tasks

    async def run(self) -> None:
        self.simulation.runtime("broker")  # the clients may be first
        server = asyncio.create_task(self.serve())
        await self.prepare()
        first = Member(self, "first", None)
        self.members.append(first)
        living = [asyncio.create_task(first.live())]
        _, more = await asyncio.gather(self.disturb(), self.populate())
        living += more
        deadline = self.now() + 120
        while not self.is_settled():
            for task in living:
                if task.done():
                    task.result()
            assert self.now() < deadline, "it does not settle"
            await asyncio.sleep(0.5)
        assert self.checks > LIVES
        for member in self.members:
            member.is_over = True
        await asyncio.gather(*living)
        server.cancel()

    def is_settled(self) -> bool:
        alive = [one for one in self.members if not one.is_over]
        shares = [len(one.reads) for one in alive]
        read = sorted(partition for one in alive for partition in one.reads)
        return read == list(range(PARTITIONS)) and max(shares) - min(shares) <= 1


def simulate(seed: int) -> str:
    world = World(seed)
    with world.simulation:
        world.simulation.run(world.run(), seconds_max=3600)
        return world.simulation.trace_hash()


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_a_broker_that_dies_share_a_topic_and_lose_no_commit(seed: int) -> None:
    simulate(seed)


def test_a_seed_of_groups_replays_identically() -> None:
    assert simulate(FIRST_SEED) == simulate(FIRST_SEED)
