"""Tells the rooms below what a committed metadata change means for this broker.

It reads the delta, never the whole image: a new topic among ten thousand costs what one topic
costs. Topic configuration is resolved here (topic over broker over default) and kept until
either changes.

Owned by the event loop's thread.
"""

from collections.abc import Callable

from ottla.config.broker import BrokerConfig
from ottla.config.describe import Descriptions
from ottla.config.resources import ConfigResourceType
from ottla.config.topic import TopicConfig
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import (
    DEFAULT_BROKER_RESOURCE,
    EMPTY_IMAGE,
    ConfigResource,
    MetadataImage,
    PartitionImage,
)
from ottla.protocol.ids import BrokerId, Epoch
from ottla.replication.partition import PartitionState
from ottla.replication.replica_manager import AssignedPartition, ReplicaManager


class ConfigView:
    """The configuration in force, of the broker and of each topic."""

    def __init__(self, static: BrokerConfig) -> None:
        self._image = EMPTY_IMAGE
        self._take_broker(static)

    def _take_broker(self, broker: BrokerConfig) -> None:
        self.broker = broker
        self.descriptions = Descriptions(broker)
        # Most topics have no settings of their own; ten thousand of them share one config.
        self._plain_topic = TopicConfig.from_stored({}, broker)
        self._topics: dict[str, TopicConfig] = {}

    def topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            settings = self._image.topic_config(name)
            config = TopicConfig.from_stored(settings, self.broker) if settings else None
            config = self._topics[name] = config or self._plain_topic
        return config

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> list[str] | None:
        """Take the new settings; the topics that are affected, None for all of them."""
        self._image = image
        own = ConfigResource(ConfigResourceType.BROKER, str(self.broker.node_id))
        changed = delta.changed_configs
        if own in changed or DEFAULT_BROKER_RESOURCE in changed:
            self._take_broker(
                self.broker.with_dynamic(
                    default=image.configs.get(DEFAULT_BROKER_RESOURCE, {}),
                    broker=image.configs.get(own, {}),
                )
            )
            return None
        topics = [one.name for one in changed if one.type == ConfigResourceType.TOPIC]
        for name in topics:
            self._topics.pop(name, None)
        return topics


class Publisher:
    """A subscriber of the metadata node."""

    def __init__(
        self,
        broker_id: BrokerId,
        configs: ConfigView,
        replicas: ReplicaManager,
        on_topic_deleted: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._configs = configs
        self._replicas = replicas
        self._on_topic_deleted = on_topic_deleted
        self._is_first = True  # the first delta tells of everything that was here before

    def __call__(self, image: MetadataImage, delta: MetadataDelta) -> None:
        affected = self._configs.on_metadata(image, delta)
        for topic in delta.deleted_topics.values():
            for index in topic.partitions:
                self._replicas.remove(topic.name, index)
            self._on_topic_deleted(topic.name)
        for changed in delta.topics.values():
            for index, partition in changed.changed.items():
                if self._broker_id in partition.replicas:
                    self._replicas.assign(
                        AssignedPartition(
                            changed.name,
                            index,
                            changed.topic_id,
                            _state(partition),
                            partition.directory_of(self._broker_id),
                            is_new=not self._is_first,
                        )
                    )
                else:
                    self._replicas.remove(changed.name, index)
        self._replicas.on_configs_changed(affected)
        self._is_first = False


def _state(partition: PartitionImage) -> PartitionState:
    return PartitionState(
        BrokerId(partition.leader),
        Epoch(partition.leader_epoch),
        partition.partition_epoch,
        tuple(map(BrokerId, partition.isr)),
        tuple(map(BrokerId, partition.replicas)),
    )
