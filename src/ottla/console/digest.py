"""One view of the cluster as the rows that pages and the API show. Pure.

Sums over every partition are made once for each view, not once for each viewer: the console keeps
one digest until the sampler has looked again.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from ottla.console.history import History
from ottla.console.kafka.model import ClusterView, TopicPartition

# Nobody waits this long on purpose: a group whose lag would take longer to read is in trouble.
SLOW_GROUP_S = 300.0


class TopicRow(NamedTuple):
    name: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    record_count: int
    size_bytes: int | None
    rate: float
    group_count: int
    lag_max: int | None
    offline_count: int
    under_replicated_count: int


class GroupRow(NamedTuple):
    group_id: str
    state: str
    group_type: str
    protocol_type: str
    coordinator: int
    is_rebalancing: bool
    topic_count: int
    partition_count: int
    lag: int | None
    rate: float
    behind_s: float | None  # how old its oldest unread record is, by the rate of production


class TopicLag(NamedTuple):
    group_id: str
    state: str
    lag: int
    rate: float


class BrokerRow(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leader_count: int
    replica_count: int
    not_in_isr_count: int
    rate: float
    size_bytes: int
    offline_directory_count: int


class Check(NamedTuple):
    """One answer to "is it well?"."""

    severity: str  # good, warn, bad
    title: str
    detail: str
    href: str


class Digest:
    """Everything that can be added up from one view."""

    def __init__(
        self,
        view: ClusterView,
        topic_rates: History,
        partition_rates: dict[TopicPartition, float],
        group_rates: dict[str, float],
    ) -> None:
        self.view = view
        self._topic_rates = topic_rates
        self._partition_rates = partition_rates
        self._group_rates = group_rates

    @cached_property
    def lags_by_topic(self) -> dict[str, dict[str, int]]:
        """topic -> group -> lag."""
        lags: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        view = self.view
        for group_id, offsets in view.committed.items():
            for partition, committed in offsets.items():
                lags[partition[0]][group_id] += view.partition_lag(partition, committed)
        return lags

    @cached_property
    def topics(self) -> dict[str, TopicRow]:
        view = self.view
        records: dict[str, int] = defaultdict(int)
        for partition, end in view.end_offsets.items():
            records[partition[0]] += end - view.start_offsets.get(partition, 0)
        sizes: dict[str, int] = defaultdict(int)
        for (name, _), size in view.sizes.items():
            sizes[name] += size
        rows = {}
        for name, topic in view.metadata.topics.items():
            lags = self.lags_by_topic.get(name, {})
            rows[name] = TopicRow(
                name,
                topic.is_internal or name.startswith("__"),
                len(topic.partitions),
                topic.replication_factor,
                records[name],
                sizes.get(name),
                self._topic_rates.newest(name) or 0.0,
                len(lags),
                max(lags.values(), default=None),
                topic.offline_count,
                topic.under_replicated_count,
            )
        return rows

    @cached_property
    def groups(self) -> dict[str, GroupRow]:
        rows = {}
        for group_id, group in self.view.groups.items():
            offsets = self.view.committed.get(group_id, {})
            topics = {name for name, _ in offsets}
            lag = self.view.lag_of(group_id)
            rows[group_id] = GroupRow(
                group_id,
                group.state,
                group.group_type,
                group.protocol_type,
                group.coordinator,
                group.is_rebalancing,
                len(topics),
                len(offsets),
                lag,
                self._group_rates.get(group_id, 0.0),
                self._behind_s(lag, topics),
            )
        return rows

    @cached_property
    def brokers(self) -> list[BrokerRow]:
        metadata = self.view.metadata
        leaders: dict[int, int] = defaultdict(int)
        replicas: dict[int, int] = defaultdict(int)
        absent: dict[int, int] = defaultdict(int)
        rates: dict[int, float] = defaultdict(float)
        for topic in metadata.topics.values():
            for partition in topic.partitions:
                leaders[partition.leader] += 1
                rates[partition.leader] += self._partition_rates.get(
                    (topic.name, partition.number), 0.0
                )
                for replica in partition.replicas:
                    replicas[replica] += 1
                for replica in set(partition.replicas) - set(partition.isr):
                    absent[replica] += 1
        sizes: dict[int, int] = defaultdict(int)
        offline: dict[int, int] = defaultdict(int)
        for directory in self.view.log_directories:
            sizes[directory.broker_id] += directory.partition_bytes
            offline[directory.broker_id] += directory.error is not None
        return [
            BrokerRow(
                broker.broker_id,
                broker.host,
                broker.port,
                broker.rack,
                broker.broker_id == metadata.controller_id,
                leaders[broker.broker_id],
                replicas[broker.broker_id],
                absent[broker.broker_id],
                rates[broker.broker_id],
                sizes[broker.broker_id],
                offline[broker.broker_id],
            )
            for broker in metadata.brokers.values()
        ]

    def groups_of_topic(self, name: str) -> list[TopicLag]:
        """The groups that committed offsets of a topic, the slowest first."""
        rows = [
            TopicLag(
                group_id,
                self.view.groups[group_id].state,
                lag,
                self._group_rates.get(group_id, 0.0),
            )
            for group_id, lag in self.lags_by_topic.get(name, {}).items()
            if group_id in self.view.groups
        ]
        return sorted(rows, key=lambda row: (-row.lag, row.group_id))

    @cached_property
    def slowest_groups(self) -> list[GroupRow]:
        rows = [row for row in self.groups.values() if row.lag is not None]
        return sorted(rows, key=lambda row: (-(row.lag or 0), row.group_id))

    @cached_property
    def troubled_topics(self) -> list[TopicRow]:
        rows = [r for r in self.topics.values() if r.offline_count or r.under_replicated_count]
        return sorted(rows, key=lambda r: (-r.offline_count, -r.under_replicated_count, r.name))

    @cached_property
    def checks(self) -> list[Check]:
        """Everything that is not well; nothing if all is."""
        view = self.view
        checks = []
        if view.trouble is not None:
            checks.append(Check("bad", "The cluster does not answer", view.trouble, "/brokers"))
        offline = sum(row.offline_count for row in self.topics.values())
        if offline:
            text = f"{offline:,} partition{_s(offline)} without a leader"
            checks.append(Check("bad", text, "Nobody can read or write them.", "/topics?trouble=1"))
        under = sum(row.under_replicated_count for row in self.topics.values())
        if under:
            text = f"{under:,} under-replicated partition{_s(under)}"
            checks.append(Check("warn", text, "A replica is down or behind.", "/topics?trouble=1"))
        for directory in view.log_directories:
            if directory.error is not None:
                text = f"Log directory {directory.path} of broker {directory.broker_id} is offline"
                checks.append(Check("bad", text, directory.error, "/brokers"))
        slow = [
            row
            for row in self.groups.values()
            if row.behind_s is not None and row.behind_s > SLOW_GROUP_S
        ]
        if slow:
            text = f"{len(slow):,} group{_s(len(slow))} more than five minutes behind"
            checks.append(Check("warn", text, slow[0].group_id, "/groups?sort=-lag"))
        rebalancing = [row for row in self.groups.values() if row.is_rebalancing]
        if rebalancing:
            text = f"{len(rebalancing):,} group{_s(len(rebalancing))} rebalancing"
            checks.append(Check("warn", text, rebalancing[0].group_id, "/groups"))
        return checks

    def _behind_s(self, lag: int | None, topics: set[str]) -> float | None:
        if not lag:
            return None
        rate = sum(self._topic_rates.newest(name) or 0.0 for name in topics)
        return lag / rate if rate > 0 else None


def _s(count: int) -> str:
    return "" if count == 1 else "s"
