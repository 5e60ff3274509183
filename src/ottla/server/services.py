"""What a handler may reach: the rooms below, already wired for this broker."""

from dataclasses import dataclass, field
from uuid import UUID

from ottla.config.broker import BrokerConfig
from ottla.coordinators.group.coordinator import GroupCoordinator
from ottla.coordinators.transaction.coordinator import TransactionCoordinator
from ottla.coordinators.transaction.marker_writer import MarkerWriter
from ottla.metadata.image import MetadataImage
from ottla.metadata.node import MetadataNode
from ottla.protocol.ids import BrokerId
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime
from ottla.server.fetch_sessions import FetchSessions
from ottla.server.metadata_answers import MetadataAnswers
from ottla.server.metrics import Metrics
from ottla.server.producer_ids import ProducerIds
from ottla.server.publisher import ConfigView
from ottla.storage.cleaner import LogCleaner
from ottla.storage.log_manager import LogManager


@dataclass(slots=True)
class Services:
    runtime: Runtime
    configs: ConfigView
    broker_id: BrokerId
    metadata: MetadataNode
    replicas: ReplicaManager
    logs: LogManager
    cleaner: LogCleaner
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerWriter
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    metrics: Metrics = field(default_factory=Metrics)
    metadata_answers: MetadataAnswers = field(default_factory=MetadataAnswers)

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration as it is now; it changes at run time."""
        return self.configs.broker

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def topic_name(self, raw_id: bytes) -> str | None:
        topic = self.metadata.image.topics_by_raw_id.get(raw_id)
        return None if topic is None else topic.name

    def topic_id(self, topic: str) -> UUID | None:
        found = self.metadata.image.topics.get(topic)
        return None if found is None else found.topic_id
