"""Many logs in several directories: found, opened when used, checkpointed, deleted, failed."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.interfaces import Disk
from ottla.runtime.simulated import Simulation
from ottla.storage.failures import LogDirFailure, WrongLogDirError
from ottla.storage.file_pool import FilePool, share_of_files
from ottla.storage.files.meta_properties import MetaProperties, encode_meta_properties
from ottla.storage.log_dir_sizes import LogDirDescription, describe_log_dirs
from ottla.storage.log_directory import NodeIdentity
from ottla.storage.log_manager import LogManager
from ottla.storage.log_retention import LogRetention
from ottla.storage.log_upkeep import LogUpkeep

TOPIC_ID = UUID(int=123)
CONFIG = TopicConfig(segment_bytes=300, retention_bytes=0, file_delete_delay_ms=1_000)
DIRS = ["/data/one", "/data/two"]


class House:
    """A broker's logs through several lives."""

    def __init__(self) -> None:
        self.simulation = Simulation(seed=4)
        self.failures: list[LogDirFailure] = []
        self.config = CONFIG
        self.identity = NodeIdentity("cluster", 1)
        disk = self.simulation.runtime("a").disk
        for number, path in enumerate(DIRS, 1):
            disk.mkdir(path)
            properties = MetaProperties(1, "cluster", 1, UUID(int=number))
            disk.write_atomic(f"{path}/meta.properties", encode_meta_properties(properties))
        self.logs = self.start()

    def start(self) -> LogManager:
        self.logs = LogManager(
            self.simulation.runtime("a"),
            DIRS,
            config_of=lambda topic: self.config,
            identity=self.identity,
            open_files_max=3,
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

    def fill(self, partition: int, count: int = 3) -> None:
        self.logs.create(tp(partition), TOPIC_ID)
        log = self.logs.get(tp(partition))
        for _ in range(count):
            batch = build_batch([Record(0, 1, b"k", bytes(100))])
            log.append_as_leader(batch, leader_epoch=2)

    def run(self, duty: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return self.simulation.run(duty())

    @property
    def disk(self) -> Disk:
        return self.simulation.runtime("a").disk

    @property
    def upkeep(self) -> LogUpkeep:
        return LogUpkeep(self.simulation.runtime("a"), self.logs)

    def retain(self, high_watermark: int | None = None) -> int:
        retention = LogRetention(self.simulation.runtime("a"), self.logs)
        return int(self.run(lambda: retention.run(lambda _: high_watermark)))

    def describe(self) -> list[LogDirDescription]:
        disk = self.simulation.runtime("a").disk
        return list(self.run(lambda: describe_log_dirs(self.logs, disk)))


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def test_partitions_are_spread_and_found_again_without_being_opened() -> None:
    house = House()
    for partition in range(6):
        house.fill(partition, partition)
    logs = house.restart()
    assert sorted(logs.topic_partitions) == [tp(n) for n in range(6)]
    assert [len(one.partitions) for one in house.describe()] == [3, 3]
    sizes = {
        p.topic_partition.partition: p.size_bytes for d in house.describe() for p in d.partitions
    }
    assert sizes[0] == 0
    assert sizes[4] == 4 * sizes[1]
    handle = logs.find(tp(4))
    assert handle is not None
    assert handle.log is None
    assert (handle.recovery_point, handle.topic_id) == (4, TOPIC_ID)
    assert logs.get(tp(4)).log_end_offset == 4
    assert logs.broker_epoch_of_clean_shutdown == 8


def test_after_a_kill_logs_are_recovered_when_used_and_only_then_is_a_shutdown_clean() -> None:
    house = House()
    house.fill(0)
    house.fill(1)
    logs = house.kill()
    assert logs.broker_epoch_of_clean_shutdown == -1
    assert logs.get(tp(0)).log_end_offset == 3
    logs = house.restart()
    unrecovered = logs.find(tp(1))
    assert unrecovered is not None
    assert unrecovered.needs_recovery
    assert logs.get(tp(0)).log_end_offset == 3

    async def open_all() -> None:
        assert (await logs.open(tp(1))).log_end_offset == 3
        assert (await logs.open(tp(0))).log_end_offset == 3

    house.run(open_all)
    logs = house.restart()
    assert not any(logs.find(tp(n)).needs_recovery for n in (0, 1))  # type: ignore[union-attr]  # both are there


def test_unknown_partitions_are_refused() -> None:
    house = House()
    with pytest.raises(KafkaError) as unknown:
        house.logs.get(tp(9))
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_partition_can_be_created_again_at_once() -> None:
    house = House()
    house.fill(0)
    path = house.logs.delete(tp(0))
    assert tp(0) not in house.logs
    house.fill(0, 1)
    assert house.logs.get(tp(0)).log_end_offset == 1
    assert house.disk.is_dir(path)


def test_directories_awaiting_deletion_go_after_a_restart() -> None:
    house = House()
    house.fill(0)
    path = house.logs.delete(tp(0))
    logs = house.kill()
    assert logs.topic_partitions == []
    assert house.disk.is_dir(path)
    house.run(lambda: logs.removals.remove_due(logs.under_way))
    assert not house.disk.exists(path)


class Interruption:
    """Does something once, in the middle of a disk operation that others perform."""

    def __init__(self, house: House, kind: str, path: str, action: Callable[[], object]) -> None:
        self.has_happened = False
        self._wanted = (kind, path)
        self._action = action
        house.simulation.disk("a").on_operation(self._on_operation)

    def _on_operation(self, kind: str, path: str) -> None:
        if not self.has_happened and kind == self._wanted[0] and path.startswith(self._wanted[1]):
            self.has_happened = True
            self._action()


def test_a_topic_that_is_deleted_while_a_thread_syncs_it_leaves_its_directory_online() -> None:
    house = House()
    house.fill(0, 5)
    path = house.logs.find(tp(0)).path  # type: ignore[union-attr]  # just made
    deletion = Interruption(house, "sync", path, lambda: house.logs.delete(tp(0)))
    house.run(house.upkeep.flush_rolled)
    assert deletion.has_happened
    assert house.failures == []
    house.fill(0)


def test_a_topic_that_is_deleted_while_a_thread_recovers_it_leaves_its_directory_online() -> None:
    house = House()
    house.fill(0, 5)
    logs = house.kill()
    path = logs.find(tp(0)).path  # type: ignore[union-attr]  # it was there before
    deletion = Interruption(house, "write", path, lambda: logs.delete(tp(0)))

    async def open_it() -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            await logs.open(tp(0))
        return refused.value.code

    assert house.run(open_it) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deletion.has_happened
    assert house.failures == []


def test_a_name_is_free_only_when_no_thread_recovers_what_had_it_before() -> None:
    house = House()
    house.fill(0, 5)
    logs = house.kill()
    path = logs.find(tp(0)).path  # type: ignore[union-attr]  # it was there before
    refusals: list[ErrorCode] = []

    def create_anew() -> None:
        logs.delete(tp(0))
        with pytest.raises(KafkaError) as refused:
            logs.create(tp(0), UUID(int=9))
        refusals.append(refused.value.code)

    Interruption(house, "write", path, create_anew)

    async def open_both() -> int:
        with pytest.raises(KafkaError):
            await logs.open(tp(0))
        logs.create(tp(0), UUID(int=9))
        return (await logs.open(tp(0))).log_end_offset

    assert house.run(open_both) == 0
    assert refusals == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert house.failures == []


def test_checkpoints_survive_a_kill() -> None:
    house = House()
    house.fill(0, 5)
    log = house.logs.get(tp(0))
    log.advance_log_start_offset(2)
    log.flush()
    house.run(house.upkeep.save_recovery_points)
    house.run(house.upkeep.save_log_start_offsets)
    house.run(lambda: house.upkeep.save_high_watermarks({tp(0): 4}))
    logs = house.kill()
    handle = logs.find(tp(0))
    assert handle is not None
    assert (handle.recovery_point, handle.log_start_offset, handle.high_watermark) == (5, 2, 4)
    assert logs.get(tp(0)).log_start_offset == 2
    assert logs.high_watermark_of(tp(0)) == 4


@pytest.mark.parametrize("content", [b"0\n7\n", b"0\n1\nt 0 x\n", b"\xff" * 40])
@pytest.mark.parametrize(
    ("name", "is_recovered"),
    [
        ("recovery-point-offset-checkpoint", True),
        ("log-start-offset-checkpoint", False),
        ("replication-offset-checkpoint", False),
        ("cleaner-offset-checkpoint", False),
    ],
)
def test_a_damaged_checkpoint_costs_a_recovery_and_no_directory(
    name: str, content: bytes, is_recovered: bool
) -> None:
    house = House()
    house.fill(0, 5)
    house.logs.get(tp(0)).advance_log_start_offset(2)
    house.logs.close()
    path = f"{DIRS[0]}/{name}"
    file = house.disk.open(path, create=True)
    file.truncate(0)
    file.pwrite(content, 0)
    file.close()
    logs = house.start()
    handle = logs.find(tp(0))
    assert handle is not None
    assert handle.needs_recovery == is_recovered
    log = logs.get(tp(0))
    assert log.log_end_offset == 5
    assert log.log_start_offset == (0 if name.startswith("log-start") else 2)
    assert house.failures == []
    assert house.restart().broker_epoch_of_clean_shutdown == 8


def test_retention_deletes_in_open_logs_and_in_those_nobody_opened() -> None:
    house = House()
    for partition in range(3):
        house.fill(partition, 6)
    logs = house.restart()
    logs.get(tp(1))

    assert house.retain(6) == 18
    assert {logs.get(tp(n)).log_start_offset for n in range(3)} == {6}
    assert sum(p.size_bytes for d in house.describe() for p in d.partitions) == 0


def test_a_log_that_is_opened_in_the_background_follows_its_topics_configuration() -> None:
    house = House()
    house.fill(0)
    logs = house.kill()
    handle = logs.find(tp(0))
    assert handle is not None

    def change(flush_messages: int) -> None:
        house.config = replace(CONFIG, flush_messages=flush_messages)
        logs.on_configs_changed(["t"])

    Interruption(house, "write", handle.path, lambda: change(2))
    log = house.run(lambda: logs.open(tp(0)))
    assert log.config.flush_messages == 2  # it came while a thread recovered the log
    change(1)
    house.fill(0, 1)
    assert log.recovery_point == log.log_end_offset == 4
    logs.on_configs_changed(["another"])
    house.config = CONFIG
    logs.on_configs_changed(None)
    assert log.config is CONFIG


def test_rolled_segments_are_synced_by_the_flush_tick() -> None:
    house = House()
    house.fill(0, 5)
    log = house.logs.get(tp(0))
    assert log.recovery_point == 0
    house.run(house.upkeep.flush_rolled)
    assert log.recovery_point == log.segment_base_offsets[-1] == 4
    assert not log.has_unsynced_segments


def test_a_failed_directory_is_left_while_the_other_serves_on() -> None:
    house = House()
    for partition in range(4):
        house.fill(partition)
    house.simulation.disk("a").fail_io("/data/one")
    lost = [n for n in range(4) if house.logs.find(tp(n)).path.startswith("/data/one")]  # type: ignore[union-attr]  # all are there
    with pytest.raises(LogDirFailure):
        house.fill(lost[0])
    for partition in lost:
        with pytest.raises(LogDirFailure):
            house.logs.get(tp(partition))
    assert house.failures
    assert {one.directory for one in house.failures} == {"/data/one"}
    for partition in set(range(4)) - set(lost):
        house.fill(partition)
    house.fill(7)
    assert house.logs.find(tp(7)).path.startswith("/data/two")  # type: ignore[union-attr]  # just made
    assert [one.failure is None for one in house.describe()] == [False, True]
    house.logs.close()
    house.simulation.disk("a").heal()
    logs = house.start()
    assert {logs.get(tp(n)).log_end_offset for n in lost} == {3}


def test_a_directory_is_locked_and_belongs_to_one_node() -> None:
    house = House()
    with pytest.raises(BlockingIOError):
        LogManager(house.simulation.runtime("a"), DIRS).start()
    house.logs.close()
    with pytest.raises(WrongLogDirError, match="cluster"):
        LogManager(house.simulation.runtime("a"), DIRS, identity=NodeIdentity("other", 1)).start()
    with pytest.raises(WrongLogDirError, match="node"):
        LogManager(house.simulation.runtime("a"), DIRS, identity=NodeIdentity("cluster", 2)).start()
    house.start()


def test_a_disk_that_was_never_formatted_is_left_offline() -> None:
    house = House()
    house.fill(0)
    house.fill(1)
    house.logs.close()
    house.simulation.runtime("a").disk.rmtree("/data/two")
    logs = house.start()
    assert [one.path for one in logs.online_directories] == ["/data/one"]
    assert logs.topic_partitions == [tp(0)]


def test_the_pool_keeps_few_files_open_and_never_closes_a_pinned_one() -> None:
    disk = Simulation(seed=1).runtime("a").disk
    pool = FilePool(disk, capacity=3)
    handles = [pool.handle(f"/{n}", creates=True) for n in range(6)]
    pinned = [handle.pin() for handle in handles[:2]]
    for handle in handles * 3:
        handle.use().size()
        assert pool.open_count <= 3
    assert [file.size() for file in pinned] == [0, 0]
    more = [handle.pin() for handle in handles[2:]]
    assert pool.open_count == 6  # all of them are in use
    for handle in handles:
        handle.release()
    handles[0].retire()
    assert pool.open_count == 5
    pool.handle("/new", creates=True).use()
    assert pool.open_count == 3
    assert len(more) == 4


def test_a_used_file_gets_a_second_chance() -> None:
    disk = Simulation(seed=1).runtime("a").disk
    pool = FilePool(disk, capacity=3)
    first, second, third, fourth = (pool.handle(f"/{n}", creates=True) for n in range(4))
    for handle in (first, second, third, fourth):
        handle.use()  # the fourth takes the chances of all away and closes the first
    second.use()
    first.use()
    assert second.file is not None
    assert third.file is None


def test_a_pool_that_finds_no_descriptor_gives_some_of_its_own_back() -> None:
    simulation = Simulation(seed=1)
    disk = simulation.runtime("a").disk
    pool = FilePool(disk, capacity=8)
    handles = [pool.handle(f"/{n}", creates=True) for n in range(8)]
    for handle in handles[:6]:
        handle.use()
    pinned = handles[0].pin()
    simulation.disk("a").limit_open_files(6)
    handles[6].use()
    assert pool.open_count <= 4
    assert pinned.size() == 0
    handles[7].use()
    simulation.disk("a").limit_open_files(0)
    with pytest.raises(OSError, match="Too many open files"):
        handles[1].use()


def test_a_pool_leaves_most_descriptors_to_connections() -> None:
    assert share_of_files(1024) == 256
    assert share_of_files(1 << 20) == 4096
    assert share_of_files(1) == 1
