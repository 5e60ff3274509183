"""A broker in a simulation, transactional producers, and a network that holds messages back.

Producers of both generations (transactions v1 and v2) write transactions over several partitions,
with offsets in some of them; now and then one gives up, is replaced by a successor and goes on as a
zombie. Requests that were sent come again later, in any order; so do markers. The broker is killed,
unplugged in the middle of a disk operation, and cut off. Readers of committed records follow.

At the end a `History` tells what producers were told and what readers saw; `check` says what is
wrong with it. Transactions v1 cannot tell an EndTxn or a TxnOffsetCommit that comes late from one
of the next transaction (KAFKA-17754), so of v1 these two are not repeated.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.coordinators.runtime import EndMarker, OnDone
from ottla.coordinators.transaction.marker_writer import MarkerWriter
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    ControlType,
    Record,
    build_batch,
    iter_batches,
    iter_records,
    parse_control_key,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import NodeDown, PowerCut
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient

PORT = 9092
PARTITIONS = 3
PRODUCERS = 3
GROUP = "group"
TIMEOUT_MS = 4_000
UNKNOWN = (ConnectionError, TimeoutError)
CONFIG = {
    "log.segment.bytes": "1048576",
    "log.flush.interval.messages": "1",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.initial.task.delay.ms": "60000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
TOPIC = {"flush.messages": "1", "internal.segment.bytes": "2000", "index.interval.bytes": "200"}

RETRIABLE = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
# What a producer may be told for good; anything else is a fault of the broker.
DEFINITE = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Sent:
    """One transaction as its producer saw it."""

    producer: str
    number: int
    values: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # partition, offset or -1
    offset: int | None = None  # committed with it for the producer's own partition
    outcome: Outcome = Outcome.ABORTED


@dataclass
class History:
    sent: list[Sent] = field(default_factory=list)
    seen: list[tuple[int, int, bytes]] = field(default_factory=list)  # while it went on
    final: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def check(self) -> list[str]:
        """Everything that is wrong; empty if nothing is."""
        found = list(self.problems)
        at = {
            (partition, value): offset
            for partition, records in self.final.items()
            for offset, value in records
        }
        for partition, records in self.final.items():
            values = [value for _, value in records]
            if len(set(values)) != len(values):
                found.append(f"a record is twice in partition {partition}")
        for one in self.sent:
            found += _check_transaction(one, at)
        for partition, offset, value in self.seen:
            if at.get((partition, value)) != offset:
                found.append(f"{value!r} was read at {partition}/{offset} and is not committed")
        found += self._check_order()
        found += self._check_offsets(at)
        return found

    def _check_order(self) -> Iterable[str]:
        for partition, records in self.final.items():
            last: dict[bytes, tuple[int, ...]] = {}
            for _, value in records:
                producer, number, n = value.split(b"/")
                place = (int(number), int(n))
                if place <= last.get(producer, (-1,)):
                    yield f"{value!r} is out of order in partition {partition}"
                last[producer] = place

    def _check_offsets(self, at: dict[tuple[int, bytes], int]) -> Iterable[str]:
        for number in range(PRODUCERS):
            expected = -1
            for one in self.sent:
                if not one.producer.startswith(f"p{number}") or one.offset is None:
                    continue
                if _is_visible(one, at):
                    expected = max(expected, one.offset)
            told = self.offsets.get(number, -1)
            if told != expected:
                yield f"the offset of p{number} is {told}, not {expected}"


def _is_visible(one: Sent, at: dict[tuple[int, bytes], int]) -> bool:
    return any((partition, value) in at for value, (partition, _) in one.values.items())


def _check_transaction(one: Sent, at: dict[tuple[int, bytes], int]) -> Iterable[str]:
    name = f"{one.producer}/{one.number}"
    present = [value for value, (partition, _) in one.values.items() if (partition, value) in at]
    if one.outcome is Outcome.COMMITTED:
        for value, (partition, offset) in one.values.items():
            if at.get((partition, value)) != offset:
                yield f"{value!r} of {name} was committed at {offset} and is not there"
    elif one.outcome is Outcome.ABORTED and present:
        yield f"{name} was aborted and {present} can be read"
    elif present and len(present) != len(one.values):
        yield f"{name} is torn: {present} of {list(one.values)}"


class TransactionFailed(Exception):
    """The transaction is over for its producer, who was told so."""


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
                await broker.start()
                await asyncio.get_running_loop().create_future()

            try:
                await self.simulation.spawn("broker", live())
            except NodeDown as death:
                if isinstance(death, PowerCut):
                    self.simulation.power_loss("broker")  # decides what the disk has kept
                await asyncio.sleep(self.chance.uniform(0.05, 1))

    async def disturb(self) -> None:
        for _ in range(self.chance.randint(2, 5)):
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))
            fault = self.chance.choice(["crash", "power", "cut", "cut", "cut", "reset", "clog"])
            if fault == "crash":
                self.simulation.crash("broker")
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
        for key, key_type in (("warm", 1), (GROUP, 0)):
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

    async def read_all(self, partition: int) -> list[tuple[int, bytes]]:
        """All committed records, once nothing is open any more."""
        client, offset, found = self.client(), 0, []
        patience = 400
        while True:
            result = await self.fetch(client, partition, offset, isolation=1, bytes_max=700)
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

    async def read_offsets(self) -> dict[int, int]:
        client = self.client()
        while True:
            answer = await self.until_known(
                client,
                ApiKey.OFFSET_FETCH,
                7,
                {
                    "group_id": GROUP,
                    "topics": [{"name": "t", "partition_indexes": list(range(PRODUCERS))}],
                    "require_stable": True,
                },
            )
            partitions = answer.topics[0].partitions if answer.topics else ()
            codes = {answer.error_code, *(one.error_code for one in partitions)}
            if codes == {ErrorCode.NONE}:
                client.disconnect()
                return {one.partition_index: one.committed_offset for one in partitions}
            await asyncio.sleep(0.1)

    async def run(self) -> None:
        self.simulation.runtime("broker")  # the client may be first
        server = asyncio.create_task(self.serve())
        await self.create_topic()
        helpers = [asyncio.create_task(self.follow(one)) for one in range(PARTITIONS)]
        helpers.append(asyncio.create_task(self.gremlin.haunt()))
        faults = [self.disturb()] if self._faults else []
        producers = [Producer(self, n, version=2 if n else 1) for n in range(PRODUCERS)]
        await asyncio.gather(*faults, *(one.work() for one in producers))
        while self._background:
            await asyncio.gather(*self._background)
        if self._faults:
            self.simulation.power_loss("broker")
        self.is_over = True
        await asyncio.gather(*helpers)
        for partition in range(PARTITIONS):
            self.history.final[partition] = await self.read_all(partition)
        self.history.offsets = await self.read_offsets()
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


class Producer:
    """One transactional id, with successors under the same one."""

    def __init__(self, world: World, number: int, *, version: int) -> None:
        self._world = world
        self._number = number
        self._is_v2 = version >= 2
        self._lives = 0

    async def work(self) -> None:
        done = 0
        while done < self._world.transactions:
            self._lives += 1
            session = Session(self._world, self._number, self._lives, is_v2=self._is_v2, done=done)
            await session.init()
            done = await session.work()
            if session.is_zombie:
                done += 1
                self._world.in_background(session.go_on())
            else:
                session.client.disconnect()


class Session:
    """One producer in one life: an id, an epoch, its sequence numbers."""

    def __init__(self, world: World, number: int, life: int, *, is_v2: bool, done: int) -> None:
        self.world = world
        self.number = number
        self.is_v2 = is_v2
        self.client = world.client()
        self.name = f"p{number}"
        self.life = life
        self.done = done
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}
        self.added: set[int] = set()
        self.is_zombie = False
        self.is_repeated = False  # somebody else may send the same request, too
        self.last_marker: dict[str, Any] | None = None  # of the transaction before

    async def ask(self, key: ApiKey, version: int, fields: Any, *, repeats: bool = True) -> Any:
        if repeats and self.world.chance.random() < 0.4:
            self.is_repeated = True
            self.world.gremlin.keep(key, version, fields)
        if repeats and self.world.chance.random() < 0.15:
            self.is_repeated = True
            self.world.in_background(self.world.gremlin.send_twin(key, version, fields))
        return await self.client.ask(key, version, fields)

    async def pause(self) -> None:
        await asyncio.sleep(self.world.chance.uniform(0, 0.15))

    async def init(self) -> None:
        fields = {
            "transactional_id": self.name,
            "transaction_timeout": TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        while True:
            try:
                answer = await self.client.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
            except UNKNOWN:
                await self.pause()
                continue
            if answer.error_code == ErrorCode.NONE:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                return
            self._expect(answer.error_code)
            await self.pause()

    def _expect(self, code: int) -> None:
        if code not in RETRIABLE and code not in DEFINITE:
            self.world.history.problems.append(f"{self.name} was told {ErrorCode(code).name}")

    async def work(self) -> int:
        """Transactions until there were enough, or until one ended the session."""
        chance = self.world.chance
        while self.done < self.world.transactions:
            number = self.done * 100 + self.life  # unique, and rising
            sent = Sent(self.name, number)
            self.world.history.sent.append(sent)
            self.done += 1
            try:
                await self._transaction(sent)
            except TransactionFailed:
                return self.done
            if chance.random() < 0.25:
                self.is_zombie = chance.random() < 0.6
                return self.done  # a successor takes over
            await self.pause()
        return self.done

    async def go_on(self) -> None:
        """One more transaction, not knowing of the successor."""
        sent = Sent(self.name, self.done * 100 + self.life)
        self.world.history.sent.append(sent)
        try:
            await self._transaction(sent)
        except TransactionFailed:
            pass
        finally:
            self.client.disconnect()

    async def _transaction(self, sent: Sent) -> None:
        chance = self.world.chance
        self.added.clear()
        places = chance.sample(range(PARTITIONS), chance.randint(1, 2))
        n = 0
        for _ in range(chance.randint(1, 3)):
            partition = chance.choice(places)
            values = []
            for _ in range(chance.randint(1, 2)):
                values.append(b"%s/%d/%d" % (self.name.encode(), sent.number, n))
                n += 1
            if not await self._produce(sent, partition, values):
                break  # it gives up and aborts, with a batch perhaps still on its way
            if chance.random() < 0.05:
                raise TransactionFailed  # it dies; whoever comes next aborts this
        else:
            if chance.random() < 0.5:
                await self._commit_offset(sent)
            await self._end(sent, is_commit=chance.random() < 0.7)
            return
        await self._end(sent, is_commit=False)
        if not self.is_v2:
            # Which sequence numbers are taken is not known: a new epoch begins anew (KIP-360).
            raise TransactionFailed

    async def _until_told(
        self, key: ApiKey, version: int, fields: Any, code_of: Callable[[Any], int], **more: Any
    ) -> Any:
        """Ask until there is an answer that counts; TransactionFailed if it is a refusal."""
        while True:
            try:
                answer = await self.ask(key, version, fields, **more)
            except UNKNOWN:
                await self.pause()
                continue
            code = code_of(answer)
            if code == ErrorCode.NONE:
                return answer
            self._expect(code)
            if code not in RETRIABLE:
                raise TransactionFailed(ErrorCode(code).name)
            await self.pause()

    async def _produce(self, sent: Sent, partition: int, values: list[bytes]) -> bool:
        """False if the producer loses patience."""
        for value in values:
            sent.values[value] = (partition, -1)
        if not self.is_v2 and partition not in self.added:
            await self._add_partition(partition)
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            [Record(n, 1_000_000 + n, None, value) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        fields = {
            "transactional_id": self.name,
            "acks": -1,
            "timeout": 3000,
            "topic_data": [
                {"name": "t", "partition_data": [{"index": partition, "records": bytes(batch)}]}
            ],
        }
        version = 12 if self.is_v2 else 9
        while True:
            try:
                answer = await self.ask(ApiKey.PRODUCE, version, fields)
            except UNKNOWN:
                if self.world.chance.random() < 0.3:
                    self.world.gremlin.keep(ApiKey.PRODUCE, version, fields)
                    return False
                await self.pause()
                continue
            result = answer.responses[0].partition_responses[0]
            if result.error_code == ErrorCode.NONE:
                break
            self._expect(result.error_code)
            if result.error_code not in RETRIABLE:
                raise TransactionFailed(ErrorCode(result.error_code).name)
            await self.pause()
        for n, value in enumerate(values):
            sent.values[value] = (partition, result.base_offset + n)
        self.sequences[partition] = sequence + len(values)
        if self.last_marker is not None and self.world.chance.random() < 0.2:
            late = self.world.gremlin.send_twin(ApiKey.WRITE_TXN_MARKERS, 2, self.last_marker)
            self.world.in_background(late)
        return True

    async def _add_partition(self, partition: int) -> None:
        fields = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": "t", "partitions": [partition]}],
        }
        await self._until_told(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            fields,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        self.added.add(partition)

    async def _commit_offset(self, sent: Sent) -> None:
        identity = {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": GROUP,
        }
        if not self.is_v2:
            await self._until_told(
                ApiKey.ADD_OFFSETS_TO_TXN, 3, identity, lambda answer: answer.error_code
            )
        offset = {
            "partition_index": self.number,
            "committed_offset": sent.number,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        fields = {**identity, "topics": [{"name": "t", "partitions": [offset]}]}
        sent.offset = sent.number
        await self._until_told(
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self.is_v2 else 3,
            fields,
            lambda answer: answer.topics[0].partitions[0].error_code,
            repeats=self.is_v2,
        )

    async def _end(self, sent: Sent, *, is_commit: bool) -> None:
        fields = {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": is_commit,
        }
        is_first = True
        self.is_repeated = False
        while True:
            if is_commit:
                sent.outcome = Outcome.UNKNOWN
            try:
                answer = await self.ask(
                    ApiKey.END_TXN, 5 if self.is_v2 else 3, fields, repeats=self.is_v2
                )
            except UNKNOWN:
                is_first = False
                await self.pause()
                continue
            code = answer.error_code
            if code == ErrorCode.NONE:
                break
            self._expect(code)
            if code not in RETRIABLE:
                if is_first and not self.is_repeated:
                    sent.outcome = Outcome.ABORTED  # it was refused, and never asked before
                raise TransactionFailed(ErrorCode(code).name)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                is_first = False
            await self.pause()
        sent.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        if self.is_v2:
            await self._keep_marker(sent, is_commit=is_commit)
            if (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch):
                self.world.history.problems.append(f"the epoch of {self.name} was not bumped")
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    async def _keep_marker(self, sent: Sent, *, is_commit: bool) -> None:
        """The coordinator's marker of this transaction, held back on its way."""
        places = sorted({partition for partition, _ in sent.values.values()})
        marker = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch + 1,
            "transaction_result": is_commit,
            "topics": [{"name": "t", "partition_indexes": places}],
            "coordinator_epoch": 0,
            "transaction_version": 2,
        }
        self.world.gremlin.keep(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
        self.last_marker = {"markers": [marker]}


def simulate(world: World, *, seconds_max: float = 600.0) -> str:
    """Run it; the fingerprint of everything that happened."""
    with world.simulation:
        world.simulation.run(world.run(), seconds_max=seconds_max)
        return world.simulation.trace_hash()
