"""Where replicas lie, and what a failed log directory takes along, against any history."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_worlds import World, check_invariants, replayed

from ottla.metadata.brokers import BrokerRegistration, decide_register_broker
from ottla.metadata.directories import (
    ReplicaDirectory,
    decide_assign_replicas,
    decide_directories_offline,
)
from ottla.metadata.features import RELEASE_FEATURES, supported_feature_records
from ottla.metadata.image import (
    EMPTY_IMAGE,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
)
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RecordEndpoint,
    decode_record,
)
from ottla.metadata.topics import NewTopic
from ottla.protocol.batches import iter_batches, iter_records
from ottla.protocol.errors import ErrorCode, KafkaError

GOLDEN = Path(__file__).parent / "golden"
BROKERS = (1, 2, 3)
WITHOUT_ELR = {
    name: level for name, level in RELEASE_FEATURES.items() if not name.startswith("eligible")
}


def directory(broker_id: int, number: int) -> UUID:
    return UUID(int=100_000 + 100 * broker_id + number)


class DiskWorld(World):
    """Brokers with three disks each."""

    def join(self, broker_id: int, disks: tuple[int, ...], *, clean: bool = True) -> None:
        known = self.image.brokers.get(broker_id)
        registration = BrokerRegistration(
            broker_id,
            self.new_id(),
            (RecordEndpoint("PLAINTEXT", "host", 9092, 0),),
            supported_feature_records(),
            None,
            tuple(directory(broker_id, number) for number in disks),
            known.epoch if known is not None and clean else -1,
        )
        self.take(decide_register_broker(self.image, registration))
        self.heartbeat(broker_id)

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def assign(self, broker_id: int, *places: tuple[str, int, UUID]) -> list[ErrorCode]:
        return self.take(
            decide_assign_replicas(
                self.image,
                broker_id=broker_id,
                broker_epoch=self.epoch(broker_id),
                replicas=[
                    ReplicaDirectory(self.image.topics[topic].topic_id, index, where)
                    for topic, index, where in places
                ],
            )
        )

    def fail(self, broker_id: int, *disks: int) -> tuple[UUID, ...]:
        return self.take(
            decide_directories_offline(
                self.image,
                broker_id=broker_id,
                broker_epoch=self.epoch(broker_id),
                offline={directory(broker_id, number) for number in disks},
            )
        )

    def partition(self, topic: str, index: int) -> PartitionImage:
        found = self.image.partition(topic, index)
        assert found is not None
        return found


def partitions(image: MetadataImage) -> Iterator[PartitionImage]:
    for topic in image.topics.values():
        yield from topic.partitions.values()


def check_directories(image: MetadataImage) -> None:
    check_invariants(image)
    for partition in partitions(image):
        if partition.leader != -1:
            where = partition.directory_of(partition.leader)
            assert image.brokers[partition.leader].has_online_directory(where), partition
            for replica in partition.isr:
                broker = image.brokers[replica]
                assert broker.has_online_directory(partition.directory_of(replica)), partition


def test_assigning_moves_neither_the_leader_nor_its_epoch() -> None:
    world = DiskWorld()
    world.join(1, (0, 1))
    world.create(NewTopic("t", 2, 1))
    before = world.partition("t", 0)
    assert before.directories == (UNASSIGNED_DIRECTORY,)
    history = len(world.history)
    places = [("t", 0, directory(1, 0)), ("t", 1, directory(1, 1))]
    assert world.assign(1, *places) == [ErrorCode.NONE] * 2
    after = world.partition("t", 0)
    assert after == before._replace(
        directories=(directory(1, 0),), partition_epoch=before.partition_epoch + 1
    )
    assert len(world.history) == history + 2
    world.assign(1, *places)
    assert len(world.history) == history + 2, "what is known already costs a record"


def test_each_replica_is_refused_on_its_own() -> None:
    world = DiskWorld()
    world.join(1, (0, 1))
    world.join(2, (0, 1))
    world.create(NewTopic("t", assignments=((0, (1,)), (1, (2,)))))
    topic_id = world.image.topics["t"].topic_id
    decision = decide_assign_replicas(
        world.image,
        broker_id=1,
        broker_epoch=world.epoch(1),
        replicas=[
            ReplicaDirectory(UUID(int=7), 0, directory(1, 0)),
            ReplicaDirectory(topic_id, 5, directory(1, 0)),
            ReplicaDirectory(topic_id, 1, directory(1, 0)),
            ReplicaDirectory(topic_id, 0, directory(1, 0)),
            ReplicaDirectory(topic_id, 0, directory(1, 1)),
        ],
    )
    assert decision.response == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(decision.records) == 1


@pytest.mark.parametrize("features", [RELEASE_FEATURES, WITHOUT_ELR])
@pytest.mark.parametrize("clean", [True, False])
def test_a_partition_is_led_again_only_once_its_directory_is_back(
    features: dict[str, int], clean: bool
) -> None:
    world = DiskWorld(features=dict(features))
    world.join(1, (0, 1))
    world.create(NewTopic("t", 2, 1))
    world.assign(1, ("t", 0, directory(1, 0)), ("t", 1, directory(1, 1)))
    epoch = world.partition("t", 1).leader_epoch
    assert world.fail(1, 1) == (directory(1, 1),)
    assert world.partition("t", 0).leader == 1
    assert world.partition("t", 1).leader == -1
    assert world.partition("t", 1).leader_epoch == epoch + 1
    assert world.image.brokers[1].log_dirs == (directory(1, 0),)
    for _ in range(2):
        world.join(1, (0,), clean=clean)
        assert world.partition("t", 0).leader == 1
        assert world.partition("t", 1).leader == -1, "its directory is still missing"
    world.join(1, (0, 1), clean=clean)
    assert world.partition("t", 1).leader == 1
    assert world.partition("t", 1).isr == (1,)


def test_another_replica_takes_the_lead_of_what_a_disk_took_along() -> None:
    world = DiskWorld()
    world.join(1, (0, 1))
    world.join(2, (0, 1))
    world.create(NewTopic("t", assignments=((0, (1, 2)), (1, (1, 2)))))
    world.assign(1, ("t", 0, directory(1, 0)), ("t", 1, directory(1, 1)))
    world.assign(2, ("t", 0, directory(2, 0)), ("t", 1, directory(2, 0)))
    untouched = world.partition("t", 0)
    history = len(world.history)
    world.fail(1, 1)
    assert world.partition("t", 0) == untouched
    assert (world.partition("t", 1).leader, world.partition("t", 1).isr) == (2, (2,))
    # As Kafka: partitions first, then the registration, which closes the matter.
    kinds = [type(record) for record in world.history[history:]]
    assert kinds == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    assert world.fail(1, 1) == ()
    assert len(world.history) == history + 2, "a broker that repeats itself costs records"


def test_a_replica_that_lies_in_a_lost_directory_gives_up_the_lead() -> None:
    world = DiskWorld()
    world.join(1, (0, 1))
    world.create(NewTopic("t", 1, 1))
    world.assign(1, ("t", 0, LOST_DIRECTORY))
    assert world.partition("t", 0).leader == -1
    world.assign(1, ("t", 0, directory(1, 1)))
    assert world.partition("t", 0).leader == 1


def test_the_last_directory_stays_on_record() -> None:
    world = DiskWorld()
    world.join(1, (0, 1))
    world.create(NewTopic("t", 1, 1))
    world.assign(1, ("t", 0, directory(1, 0)))
    world.fail(1, 0, 1)
    assert world.partition("t", 0).leader == -1
    assert world.image.brokers[1].log_dirs == (directory(1, 0), directory(1, 1))


def test_an_earlier_life_and_an_old_cluster_are_refused() -> None:
    world = DiskWorld()
    world.join(1, (0, 1))
    with pytest.raises(KafkaError) as refused:
        decide_directories_offline(
            world.image, broker_id=1, broker_epoch=world.epoch(1) - 1, offline=()
        )
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    old = DiskWorld(features={"metadata.version": 16})
    for decide in (
        lambda: decide_directories_offline(old.image, broker_id=1, broker_epoch=0, offline=()),
        lambda: decide_assign_replicas(old.image, broker_id=1, broker_epoch=0, replicas=()),
    ):
        with pytest.raises(KafkaError) as refused:
            decide()
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def golden_records() -> Iterator[MetadataRecord]:
    data = (GOLDEN / "kafka-static.log").read_bytes()
    for at, header in iter_batches(data):
        if not header.attributes & 0x20:
            for record in iter_records(data[at : at + header.size_bytes]):
                assert record.value is not None
                yield decode_record(record.value)


def test_assignments_are_the_records_that_apache_kafka_wrote() -> None:
    image, found = EMPTY_IMAGE, 0
    for record in golden_records():
        if isinstance(record, PartitionChangeRecord) and record.directories:
            decision = decide_assign_replicas(
                image,
                broker_id=1,
                broker_epoch=image.brokers[1].epoch,
                replicas=[
                    ReplicaDirectory(record.topic_id, record.partition_id, record.directories[0])
                ],
            )
            assert list(decision.records) == [record]
            found += 1
        image = replayed(image, [record])
    assert found == 2


Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "assign", "assign", "fail", "fail", "join", "fence", "beat"]),
        st.sampled_from(BROKERS),
        st.integers(0, 7),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS, st.booleans())
def test_nobody_leads_from_a_directory_that_is_offline(steps: list[Step], has_elr: bool) -> None:
    world = DiskWorld(features=dict(RELEASE_FEATURES if has_elr else WITHOUT_ELR))
    for broker_id in BROKERS:
        world.join(broker_id, (0, 1, 2))
    topics = 0
    for kind, broker_id, number, disk in steps:
        before = world.image
        if kind == "create":
            replicas = BROKERS[disk:] + BROKERS[:disk]
            world.create(NewTopic(f"t{topics}", assignments=((0, replicas[: number % 3 + 1]),)))
            topics = len(world.image.topics)
        elif kind == "assign" and topics:
            world.assign(broker_id, (f"t{number % topics}", 0, directory(broker_id, disk)))
        elif kind == "fail":
            failed = world.fail(broker_id, disk)
            for topic in before.topics.values():
                partition = topic.partitions[0]
                if (
                    broker_id not in partition.replicas
                    or partition.directory_of(broker_id) not in failed
                ):
                    assert world.partition(topic.name, 0) == partition, "not on that disk"
        elif kind == "join":
            disks = tuple(n for n in range(3) if number >> n & 1) or (disk,)
            world.join(broker_id, disks, clean=number % 2 == 0)
        elif kind == "fence":
            world.heartbeat(broker_id, fence=True)
        elif kind == "beat":
            world.heartbeat(broker_id)
        check_directories(world.image)
