"""Any history gives the same image live, replayed from scratch, and from a snapshot plus tail."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_worlds import World, check_invariants, replayed

from ottla.config.resources import ConfigChange, ConfigOperation, ConfigResourceType
from ottla.metadata.brokers import decide_fence_broker, decide_unregister_broker
from ottla.metadata.configs import (
    ResourceChange,
    decide_incremental_alter_configs,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from ottla.metadata.producer_ids import decide_allocate_producer_ids
from ottla.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from ottla.metadata.snapshot import TransactionResolver, image_records
from ottla.metadata.topics import (
    NewPartitions,
    NewTopic,
    decide_create_partitions,
    decide_delete_topics,
)
from ottla.protocol.errors import InvariantError, KafkaError
from ottla.protocol.ids import Epoch, Offset

BROKERS = (1, 2, 3)


class AnySchema:
    def check(self, resource: ConfigResource, configs: object) -> None: ...

    def is_list(self, resource: ConfigResource, name: str) -> bool:
        return name == "list"

    def default_value(self, resource: ConfigResource, name: str) -> str:
        return "a"


def create_topic(world: World, n: int) -> None:
    world.create(NewTopic(f"t{n % 4}", n % 3 + 1, min(n % 3 + 1, len(world.image.brokers))))


def delete_topic(world: World, n: int) -> None:
    world.take(decide_delete_topics(world.image, [f"t{n % 4}"]))


def grow_topic(world: World, n: int) -> None:
    wanted = NewPartitions(f"t{n % 4}", n % 7 + 1)
    world.take(decide_create_partitions(world.image, [wanted], chance=world.random))


def broker_leaves(world: World, n: int) -> None:
    world.take(decide_fence_broker(world.image, BROKERS[n % 3]))


def broker_shuts_down(world: World, n: int) -> None:
    broker = world.image.brokers.get(BROKERS[n % 3])
    if broker is not None and not broker.fenced:
        world.heartbeat(broker.broker_id, shut_down=True)


def broker_returns(world: World, n: int) -> None:
    world.add_broker(BROKERS[n % 3], unfence=n % 5 != 0, clean=n % 2 == 0)


def broker_unregisters(world: World, n: int) -> None:
    if BROKERS[n % 3] in world.image.brokers and n % 4 == 0:
        world.take(decide_unregister_broker(world.image, BROKERS[n % 3]))


def change_config(world: World, n: int) -> None:
    changes = [
        ConfigChange("list", ConfigOperation.APPEND if n % 2 else ConfigOperation.SUBTRACT, f"{n}"),
        ConfigChange(f"k{n % 3}", n % 2, "v"),
    ]
    kind = ConfigResourceType.TOPIC if n % 2 else ConfigResourceType.GROUP
    change = ResourceChange(ConfigResource(kind, f"t{n % 4}"), changes)
    world.take(decide_incremental_alter_configs(world.image, [change], schema=AnySchema()))


def take_producer_ids(world: World, n: int) -> None:
    broker = world.image.brokers.get(BROKERS[n % 3])
    if broker is not None:
        world.take(
            decide_allocate_producer_ids(
                world.image, broker_id=broker.broker_id, broker_epoch=broker.epoch
            )
        )


def change_security(world: World, n: int) -> None:
    acl = AccessControlEntryRecord(id=world.new_id(), resource_name=f"r{n}")
    entity = (QuotaEntity("user", None if n % 2 else f"u{n % 3}"),)
    records: list[MetadataRecord] = [
        acl,
        UserScramCredentialRecord(name=f"u{n % 3}", mechanism=n % 2 + 1, salt=b"s"),
        ClientQuotaRecord(entity=entity, key=f"q{n % 2}", value=float(n), remove=n % 5 == 0),
        DelegationTokenRecord(token_id=f"t{n % 3}"),
        RegisterControllerRecord(controller_id=n % 2, incarnation_id=world.new_id()),
        NoOpRecord(),
    ]
    if n % 3 == 0:
        records.append(RemoveAccessControlEntryRecord(id=acl.id))
        records.append(RemoveUserScramCredentialRecord(name=f"u{n % 3}", mechanism=n % 2 + 1))
        records.append(RemoveDelegationTokenRecord(token_id=f"t{n % 3}"))
    if n % 7 == 0:
        records.append(ClearElrRecord(topic_name="" if n % 2 else f"t{n % 4}"))
    world.replay(records)


STEPS: tuple[Callable[[World, int], None], ...] = (
    create_topic,
    delete_topic,
    grow_topic,
    broker_leaves,
    broker_shuts_down,
    broker_returns,
    broker_unregisters,
    change_config,
    take_producer_ids,
    change_security,
)
HISTORIES = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), min_size=1, max_size=40)


def content(image: MetadataImage) -> MetadataImage:
    return replace(image, offset=Offset(0), epoch=Epoch(0), timestamp_ms=0)


@settings(max_examples=150)
@given(st.booleans(), HISTORIES, st.data())
def test_snapshot_and_tail_and_scratch_agree_with_the_live_image(
    elr: bool, steps: list[tuple[Callable[[World, int], None], int]], data: st.DataObject
) -> None:
    world = World() if elr else World(features={"metadata.version": 22})
    for broker_id in BROKERS:
        world.add_broker(broker_id, rack=f"r{broker_id % 2}")
    for step, n in steps:
        try:
            step(world, n)
        except KafkaError:
            continue
        check_invariants(world.image)
    history = [decode_record(encode_record(record)) for record in world.history]
    assert history == world.history
    scratch = replayed(EMPTY_IMAGE, history)
    assert scratch == world.image
    cut = data.draw(st.integers(0, len(history)))
    middle = replayed(EMPTY_IMAGE, history[:cut])
    snapshot = [decode_record(encode_record(record)) for record in image_records(middle)]
    restored = replayed(EMPTY_IMAGE, snapshot)
    assert content(restored) == content(middle)
    assert content(replayed(restored, history[cut:])) == content(world.image)


def test_an_image_is_untouched_by_what_follows() -> None:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("a", 2, 1, (), (("retention.ms", "1"),)))
    before = world.image
    copy = replayed(EMPTY_IMAGE, world.history)
    world.take(decide_delete_topics(world.image, ["a"]))
    world.create(NewTopic("a", 3, 1))
    assert before == copy
    assert len(before.topics["a"].partitions) == 2
    assert len(world.image.topics["a"].partitions) == 3
    assert world.image.topic_config("a") == {}


def test_untouched_topics_are_shared_between_images() -> None:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("a", 2, 1), NewTopic("b", 2, 1))
    before = world.image
    world.take(decide_create_partitions(world.image, [NewPartitions("b", 3)], chance=world.random))
    assert world.image.topics["a"] is before.topics["a"]
    assert world.image.configs is before.configs
    assert world.image.brokers is before.brokers


def test_a_delta_tells_what_is_new_changed_and_gone() -> None:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("old", 2, 1), NewTopic("gone", 1, 1))
    image = world.image
    old, gone = image.topics["old"], image.topics["gone"]
    fresh = world.new_id()
    delta = MetadataDelta(image)
    delta.replay_all(
        [
            PartitionChangeRecord(partition_id=1, topic_id=old.topic_id, leader=1),
            RemoveTopicRecord(topic_id=gone.topic_id),
            TopicRecord(name="gone", topic_id=fresh),
            PartitionRecord(partition_id=0, topic_id=fresh, replicas=(1,), isr=(1,), leader=1),
            ConfigRecord(resource_type=2, resource_name="old", name="k", value="v"),
        ]
    )
    after = delta.apply(offset=Offset(99), epoch=Epoch(1), timestamp_ms=0)
    assert set(delta.topics) == {old.topic_id.bytes, fresh.bytes}
    assert set(delta.topics[old.topic_id.bytes].changed) == {1}
    assert delta.topics[old.topic_id.bytes].previous is old
    assert delta.topics[fresh.bytes].previous is None
    assert delta.deleted_topics == {gone.topic_id.bytes: gone}
    assert delta.changed_configs == {ConfigResource(ConfigResourceType.TOPIC, "old")}
    assert after.topics["gone"].topic_id == fresh
    assert after.topic_with_id(gone.topic_id) is None


def test_naming_a_leader_bumps_the_leader_epoch_even_if_it_is_the_same() -> None:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("a", 1, 1))
    topic = world.image.topics["a"]
    world.replay([PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=1)])
    partition = world.image.partition("a", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)
    world.replay([PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, isr=(1,))])
    partition = world.image.partition("a", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 2)


def test_brokers_of_old_logs_are_fenced_and_unfenced() -> None:
    world = World()
    epoch = world.add_broker(1)
    world.replay([FenceBrokerRecord(id=1, epoch=epoch)])
    assert world.image.brokers[1].fenced
    world.replay([UnfenceBrokerRecord(id=1, epoch=epoch)])
    assert not world.image.brokers[1].fenced


def test_a_log_that_contradicts_itself_is_a_defect() -> None:
    world = World()
    epoch = world.add_broker(1)
    for record in (
        RemoveTopicRecord(topic_id=world.new_id()),
        PartitionRecord(partition_id=0, topic_id=world.new_id()),
        FenceBrokerRecord(id=1, epoch=epoch + 1),
    ):
        with pytest.raises(InvariantError):
            replayed(world.image, [record])


def test_a_transaction_counts_as_a_whole_or_not_at_all() -> None:
    resolver = TransactionResolver()
    first, second = TopicRecord(name="a"), TopicRecord(name="b")
    assert resolver.resolve(first) == [first]
    assert resolver.resolve(BeginTransactionRecord()) == []
    assert resolver.resolve(first) == []
    assert resolver.is_open
    assert resolver.resolve(second) == []
    assert resolver.resolve(EndTransactionRecord()) == [first, second]
    assert not resolver.is_open
    resolver.resolve(BeginTransactionRecord())
    resolver.resolve(first)
    assert resolver.resolve(AbortTransactionRecord()) == []
    assert resolver.resolve(second) == [second]
    with pytest.raises(InvariantError):
        resolver.resolve(EndTransactionRecord())
