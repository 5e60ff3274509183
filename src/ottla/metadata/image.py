"""What the cluster looks like after a given offset of the metadata log.

A `MetadataImage` never changes; readers keep one and stay consistent for as long as they like.
Applying records one by one to immutable maps would copy a map per record, so a `MetadataDelta`
(metadata/delta.py) collects what many records change and copies each touched map once.

Pure. Invariants: `topics` and `topics_by_raw_id` hold the same TopicImage objects; partitions
of a topic are numbered from 0 without gaps; maps are never mutated after construction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.config.resources import ConfigResourceType
from ottla.metadata.records import (
    NO_LEADER,
    AccessControlEntryRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    RecordEndpoint,
    UserScramCredentialRecord,
)
from ottla.protocol.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset

# What stands for a log directory where no id does (KIP-858).
MIGRATING_DIRECTORY = UUID(int=0)  # the broker knows no directories, or did not when it said so
UNASSIGNED_DIRECTORY = UUID(int=1)  # the broker has not said yet where the replica lies
LOST_DIRECTORY = UUID(int=2)  # one that failed; which, is not known


class ConfigResource(NamedTuple):
    """Whose configuration; BROKER with an empty name is the default of all brokers."""

    type: int
    name: str


DEFAULT_BROKER_RESOURCE = ConfigResource(ConfigResourceType.BROKER, "")


class PartitionImage(NamedTuple):
    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int  # -1 for none
    leader_recovery_state: int  # 1 after an unclean election that has not recovered
    leader_epoch: int
    partition_epoch: int

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "PartitionImage":
        directories = record.directories or (MIGRATING_DIRECTORY,) * len(record.replicas)
        return cls(
            record.replicas,
            directories,
            record.isr,
            record.removing_replicas,
            record.adding_replicas,
            record.eligible_leader_replicas or (),
            record.last_known_elr or (),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
        )

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionImage":
        """The partition after `record`; naming a leader bumps the leader epoch, even the same."""
        leader, leader_epoch = self.leader, self.leader_epoch
        if record.leader >= NO_LEADER:
            leader, leader_epoch = record.leader, leader_epoch + 1
        recovery = record.leader_recovery_state
        return PartitionImage(
            self.replicas if record.replicas is None else record.replicas,
            self.directories if record.directories is None else record.directories,
            self.isr if record.isr is None else record.isr,
            _either(record.removing_replicas, self.removing_replicas),
            _either(record.adding_replicas, self.adding_replicas),
            _either(record.eligible_leader_replicas, self.eligible_leader_replicas),
            _either(record.last_known_elr, self.last_known_elr),
            leader,
            self.leader_recovery_state if recovery < 0 else recovery,
            leader_epoch,
            self.partition_epoch + 1,
        )

    def directory_of(self, broker_id: int) -> UUID:
        """Where the replica on `broker_id`, which must be one, lies."""
        return self.directories[self.replicas.index(broker_id)]

    def to_record(self, topic_id: UUID, partition_id: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories,
            eligible_leader_replicas=self.eligible_leader_replicas or None,
            last_known_elr=self.last_known_elr or None,
        )


def _either(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else new


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]


class FeatureRange(NamedTuple):
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    broker_id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[RecordEndpoint, ...]
    features: Mapping[str, FeatureRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    cordoned_log_dirs: tuple[UUID, ...] | None

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def open_log_dirs(self) -> tuple[UUID, ...]:
        """Those that may get new partitions; all of them where none may."""
        cordoned = self.cordoned_log_dirs or ()
        return tuple(one for one in self.log_dirs if one not in cordoned) or self.log_dirs

    @property
    def is_cordoned(self) -> bool:
        """Whether no directory is left for new partitions."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs or ())

    def has_online_directory(self, directory: UUID) -> bool:
        """Whether a replica that lies there can be used; one that lies nowhere yet can."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        # A broker that names no directories registered before directories had ids.
        return directory != LOST_DIRECTORY and (not self.log_dirs or directory in self.log_dirs)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[RecordEndpoint, ...]
    features: Mapping[str, FeatureRange]


QuotaEntityKey = frozenset[QuotaEntity]
ScramKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    offset: Offset = NO_OFFSET  # the last one contained
    epoch: Epoch = NO_EPOCH
    timestamp_ms: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_raw_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    client_quotas: Mapping[QuotaEntityKey, Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[UUID, AccessControlEntryRecord] = field(default_factory=dict)
    scram: Mapping[ScramKey, UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)
    # Not from the log: what this node's server.properties says where nobody has set anything.
    static_configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def next_offset(self) -> Offset:
        """Where the next record will lie; a broker's epoch is the offset of its registration."""
        return Offset(self.offset + 1)

    def topic_with_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics_by_raw_id.get(topic_id.bytes)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for this resource alone, without defaults."""
        return self.configs.get(ConfigResource(resource_type, name), {})

    def topic_config(self, topic: str) -> Mapping[str, str]:
        return self.config(ConfigResourceType.TOPIC, topic)

    def effective_topic_config(self, topic: str, name: str) -> str | None:
        """Of the topic, else of all brokers, else of this node; None where nobody said anything."""
        for configs in (
            self.topic_config(topic),
            self.configs.get(DEFAULT_BROKER_RESOURCE, {}),
            self.static_configs,
        ):
            if name in configs:
                return configs[name]
        return None


EMPTY_IMAGE = MetadataImage()
