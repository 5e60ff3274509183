"""Changes to partitions that exist: ISR, leaders and reassignments."""

from uuid import UUID

import pytest
from metadata_worlds import World, check_invariants

from ottla.metadata.image import PartitionImage
from ottla.metadata.partitions import (
    ElectionType,
    IsrMember,
    PartitionAlteration,
    Reassignment,
    decide_alter_partition,
    decide_alter_partition_reassignments,
    decide_elect_leaders,
)
from ottla.metadata.topics import NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> World:
    world = World()
    for broker_id in (1, 2, 3, 4):
        world.add_broker(broker_id)
    world.create(NewTopic("t", assignments=((0, (1, 2, 3)),)))
    return world


def state(world: World) -> PartitionImage:
    partition = world.image.partition("t", 0)
    assert partition is not None
    check_invariants(world.image)
    return partition


def alter(world: World, *isr: int, by: int = 1, **changes: object) -> ErrorCode:
    partition = state(world)
    asked = PartitionAlteration(
        world.image.topics["t"].topic_id,
        0,
        partition.leader_epoch,
        [IsrMember(broker_id) for broker_id in isr],
        partition.partition_epoch,
    )._replace(**changes)  # type: ignore[arg-type]  # fields by name
    decision = decide_alter_partition(
        world.image, [asked], broker_id=by, broker_epoch=world.image.brokers[by].epoch
    )
    (result,) = world.take(decision)
    if result.error_code is ErrorCode.NONE:
        assert result.state == state(world)
    return result.error_code


def test_a_leader_shrinks_and_grows_its_isr_without_a_new_leader_epoch(world: World) -> None:
    assert alter(world, 1, 3) is ErrorCode.NONE
    assert (state(world).isr, state(world).leader_epoch) == ((1, 3), 0)
    assert alter(world, 1, 3, 2) is ErrorCode.NONE
    assert (state(world).isr, state(world).partition_epoch) == ((1, 3, 2), 2)
    before = len(world.history)
    assert alter(world, 1, 3, 2) is ErrorCode.NONE
    assert len(world.history) == before


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ((1,), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1,), {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1,), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1,), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1,), {"by": 2}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((2,), {}, ErrorCode.INVALID_REQUEST),
        ((1, 1), {}, ErrorCode.INVALID_REQUEST),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ((1,), {"new_isr": [IsrMember(1), IsrMember(2, 0)]}, ErrorCode.INELIGIBLE_REPLICA),
        ((1,), {"topic_id": UUID(int=5)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1,), {"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_alterations_that_cannot_be_are_refused(
    world: World, isr: tuple[int, ...], changes: dict[str, object], code: ErrorCode
) -> None:
    before = world.image
    assert alter(world, *isr, **changes) is code  # type: ignore[arg-type]  # fields by name
    assert world.image is before


def test_a_fenced_replica_cannot_join_the_isr(world: World) -> None:
    world.heartbeat(2, fence=True)
    assert alter(world, 1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA
    with pytest.raises(KafkaError) as stale:
        decide_alter_partition(world.image, [], broker_id=1, broker_epoch=0)
    assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_says_when_it_has_recovered() -> None:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("t", 1, 1))
    world.add_broker(1, clean=False)
    assert state(world).leader_recovery_state == 1
    assert alter(world, 1) is ErrorCode.NONE
    assert state(world).leader_recovery_state == 0


def elect(world: World, kind: int, *asked: TopicPartition) -> list[ErrorCode]:
    return [
        result.error_code
        for result in world.take(decide_elect_leaders(world.image, kind, asked or None))
    ]


def test_the_preferred_leader_is_elected_once_it_is_in_sync(world: World) -> None:
    preferred = ElectionType.PREFERRED
    assert elect(world, preferred, T0) == [ErrorCode.ELECTION_NOT_NEEDED]
    world.heartbeat(1, fence=True)
    assert elect(world, preferred, T0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.heartbeat(1)
    assert elect(world, preferred, T0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert alter(world, 2, 3, 1, by=2) is ErrorCode.NONE
    assert elect(world, preferred) == [ErrorCode.NONE]
    assert (state(world).leader, state(world).leader_epoch) == (1, 2)
    assert elect(world, preferred) == []
    unknown = TopicPartition("no", 0)
    assert elect(world, preferred, unknown) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_unclean_election_is_only_for_partitions_without_a_leader(world: World) -> None:
    unclean = ElectionType.UNCLEAN
    assert elect(world, unclean, T0) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert alter(world, 1) is ErrorCode.NONE
    world.heartbeat(1, fence=True)
    assert elect(world, unclean, T0) == [ErrorCode.NONE]
    assert (state(world).leader, state(world).isr) == (2, (2,))
    assert state(world).leader_recovery_state == 1
    with pytest.raises(KafkaError):
        decide_elect_leaders(world.image, 5, None)


def reassign(world: World, *replicas: int, stop: bool = False) -> ErrorCode:
    asked = Reassignment(T0, None if stop else replicas)
    (result,) = world.take(decide_alter_partition_reassignments(world.image, [asked]))
    return result.error_code


def test_a_reassignment_ends_when_the_new_replicas_are_in_sync(world: World) -> None:
    assert reassign(world, 4, 2) is ErrorCode.NONE
    partition = state(world)
    assert partition.replicas == (4, 2, 1, 3)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (1, 3))
    assert partition.leader == 1
    assert alter(world, 1, 2, 3, 4) is ErrorCode.FENCED_LEADER_EPOCH  # the leader is moved away
    partition = state(world)
    assert partition.replicas == (4, 2)
    assert set(partition.isr) == {2, 4}
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert partition.leader == 4
    assert partition.directories == (UUID(int=1004), UUID(int=1002))


def test_a_reassignment_that_only_reorders_is_done_at_once(world: World) -> None:
    assert reassign(world, 3, 2, 1) is ErrorCode.NONE
    assert (state(world).replicas, state(world).leader) == ((3, 2, 1), 1)
    assert state(world).directories == tuple(UUID(int=1000 + r) for r in (3, 2, 1))


def test_a_reassignment_is_stopped(world: World) -> None:
    assert reassign(world, stop=True) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(world, 4, 2)
    assert reassign(world, stop=True) is ErrorCode.NONE
    assert set(state(world).replicas) == {1, 2, 3}
    assert state(world).adding_replicas == ()


def test_replicas_to_move_to_must_exist(world: World) -> None:
    assert reassign(world, 9) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
