"""A broker in a simulation, producers, and a network that holds messages back.

Producers of both generations (transactions v1 and v2) write transactions over several partitions,
with offsets in some of them; now and then one gives up, is replaced by a successor and goes on as a
zombie. Another writes outside of transactions. Requests that were sent come again later, in any
order; so do markers; and coordinators take their time to answer. The broker is restarted, killed,
unplugged in the middle of a disk operation, and cut off. Readers of committed records follow.

At the end a `History` tells what producers were told and what readers saw; `check` says what is
wrong with it. Transactions v1 cannot tell an EndTxn or a TxnOffsetCommit that comes late from one
of the next transaction (KAFKA-17754), so of v1 these two are not repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.coordinators.runtime import EndMarker, OnDone
from ottla.coordinators.transaction.coordinator import TransactionCoordinator
from ottla.coordinators.transaction.marker_writer import MarkerWriter
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import ControlType, iter_batches, iter_records, parse_control_key
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import NodeDown, PowerCut
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient
from support.transaction_history import History
from support.transaction_producers import (
    GROUP,
    GROUP_WITH_MEMBERS,
    PARTITIONS,
    UNKNOWN,
    Idempotent,
    Producer,
)

PORT = 9092
CONFIG = {
    "log.segment.bytes": "1048576",
    "log.flush.interval.messages": "1",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.initial.task.delay.ms": "60000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
FAULTS = ("crash", "restart", "restart", "power", "cut", "cut", "cut", "reset", "clog")
TOPIC = {"flush.messages": "1", "internal.segment.bytes": "2000", "index.interval.bytes": "200"}


class Gremlin:
    """Keeps requests that were sent and sends them again."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._kept: list[tuple[ApiKey, int, Any]] = []

    def keep(self, key: ApiKey, version: int, fields: Any) -> None:
        if len(self._kept) < 60:
            self._kept.append((key, version, fields))

    async def send_twin(self, key: ApiKey, version: int, fields: Any) -> None:
        """The same request by another way, at the same time."""
        client = self._world.client("gremlin")
        try:
            await client.ask(key, version, fields, seconds_max=2)
        except UNKNOWN:
            pass
        finally:
            client.disconnect()

    async def haunt(self) -> None:
        chance = self._world.chance
        client = self._world.client("gremlin")
        while not self._world.is_over:
            await asyncio.sleep(chance.uniform(0.01, 0.2))
            if not self._kept:
                continue
            at = chance.randrange(len(self._kept))
            again = self._kept[at] if chance.random() < 0.3 else self._kept.pop(at)
            try:
                await client.ask(*again, seconds_max=2)
            except UNKNOWN:
                await asyncio.sleep(0.05)
        client.disconnect()


class SlowMarkers:
    """Stands for partitions on other brokers: markers to them take time, fail, or are doubted."""

    def __init__(self, world: "World", writer: MarkerWriter) -> None:
        self._chance = world.chance
        self._write = writer.write
        vars(writer)["write"] = self.write

    def write(self, marker: EndMarker, at: TopicPartition, on_done: OnDone) -> None:
        draw = self._chance.random()
        if draw < 0.15:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif draw < 0.3:
            self._write(marker, at, lambda _: on_done(ErrorCode.REQUEST_TIMED_OUT))
        elif draw < 0.5:
            asyncio.get_running_loop().call_later(
                self._chance.uniform(0, 0.3), self._write, marker, at, on_done
            )
        else:
            self._write(marker, at, on_done)


class SlowAnswers:
    """Stands for a coordinator on another broker: what it says of a transaction may be old."""

    def __init__(self, world: "World", coordinator: TransactionCoordinator) -> None:
        self._chance = world.chance
        for name in ("add_partitions", "verify"):
            vars(coordinator)[name] = self._slowed(getattr(coordinator, name))

    def _slowed(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def later(answer: Any) -> Any:
            known = await answer if isinstance(answer, Awaitable) else answer
            await asyncio.sleep(self._chance.uniform(0, 0.4))
            return known

        def slowed(*args: Any, **kwargs: Any) -> Any:
            answer = ask(*args, **kwargs)
            return later(answer) if self._chance.random() < 0.5 else answer

        return slowed


class World:
    def __init__(self, seed: int, *, transactions: int = 6, faults: bool = True) -> None:
        self.simulation = Simulation(seed)
        self.chance = self.simulation.random
        self.transactions = transactions
        self.history = History()
        self.gremlin = Gremlin(self)
        self.is_over = False
        self._faults = faults
        self._has_slow_markers = faults and self.chance.random() < 0.5
        self._has_slow_answers = faults and self.chance.random() < 0.5
        self._broker: Broker | None = None
        self._stop = asyncio.Event()
        self.lives: dict[str, int] = {}  # of each producer, the latest that has begun
        self.member_id = ""
        self.generation = -1
        self.restarts_unheard = 2 if faults else 0  # to come
        self._background: set[asyncio.Task[Any]] = set()

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # The broker

    async def serve(self) -> None:
        config = BrokerConfig.from_properties(single_node_properties("/data", PORT, CONFIG))
        while True:
            runtime = self.simulation.runtime("broker")

            async def live(runtime: Any = runtime) -> None:
                format_if_needed(runtime, config)
                broker = Broker(runtime, config)
                if self._has_slow_markers:
                    SlowMarkers(self, broker.markers)
                if self._has_slow_answers:
                    SlowAnswers(self, broker.transactions)
                await broker.start()
                self._broker = broker
                self._stop.clear()
                await self._stop.wait()
                self._broker = None
                await broker.stop()

            try:
                await self.simulation.spawn("broker", live())
                self.simulation.crash("broker")  # the process ends, with nothing left to lose
            except NodeDown as death:
                if isinstance(death, PowerCut):
                    self.simulation.power_loss("broker")  # decides what the disk has kept
            self._broker = None
            await asyncio.sleep(self.chance.uniform(0.05, 1))

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Of who coordinates the id now; -1 if nobody does."""
        try:
            return (
                -1
                if self._broker is None
                else self._broker.transactions._led(transactional_id).epoch
            )
        except KafkaError:
            return -1

    async def disturb(self) -> None:
        for _ in range(self.chance.randint(2, 5)):
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))
            fault = self.chance.choice(FAULTS)
            if fault == "crash":
                self.simulation.crash("broker")
            elif fault == "restart":
                self._stop.set()
            elif fault == "power":
                self.simulation.power_loss("broker")
            elif fault == "cut":
                # In the middle of whatever writes next: a batch, a decision, a marker.
                self.simulation.disk("broker").cut_power_after(self.chance.randint(1, 30))
            elif fault == "reset":
                self.simulation.network.reset("broker", "client")
            else:
                self.simulation.network.clog("broker", "client")
                await asyncio.sleep(self.chance.uniform(0.1, 2))
                self.simulation.network.heal()

    async def restart_unheard(self) -> None:
        """The broker takes what it is sent and stops in order, but nobody hears of it."""
        network, chance = self.simulation.network, self.chance
        network.block("broker", "client")
        await asyncio.sleep(chance.uniform(0.01, 0.2))
        self._stop.set()
        await asyncio.sleep(chance.uniform(0.3, 1))
        network.reset("broker", "client")
        network.unblock("broker", "client")

    def client(self, node: str = "client") -> SimClient:
        return SimClient(self.simulation.runtime(node), "broker", PORT)

    async def until_known(self, client: SimClient, key: ApiKey, version: int, fields: Any) -> Any:
        while True:
            try:
                return await client.ask(key, version, fields)
            except UNKNOWN:
                await asyncio.sleep(0.1)

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
        if answer.topics[0].error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise AssertionError(answer)
        for key, key_type in (("warm", 1), (GROUP, 0), (GROUP_WITH_MEMBERS, 0)):
            fields = {"key": key, "key_type": key_type}
            await self.until_known(client, ApiKey.FIND_COORDINATOR, 2, fields)
        client.disconnect()

    # Readers

    async def fetch(
        self, client: SimClient, partition: int, offset: int, *, isolation: int, bytes_max: int
    ) -> Any:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_max}
        fields = {
            "replica_id": -1,
            "max_wait": 50,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "isolation_level": isolation,
            "topics": [{"topic": "t", "partitions": [asked]}],
        }
        answer = await self.until_known(client, ApiKey.FETCH, 11, fields)
        return answer.responses[0].partitions[0]

    async def follow(self, partition: int) -> None:
        """Read committed records as they come, like a consumer that keeps up."""
        client, offset = self.client(), 0
        while not self.is_over:
            result = await self.fetch(client, partition, offset, isolation=1, bytes_max=400)
            if result.error_code == ErrorCode.NONE:
                for at, value, next_offset in committed(result, offset):
                    offset = next_offset
                    if value is not None:
                        self.history.seen.append((partition, at, value))
            await asyncio.sleep(self.chance.uniform(0.05, 0.4))
        client.disconnect()

    async def read_all(self, partition: int, *, isolation: int) -> list[tuple[int, bytes]]:
        """All records; the committed ones once nothing is open any more."""
        client, offset, found = self.client(), 0, []
        patience = 400
        while True:
            result = await self.fetch(client, partition, offset, isolation=isolation, bytes_max=700)
            if result.error_code == ErrorCode.NONE:
                before = offset
                for at, value, next_offset in committed(result, offset):
                    offset = next_offset
                    if value is not None:
                        found.append((at, value))
                if offset > before:
                    continue
                if offset == result.high_watermark:
                    client.disconnect()
                    return found
            patience -= 1
            if not patience:
                self.history.problems.append(
                    f"partition {partition} is stuck at {offset} of {result.high_watermark}"
                )
                return found
            await asyncio.sleep(0.1)

    async def read_offset(self, group: str, partition: int) -> int:
        client = self.client()
        topics = [{"name": "t", "partition_indexes": [partition]}]
        asked = {"group_id": group, "topics": topics, "require_stable": True}
        while True:
            answer = await self.until_known(client, ApiKey.OFFSET_FETCH, 7, asked)
            partitions = answer.topics[0].partitions if answer.topics else ()
            codes = {answer.error_code, *(one.error_code for one in partitions)}
            if codes == {ErrorCode.NONE}:
                client.disconnect()
                offset: int = partitions[0].committed_offset
                return offset
            await asyncio.sleep(0.1)

    async def run(self) -> None:
        self.simulation.runtime("broker")  # the client may be first
        server = asyncio.create_task(self.serve())
        await self.create_topic()
        helpers = [asyncio.create_task(self.follow(one)) for one in range(PARTITIONS)]
        helpers.append(asyncio.create_task(self.gremlin.haunt()))
        faults = [self.disturb()] if self._faults else []
        producers = (
            Producer(self, 0, version=1),
            Producer(self, 1, version=2),
            Producer(self, 2, version=2, is_member=True),
            Idempotent(self, "i0"),
        )
        await asyncio.gather(*faults, *(one.work() for one in producers))
        while self._background:
            await asyncio.gather(*self._background)
        if self._faults:
            self.simulation.power_loss("broker")
        self.is_over = True
        await asyncio.gather(*helpers)
        history = self.history
        for partition in range(PARTITIONS):
            history.final[partition] = await self.read_all(partition, isolation=1)
            history.stored[partition] = await self.read_all(partition, isolation=0)
        for number, group in enumerate((GROUP, GROUP, GROUP_WITH_MEMBERS)):
            history.offsets[f"p{number}"] = await self.read_offset(group, number)
        server.cancel()


def committed(result: Any, from_offset: int) -> Iterable[tuple[int, bytes | None, int]]:
    """(offset, value, next offset) of each record; those to skip, as clients do, have no value."""
    pending = sorted(
        ((one.first_offset, one.producer_id) for one in result.aborted_transactions or ()),
    )
    aborted: set[int] = set()
    data = result.records or b""
    for at, header in iter_batches(data):
        while pending and pending[0][0] <= header.last_offset:
            aborted.add(pending.pop(0)[1])
        batch = data[at : at + header.size_bytes]
        for record in iter_records(batch):
            if header.is_control:
                if parse_control_key(record.key) is ControlType.ABORT:
                    aborted.discard(header.producer_id)
                yield record.offset, None, header.next_offset
            elif record.offset >= from_offset:
                is_aborted = header.is_transactional and header.producer_id in aborted
                yield record.offset, None if is_aborted else record.value, record.offset + 1


def simulate(world: World, *, seconds_max: float = 600.0) -> str:
    """Run it; the fingerprint of everything that happened."""
    with world.simulation:
        world.simulation.run(world.run(), seconds_max=seconds_max)
        return world.simulation.trace_hash()
