"""One broker in a simulation and clients beside it, for tests of what a single API answers."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import ErrorCode
from ottla.runtime.simulated import Simulation
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient

PORT = 9092


class BrokerRoom:
    """The broker's present life; `client` is one connection, `new_client` another."""

    def __init__(self, config: Mapping[str, str] | None = None, *, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.config = BrokerConfig.from_properties(
            single_node_properties("/data", PORT, dict(config or {}))
        )
        self.broker: Broker
        self.client: SimClient

    @property
    def disk(self) -> Any:
        return self.simulation.disk("broker")

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return asyncio.get_running_loop().time()

    def new_client(self) -> SimClient:
        return SimClient(self.simulation.runtime("client"), "broker", PORT)

    async def start(self) -> None:
        runtime = self.simulation.runtime("broker")
        format_if_needed(runtime, self.config)
        self.broker = Broker(runtime, self.config)
        await self.simulation.spawn("broker", self.broker.start())
        self.client = self.new_client()

    async def stop(self) -> None:
        self.client.disconnect()
        await self.simulation.spawn("broker", self.broker.stop())

    async def restart(self) -> None:
        """Stopped in order, and started as another process would be."""
        await self.stop()
        self.simulation.crash("broker")
        await self.start()

    async def kill(self) -> None:
        self.client.disconnect()
        self.simulation.crash("broker")
        await self.start()

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Configs with underscores for dots."""
        asked = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
            ],
        }
        answer = await self.client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [asked]})
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    def batch(self, size: int = 100, count: int = 1, **fields: Any) -> bytes:
        now_ms = self.simulation.runtime("client").clock.wall_ms()
        records = [Record(n, now_ms, None, bytes(size)) for n in range(count)]
        return bytes(build_batch(records, **fields))

    async def produce(
        self,
        topic: str,
        batch: bytes,
        *,
        partition: int = 0,
        acks: int = 1,
        client: SimClient | None = None,
    ) -> Any:
        """The partition's answer."""
        fields = {
            "transactional_id": None,
            "acks": acks,
            "timeout": 3000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
            ],
        }
        answer = await (client or self.client).ask(ApiKey.PRODUCE, 9, fields)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        partition_bytes_max: int = 1 << 20,
        bytes_min: int = 1,
        bytes_max: int = 50 << 20,
        wait_ms: int = 500,
        isolation: int = 0,
        client: SimClient | None = None,
    ) -> Any:
        """The partition's answer."""
        asked = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": partition_bytes_max,
        }
        fields = {
            "replica_id": -1,
            "max_wait": wait_ms,
            "min_bytes": bytes_min,
            "max_bytes": bytes_max,
            "isolation_level": isolation,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [asked]}],
        }
        answer = await (client or self.client).ask(
            ApiKey.FETCH, 12, fields, seconds_max=wait_ms / 1000 + 5
        )
        return answer.responses[0].partitions[0]


def in_broker_room(
    story: Callable[[BrokerRoom], Coroutine[Any, Any, None]],
    config: Mapping[str, str] | None = None,
    *,
    seed: int = 1,
) -> None:
    """Tell `story` with a broker that has started."""
    room = BrokerRoom(config, seed=seed)

    async def whole() -> None:
        await room.start()
        await story(room)
        await room.stop()

    with room.simulation:
        room.simulation.run(whole(), seconds_max=3600)
