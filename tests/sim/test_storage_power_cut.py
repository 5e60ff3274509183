"""The power fails at every single disk operation of a log's life, and the log is opened again.

A scenario is performed once to count its disk operations, then once for each of them, with
the power cut while that operation is under way. What the disk kept is drawn from the seed:
nothing that was not synced, everything (a killed process), a prefix, or any torn subset.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    check_batch,
    control_batch,
    iter_records,
)
from ottla.protocol.ids import ProducerId, TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import PowerCut
from ottla.runtime.simulated.inodes import Survival
from ottla.storage.background_recovery import recover_unopened
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.producer_state import ProducerState
from ottla.storage.log import PartitionLog
from ottla.storage.log_dir_sizes import describe_log_dirs
from ottla.storage.log_manager import LogManager
from ottla.storage.log_retention import LogRetention
from ottla.storage.producer_replay import replay_control_batch, replay_data_batch
from support.log_lookups import find_timestamp

TOPIC_PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID(int=77)
CONFIG = TopicConfig(
    segment_bytes=1_200,
    index_interval_bytes=150,
    retention_bytes=4_000,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


def _last_offset(base_offset: int, batch: bytes) -> int:
    return base_offset + int.from_bytes(batch[23:27], "big")


@dataclass
class Model:
    """What was written, and what must have survived: kept outside the machine that fails."""

    batches: dict[int, bytes] = field(default_factory=dict)  # by base offset, as of now
    versions: dict[int, set[bytes]] = field(default_factory=dict)  # ever written there
    end: int = 0
    synced: dict[int, bytes] = field(default_factory=dict)  # must survive
    start_max: int = 0  # the log may start as late as this

    def wrote(self, base_offset: int, last_offset: int, batch: bytes) -> None:
        self.batches[base_offset] = batch
        self.end = last_offset + 1

    def writing(self, base_offset: int, batch: bytes) -> None:
        self.versions.setdefault(base_offset, set()).add(batch)

    def flushed(self) -> None:
        self.synced = {at: batch for at, batch in self.batches.items() if at >= self.start_max}

    def truncating(self, offset: int) -> None:
        """A batch goes as a whole, if only its last record is to go."""
        self.batches = {at: b for at, b in self.batches.items() if _last_offset(at, b) < offset}
        self.synced = {at: b for at, b in self.synced.items() if _last_offset(at, b) < offset}

    def deleting(self) -> None:
        """Nothing need survive; what does may be of either log, as names can come back."""
        self.batches, self.synced, self.end, self.start_max = {}, {}, 0, 0

    def starting_at(self, offset: int) -> None:
        self.start_max = max(self.start_max, offset)
        self.synced = {at: batch for at, batch in self.synced.items() if at >= offset}


class Driver:
    """Performs a scenario on a log, telling the model what is about to happen and what did."""

    def __init__(
        self, simulation: Simulation, manager: LogManager, model: Model, config: TopicConfig
    ) -> None:
        self.simulation = simulation
        self.manager = manager
        self.config = config
        self.model = model
        self.sequences: dict[int, int] = {}
        self.count = 0
        self.topic_id = TOPIC_ID

    @property
    def log(self) -> PartitionLog:
        self.manager.create(TOPIC_PARTITION, self.topic_id)
        return self.manager.get(TOPIC_PARTITION)

    def append(
        self,
        records: int = 1,
        *,
        size: int = 120,
        producer_id: int = -1,
        transactional: bool = False,
        epoch: int = 0,
    ) -> None:
        self.count += 1
        payload = bytes([self.count % 251]) * size
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            [Record(n, 1_000 + 10 * self.count + n, b"k", payload) for n in range(records)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + records
        self._append(batch, epoch, AppendOrigin.CLIENT)

    def mark(self, control_type: ControlType, producer_id: int, epoch: int = 0) -> None:
        self.count += 1
        marker = control_batch(
            control_type,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=3,
            timestamp_ms=1_000 + 10 * self.count,
        )
        self._append(marker, epoch, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytearray, epoch: int, origin: AppendOrigin) -> None:
        base_offset = self.log.log_end_offset
        expected = bytearray(batch)
        expected[0:8] = base_offset.to_bytes(8, "big")
        expected[12:16] = epoch.to_bytes(4, "big")
        self.model.writing(base_offset, bytes(expected))
        result = self.log.append_as_leader(batch, leader_epoch=epoch, origin=origin)
        assert batch == expected
        self.model.wrote(result.base_offset, result.last_offset, bytes(batch))
        if self.log.recovery_point == self.log.log_end_offset:
            self.model.flushed()

    def flush(self) -> None:
        self.log.flush()
        self.model.flushed()

    def truncate(self, offset: int) -> None:
        self.model.truncating(offset)
        self.log.truncate_to(offset)
        self.model.end = self.log.log_end_offset

    def delete_records(self, offset: int) -> None:
        self.model.starting_at(offset)
        self.log.advance_log_start_offset(offset)

    def retain(self) -> None:
        self.model.starting_at(self.model.end)  # how far it goes is not this test's matter
        end = self.log.log_end_offset
        self.simulation.run(self.retention.run(lambda topic_partition: end))
        self.model.start_max = self.log.log_start_offset
        self.log.remove_deleted_files()

    def delete(self) -> None:
        """The topic goes, and the next append is to another one of its name."""
        self.model.deleting()
        self.manager.delete(TOPIC_PARTITION)
        self.topic_id = UUID(int=self.topic_id.int + 1)

    def checkpoint(self) -> None:
        for directory in self.manager.online_directories:
            directory.write_all({})

    def close(self) -> None:
        self.manager.close()
        self.model.flushed()

    @property
    def retention(self) -> LogRetention:
        return LogRetention(self.simulation.runtime("a"), self.manager)

    def reopen(self, manager: LogManager) -> None:
        self.manager = manager
        self.manager.start()


Scenario = Callable[[Driver, Callable[[], LogManager]], None]


def appending_and_rolling(driver: Driver, _: Callable[[], LogManager]) -> None:
    for n in range(12):
        driver.append(1 + n % 3, epoch=n // 5)
        if n % 4 == 3:
            driver.flush()


def rolling_with_producers(driver: Driver, _: Callable[[], LogManager]) -> None:
    for n in range(5):
        driver.append(2, producer_id=7)
        driver.append(1, producer_id=8, transactional=True)
        driver.append(1, size=400)
        if n == 2:
            driver.flush()
            driver.mark(ControlType.ABORT, 8)
            driver.checkpoint()
    driver.mark(ControlType.COMMIT, 8)


def retention_and_deleted_records(driver: Driver, _: Callable[[], LogManager]) -> None:
    for n in range(20):
        driver.append(2, size=200)
        if n in (9, 15):
            driver.flush()
            driver.retain()
            driver.delete_records(driver.log.log_start_offset + 1)
            driver.checkpoint()


def truncation_and_writing_anew(driver: Driver, _: Callable[[], LogManager]) -> None:
    for _n in range(10):
        driver.append(2, size=200, producer_id=7)
    driver.flush()
    driver.checkpoint()
    driver.truncate(7)
    driver.sequences[7] = driver.log.producers.entry(ProducerId(7)).last_sequence + 1  # type: ignore[union-attr]  # it wrote before the cut
    for _n in range(4):
        driver.append(3, size=150, producer_id=7, epoch=1)
    driver.flush()
    driver.append(1, epoch=1)
    driver.truncate(2)
    driver.append(1, epoch=2)


def closing_and_opening_again(driver: Driver, again: Callable[[], LogManager]) -> None:
    for _n in range(6):
        driver.append(2, producer_id=7)
    driver.close()
    driver.reopen(again())
    driver.append(2, producer_id=7)
    driver.log.roll()
    driver.close()
    driver.reopen(again())
    driver.append(1)


def deleting_and_making_anew(driver: Driver, _: Callable[[], LogManager]) -> None:
    for n in range(6):
        driver.append(2, size=300)
        if n == 3:
            driver.flush()
    driver.checkpoint()
    driver.delete()
    driver.append(1, size=100)
    driver.manager.removals.remove_all()
    driver.flush()
    driver.checkpoint()
    driver.append(2, size=100)
    driver.delete()
    driver.manager.removals.remove_all()


SCENARIOS: list[Scenario] = [
    deleting_and_making_anew,
    appending_and_rolling,
    rolling_with_producers,
    retention_and_deleted_records,
    truncation_and_writing_anew,
    closing_and_opening_again,
]
NEVER = 1 << 62
CUTS: list[tuple[int, Survival | None]] = [
    (1, None),
    (NEVER, None),
    (NEVER, Survival.NOTHING),
    (NEVER, Survival.EVERYTHING),
]


def _manager(simulation: Simulation, config: TopicConfig) -> LogManager:
    return LogManager(
        simulation.runtime("a"),
        ["/logs"],
        config_of=lambda topic: config,
        producer_expiration_ms=1 << 60,
    )


def _perform(simulation: Simulation, scenario: Scenario, config: TopicConfig, model: Model) -> None:
    first = _manager(simulation, config)
    first.start()
    scenario(Driver(simulation, first, model, config), lambda: _manager(simulation, config))


def _operations(scenario: Scenario, config: TopicConfig) -> int:
    with Simulation(seed=1) as simulation:
        _perform(simulation, scenario, config, Model())
        return simulation.disk("a").operations


def _read_all(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 500, end_offset=log.log_end_offset, at_least_one=True)
        data = part.read()
        part.release()
        assert data, f"nothing at {offset} of {log}"
        place = 0
        while place < len(data):
            header = check_batch(data, place, len(data))
            assert header.base_offset <= offset <= header.last_offset, "a hole or an overlap"
            found.append((header, data[place : place + header.size_bytes]))
            place += header.size_bytes
            offset = header.next_offset
    return found


def _check(log: PartitionLog, model: Model, context: str) -> None:
    batches = _read_all(log)
    for header, batch in batches:
        assert batch in model.versions[header.base_offset], context
    served = {header.base_offset: batch for header, batch in batches}
    for base_offset, batch in model.synced.items():
        if _last_offset(base_offset, batch) >= model.start_max:
            assert served.get(base_offset) == batch, f"{context}: lost {base_offset}"
    _check_lookups(log, batches, context)
    _check_producers(log, batches, context)


def _check_lookups(
    log: PartitionLog, batches: list[tuple[BatchHeader, bytes]], context: str
) -> None:
    records = [
        (record, header.partition_leader_epoch)
        for header, batch in batches
        for record in iter_records(batch)
        if record.offset >= log.log_start_offset
    ]
    for record, epoch in records:
        part = log.read(record.offset, 1, end_offset=log.log_end_offset, at_least_one=True)
        header = check_batch(part.read(), 0, part.length)
        part.release()
        assert header.base_offset <= record.offset <= header.last_offset, context
        expected = next(r.offset for r, _ in records if r.timestamp_ms >= record.timestamp_ms)
        found = find_timestamp(log, record.timestamp_ms)
        assert found is not None, context
        assert found.offset == expected, context
        assert log.epoch_for_offset(record.offset) == epoch, context


def _check_producers(
    log: PartitionLog, batches: list[tuple[BatchHeader, bytes]], context: str
) -> None:
    if log.log_start_offset > 0:
        return  # what was deleted may still be remembered, or not
    replayed = ProducerState(expiration_ms=1 << 60)
    aborted = []
    for header, batch in batches:
        if header.producer_id < 0:
            continue
        if header.is_control:
            completed = replay_control_batch(replayed, header, batch)
            if completed is not None and completed.is_aborted:
                aborted.append(completed.first_offset)
        else:
            replay_data_batch(replayed, header)
    assert sorted(log.active_producers()) == sorted(replayed.describe()), context
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [one.first_offset for one in found] == aborted, context


@pytest.mark.parametrize(("flush_messages", "survival"), CUTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_was_synced_survives_a_power_cut_at_every_operation(
    scenario: Scenario, flush_messages: int, survival: Survival | None
) -> None:
    _cut_everywhere(scenario, replace(CONFIG, flush_messages=flush_messages), survival)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_survives_in_files_that_had_their_full_size_at_once(scenario: Scenario) -> None:
    _cut_everywhere(scenario, replace(CONFIG, flush_messages=1, preallocate=True), None)


def _cut_everywhere(scenario: Scenario, config: TopicConfig, survival: Survival | None) -> None:
    total = _operations(scenario, config)
    assert total > 20
    for cut in range(total):
        with Simulation(seed=cut) as simulation:
            model = Model()
            simulation.disk("a").cut_power_after(cut)
            with pytest.raises(PowerCut):
                _perform(simulation, scenario, config, model)
            simulation.power_loss("a", survival)
            manager = _manager(simulation, config)
            manager.start()
            context = f"{scenario.__name__}, power cut at operation {cut} of {total}, {survival}"
            if TOPIC_PARTITION not in manager:
                assert not model.synced, context
                continue
            log = manager.get(TOPIC_PARTITION)
            _check(log, model, context)
            _check_it_goes_on(simulation, manager, log, context)


def _check_it_goes_on(
    simulation: Simulation, manager: LogManager, log: PartitionLog, context: str
) -> None:
    """The recovered log takes another batch, which is there after a clean restart."""
    end = log.log_end_offset
    batch = build_batch([Record(0, 99_999, b"k", b"after")])
    assert log.append_as_leader(batch, leader_epoch=9).base_offset == end, context
    manager.close()
    again = _manager(simulation, CONFIG)
    again.start()
    reopened = again.get(TOPIC_PARTITION)
    assert reopened.log_end_offset == end + 1, context
    assert reopened.log_start_offset == log.log_start_offset, context
    assert _read_all(reopened)[-1][1] == bytes(batch), context
    again.close()


def test_a_recovery_that_is_itself_cut_off_can_be_repeated() -> None:
    config = CONFIG
    scenario = rolling_with_producers
    total = _operations(scenario, config)
    for cut in range(0, total, 5):
        for second in range(0, 12, 2):
            with Simulation(seed=cut * 100 + second) as simulation:
                model = Model()
                simulation.disk("a").cut_power_after(cut)
                with pytest.raises(PowerCut):
                    _perform(simulation, scenario, config, model)
                simulation.power_loss("a")
                simulation.disk("a").cut_power_after(second)
                try:
                    manager = _manager(simulation, config)
                    manager.start()
                    manager.create(TOPIC_PARTITION, TOPIC_ID)
                    manager.get(TOPIC_PARTITION)
                except PowerCut:
                    pass
                simulation.power_loss("a")
                manager = _manager(simulation, config)
                manager.start()
                if TOPIC_PARTITION in manager:
                    _check(manager.get(TOPIC_PARTITION), model, f"cut {cut}, then {second}")


def test_retention_and_recovery_reach_logs_that_nobody_opened() -> None:
    with Simulation(seed=5) as simulation:
        config = TopicConfig(segment_bytes=1_200, retention_bytes=1, file_delete_delay_ms=0)
        manager = _manager(simulation, config)
        manager.start()
        driver = Driver(simulation, manager, Model(), config)
        for _ in range(10):
            driver.append(1, size=500)
        end = driver.log.log_end_offset
        simulation.crash("a")
        manager = _manager(simulation, config)
        manager.start()

        simulation.run(recover_unopened(manager))
        driver.manager = manager
        simulation.run(driver.retention.run(lambda topic_partition: end))
        handle = manager.find(TOPIC_PARTITION)
        assert handle is not None
        assert not handle.needs_recovery
        assert manager.get(TOPIC_PARTITION).log_start_offset == end
        described = simulation.run(describe_log_dirs(manager, simulation.runtime("a").disk))
        assert described[0].partitions[0].size_bytes == 0
