"""One partition: who may write and read, and how far, as leader, in-sync replicas and log say."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import ControlType, Record, build_batch, control_batch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import BrokerId, Epoch, Offset, TopicPartition
from ottla.replication.partition import Isolation, Partition, PartitionState, ReadResult
from ottla.replication.replica_manager import AssignedPartition, ReplicaManager
from ottla.runtime.simulated import Simulation
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.failures import LogDirFailure
from ottla.storage.log_manager import LogManager

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC_ID = UUID(int=7)


def state(
    *,
    leader: BrokerId = ME,
    epoch: int = 0,
    isr: tuple[BrokerId, ...] = (ME,),
    replicas: Any = None,
) -> PartitionState:
    return PartitionState(leader, Epoch(epoch), 0, isr, replicas or isr)


class Room:
    """A broker's replicas on a simulated disk."""

    def __init__(self, config: TopicConfig | None = None) -> None:
        self.simulation = Simulation(seed=1)
        self.config = config or TopicConfig()
        self.start()

    def start(self) -> None:
        self.runtime = self.simulation.runtime("a")
        self.logs = LogManager(
            self.runtime,
            ["/one", "/two"],
            config_of=lambda topic: self.config,
            on_directory_failure=lambda failure: self.replicas.on_directory_failure(failure),
        )
        self.logs.start()
        self.replicas = ReplicaManager(broker_id=ME, logs=self.logs)

    def assign(self, topic_id: UUID = TOPIC_ID, **changes: Any) -> Partition:
        self.replicas.assign(AssignedPartition("t", 0, topic_id, state(**changes)))
        return self.replicas.partition("t", 0)

    def batch(self, count: int = 1, **fields: Any) -> bytearray:
        now_ms = self.runtime.clock.wall_ms()
        return build_batch([Record(n, now_ms, None, b"v") for n in range(count)], **fields)


def read(partition: Partition, offset: int = 0, **asked: Any) -> ReadResult:
    asked.setdefault("isolation", Isolation.READ_UNCOMMITTED)
    found = partition.read(offset, 1 << 20, at_least_one=True, **asked)
    if found.records is not None:
        found.records.release()
    return found


def code_of(refused: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return refused.value.code


def test_only_the_leader_is_written_to_and_read_from() -> None:
    room = Room()
    partition = room.assign(leader=OTHER, isr=(ME, OTHER))
    with pytest.raises(KafkaError) as written:
        partition.append_as_leader(room.batch(), acks=1)
    with pytest.raises(KafkaError) as guarded:
        partition.append_guarded(room.batch(), acks=1, origin=AppendOrigin.CLIENT)
    with pytest.raises(KafkaError) as fetched:
        read(partition)
    codes = {code_of(one) for one in (written, guarded, fetched)}
    assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert not partition.is_open  # nobody needed it


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, None),
        (-1, None),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_clients_with_older_or_newer_metadata_are_told_so(
    epoch: int, code: ErrorCode | None
) -> None:
    partition = Room().assign(epoch=5)
    if code is None:
        partition.check_epoch(epoch)
        return
    with pytest.raises(KafkaError) as refused:
        partition.check_epoch(epoch)
    assert code_of(refused) is code


def test_records_count_once_all_in_sync_replicas_have_them() -> None:
    room = Room()
    partition = room.assign(isr=(ME, OTHER), replicas=(ME, OTHER, THIRD))
    partition.append_as_leader(room.batch(3), acks=-1)
    assert partition.high_watermark == 0
    found = read(partition)
    assert found.records is not None
    assert found.records.length == 0
    assert read(partition, 0, replica_id=OTHER).records.length > 0  # type: ignore[union-attr]  # as a follower
    assert partition.high_watermark == 0  # it has asked for them, and may not have them
    read(partition, 3, replica_id=THIRD)
    assert partition.high_watermark == 0  # it is not in sync
    read(partition, 3, replica_id=OTHER)
    assert partition.high_watermark == 3
    assert read(partition).records.length > 0  # type: ignore[union-attr]  # now for consumers


def test_a_stranger_that_poses_as_a_replica_moves_nothing() -> None:
    room = Room()
    partition = room.assign(isr=(ME, OTHER))
    partition.append_as_leader(room.batch(), acks=1)
    for replica_id in (THIRD, ME):
        with pytest.raises(KafkaError) as refused:
            read(partition, 1, replica_id=replica_id)
        assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0


@pytest.mark.parametrize(
    ("wanted", "isr", "replicas", "is_enough"),
    [
        (1, (ME,), (ME, OTHER, THIRD), True),
        (2, (ME,), (ME, OTHER, THIRD), False),
        (2, (ME, OTHER), (ME, OTHER, THIRD), True),
        (2, (ME,), (ME,), True),  # it cannot have more (KIP-966)
        (3, (ME,), (ME, OTHER), False),
    ],
)
def test_acks_all_needs_enough_replicas_before_the_write(
    wanted: int, isr: Any, replicas: Any, is_enough: bool
) -> None:
    room = Room(TopicConfig(min_insync_replicas=wanted))
    partition = room.assign(isr=isr, replicas=replicas)
    for append in (
        lambda: partition.append_as_leader(room.batch(), acks=-1),
        lambda: partition.append_guarded(room.batch(), acks=-1, origin=AppendOrigin.CLIENT),
    ):
        if is_enough:
            append()
        else:
            with pytest.raises(KafkaError) as refused:
                append()
            assert code_of(refused) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.append_as_leader(room.batch(), acks=1)
    assert partition.log.log_end_offset == (3 if is_enough else 1)


def test_readers_of_committed_records_stop_before_an_open_transaction() -> None:
    room = Room()
    partition = room.assign()
    partition.append_as_leader(room.batch(2), acks=1)
    partition.append_as_leader(
        room.batch(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True), acks=1
    )
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 2)
    committed = read(partition, isolation=Isolation.READ_COMMITTED)
    assert (committed.last_stable_offset, committed.aborted) == (2, [])
    assert committed.records is not None
    assert committed.records.length == len(room.batch(2))
    assert partition.read_small(0, 1 << 20, -1, is_read_committed=True) is None
    marker = control_batch(
        ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp_ms=5
    )
    partition.append_guarded(marker, acks=1, origin=AppendOrigin.COORDINATOR)
    assert partition.last_stable_offset == 4
    assert read(partition, isolation=Isolation.READ_COMMITTED).aborted == [(9, 2)]
    assert partition.read_small(0, 1 << 20, -1, is_read_committed=True) is None
    assert partition.read_small(0, 1 << 20, -1, is_read_committed=False) is not None


def test_the_short_way_of_a_read_finds_what_the_long_one_finds() -> None:
    room = Room(TopicConfig(segment_bytes=600, index_interval_bytes=100))
    partition = room.assign()
    for count in range(1, 15):
        partition.append_as_leader(room.batch(count), acks=1)
    for offset in range(partition.log.log_end_offset):
        for limit in (1, 200, 1 << 16):
            small = partition.read_small(offset, limit, -1, is_read_committed=False)
            whole = partition.read(
                offset, limit, isolation=Isolation.READ_UNCOMMITTED, at_least_one=True
            )
            assert whole.records is not None
            expected = whole.records.read()
            whole.records.release()
            if small is not None:
                assert small[:3] == (whole.high_watermark,) * 2 + (0,)
                assert bytes(small[3]) == expected
    partition.failure = LogDirFailure("/one", "gone")
    assert partition.read_small(0, 100, -1, is_read_committed=False) is None


def test_a_follower_that_took_another_way_is_told_where() -> None:
    room = Room()
    partition = room.assign(epoch=1, isr=(ME, OTHER))
    partition.append_as_leader(room.batch(4), acks=1)
    partition.apply(state(epoch=3, isr=(ME, OTHER)))
    partition.append_as_leader(room.batch(2), acks=1)
    diverging = read(partition, 6, last_fetched_epoch=2, replica_id=OTHER)
    assert diverging.diverging == (1, 4)
    assert diverging.records is None
    assert read(partition, 5, last_fetched_epoch=1, replica_id=OTHER).diverging == (1, 4)
    assert read(partition, 4, last_fetched_epoch=1, replica_id=OTHER).diverging is None
    with pytest.raises(KafkaError) as newer:
        read(partition, 6, last_fetched_epoch=9, replica_id=OTHER)
    assert code_of(newer) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_failed_directory_answers_for_its_partitions_and_wakes_who_waits() -> None:
    room = Room()
    partition = room.assign()
    partition.append_as_leader(room.batch(), acks=1)
    handle = room.logs.find(TopicPartition("t", 0))
    assert handle is not None
    room.logs.fail(handle.directory, "it fell")
    for ask in (lambda: partition.check_epoch(-1), lambda: read(partition)):
        with pytest.raises(LogDirFailure):
            ask()
    with pytest.raises(LogDirFailure):
        partition.append_as_leader(room.batch(), acks=1)


def test_a_topic_of_the_same_name_and_another_id_starts_with_an_empty_log() -> None:
    room = Room()
    room.assign().append_as_leader(room.batch(5), acks=1)
    again = room.assign(UUID(int=8))
    assert again.append_as_leader(room.batch(), acks=1).base_offset == 0


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_log_that_another_topic_of_the_name_left_is_put_aside(in_thread: bool) -> None:
    room = Room()
    room.assign().append_as_leader(room.batch(5), acks=1)
    room.simulation.crash("a")
    room.start()
    partition = room.assign(UUID(int=8))
    log = room.simulation.run(partition.open()) if in_thread else partition.log
    assert (log.log_end_offset, log.topic_id) == (0, UUID(int=8))
    assert any("-delete" in name for name in room.runtime.disk.listdir("/one"))


def test_a_log_that_lost_the_id_of_its_topic_gets_it_again() -> None:
    room = Room()
    room.assign().append_as_leader(room.batch(), acks=1)
    handle = room.logs.find(TopicPartition("t", 0))
    assert handle is not None
    path = f"{handle.path}/partition.metadata"
    content = room.runtime.disk.read_bytes(path)
    room.runtime.disk.remove(path)
    room.simulation.crash("a")
    room.start()
    log = room.assign().log
    assert (log.log_end_offset, log.topic_id) == (1, TOPIC_ID)
    assert room.runtime.disk.read_bytes(path) == content


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_leader_begins_its_epoch_with_the_log(in_thread: bool) -> None:
    room = Room()
    partition = room.assign(epoch=4)
    log = room.simulation.run(partition.open()) if in_thread else partition.log
    assert log.latest_epoch == 4
    partition.apply(state(epoch=6))
    assert log.latest_epoch == 6
    log.close()
    assert (
        room.runtime.disk.read_bytes(f"{log.directory}/leader-epoch-checkpoint") == b"0\n1\n6 0\n"
    )


def test_the_high_watermark_of_the_last_life_is_where_a_follower_begins() -> None:
    room = Room()
    room.assign(isr=(ME,)).append_as_leader(room.batch(5), acks=1)
    room.logs.close(high_watermarks=dict(room.replicas.high_watermarks()))
    room.start()
    follower = room.assign(leader=OTHER, epoch=1, isr=(ME, OTHER))
    assert follower.high_watermark == 5
    room.logs.close(high_watermarks={TopicPartition("t", 0): 3})
    room.start()
    assert room.assign(leader=OTHER, epoch=1, isr=(ME, OTHER)).high_watermark == 3
    assert room.assign(leader=ME, epoch=2, isr=(ME,)).high_watermark == 5


def test_what_is_removed_is_unknown_and_its_files_wait_for_their_removal() -> None:
    room = Room()
    room.assign().append_as_leader(room.batch(), acks=1)
    room.replicas.remove("t", 0)
    with pytest.raises(KafkaError) as gone:
        room.replicas.partition("t", 0)
    assert code_of(gone) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as unwritten:
        room.replicas.append("t", 0, room.batch(), acks=1)
    assert code_of(unwritten) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(room.logs.removals) == 1
    room.replicas.remove("t", 0)


def test_a_commit_is_awaited_until_the_high_watermark_has_passed() -> None:
    room = Room()
    partition = room.assign(isr=(ME, OTHER))
    partition.append_as_leader(room.batch(2), acks=-1)
    outcomes: list[bool] = []

    async def story() -> None:
        room.replicas.await_commit([(partition, Offset(2))], 1_000, outcomes.append)
        await asyncio.sleep(0.1)
        assert outcomes == []
        read(partition, 2, replica_id=OTHER)
        await asyncio.sleep(0.1)
        assert outcomes == [False]
        room.replicas.await_commit([(partition, Offset(3))], 1_000, outcomes.append)
        await asyncio.sleep(1.1)
        assert outcomes == [False, True]
        assert not partition.watchers

    room.simulation.run(story())
