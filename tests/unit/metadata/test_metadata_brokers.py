"""Brokers that join, fall silent, return and leave, and what becomes of their partitions."""

import pytest
from metadata_worlds import World, check_invariants

from ottla.config.resources import ConfigResourceType
from ottla.metadata.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    HeartbeatResult,
    decide_heartbeat,
    decide_register_broker,
    decide_unregister_broker,
)
from ottla.metadata.decision import Decision
from ottla.metadata.features import (
    FeatureUpdate,
    UpgradeType,
    decide_update_features,
    supported_feature_records,
)
from ottla.metadata.image import DEFAULT_BROKER_RESOURCE, ConfigResource, PartitionImage
from ottla.metadata.producer_ids import decide_allocate_producer_ids
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord, RegisterBrokerRecord
from ottla.metadata.topics import NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError


def partition(world: World, topic: str = "t") -> PartitionImage:
    found = world.image.partition(topic, 0)
    assert found is not None
    return found


def facts(world: World) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    p = partition(world)
    return p.leader, p.isr, p.eligible_leader_replicas, p.last_known_elr


def world_with(*replicas: int, elr: bool = True, min_isr: int = 1) -> World:
    world = World() if elr else World(features={"metadata.version": 30})
    for broker_id in (1, 2, 3):
        world.add_broker(broker_id)
    world.create(NewTopic("t", assignments=((0, replicas),)))
    world.replay(
        [
            ConfigRecord(
                resource_type=2, resource_name="t", name="min.insync.replicas", value=str(min_isr)
            )
        ]
    )
    return world


def test_a_broker_epoch_is_the_offset_of_its_registration() -> None:
    world = World()
    for broker_id in (1, 2, 1):
        next_offset = world.image.next_offset
        assert world.add_broker(broker_id) == next_offset


def test_a_broker_epoch_counts_the_records_before_its_registration() -> None:
    world = world_with(1, 2)
    epoch = world.add_broker(1, unfence=False)
    position = next(
        number
        for number, record in reversed(list(enumerate(world.history)))
        if isinstance(record, RegisterBrokerRecord)
    )
    assert epoch == world.image.brokers[1].epoch == position


def test_a_last_known_leader_that_is_down_is_waited_for() -> None:
    world = world_with(1, 2)
    world.heartbeat(2, fence=True)
    world.add_broker(1, clean=False, unfence=False)
    assert facts(world) == (-1, (), (), (1,))
    world.heartbeat(2)
    assert facts(world) == (-1, (), (), (1,))
    world.heartbeat(1)
    assert facts(world) == (1, (1,), (), ())


def test_a_broker_is_unfenced_once_it_has_read_its_registration() -> None:
    world = World()
    epoch = world.add_broker(1, unfence=False)
    early = decide_heartbeat(world.image, BrokerHeartbeat(1, epoch, epoch - 1))
    assert early.response == HeartbeatResult(False, True, False)
    assert not early.records
    ready = decide_heartbeat(world.image, BrokerHeartbeat(1, epoch, epoch))
    assert ready.response == HeartbeatResult(True, False, False)
    world.take(ready)
    assert world.image.brokers[1].is_active
    assert not decide_heartbeat(world.image, BrokerHeartbeat(1, epoch, epoch)).records


def test_strangers_and_earlier_lives_are_refused() -> None:
    world = World()
    epoch = world.add_broker(1)
    with pytest.raises(KafkaError) as stale:
        decide_heartbeat(world.image, BrokerHeartbeat(1, epoch - 1, epoch))
    assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as unknown:
        decide_heartbeat(world.image, BrokerHeartbeat(7, 0, epoch))
    assert unknown.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_second_process_with_a_live_brokers_id_is_refused() -> None:
    world = World()
    world.add_broker(1)
    other = BrokerRegistration(1, world.new_id(), (), supported_feature_records())
    with pytest.raises(KafkaError) as refused:
        decide_register_broker(world.image, other, has_live_session=True)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_that_cannot_read_the_agreed_features_is_refused() -> None:
    world = World()
    other = BrokerRegistration(1, world.new_id(), (), ())
    with pytest.raises(KafkaError) as refused:
        decide_register_broker(world.image, other)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_the_next_in_sync_replica_takes_over() -> None:
    world = world_with(1, 2, 3)
    world.heartbeat(1, fence=True)
    assert facts(world) == (2, (2, 3), (), ())
    assert partition(world).leader_epoch == 1
    world.heartbeat(1)
    assert facts(world) == (2, (2, 3), (), ())  # it must catch up first


def test_the_last_replica_is_remembered_and_leads_when_it_returns() -> None:
    world = world_with(1)
    world.heartbeat(1, fence=True)
    assert facts(world) == (-1, (), (1,), (1,))
    world.heartbeat(1)
    assert facts(world) == (1, (1,), (), ())
    assert partition(world).leader_recovery_state == 0
    assert partition(world).leader_epoch == 2


def test_without_elr_the_last_replica_stays_in_the_isr() -> None:
    world = world_with(1, elr=False)
    world.heartbeat(1, fence=True)
    assert facts(world) == (-1, (1,), (), ())
    world.heartbeat(1)
    assert facts(world) == (1, (1,), (), ())


def test_replicas_that_fall_below_min_isr_become_eligible() -> None:
    world = world_with(1, 2, 3, min_isr=2)
    world.heartbeat(1, fence=True)
    assert facts(world) == (2, (2, 3), (), ())
    world.heartbeat(2, fence=True)
    assert facts(world) == (3, (3,), (2,), ())
    world.heartbeat(3, fence=True)
    assert facts(world) == (-1, (), (2, 3), (3,))
    world.heartbeat(2)
    assert facts(world) == (2, (2,), (3,), ())
    check_invariants(world.image)


def test_a_replica_that_crashed_leads_only_as_the_last_known_leader() -> None:
    world = world_with(1, 2, min_isr=2)
    world.heartbeat(2, fence=True)
    world.add_broker(1, clean=False, unfence=False)
    # Broker 2 left in order and kept its data; broker 1, the leader, may have lost some.
    assert facts(world) == (-1, (), (2,), (1,))
    world.heartbeat(1)
    assert facts(world) == (-1, (), (2,), (1,))
    world.heartbeat(2)
    assert facts(world)[:2] == (2, (2,))


def test_a_single_replica_recovers_from_a_crash() -> None:
    world = world_with(1)
    world.add_broker(1, clean=False)
    assert facts(world) == (1, (1,), (), ())
    assert partition(world).leader_recovery_state == 1  # it may lack committed records


def test_a_single_replica_that_stopped_in_order_recovers_nothing() -> None:
    world = world_with(1)
    world.heartbeat(1, shut_down=True)
    world.heartbeat(1, shut_down=True)
    assert world.image.brokers[1].fenced
    world.add_broker(1)
    assert facts(world) == (1, (1,), (), ())
    assert partition(world).leader_recovery_state == 0


def test_an_unclean_election_takes_any_replica_and_says_so() -> None:
    world = world_with(1, 2, elr=False)
    name = "unclean.leader.election.enable"
    world.replay([ConfigRecord(resource_type=2, resource_name="t", name=name, value="true")])
    world.heartbeat(2, fence=True)
    world.heartbeat(1, fence=True)
    assert facts(world)[:2] == (-1, (1,))
    world.heartbeat(2)
    assert facts(world)[:2] == (2, (2,))
    assert partition(world).leader_recovery_state == 1


def test_a_controlled_shutdown_hands_over_before_it_lets_go() -> None:
    world = world_with(1, 2)
    epoch = world.image.brokers[1].epoch
    beat = BrokerHeartbeat(1, epoch, world.image.offset, want_shut_down=True)
    first = decide_heartbeat(world.image, beat)
    assert first.response == HeartbeatResult(True, False, False)
    world.take(first)
    assert facts(world)[:2] == (2, (2,))
    assert world.image.brokers[1].in_controlled_shutdown
    waiting = decide_heartbeat(
        world.image, beat, other_brokers_offset=0, shutdown_offset=world.image.offset
    )
    assert waiting.response == HeartbeatResult(True, False, False)
    last = decide_heartbeat(
        world.image,
        beat,
        other_brokers_offset=world.image.offset,
        shutdown_offset=world.image.offset,
    )
    assert last.response == HeartbeatResult(True, True, True)
    world.take(last)
    assert world.image.brokers[1].fenced


def test_a_broker_shutting_down_gets_no_new_replicas() -> None:
    world = world_with(1)
    world.heartbeat(1, shut_down=True)
    world.create(NewTopic("u", 6, 2))
    used = {r for p in world.image.topics["u"].partitions.values() for r in p.replicas}
    assert used == {2, 3}


def test_an_unregistered_broker_is_gone_from_every_isr() -> None:
    world = world_with(1, 2)
    world.take(decide_unregister_broker(world.image, 1))
    assert 1 not in world.image.brokers
    assert facts(world)[:2] == (2, (2,))


def test_producer_ids_come_in_blocks_that_never_repeat() -> None:
    world = World()
    epoch = world.add_broker(1)
    for first in (0, 1000, 2000):
        block = world.take(
            decide_allocate_producer_ids(world.image, broker_id=1, broker_epoch=epoch)
        )
        assert block == (first, 1000)
    with pytest.raises(KafkaError) as stale:
        decide_allocate_producer_ids(world.image, broker_id=1, broker_epoch=epoch + 1)
    assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH


def update(world: World, name: str, level: int, kind: int = UpgradeType.UPGRADE) -> ErrorCode:
    try:
        world.take(update_features(world, FeatureUpdate(name, level, kind)))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def update_features(world: World, *updates: FeatureUpdate) -> Decision[None]:
    return decide_update_features(world.image, updates, kraft_version=1)


def test_features_go_up_and_down_as_asked() -> None:
    world = world_with(1)
    world.heartbeat(1, fence=True)
    refused = ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, "share.version", 2) is refused
    assert update(world, "share.version", -1) is refused
    assert update(world, "nope", 1) is refused
    assert update(world, "kraft.version", 1) is ErrorCode.NONE
    assert update(world, "kraft.version", 0, UpgradeType.SAFE_DOWNGRADE) is refused
    assert update(world, "share.version", 0) is refused
    assert update(world, "share.version", 0, 9) is refused
    assert update(world, "share.version", 0, UpgradeType.SAFE_DOWNGRADE) is ErrorCode.NONE
    assert "share.version" not in world.image.features
    assert update(world, "share.version", 1, UpgradeType.SAFE_DOWNGRADE) is refused
    assert update(world, "share.version", 1) is ErrorCode.NONE
    assert update(world, "metadata.version", 25, UpgradeType.UNSAFE_DOWNGRADE) is refused
    name = "eligible.leader.replicas.version"
    assert partition(world).eligible_leader_replicas == (1,)
    assert update(world, name, 0, UpgradeType.SAFE_DOWNGRADE) is ErrorCode.NONE
    assert partition(world).eligible_leader_replicas == ()


def test_feature_updates_are_made_together_or_not_at_all() -> None:
    world = World()
    updates = [FeatureUpdate("share.version", 0, 2), FeatureUpdate("nope", 1)]
    with pytest.raises(KafkaError) as refused:
        world.take(update_features(world, *updates))
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert world.image.features["share.version"] == 1


def test_with_eligible_leader_replicas_all_brokers_count_with_one_minimum() -> None:
    world = world_with(1)
    name = "eligible.leader.replicas.version"
    update(world, name, 0, UpgradeType.SAFE_DOWNGRADE)
    own = ConfigResource(ConfigResourceType.BROKER, "1")
    world.replay(
        [
            ConfigRecord(
                resource_type=own.type,
                resource_name=own.name,
                name="min.insync.replicas",
                value="2",
            )
        ]
    )
    assert update(world, name, 1) is ErrorCode.NONE
    assert own not in world.image.configs
    assert world.image.configs[DEFAULT_BROKER_RESOURCE]["min.insync.replicas"] == "1"


def test_eligible_leader_replicas_need_a_metadata_version_that_has_records_for_them() -> None:
    world = world_with(1)
    name = "eligible.leader.replicas.version"
    update(world, name, 0, UpgradeType.SAFE_DOWNGRADE)
    world.replay([FeatureLevelRecord(name="metadata.version", feature_level=22)])
    assert update(world, name, 1) is ErrorCode.INVALID_UPDATE_VERSION
