"""What the controller is told of a broker's log directories."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from ottla.config.broker import BrokerConfig
from ottla.metadata.directories import ReplicaDirectory
from ottla.metadata.formatting import FormatError
from ottla.metadata.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.server.broker import Broker
from ottla.server.directories import PartitionKey, replicas_to_assign
from ottla.server.single_node import format_if_needed, single_node_properties
from ottla.storage.failures import LogDirFailure

TOPIC_ID = UUID(int=99)
HERE, THERE, GONE = UUID(int=1001), UUID(int=1002), UUID(int=1003)


def image_with(*recorded: UUID) -> MetadataImage:
    partitions = {
        index: PartitionImage((1,), (where,), (1,), (), (), (), (), 1, 0, 0, 0)
        for index, where in enumerate(recorded)
    }
    topic = TopicImage("t", TOPIC_ID, partitions)
    broker = BrokerImage(1, 5, UUID(int=3), (), {}, None, False, False, (HERE, THERE), None)
    return MetadataImage(
        topics={"t": topic}, topics_by_raw_id={TOPIC_ID.bytes: topic}, brokers={1: broker}
    )


@pytest.mark.parametrize(
    ("recorded", "actual", "told"),
    [
        (UNASSIGNED_DIRECTORY, HERE, HERE),
        (HERE, HERE, None),
        (GONE, THERE, THERE),  # a new disk in the place of a dead one
        (UNASSIGNED_DIRECTORY, None, None),  # it waits for room
        (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, LOST_DIRECTORY),
        (GONE, LOST_DIRECTORY, None),  # it may be led from there again
    ],
)
def test_only_what_lies_elsewhere_than_recorded_is_told(
    recorded: UUID, actual: UUID | None, told: UUID | None
) -> None:
    keys = [PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 7), PartitionKey(UUID(int=4), 0)]
    found = replicas_to_assign(image_with(recorded), 1, keys, lambda _: actual)
    assert found == ([] if told is None else [ReplicaDirectory(TOPIC_ID, 0, told)])


def test_replicas_of_other_brokers_are_their_own_to_tell() -> None:
    image = image_with(UNASSIGNED_DIRECTORY)
    other = BrokerImage(2, 5, UUID(int=3), (), {}, None, False, False, (HERE,), None)
    image = MetadataImage(
        topics=image.topics, topics_by_raw_id=image.topics_by_raw_id, brokers={2: other}
    )

    def fail(topic_partition: TopicPartition) -> UUID | None:
        raise AssertionError(topic_partition)

    assert replicas_to_assign(image, 2, [PartitionKey(TOPIC_ID, 0)], fail) == []


class House:
    """A broker of two directories in a simulation."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.runtime = self.simulation.runtime("broker")
        self.config = BrokerConfig.from_properties(
            single_node_properties("", 9092, {"log.dirs": "/a/,/b"})
        )
        format_if_needed(self.runtime, self.config)
        self.fatal: list[BaseException] = []
        self.broker = Broker(self.runtime, self.config, on_fatal=self.fatal.append)

    def run(self, coroutine: Any) -> Any:
        return self.simulation.run(coroutine, seconds_max=60)


def test_idle_disks_that_vanish_are_noticed() -> None:
    house = House()

    async def scenario() -> None:
        await house.broker.start()
        house.simulation.disk("broker").fail_io("/b")
        while len(house.broker.logs.online_directories) == 2:
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        (directory,) = house.broker.logs.online_directories
        assert directory.path == "/a"
        registered = house.broker.metadata.image.brokers[1]
        assert registered.log_dirs == (directory.directory_id,)
        assert house.fatal == []
        house.simulation.disk("broker").fail_io("/a")
        while not house.fatal:
            await asyncio.sleep(1)
        assert "/a" in str(house.fatal[0])
        await house.broker.stop()

    with house.simulation:
        house.run(scenario())


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (b"node.id=1", b"node.id=2", "/b belongs to node 2, not 1"),
        (b"cluster.id=", b"cluster.id=x", "/b belongs to cluster x"),
    ],
)
def test_a_directory_of_somebody_else_is_refused(
    before: bytes, after: bytes, sentence: str
) -> None:
    house = House()
    disk = house.runtime.disk
    text = disk.read_bytes("/b/meta.properties")
    assert before in text
    disk.write_atomic("/b/meta.properties", text.replace(before, after))

    async def scenario() -> None:
        with pytest.raises(FormatError, match=sentence):
            await house.broker.start()
        await house.broker.stop()

    with house.simulation:
        house.run(scenario())


@pytest.mark.parametrize(("damage", "kind"), [("fail", LogDirFailure), ("remove", FormatError)])
def test_a_start_without_the_metadata_directory_says_so(damage: str, kind: type[Exception]) -> None:
    house = House()
    if damage == "fail":
        house.simulation.disk("broker").fail_io("/a")
    else:
        house.runtime.disk.rmtree("/a")

    async def scenario() -> None:
        with pytest.raises(kind, match="/a"):
            await house.broker.start()

    with house.simulation:
        house.run(scenario())
