"""A broker with three disks in a simulation: one dies, or all are full, while producers write.

OTTLA_SEEDS says how many seeds (8 in `make test`); a failing seed replays identically:
OTTLA_SEED=n OTTLA_SEEDS=1.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch, iter_batches, iter_records
from ottla.protocol.errors import ErrorCode
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import NodeDown
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient

FIRST_SEED = int(os.environ.get("OTTLA_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("OTTLA_SEEDS", "8")))
PORT = 9092
PARTITIONS = 6
BATCHES = 25
DIRECTORIES = ("/data/a", "/data/b", "/data/c")  # the metadata log is in the first
UNKNOWN = (ConnectionError, TimeoutError)
CONFIG = {
    "log.dirs": ",".join(DIRECTORIES),
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.initial.task.delay.ms": "500",
}
TOPIC = {
    "flush.messages": "1",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
    "index.interval.bytes": "200",
}
REFUSALS = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
Faults = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.chance = self.simulation.random
        self.acknowledged: dict[tuple[int, bytes], int] = {}
        self.refused: set[int] = set()
        self.finished: set[int] = set()
        self.fatal: list[BaseException] = []
        self.broker: Broker | None = None

    @property
    def disk(self) -> Any:
        return self.simulation.disk("broker")

    async def serve(self) -> None:
        """Keep a broker running: whenever it dies, another starts on the same disks."""
        config = BrokerConfig.from_properties(single_node_properties("", PORT, CONFIG))
        format_if_needed(self.simulation.runtime("broker"), config)
        while True:
            runtime = self.simulation.runtime("broker")
            self.broker = Broker(runtime, config, on_fatal=self.fatal.append)

            async def live(broker: Broker = self.broker) -> None:
                await broker.start()
                await asyncio.get_running_loop().create_future()

            try:
                await self.simulation.spawn("broker", live())
            except NodeDown:
                await asyncio.sleep(self.chance.uniform(0.1, 2))

    def client(self) -> SimClient:
        return SimClient(self.simulation.runtime("client"), "broker", PORT)

    async def ask(self, key: ApiKey, version: int, fields: Any) -> Any:
        client = self.client()
        try:
            return await self.until_known(client, key, version, fields)
        finally:
            client.disconnect()

    async def until_known(self, client: SimClient, key: ApiKey, version: int, fields: Any) -> Any:
        while True:
            try:
                return await client.ask(key, version, fields)
            except UNKNOWN:
                await asyncio.sleep(0.2)

    async def create_topic(self, name: str, partitions: int) -> None:
        asked = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in TOPIC.items()],
        }
        answer = await self.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [asked]})
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    async def producer_id(self) -> int:
        fields = {"transactional_id": None, "transaction_timeout": 1000}
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
        assert answer.error_code == ErrorCode.NONE
        return int(answer.producer_id)

    async def produce(self, partition: int, producer_id: int) -> None:
        """Numbered batches, each sent until it is acknowledged, as an idempotent producer does."""
        client, sequence = self.client(), 0
        for number in range(BATCHES):
            values = [b"%d/%d" % (number, n) for n in range(self.chance.randint(1, 4))]
            batch = bytes(
                build_batch(
                    [Record(n, 1_000_000 + number, None, v) for n, v in enumerate(values)],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
            )
            offset = await self._send(client, partition, batch)
            for n, value in enumerate(values):
                self.acknowledged[partition, value] = offset + n
            sequence += len(values)
            await asyncio.sleep(self.chance.uniform(0, 0.4))
        client.disconnect()
        self.finished.add(partition)

    async def _send(self, client: SimClient, partition: int, batch: bytes) -> int:
        data = [{"index": partition, "records": batch}]
        request = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 3000,
            "topic_data": [{"name": "t", "partition_data": data}],
        }
        while True:
            answer = await self.until_known(client, ApiKey.PRODUCE, 9, request)
            result = answer.responses[0].partition_responses[0]
            if result.error_code == ErrorCode.NONE:
                return int(result.base_offset)
            assert result.error_code in REFUSALS, result
            if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                self.refused.add(partition)
            await asyncio.sleep(0.2)

    async def fetch(self, partition: int, offset: int) -> Any:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 500}
        fields = {
            "replica_id": -1,
            "max_wait": 10,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "topics": [{"topic": "t", "partitions": [asked]}],
        }
        answer = await self.ask(ApiKey.FETCH, 11, fields)
        return answer.responses[0].partitions[0]

    async def read_all(self, partition: int) -> list[tuple[int, bytes | None]]:
        offset, found = 0, []
        while True:
            result = await self.fetch(partition, offset)
            assert result.error_code == ErrorCode.NONE, result
            records = [
                record
                for at, header in iter_batches(result.records or b"")
                for record in iter_records(result.records[at : at + header.size_bytes])
            ]
            if not records:
                assert offset == result.high_watermark
                return found
            found += [(record.offset, record.value) for record in records]
            offset = found[-1][0] + 1

    async def check(self, partition: int) -> None:
        """Everything acknowledged is there, once, where it was said to be."""
        found = await self.read_all(partition)
        assert [offset for offset, _ in found] == list(range(len(found)))
        values = [value for _, value in found]
        assert len(set(values)) == len(values), "a batch was stored twice"
        at = dict(found)
        for (where, value), offset in self.acknowledged.items():
            if where == partition:
                assert at.get(offset) == value, f"{value!r} is not at {offset}"

    async def places(self, topic: str = "t") -> dict[str, list[int]]:
        """Which partitions lie in which directory; of a failed one nothing is told."""
        answer = await self.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        return {
            one.log_dir: [
                p.partition_index for t in one.topics if t.name == topic for p in t.partitions
            ]
            for one in answer.results
            if one.error_code == ErrorCode.NONE
        }

    async def leaders(self) -> list[tuple[int, int, list[int]]]:
        answer = await self.ask(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
        found = sorted(answer.topics[0].partitions, key=lambda one: one.partition_index)
        return [(one.error_code, one.leader_id, list(one.offline_replicas)) for one in found]

    async def run(self, faults: Faults) -> None:
        self.simulation.runtime("broker")  # the client may be first
        server = asyncio.create_task(self.serve())
        await self.create_topic("t", PARTITIONS)
        ids = [await self.producer_id() for _ in range(PARTITIONS)]
        producers = [asyncio.create_task(self.produce(n, ids[n])) for n in range(PARTITIONS)]
        await faults(self)
        await asyncio.gather(*producers)
        self.simulation.power_loss("broker")
        for partition in range(PARTITIONS):
            await self.check(partition)
        server.cancel()


async def one_disk_dies(world: World) -> None:
    places = await world.places()
    assert sorted(map(len, places.values())) == [2, 2, 2]
    dead = world.chance.choice(DIRECTORIES[1:])
    kind = world.chance.choice(["all", "writes", "sync"])
    await asyncio.sleep(world.chance.uniform(0.2, 3))
    if kind == "sync":
        world.disk.fail_sync(dead, times=1)
    else:
        world.disk.fail_io(dead, reads=kind == "all")
    healthy = {n for path, found in places.items() if path != dead for n in found}
    lost = set(places[dead])
    while not healthy <= world.finished or not world.refused:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # whatever was to be told has been told
    assert world.refused <= lost, "a healthy disk refused"
    assert set(await world.places()) == set(DIRECTORIES) - {dead}
    for partition, state in enumerate(await world.leaders()):
        if partition in lost:
            assert state == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
            assert (await world.fetch(partition, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        else:
            assert state == (ErrorCode.NONE, 1, [])
            await world.check(partition)
    await world.create_topic("later", 4)
    assert sorted(map(len, (await world.places("later")).values())) == [2, 2]
    if world.chance.random() < 0.5:
        await restart_without(world, dead, lost)
    world.disk.heal()
    if kind == "sync" or world.chance.random() < 0.5:
        world.simulation.power_loss("broker")
    else:
        world.simulation.crash("broker")
    while any(leader != 1 for _, leader, _ in await world.leaders()):
        await asyncio.sleep(0.1)
    assert world.fatal == []


async def restart_without(world: World, dead: str, lost: set[int]) -> None:
    """The disk is still dead: the others serve, and nothing takes the place of what it has."""
    world.disk.fail_io(dead)
    world.simulation.crash("broker")
    for partition, state in enumerate(await world.leaders()):
        assert (state[1] == -1) == (partition in lost), state
    assert set(await world.places()) == set(DIRECTORIES) - {dead}
    for found in (await world.places()).values():
        assert not lost & set(found), "a new log in the place of one that will return"


async def all_disks_fill_up(world: World) -> None:
    for _ in range(world.chance.randint(1, 3)):
        await asyncio.sleep(world.chance.uniform(0.2, 2))
        world.refused.clear()
        world.disk.limit_space(world.chance.randint(0, 1500))
        while not world.refused and len(world.finished) < PARTITIONS:
            await asyncio.sleep(0.05)
        await asyncio.sleep(world.chance.uniform(0, 3))
        for partition in range(PARTITIONS):
            await world.check(partition)  # what is there can be read all the while
        world.disk.limit_space(None)
    assert set(await world.places()) == set(DIRECTORIES), "a full disk is not a broken one"
    assert world.fatal == []


async def the_metadata_disk_dies(world: World) -> None:
    await asyncio.sleep(world.chance.uniform(0.2, 3))
    world.disk.fail_io("/data/a")
    while not world.fatal:
        await asyncio.sleep(0.1)
    assert "/data/a" in str(world.fatal[0])
    world.disk.heal()
    world.simulation.crash("broker")
    while any(leader != 1 for _, leader, _ in await world.leaders()):
        await asyncio.sleep(0.1)


def simulate(seed: int, faults: Faults) -> str:
    world = World(seed)
    with world.simulation:
        world.simulation.run(world.run(faults), seconds_max=3600)
        return world.simulation.trace_hash()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_that_dies_takes_only_its_partitions_and_gives_them_back(seed: int) -> None:
    simulate(seed, one_disk_dies)


@pytest.mark.parametrize("seed", SEEDS)
def test_full_disks_refuse_writes_and_serve_again_once_there_is_room(seed: int) -> None:
    simulate(seed, all_disks_fill_up)


def test_the_disk_of_the_metadata_log_ends_the_broker() -> None:
    simulate(FIRST_SEED, the_metadata_disk_dies)


def test_a_seed_replays_identically() -> None:
    assert simulate(FIRST_SEED, one_disk_dies) == simulate(FIRST_SEED, one_disk_dies)
