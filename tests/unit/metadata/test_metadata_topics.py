"""Creating, growing and deleting topics, refusals included."""

from uuid import UUID

import pytest
from metadata_worlds import World

from ottla.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.metadata.topics import (
    MIGRATING_DIRECTORY,
    PARTITIONS_PER_REQUEST_MAX,
    UNASSIGNED_DIRECTORY,
    NewPartitions,
    NewTopic,
    check_topic_name,
    decide_create_partitions,
    decide_delete_topics,
    default_directories,
)
from ottla.protocol.errors import ErrorCode, KafkaError


@pytest.fixture
def world() -> World:
    world = World()
    for broker_id in (1, 2, 3):
        world.add_broker(broker_id)
    return world


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_legal_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b"])
def test_illegal_names_are_refused(world: World, name: str) -> None:
    assert world.create(NewTopic(name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert not world.image.topics


def test_a_topic_is_created_with_topic_config_and_partition_records(world: World) -> None:
    before = len(world.history)
    assert world.create(NewTopic("t", 2, 3, (), (("retention.ms", "5"),))) == [ErrorCode.NONE]
    kinds = [type(record) for record in world.history[before:]]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    partition = world.image.partition("t", 1)
    assert partition is not None
    assert partition.isr == partition.replicas
    assert partition.leader == partition.replicas[0]
    assert partition.directories == tuple(UUID(int=1000 + r) for r in partition.replicas)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert world.image.topic_config("t") == {"retention.ms": "5"}


def test_defaults_fill_what_is_not_given(world: World) -> None:
    world.create(NewTopic("t"))
    assert len(world.image.topics["t"].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (9,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            NewTopic("t", assignments=((0, (1,)), (1, (1, 2)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (NewTopic("t", 1, 1, (), (("k", "bad"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, (), (("k", None),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", PARTITIONS_PER_REQUEST_MAX + 1, 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_cannot_be_created_is_refused(world: World, topic: NewTopic, code: ErrorCode) -> None:
    assert world.create(topic) == [code]
    assert not world.image.topics


def test_assigned_replicas_are_taken_as_given(world: World) -> None:
    world.create(NewTopic("t", assignments=((1, (3, 1)), (0, (2, 3)))))
    replicas = {n: p.replicas for n, p in world.image.topics["t"].partitions.items()}
    assert replicas == {0: (2, 3), 1: (3, 1)}


def test_a_fenced_replica_is_not_in_sync_and_does_not_lead(world: World) -> None:
    world.heartbeat(2, fence=True)
    world.create(NewTopic("t", assignments=((0, (2, 3)),)))
    partition = world.image.partition("t", 0)
    assert partition is not None
    assert (partition.isr, partition.leader) == ((3,), 3)
    assert world.create(NewTopic("u", assignments=((0, (2,)),))) == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    ]


def test_existing_and_colliding_names_are_refused(world: World) -> None:
    world.create(NewTopic("a.b"))
    assert world.create(NewTopic("a.b")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert world.create(NewTopic("a_b")) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert world.create(NewTopic("c_d"), NewTopic("c.d")) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_name_asked_for_twice_is_refused_once_and_others_go_on(world: World) -> None:
    codes = world.create(NewTopic("a"), NewTopic("b"), NewTopic("a"))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert set(world.image.topics) == {"b"}


def test_validate_only_answers_without_records(world: World) -> None:
    assert world.create(NewTopic("t", 1, 1), validate_only=True) == [ErrorCode.NONE]
    assert not world.image.topics


def test_without_active_brokers_nothing_is_created() -> None:
    world = World()
    assert world.create(NewTopic("t")) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    world.add_broker(1, unfence=False)
    assert world.create(NewTopic("t")) == [ErrorCode.INVALID_REPLICATION_FACTOR]


def test_a_replica_without_a_known_directory_is_marked_so(world: World) -> None:
    brokers = dict(world.image.brokers)
    from dataclasses import replace

    brokers[1] = replace(brokers[1], log_dirs=())
    brokers[2] = replace(brokers[2], log_dirs=(UUID(int=5), UUID(int=6)))
    directories = default_directories(replace(world.image, brokers=brokers))
    assert directories == {1: MIGRATING_DIRECTORY, 2: UNASSIGNED_DIRECTORY, 3: UUID(int=1003)}


def test_topics_are_deleted_by_name_and_by_id(world: World) -> None:
    world.create(NewTopic("a"), NewTopic("b"), NewTopic("c"))
    b = world.image.topics["b"].topic_id
    unknown = world.new_id()
    results = world.take(decide_delete_topics(world.image, ["a", "nope"], [b, unknown]))
    assert [(r.name, r.error_code) for r in results] == [
        ("a", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert set(world.image.topics) == {"c"}


def test_a_topic_asked_for_by_name_and_id_is_not_deleted(world: World) -> None:
    world.create(NewTopic("a"))
    topic_id = world.image.topics["a"].topic_id
    for names, ids in ((["a", "a"], []), (["a"], [topic_id]), ([], [topic_id, topic_id])):
        results = world.take(decide_delete_topics(world.image, names, ids))
        assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST]
    assert set(world.image.topics) == {"a"}


def grow(world: World, wanted: NewPartitions, *, validate_only: bool = False) -> ErrorCode:
    decision = decide_create_partitions(
        world.image, [wanted], chance=world.random, validate_only=validate_only
    )
    (result,) = world.take(decision)
    return result.error_code


def test_a_topic_grows_and_keeps_its_replication_factor(world: World) -> None:
    world.create(NewTopic("t", 1, 2))
    assert grow(world, NewPartitions("t", 4), validate_only=True) is ErrorCode.NONE
    assert len(world.image.topics["t"].partitions) == 1
    assert grow(world, NewPartitions("t", 3)) is ErrorCode.NONE
    assert grow(world, NewPartitions("t", 4, [(3, 1)])) is ErrorCode.NONE
    partitions = world.image.topics["t"].partitions
    assert len(partitions) == 4
    assert partitions[3].replicas == (3, 1)
    assert {len(p.replicas) for p in partitions.values()} == {2}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewPartitions("nope", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (NewPartitions("t", 4, [(1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [(1, 2)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [(8,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_cannot_be_is_refused(
    world: World, wanted: NewPartitions, code: ErrorCode
) -> None:
    world.create(NewTopic("t", 2, 1))
    assert grow(world, wanted) is code
    assert len(world.image.topics["t"].partitions) == 2


def test_one_request_grows_a_topic_once(world: World) -> None:
    world.create(NewTopic("t", 1, 1), NewTopic("u", 1, 1))
    wanted = [NewPartitions("t", 2), NewPartitions("u", 2), NewPartitions("t", 3)]
    results = world.take(decide_create_partitions(world.image, wanted, chance=world.random))
    assert [(r.name, r.error_code) for r in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]


def test_check_topic_name_says_why() -> None:
    with pytest.raises(KafkaError, match="249 characters"):
        check_topic_name("x" * 300)
