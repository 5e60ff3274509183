"""The coordinator runtime over a real log whose follower can be kept waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.coordinators.record_fields import KeyValue
from ottla.coordinators.runtime import (
    GATHERED_RECORDS_MAX,
    GATHERED_WRITES_MAX,
    LINGER_ADAPTIVELY_MS,
    CoordinatorRuntime,
    Led,
    LoadSettings,
)
from ottla.protocol.batches import (
    ControlType,
    Record,
    build_batch,
    control_batch,
    iter_batches,
    iter_records,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import BrokerId, Epoch
from ottla.replication.partition import Isolation, PartitionState
from ottla.replication.replica_manager import AssignedPartition, ReplicaManager
from ottla.runtime.real import real_runtime
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.log_manager import LogManager

TOPIC = "__internal"
KEY = ("thing", "key")
ME, FOLLOWER, OTHER = BrokerId(1), BrokerId(2), BrokerId(3)


class Pair(NamedTuple):
    key: bytes
    value: bytes | None


class ListShard:
    """Remembers what it replayed, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes | None]] = []

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        self.seen.append((key, value))

    def replay_decided(self, producer_id: int, record: KeyValue) -> None:
        self.replay(producer_id, record.key, record.value)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        self.seen.append((b"marker", b"%d" % is_commit))


class World:
    def __init__(self, directory: Path) -> None:
        self.runtime = real_runtime(offload_threads=1)
        self.config = TopicConfig()
        self.logs = LogManager(self.runtime, [str(directory)], config_of=lambda _: self.config)
        self.logs.start()
        self.replicas = ReplicaManager(broker_id=ME, logs=self.logs)
        self.unloaded: list[int] = []
        self.timeout_ms = 60_000
        self.linger_ms = LINGER_ADAPTIVELY_MS
        self.shards: CoordinatorRuntime[ListShard] = CoordinatorRuntime(
            self.runtime,
            self.replicas,
            TOPIC,
            new_shard=ListShard,
            settings=lambda: LoadSettings(200, self.timeout_ms, linger_ms=self.linger_ms),
            on_loaded=lambda led: None,
            on_unloaded=lambda led: self.unloaded.append(led.index),
        )

    def assign(self, leader: BrokerId, epoch: int, *isr: BrokerId) -> None:
        state = PartitionState(leader, Epoch(epoch), epoch, isr, (ME, FOLLOWER))
        self.replicas.assign(AssignedPartition(TOPIC, 0, UUID(int=9), state))

    def follow(self, offset: int) -> None:
        """The follower has everything below `offset`."""
        self.replicas.partition(TOPIC, 0).read(
            offset,
            1,
            isolation=Isolation.READ_UNCOMMITTED,
            at_least_one=False,
            replica_id=FOLLOWER,
        )

    async def loaded(self) -> Led[ListShard]:
        async with asyncio.timeout(10):
            while True:
                try:
                    return self.shards.led(0)
                except KafkaError as error:
                    if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        raise
                await asyncio.sleep(0.001)

    def write(self, led: Led[ListShard], *names: bytes) -> list[ErrorCode]:
        outcomes: list[ErrorCode] = []
        self.shards.write(led, KEY, [Pair(name, b"v") for name in names], outcomes.append)
        return outcomes

    def gather(self, led: Led[ListShard], *names: bytes) -> list[ErrorCode]:
        outcomes: list[ErrorCode] = []
        self.shards.gather(led, KEY, [Pair(name, b"v") for name in names], outcomes.append)
        return outcomes

    async def close(self) -> None:
        await self.shards.stop()
        self.logs.close(broker_epoch=1, high_watermarks=dict(self.replicas.high_watermarks()))
        self.runtime.offload.close()


@asynccontextmanager
async def open_world(directory: Path) -> AsyncIterator[World]:
    world = World(directory)
    try:
        yield world
    finally:
        await world.close()


def run(directory: Path, scenario: Callable[[World], Coroutine[object, object, None]]) -> None:
    async def main() -> None:
        async with open_world(directory) as world:
            await scenario(world)

    asyncio.run(main())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_single_replica_is_done_in_the_call(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME)
        world.shards.lead(0, Epoch(1))
        with pytest.raises(KafkaError) as caught:
            world.shards.led(0)
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        led = await world.loaded()
        assert world.write(led, b"a", b"b") == [ErrorCode.NONE]
        assert [key for key, _ in led.shard.seen] == [b"a", b"b"]
        assert not led.in_flight

    run(tmp_path, scenario)


def batches_of(world: World) -> list[list[bytes | None]]:
    """The keys in the log, batch by batch."""
    log = world.replicas.partition(TOPIC, 0).log
    data = log.read(0, 1 << 20, end_offset=log.log_end_offset, at_least_one=True).read()
    view = memoryview(data)
    return [
        [record.key for record in iter_records(view[at : at + header.size_bytes])]
        for at, header in iter_batches(data)
    ]


def test_what_is_gathered_in_a_turn_shares_a_batch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        outcomes = [world.gather(led, b"a"), world.gather(led, b"b", b"c"), world.gather(led)]
        assert outcomes == [[], [], [ErrorCode.NONE]]
        assert led.in_flight[KEY] == 2
        await turns()
        assert outcomes == [[ErrorCode.NONE]] * 3
        assert [key for key, _ in led.shard.seen] == [b"a", b"b", b"c"]
        assert batches_of(world) == [[b"a", b"b", b"c"]]
        assert not led.in_flight

    run(tmp_path, scenario)


def test_what_is_gathered_goes_before_what_is_written(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        early = world.gather(led, b"early")
        assert world.write(led, b"late") == [ErrorCode.NONE]
        assert early == [ErrorCode.NONE]
        large = [b"%d" % number for number in range(GATHERED_RECORDS_MAX + 1)]
        assert world.gather(led, *large) == [ErrorCode.NONE]  # nothing to gain by waiting
        many = [world.gather(led, b"m") for _ in range(GATHERED_WRITES_MAX)]
        assert many[-1] == [ErrorCode.NONE]  # enough of them
        world.linger_ms = 0
        assert world.gather(led, b"now") == [ErrorCode.NONE]
        assert batches_of(world) == [
            [b"early"],
            [b"late"],
            large,
            [b"m"] * GATHERED_WRITES_MAX,
            [b"now"],
        ]
        await turns()
        assert len(batches_of(world)) == 5

    run(tmp_path, scenario)


def test_writes_linger_as_long_as_they_are_told(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        world.linger_ms = 20
        first = world.gather(led, b"a")
        await turns(50)
        second = world.gather(led, b"b")
        assert first == second == []
        async with asyncio.timeout(10):
            while not second:
                await asyncio.sleep(0.005)
        assert batches_of(world) == [[b"a", b"b"]]

    run(tmp_path, scenario)


def test_gathered_writes_fail_one_by_one_if_they_are_too_large_together(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.config = TopicConfig(max_message_bytes=200)
        world.assign(ME, 1, ME)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        outcomes = [world.gather(led, name * 80) for name in (b"a", b"b")]
        outcomes.append(world.gather(led, b"c" * 300))
        await turns()
        assert outcomes == [[ErrorCode.NONE], [ErrorCode.NONE], [ErrorCode.MESSAGE_TOO_LARGE]]
        assert batches_of(world) == [[b"a" * 80], [b"b" * 80]]
        assert not led.in_flight

    run(tmp_path, scenario)


def test_gathered_writes_wait_for_the_follower_each_for_itself(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME, FOLLOWER)
        world.follow(0)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        first, second = world.gather(led, b"a"), world.gather(led, b"b")
        await turns()
        assert first == second == led.shard.seen == []
        world.follow(2)
        await turns()
        assert first == second == [ErrorCode.NONE]
        assert [key for key, _ in led.shard.seen] == [b"a", b"b"]
        given_up = world.gather(led, b"c")
        world.shards.resign(0)
        assert given_up == [ErrorCode.NOT_COORDINATOR]
        await turns()
        assert batches_of(world) == [[b"a", b"b"]]
        assert not led.in_flight

    run(tmp_path, scenario)


def test_nothing_counts_before_the_follower_has_it(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME, FOLLOWER)
        world.follow(0)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        first, second = world.write(led, b"a"), world.write(led, b"b")
        await turns()
        assert first == second == led.shard.seen == []
        assert led.in_flight[KEY] == 2
        world.follow(1)
        await turns()
        assert (first, second) == ([ErrorCode.NONE], [])
        world.follow(2)
        await turns()
        assert second == [ErrorCode.NONE]
        assert [key for key, _ in led.shard.seen] == [b"a", b"b"]
        assert not led.in_flight

    run(tmp_path, scenario)


def test_write_that_takes_too_long_fails_and_is_still_replayed_in_order(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME, FOLLOWER)
        world.follow(0)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        world.timeout_ms = 10
        late = world.write(led, b"late")
        world.timeout_ms = 60_000
        async with asyncio.timeout(10):
            while not late:
                await asyncio.sleep(0.005)
        assert late == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert led.shard.seen == []
        after = world.write(led, b"after")
        world.follow(2)
        await turns()
        assert after == [ErrorCode.NONE]
        assert [key for key, _ in led.shard.seen] == [b"late", b"after"]
        assert late == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(tmp_path, scenario)


def test_leader_that_loses_the_partition_gives_up_what_is_in_flight(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME, FOLLOWER)
        world.follow(0)
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        outcome = world.write(led, b"a")
        world.assign(FOLLOWER, 2, ME, FOLLOWER)
        world.shards.resign(0)
        assert outcome == [ErrorCode.NOT_COORDINATOR]
        assert world.unloaded == [0]
        with pytest.raises(KafkaError) as caught:
            world.shards.led(0)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR
        assert world.write(led, b"b") == [ErrorCode.NOT_COORDINATOR]
        assert led.shard.seen == []

    run(tmp_path, scenario)


def test_new_leader_replays_all_and_serves_once_the_end_is_committed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME, FOLLOWER)
        world.follow(0)
        partition = world.replicas.partition(TOPIC, 0)
        expected: dict[bytes, bytes | None] = {}
        for number in range(40):  # more than one buffer of 200 bytes
            pairs = [(b"k%d" % (number % 7), b"%d" % number), (b"gone", None)]
            records = [Record(at, 1, key, value) for at, (key, value) in enumerate(pairs)]
            partition.append_as_leader(
                build_batch(records), acks=-1, origin=AppendOrigin.COORDINATOR
            )
            expected |= dict(pairs)
        world.shards.lead(0, Epoch(1))
        loading = world.shards._led[0]
        async with asyncio.timeout(10):
            while dict(loading.shard.seen) != expected:
                await asyncio.sleep(0.001)
        await turns()
        with pytest.raises(KafkaError) as caught:
            world.shards.led(0)
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.follow(80)
        led = await world.loaded()
        assert dict(led.shard.seen) == expected
        world.shards.lead(0, Epoch(1))
        assert world.shards.led(0) is led  # the same epoch again is nothing new
        world.assign(ME, 2, ME)
        world.shards.lead(0, Epoch(2))
        again = await world.loaded()
        assert again is not led
        assert dict(again.shard.seen) == expected
        assert world.unloaded == [0]
        assert world.write(led, b"stale") == [ErrorCode.NOT_COORDINATOR]

    run(tmp_path, scenario)


def test_transactions_are_replayed_whole_and_in_order(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME)
        partition = world.replicas.partition(TOPIC, 0)

        def append(batch: bytearray) -> None:
            partition.append_as_leader(batch, acks=-1, origin=AppendOrigin.COORDINATOR)

        def plain(*values: bytes) -> bytearray:
            return build_batch([Record(at, 1, b"k", one) for at, one in enumerate(values)])

        append(plain(b"1", b"2"))
        records = [Record(at, 1, b"k", one) for at, one in enumerate((b"3", b"4"))]
        append(
            build_batch(
                records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
            )
        )
        append(plain(b"5"))
        append(
            control_batch(
                ControlType.COMMIT,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=1,
            )
        )
        append(plain(b"6", b"7"))
        world.shards.lead(0, Epoch(1))
        led = await world.loaded()
        values = [value for _, value in led.shard.seen]
        assert values == [b"2", b"3", b"4", b"5", b"1", b"7"]  # the marker says 1, for a commit

    run(tmp_path, scenario)


def test_log_that_cannot_be_read_fails_its_shard_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(ListShard):
        def replay(self, producer_id: int, key: bytes, value: bytes | None) -> None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "A coordinator record is damaged")

    async def scenario(world: World) -> None:
        world.assign(ME, 1, ME)
        partition = world.replicas.partition(TOPIC, 0)
        batch = build_batch([Record(0, 1, b"k", b"v")])
        partition.append_as_leader(batch, acks=-1, origin=AppendOrigin.COORDINATOR)
        world.shards._new_shard = Picky
        world.shards.lead(0, Epoch(1))
        with pytest.raises(KafkaError) as caught:
            await world.loaded()
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(tmp_path, scenario)
    assert "cannot be loaded" in caplog.text
