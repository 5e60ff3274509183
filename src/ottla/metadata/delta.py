"""What a run of records changes about an image, and the image after it.

Subscribers read a delta to learn what to do without rescanning the cluster: which topics and
partitions are new, changed or gone, whose configuration moved, which brokers came or went.

Pure; owned by whoever replays. Invariants: `apply` copies each touched map once, so replaying n
records costs O(n + sizes of touched maps); a delta is never replayed into after `apply`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import UUID

from ottla.config.resources import ConfigResourceType
from ottla.metadata.image import (
    BrokerImage,
    ConfigResource,
    ControllerImage,
    FeatureRange,
    MetadataImage,
    PartitionImage,
    QuotaEntityKey,
    ScramKey,
    TopicImage,
)
from ottla.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RecordFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import Epoch, Offset

K = TypeVar("K")
V = TypeVar("V")


class MapChanges(Generic[K, V]):
    """A map and what changed about it; None marks a removed key."""

    __slots__ = ("base", "changed")

    def __init__(self, base: Mapping[K, V]) -> None:
        self.base = base
        self.changed: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        return self.changed[key] if key in self.changed else self.base.get(key)

    def set(self, key: K, value: V) -> None:
        self.changed[key] = value

    def remove(self, key: K) -> None:
        self.changed[key] = None

    def apply(self) -> Mapping[K, V]:
        if not self.changed:
            return self.base
        result = dict(self.base)
        for key, value in self.changed.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = value
        return result


class TopicDelta:
    """One topic that is new or has new or changed partitions."""

    __slots__ = ("changed", "name", "previous", "topic_id")

    def __init__(self, name: str, topic_id: UUID, previous: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.previous = previous  # None for a topic that is new
        self.changed: dict[int, PartitionImage] = {}

    def partition(self, partition_id: int) -> PartitionImage | None:
        found = self.changed.get(partition_id)
        if found is None and self.previous is not None:
            found = self.previous.partitions.get(partition_id)
        return found

    def partition_ids(self) -> list[int]:
        before = () if self.previous is None else self.previous.partitions
        return sorted({*before, *self.changed})

    def apply(self) -> TopicImage:
        before = {} if self.previous is None else self.previous.partitions
        return TopicImage(self.name, self.topic_id, {**before, **self.changed})


class MetadataDelta:
    def __init__(self, previous: MetadataImage) -> None:
        self.previous = previous
        self.topics: dict[bytes, TopicDelta] = {}  # by raw id: new or with changed partitions
        self.deleted_topics: dict[bytes, TopicImage] = {}  # as they were before
        self.brokers: MapChanges[int, BrokerImage] = MapChanges(previous.brokers)
        self.controllers: MapChanges[int, ControllerImage] = MapChanges(previous.controllers)
        self.configs: MapChanges[ConfigResource, dict[str, str]] = MapChanges(
            previous.configs  # type: ignore[arg-type]  # read-only until copied by _change_one
        )
        self.features: MapChanges[str, int] = MapChanges(previous.features)
        self.client_quotas: MapChanges[QuotaEntityKey, dict[str, float]] = MapChanges(
            previous.client_quotas  # type: ignore[arg-type]  # read-only until copied
        )
        self.acls: MapChanges[UUID, AccessControlEntryRecord] = MapChanges(previous.acls)
        self.scram: MapChanges[ScramKey, UserScramCredentialRecord] = MapChanges(previous.scram)
        self.delegation_tokens: MapChanges[str, DelegationTokenRecord] = MapChanges(
            previous.delegation_tokens
        )
        self.next_producer_id = previous.next_producer_id

    def replay_all(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            self.replay(record)

    def apply(self, *, offset: Offset, epoch: Epoch, timestamp_ms: int) -> MetadataImage:
        """The image after every replayed record, the last of which lies at `offset`."""
        previous = self.previous
        topics, by_id = previous.topics, previous.topics_by_raw_id
        if self.topics or self.deleted_topics:
            new_topics, new_by_id = dict(topics), dict(by_id)
            for raw_id, topic in self.deleted_topics.items():
                del new_topics[topic.name]
                del new_by_id[raw_id]
            for raw_id, delta in self.topics.items():
                new_topics[delta.name] = new_by_id[raw_id] = delta.apply()
            topics, by_id = new_topics, new_by_id
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            topics=topics,
            topics_by_raw_id=by_id,
            brokers=self.brokers.apply(),
            controllers=self.controllers.apply(),
            configs=self.configs.apply(),
            features=self.features.apply(),
            next_producer_id=self.next_producer_id,
            client_quotas=self.client_quotas.apply(),
            acls=self.acls.apply(),
            scram=self.scram.apply(),
            delegation_tokens=self.delegation_tokens.apply(),
            static_configs=previous.static_configs,
        )

    @property
    def changed_configs(self) -> frozenset[ConfigResource]:
        return frozenset(self.configs.changed)

    def replay(self, record: MetadataRecord) -> None:
        """Take one record into account; one that contradicts the log before it is a defect."""
        REPLAYERS[type(record)](self, record)

    def _topic(self, topic_id: UUID) -> TopicDelta:
        raw_id = topic_id.bytes
        delta = self.topics.get(raw_id)
        if delta is None:
            previous = self.previous.topics_by_raw_id.get(raw_id)
            if previous is None or raw_id in self.deleted_topics:
                raise InvariantError(f"the metadata log names topic id {topic_id}, which is not")
            delta = TopicDelta(previous.name, topic_id, previous)
            self.topics[raw_id] = delta
        return delta

    def _replay_topic(self, record: TopicRecord) -> None:
        self.topics[record.topic_id.bytes] = TopicDelta(record.name, record.topic_id, None)

    def _replay_partition(self, record: PartitionRecord) -> None:
        partition = PartitionImage.from_record(record)
        self._topic(record.topic_id).changed[record.partition_id] = partition

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partition(record.partition_id)
        if partition is None:
            raise InvariantError(
                f"the metadata log changes {topic.name}-{record.partition_id}, which is not"
            )
        topic.changed[record.partition_id] = partition.changed_by(record)

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        raw_id = record.topic_id.bytes
        del self.topics[raw_id]
        if topic.previous is not None:
            self.deleted_topics[raw_id] = topic.previous
        resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
        if self.configs.get(resource) is not None:
            self.configs.remove(resource)

    def _replay_clear_elr(self, record: ClearElrRecord) -> None:
        touched = {delta.topic_id for delta in self.topics.values()}
        untouched = {
            topic.topic_id
            for raw_id, topic in self.previous.topics_by_raw_id.items()
            if raw_id not in self.deleted_topics
        }
        for topic_id in touched | untouched:
            topic = (
                self.topics.get(topic_id.bytes) or self.previous.topics_by_raw_id[topic_id.bytes]
            )
            if record.topic_name and topic.name != record.topic_name:
                continue
            delta = self._topic(topic_id)
            for partition_id in delta.partition_ids():
                partition = delta.partition(partition_id)
                if partition is not None and (
                    partition.eligible_leader_replicas or partition.last_known_elr
                ):
                    delta.changed[partition_id] = partition._replace(
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                        partition_epoch=partition.partition_epoch + 1,
                    )

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        _change_one(self.configs, resource, record.name, record.value)

    def _replay_client_quota(self, record: ClientQuotaRecord) -> None:
        value = None if record.remove else record.value
        _change_one(self.client_quotas, frozenset(record.entity), record.key, value)

    def _replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers.set(
            record.broker_id,
            BrokerImage(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=record.end_points,
                features=_feature_ranges(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=record.log_dirs,
                cordoned_log_dirs=record.cordoned_log_dirs,
            ),
        )

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InvariantError(
                f"the metadata log names epoch {epoch} of broker {broker_id}, which is"
                f" {'not registered' if broker is None else f'at epoch {broker.epoch}'}"
            )
        return broker

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self.brokers.remove(record.broker_id)

    def _replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers.set(record.id, replace(self._broker(record.id, record.epoch), fenced=True))

    def _replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers.set(record.id, replace(self._broker(record.id, record.epoch), fenced=False))

    def _replay_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = replace(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
        if record.log_dirs:
            broker = replace(broker, log_dirs=record.log_dirs)
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned_log_dirs=record.cordoned_log_dirs)
        self.brokers.set(record.broker_id, broker)

    def _replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers.set(
            record.controller_id,
            ControllerImage(
                record.controller_id,
                record.incarnation_id,
                record.end_points,
                _feature_ranges(record.features),
            ),
        )

    def _replay_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.features.remove(record.name)
        else:
            self.features.set(record.name, record.feature_level)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _replay_acl(self, record: AccessControlEntryRecord) -> None:
        self.acls.set(record.id, record)

    def _replay_remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.remove(record.id)

    def _replay_scram(self, record: UserScramCredentialRecord) -> None:
        self.scram.set((record.name, record.mechanism), record)

    def _replay_remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram.remove((record.name, record.mechanism))

    def _replay_delegation_token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens.set(record.token_id, record)

    def _replay_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens.remove(record.token_id)

    def _ignore(self, _record: MetadataRecord) -> None:
        """Transaction marks are resolved before replay; the others carry no state."""


def _change_one(changes: MapChanges[K, dict[str, V]], key: K, name: str, value: V | None) -> None:
    """Set or, with None, drop one value of the map under `key`; an empty map goes itself."""
    values = changes.changed.get(key)
    if values is None:  # not copied yet, or removed
        values = {} if key in changes.changed else dict(changes.base.get(key, {}))
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
    if values:
        changes.set(key, values)
    else:
        changes.remove(key)


def _feature_ranges(features: Sequence[RecordFeature]) -> dict[str, FeatureRange]:
    return {
        feature.name: FeatureRange(feature.min_supported_version, feature.max_supported_version)
        for feature in features
    }


REPLAYERS: dict[type[MetadataRecord], Callable[[MetadataDelta, Any], None]] = {
    RegisterBrokerRecord: MetadataDelta._replay_register_broker,
    UnregisterBrokerRecord: MetadataDelta._replay_unregister_broker,
    TopicRecord: MetadataDelta._replay_topic,
    PartitionRecord: MetadataDelta._replay_partition,
    ConfigRecord: MetadataDelta._replay_config,
    PartitionChangeRecord: MetadataDelta._replay_partition_change,
    FenceBrokerRecord: MetadataDelta._replay_fence_broker,
    UnfenceBrokerRecord: MetadataDelta._replay_unfence_broker,
    RemoveTopicRecord: MetadataDelta._replay_remove_topic,
    DelegationTokenRecord: MetadataDelta._replay_delegation_token,
    UserScramCredentialRecord: MetadataDelta._replay_scram,
    FeatureLevelRecord: MetadataDelta._replay_feature_level,
    ClientQuotaRecord: MetadataDelta._replay_client_quota,
    ProducerIdsRecord: MetadataDelta._replay_producer_ids,
    BrokerRegistrationChangeRecord: MetadataDelta._replay_broker_change,
    AccessControlEntryRecord: MetadataDelta._replay_acl,
    RemoveAccessControlEntryRecord: MetadataDelta._replay_remove_acl,
    NoOpRecord: MetadataDelta._ignore,
    ZkMigrationStateRecord: MetadataDelta._ignore,
    RemoveUserScramCredentialRecord: MetadataDelta._replay_remove_scram,
    BeginTransactionRecord: MetadataDelta._ignore,
    EndTransactionRecord: MetadataDelta._ignore,
    AbortTransactionRecord: MetadataDelta._ignore,
    RemoveDelegationTokenRecord: MetadataDelta._replay_remove_delegation_token,
    RegisterControllerRecord: MetadataDelta._replay_register_controller,
    ClearElrRecord: MetadataDelta._replay_clear_elr,
}
