"""One whole broker in a simulation: killed, unplugged and cut off while producers write.

OTTLA_SEEDS says how many seeds (8 in `make test`); a failing seed replays identically:
OTTLA_SEED=n OTTLA_SEEDS=1.
"""

import asyncio
import os
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch, iter_batches, iter_records
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import NodeDown
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient

FIRST_SEED = int(os.environ.get("OTTLA_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("OTTLA_SEEDS", "8")))
PORT = 9092
PARTITIONS = 2
BATCHES = 30
UNKNOWN = (ConnectionError, TimeoutError)
CONFIG = {
    "log.segment.bytes": "1048576",
    "log.flush.interval.messages": "1",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.initial.task.delay.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
TOPIC = {
    "flush.messages": "1",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
    "index.interval.bytes": "200",
}


class World:
    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.chance = self.simulation.random
        self.acknowledged: dict[tuple[int, bytes], int] = {}
        self.is_calm = False

    async def serve(self) -> None:
        """Keep a broker running: whenever it dies, another starts on the same disk."""
        properties = single_node_properties("/data", PORT, CONFIG)
        config = BrokerConfig.from_properties(properties)
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
        for _ in range(self.chance.randint(2, 6)):
            await asyncio.sleep(self.chance.uniform(0.2, 3))
            fault = self.chance.choice(["crash", "power", "reset", "clog", "partition"])
            if fault == "crash":
                self.simulation.crash("broker")
            elif fault == "power":
                self.simulation.power_loss("broker")
            elif fault == "reset":
                self.simulation.network.reset("broker", "client")
            elif fault == "clog":
                self.simulation.network.clog("broker", "client")
                await asyncio.sleep(self.chance.uniform(0.1, 4))
                self.simulation.network.heal()
            else:
                self.simulation.network.partition(["broker"], ["client"])
                await asyncio.sleep(self.chance.uniform(0.1, 8))
                self.simulation.network.heal()
        self.is_calm = True

    def client(self) -> SimClient:
        return SimClient(self.simulation.runtime("client"), "broker", PORT)

    async def until_known(self, client: SimClient, key: ApiKey, version: int, fields: Any) -> Any:
        while True:
            try:
                return await client.ask(key, version, fields)
            except UNKNOWN:
                await asyncio.sleep(0.2)

    async def create_topic(self) -> None:
        client = self.client()
        asked = {
            "name": "t",
            "num_partitions": PARTITIONS,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in TOPIC.items()],
        }
        answer = await self.until_known(client, ApiKey.CREATE_TOPICS, 5, {"topics": [asked]})
        assert answer.topics[0].error_code in (
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ), answer
        client.disconnect()

    async def produce(self, partition: int) -> None:
        """Numbered batches, each sent until it is acknowledged, as an idempotent producer does."""
        client = self.client()
        fields = {"transactional_id": None, "transaction_timeout": 1000}
        answer = await self.until_known(client, ApiKey.INIT_PRODUCER_ID, 4, fields)
        producer_id, sequence = answer.producer_id, 0
        for number in range(BATCHES):
            values = [b"%d/%d" % (number, n) for n in range(self.chance.randint(1, 4))]
            batch = bytes(
                build_batch(
                    [Record(n, 1_000_000 + number, None, v) for n, v in enumerate(values)],
                    codec=self.chance.choice([Codec.NONE, Codec.GZIP]),
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
                return result.base_offset
            assert result.error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.REQUEST_TIMED_OUT,
            ), result
            await asyncio.sleep(0.2)

    async def read_all(self, partition: int) -> list[tuple[int, bytes]]:
        client, offset, found = self.client(), 0, []
        while True:
            asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 500}
            fields = {
                "replica_id": -1,
                "max_wait": 10,
                "min_bytes": 1,
                "max_bytes": 100_000,
                "topics": [{"topic": "t", "partitions": [asked]}],
            }
            answer = await self.until_known(client, ApiKey.FETCH, 11, fields)
            result = answer.responses[0].partitions[0]
            assert result.error_code == ErrorCode.NONE, result
            records = [
                record
                for at, header in iter_batches(result.records or b"")
                for record in iter_records(result.records[at : at + header.size_bytes])
            ]
            if not records:
                assert offset == result.high_watermark
                client.disconnect()
                return found
            found += [(record.offset, record.value) for record in records]
            offset = found[-1][0] + 1

    async def run(self) -> None:
        self.simulation.runtime("broker")  # the client may be first
        server = asyncio.create_task(self.serve())
        await self.create_topic()
        await asyncio.gather(self.disturb(), *map(self.produce, range(PARTITIONS)))
        self.simulation.power_loss("broker")
        for partition in range(PARTITIONS):
            found = await self.read_all(partition)
            offsets = [offset for offset, _ in found]
            assert offsets == list(range(len(found)))
            values = [value for _, value in found]
            assert len(set(values)) == len(values), "a batch was stored twice"
            at = dict(found)
            for (where, value), offset in self.acknowledged.items():
                if where == partition:
                    assert at.get(offset) == value, f"{value!r} is not at {offset}"
        server.cancel()


def simulate(seed: int) -> str:
    world = World(seed)
    with world.simulation:
        world.simulation.run(world.run(), seconds_max=3600)
        return world.simulation.trace_hash()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_dies_loses_nothing_and_stores_nothing_twice(seed: int) -> None:
    simulate(seed)


def test_a_seed_replays_identically() -> None:
    assert simulate(FIRST_SEED) == simulate(FIRST_SEED)
