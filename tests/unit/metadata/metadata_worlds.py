"""Small clusters for the tests of this room, built only by replaying decisions."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from ottla.metadata.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    decide_heartbeat,
    decide_register_broker,
)
from ottla.metadata.decision import Decision
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import (
    RELEASE_FEATURES,
    feature_level_records,
    supported_feature_records,
)
from ottla.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from ottla.metadata.records import MetadataRecord, RecordEndpoint
from ottla.metadata.topics import NewTopic, TopicDefaults, decide_create_topics
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import Epoch, Offset

T = TypeVar("T")


class World:
    """An image that moves on with each decision, and the records that moved it."""

    def __init__(self, seed: int = 1, *, features: dict[str, int] | None = None) -> None:
        self.random = Random(seed)
        self.history: list[MetadataRecord] = []
        self.image = EMPTY_IMAGE
        levels = dict(RELEASE_FEATURES) if features is None else features
        self.replay(feature_level_records(levels))

    def new_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128))

    def replay(self, records: Sequence[MetadataRecord]) -> None:
        if records:
            self.history += records
            self.image = replayed(self.image, records)

    def take(self, decision: Decision[T]) -> T:
        self.replay(decision.records)
        return decision.response

    def add_broker(
        self, broker_id: int, *, rack: str | None = None, unfence: bool = True, clean: bool = True
    ) -> int:
        known = self.image.brokers.get(broker_id)
        registration = BrokerRegistration(
            broker_id,
            self.new_id(),
            (RecordEndpoint("PLAINTEXT", f"host{broker_id}", 9092, 0),),
            supported_feature_records(),
            rack,
            (UUID(int=1000 + broker_id),),
            known.epoch if known is not None and clean else -1,
        )
        epoch = self.take(decide_register_broker(self.image, registration))
        if unfence:
            self.heartbeat(broker_id)
        return epoch

    def heartbeat(self, broker_id: int, *, fence: bool = False, shut_down: bool = False) -> None:
        epoch = self.image.brokers[broker_id].epoch
        beat = BrokerHeartbeat(broker_id, epoch, self.image.offset, fence, shut_down)
        self.take(decide_heartbeat(self.image, beat))

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[ErrorCode]:
        decision = decide_create_topics(
            self.image,
            topics,
            defaults=TopicDefaults(num_partitions=2, replication_factor=1),
            chance=self.random,
            new_id=self.new_id,
            check_config=refuse_bad_config,
            validate_only=validate_only,
        )
        return [result.error_code for result in self.take(decision)]


def refuse_bad_config(resource: ConfigResource, configs: object) -> None:
    if "bad" in str(configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "bad")


def replayed(image: MetadataImage, records: Sequence[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(offset=Offset(image.offset + len(records)), epoch=Epoch(1), timestamp_ms=0)


def check_invariants(image: MetadataImage) -> None:
    """What must hold after any history."""
    assert len(image.topics) == len(image.topics_by_raw_id)
    for name, topic in image.topics.items():
        assert topic.name == name
        assert image.topics_by_raw_id[topic.topic_id.bytes] is topic
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            replicas, isr = set(partition.replicas), set(partition.isr)
            elr = set(partition.eligible_leader_replicas)
            assert len(replicas) == len(partition.replicas) == len(partition.directories)
            assert isr <= replicas
            assert elr <= replicas
            assert not isr & elr
            assert partition.leader == -1 or partition.leader in isr
            assert partition.leader_epoch <= partition.partition_epoch
