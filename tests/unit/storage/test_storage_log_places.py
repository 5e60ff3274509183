"""In which directory a partition's log is made or found when there are several."""

from uuid import UUID

import pytest

from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.files.meta_properties import MetaProperties, encode_meta_properties
from ottla.storage.log_directory import NodeIdentity
from ottla.storage.log_manager import LogManager

OLD, NEW = UUID(int=501), UUID(int=502)
DIRS = ("/one", "/two")
IDS = {path: UUID(int=1000 + number) for number, path in enumerate(DIRS)}
PARTITION = TopicPartition("t", 0)


class House:
    def __init__(self) -> None:
        self.simulation = Simulation(seed=1)
        self.disk = self.simulation.disk("a")
        disk = self.simulation.runtime("a").disk
        for path, directory_id in IDS.items():
            disk.mkdir(path)
            properties = MetaProperties(1, "cluster", 1, directory_id)
            disk.write_atomic(f"{path}/meta.properties", encode_meta_properties(properties))

    def start(self, *paths: str) -> LogManager:
        self.simulation.crash("a")
        logs = LogManager(self.simulation.runtime("a"), paths or DIRS)
        logs.start(NodeIdentity("cluster", 1))
        return logs


@pytest.mark.parametrize("living", DIRS)
def test_of_two_logs_the_one_of_the_living_topic_is_taken_and_recovered(living: str) -> None:
    house = House()
    for path in DIRS:
        topic_id = NEW if path == living else OLD
        house.start(path).create(PARTITION, topic_id)
    handle = house.start().create(PARTITION, NEW, is_new=False)
    assert (handle.directory.path, handle.needs_recovery) == (living, True)
    assert handle.topic_id == NEW


@pytest.mark.parametrize("recorded", DIRS)
def test_of_two_logs_of_one_topic_the_recorded_one_is_taken(recorded: str) -> None:
    house = House()
    for path in DIRS:
        house.start(path).create(PARTITION, NEW)
    logs = house.start()
    handle = logs.create(PARTITION, NEW, directory_id=IDS[recorded], is_new=False)
    assert handle.directory.path == recorded
    assert [len(one.handles) for one in logs.directories] == [
        int(path == recorded) for path in DIRS
    ]


@pytest.mark.parametrize("recorded", DIRS)
def test_a_log_is_made_where_the_metadata_says(recorded: str) -> None:
    logs = House().start()
    handle = logs.create(PARTITION, NEW, directory_id=IDS[recorded])
    assert handle.directory.path == recorded


def test_new_logs_pass_over_a_disk_that_breaks_and_one_that_is_full() -> None:
    house = House()
    logs = house.start()
    house.disk.fail_io("/one", reads=False)
    assert logs.create(PARTITION, NEW).directory.path == "/two"
    assert [one.path for one in logs.online_directories] == ["/two"]
    house.disk.limit_space(0)
    with pytest.raises(DiskFull):
        logs.create(TopicPartition("t", 1), NEW)
    assert TopicPartition("t", 1) not in logs
    house.disk.limit_space(None)
    assert logs.create(TopicPartition("t", 1), NEW).directory.path == "/two"


def test_no_log_is_made_in_the_place_of_one_that_may_be_offline() -> None:
    house = House()
    house.disk.fail_io("/two")
    logs = house.start()
    for recorded in (IDS["/two"], None):
        with pytest.raises(LogDirFailure):
            logs.create(PARTITION, NEW, directory_id=recorded, is_new=False)
    assert logs.create(PARTITION, NEW, directory_id=IDS["/one"], is_new=False)
    assert logs.create(TopicPartition("t", 1), NEW, is_new=True).directory.path == "/one"


def test_the_name_of_a_deleted_topic_is_free_although_its_disk_is_offline() -> None:
    house = House()
    logs = house.start()
    logs.create(PARTITION, OLD, directory_id=IDS["/two"])
    logs.fail(logs.directories[1], "pulled out")
    with pytest.raises(LogDirFailure):
        logs.delete(PARTITION)
    assert logs.create(PARTITION, NEW).directory.path == "/one"
