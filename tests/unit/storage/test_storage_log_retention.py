"""Rounds of retention, removals after their delay, and recoveries that nobody asked for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.storage.background_recovery import recover_unopened
from ottla.storage.failures import LogDirFailure
from ottla.storage.log_manager import LogManager
from ottla.storage.log_retention import LogRetention

TOPIC_ID = UUID(int=123)
KEEP = TopicConfig(segment_bytes=400, retention_ms=-1, file_delete_delay_ms=60_000)
DELETE = replace(KEEP, retention_bytes=0)
KEEP_LAST = replace(KEEP, retention_bytes=100)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


class House:
    """A broker's logs through several lives."""

    def __init__(self, config: TopicConfig = DELETE) -> None:
        self.simulation = Simulation(seed=4)
        self.disk = self.simulation.disk("a")
        self.config = config
        self.failures: list[LogDirFailure] = []
        self.operations: list[tuple[str, str]] = []
        self.disk.on_operation(lambda kind, path: self.operations.append((kind, path)))
        self.logs = self.start()

    def start(self) -> LogManager:
        self.runtime = self.simulation.runtime("a")
        self.logs = LogManager(
            self.runtime,
            ["/data"],
            config_of=lambda topic: self.config,
            on_directory_failure=self.failures.append,
        )
        self.logs.start()
        return self.logs

    def restart(self) -> LogManager:
        self.logs.close(broker_epoch=8)
        return self.start()

    def kill(self) -> LogManager:
        self.simulation.crash("a")
        return self.start()

    def fill(self, partition: int, count: int) -> None:
        self.logs.create(tp(partition), TOPIC_ID)
        log = self.logs.get(tp(partition))
        for _ in range(count):
            log.append_as_leader(build_batch([Record(0, 1, b"k", bytes(100))]), leader_epoch=2)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.simulation.run(work)

    def round(self, high_watermark: int | None = None) -> Coroutine[Any, Any, int]:
        return LogRetention(self.runtime, self.logs).run(lambda _: high_watermark)

    def interrupt(self, kind: str, path: str, action: Callable[[], object]) -> None:
        """Do something once, in the middle of a disk operation that others perform."""
        pending = [action]

        def on_operation(done_kind: str, done_path: str) -> None:
            if pending and done_kind == kind and done_path.startswith(path):
                pending.pop()()

        self.disk.on_operation(on_operation)


def test_a_round_syncs_one_checkpoint_however_many_logs_lose_segments() -> None:
    house = House()
    for partition in range(6):
        house.fill(partition, 6)
    house.operations.clear()
    assert house.run(house.round(6)) == 18
    kinds = Counter(kind for kind, _ in house.operations)
    assert (kinds["sync"], kinds["sync_dir"]) == (1, 1), kinds
    assert {house.logs.get(tp(n)).log_start_offset for n in range(6)} == {6}


def test_requests_are_served_between_the_logs_of_a_round() -> None:
    house = House()
    for partition in range(6):
        house.fill(partition, 60)
    turns = 0
    has_begun = asyncio.Event()
    turns_of_renames: set[int] = set()

    async def serve() -> None:
        nonlocal turns
        await has_begun.wait()
        while True:
            turns += 1
            await asyncio.sleep(0)

    def on_operation(kind: str, path: str) -> None:
        if kind == "rename" and path.startswith("/data/t-"):
            has_begun.set()
            turns_of_renames.add(turns)

    async def both() -> int:
        server = asyncio.create_task(serve())
        house.disk.on_operation(on_operation)
        try:
            return await house.round(60)
        finally:
            server.cancel()

    assert house.run(both()) == 180
    # Each log loses its 30 segments in four slices; the simulation takes turns at random.
    assert len(turns_of_renames) > 6


def test_records_that_come_during_a_round_stay() -> None:
    house = House()
    house.fill(0, 5)
    house.interrupt("write", "/data/log-start-offset-checkpoint", lambda: house.fill(0, 1))
    house.run(house.round(5))
    log = house.logs.get(tp(0))
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)
    found = log.read(5, 1_000, end_offset=6, at_least_one=True)
    assert found.length > 0
    found.release()
    house.logs.close()
    house.start()
    assert house.logs.get(tp(0)).log_start_offset == 5


def test_a_topic_that_is_deleted_during_a_round_is_left_alone() -> None:
    house = House()
    house.fill(0, 6)
    house.fill(1, 6)
    house.interrupt("write", "/data/log-start-offset-checkpoint", lambda: house.logs.delete(tp(0)))
    assert house.run(house.round(6)) == 3
    assert house.failures == []


def test_a_full_disk_loses_old_segments_although_no_checkpoint_fits() -> None:
    house = House(KEEP_LAST)
    house.fill(0, 9)
    house.disk.limit_space(0)
    house.operations.clear()
    assert house.run(house.round(9)) == 4
    renamed = [path for kind, path in house.operations if kind in ("rename", "sync_dir")]
    logs = [path[-24:-4] for path in renamed if path.endswith(".log")]
    assert logs == sorted(logs)
    assert renamed.count("/data/t-0") >= len(logs)  # each is durable before the next
    assert house.failures == []
    house.disk.limit_space(None)
    house.fill(0, 1)


def test_logs_that_nobody_uses_stay_closed_and_are_read_once() -> None:
    house = House(KEEP)
    for partition in range(3):
        house.fill(partition, 6)
    logs = house.restart()
    assert house.run(house.round(6)) == 0
    handles = logs.handles
    assert [len(handle.closed_segments or ()) for handle in handles] == [3, 3, 3]
    house.disk.fail_io("/data/t-", writes=False)  # nobody looks there a second time
    assert house.run(house.round(6)) == 0
    assert house.failures == []
    assert all(handle.log is None for handle in handles)
    house.disk.heal()
    house.config = DELETE
    assert house.run(house.round(6)) == 9


def test_deleted_files_go_when_their_delay_is_over_and_one_that_stays_holds_up_no_other() -> None:
    house = House()
    for partition in range(3):
        house.fill(partition, 6)

    async def delete_and_wait() -> None:
        remover = asyncio.create_task(house.logs.removals.run(house.logs.under_way))
        await house.round(6)
        paths = [house.logs.delete(tp(n)) for n in (0, 1)]
        house.disk.fail_io(min(paths), reads=False)
        await asyncio.sleep(59)
        disk = house.runtime.disk
        assert all(map(disk.exists, paths))
        deleted = [name for name in disk.listdir("/data/t-2") if name.endswith(".deleted")]
        assert len(deleted) > 3
        await asyncio.sleep(2)
        assert [disk.exists(path) for path in sorted(paths)] == [True, False]
        assert not [name for name in disk.listdir("/data/t-2") if name.endswith(".deleted")]
        remover.cancel()

    house.run(delete_and_wait())
    assert not len(house.logs.removals)


def test_all_logs_are_recovered_in_the_background_and_closed_again() -> None:
    house = House()
    for partition in range(30):
        house.fill(partition, 3)
    logs = house.kill()
    house.run(recover_unopened(logs))
    assert not any(handle.needs_recovery for handle in logs.handles)
    assert all(handle.log is None for handle in logs.handles)
    assert {handle.recovery_point for handle in logs.handles} == {3}
    logs = house.restart()
    assert logs.broker_epoch_of_clean_shutdown == 8
    assert {logs.get(tp(n)).log_end_offset for n in range(30)} == {3}


def test_a_log_that_is_wanted_while_it_is_recovered_is_opened_right_after() -> None:
    house = House()
    house.fill(0, 3)
    logs = house.kill()

    async def recover_and_use() -> int:
        recovery = asyncio.create_task(recover_unopened(logs))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(KafkaError) as busy:
            logs.get(tp(0))
        assert busy.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        end_offset = (await logs.open(tp(0))).log_end_offset
        await recovery
        return end_offset

    assert house.run(recover_and_use()) == 3
    house.fill(0, 1)


def test_a_full_disk_puts_recoveries_off() -> None:
    house = House()
    house.fill(0, 3)
    logs = house.kill()

    async def recover() -> None:
        house.disk.limit_space(0)
        recovery = asyncio.create_task(recover_unopened(logs))
        await asyncio.sleep(10)
        house.disk.limit_space(None)
        await recovery

    house.run(recover())
    assert house.failures == []
    assert not any(handle.needs_recovery for handle in logs.handles)


def test_what_a_cancelled_duty_began_ends_before_the_logs_are_closed() -> None:
    house = House()
    house.fill(0, 3)
    logs = house.kill()

    async def stop_early() -> None:
        recovery = asyncio.create_task(recover_unopened(logs))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        recovery.cancel()
        await asyncio.gather(recovery, return_exceptions=True)
        assert logs.handles[0].is_opening
        await logs.under_way.settle()
        assert not logs.handles[0].is_opening

    house.run(stop_early())
    assert not logs.handles[0].needs_recovery


def test_a_recovery_in_the_background_forgets_no_producer_however_old_its_records() -> None:
    house = House()
    batch = build_batch(
        [Record(0, 1, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    house.logs.create(tp(0), TOPIC_ID)
    house.logs.get(tp(0)).append_as_leader(bytearray(batch), leader_epoch=0)
    logs = house.kill()
    house.run(recover_unopened(logs))
    assert logs.get(tp(0)).append_as_leader(batch, leader_epoch=0).is_duplicate
