"""What the console knows of a cluster at one moment. Pure.

Nothing here changes: the sampler builds a new view and replaces the old one, so that a page which
is being rendered never sees half of two moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

TopicPartition = tuple[str, int]

# States in which a classic or consumer group is between two assignments.
REBALANCING_STATES = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class BrokerView(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    number: int
    leader: int  # -1: nobody leads
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class TopicView(NamedTuple):
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionView, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(p.replicas) for p in self.partitions), default=0)

    @property
    def offline_count(self) -> int:
        return sum(p.leader < 0 for p in self.partitions)

    @property
    def under_replicated_count(self) -> int:
        return sum(p.is_under_replicated for p in self.partitions)


class GroupView(NamedTuple):
    group_id: str
    state: str
    group_type: str  # classic, consumer, share or streams
    protocol_type: str
    coordinator: int

    @property
    def is_rebalancing(self) -> bool:
        return self.state in REBALANCING_STATES


class LogDirectory(NamedTuple):
    broker_id: int
    path: str
    error: str | None
    total_bytes: int  # -1: not told
    usable_bytes: int
    partition_bytes: int
    partition_count: int

    @property
    def used_share(self) -> float | None:
        """How much of the volume is used; None if the broker does not tell."""
        if self.total_bytes <= 0 or self.usable_bytes < 0:
            return None
        return 1 - self.usable_bytes / self.total_bytes


class Metadata(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]


NO_METADATA = Metadata("", -1, {}, {})


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One moment; `*_at` are seconds of the wall clock, 0 before the first answer."""

    metadata: Metadata = NO_METADATA
    metadata_at: float = 0.0
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    start_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    offsets_at: float = 0.0
    groups: Mapping[str, GroupView] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    markers: Mapping[str, int] = field(default_factory=dict)  # of sinks, kept as groups
    group_troubles: Mapping[int, str] = field(default_factory=dict)  # brokers that kept silent
    groups_at: float = 0.0
    descriptions: Mapping[str, GroupDescription] = field(default_factory=dict)
    open_transactions: tuple[TransactionView, ...] = ()
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_directories: tuple[LogDirectory, ...] = ()
    directory_troubles: Mapping[int, str] = field(default_factory=dict)
    sizes_at: float = 0.0
    trouble: str | None = None  # why the newest attempt to look at the cluster failed

    def lag_of(self, group_id: str) -> int | None:
        """Records that the group has not consumed yet; None if it never committed."""
        committed = self.committed.get(group_id)
        if not committed:
            return None
        return sum(self.partition_lag(tp, offset) for tp, offset in committed.items())

    def partition_lag(self, partition: TopicPartition, committed: int) -> int:
        """How far behind the end; a commit beyond the end, after a truncation, is no lag."""
        return max(0, self.end_offsets.get(partition, committed) - committed)

    def topic_partitions(self) -> list[TopicPartition]:
        return [
            (topic.name, partition.number)
            for topic in self.metadata.topics.values()
            for partition in topic.partitions
        ]


class MemberView(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None  # consumer protocol: where it is heading
    epoch: int | None


class GroupDescription(NamedTuple):
    group_id: str
    state: str
    group_type: str
    assignor: str
    epoch: int | None
    coordinator: int
    members: tuple[MemberView, ...]

    @property
    def generation(self) -> object:
        """What a rebalance changes: the epoch, or, of a classic group, who has what."""
        if self.epoch is not None:
            return self.epoch
        return frozenset((member.member_id, member.assignment) for member in self.members)


class Synonym(NamedTuple):
    """Where a value may come from, the one that counts first."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    type_name: str
    documentation: str
    default: str | None
    synonyms: tuple[Synonym, ...]


class ProducerView(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int


class TransactionView(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator: int

    def age_ms(self, now_ms: int) -> int | None:
        """For how long it has been open; None if it is not."""
        if self.state not in OPEN_STATES or self.started_ms <= 0:
            return None
        return max(0, now_ms - self.started_ms)


class QuorumReplica(NamedTuple):
    replica_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumView(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
