"""One view of the cluster as the rows that pages and the API show. Pure.

Sums over every partition are made once for each view, not once for each viewer: the console keeps
one digest until the sampler has looked again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ottla.console.kafka.model import ClusterView, GroupDescription, TopicPartition
from ottla.console.pipelines import PipelineRow, with_group_lag

# Nobody waits this long on purpose: a group whose oldest unread record is older is in trouble.
SLOW_GROUP_S = 300.0
# Of a volume: beyond the first, somebody should look; beyond the second, a log may not fit soon.
DISK_USED_WARN = 0.85
DISK_USED_BAD = 0.95
# A coordinator ends what is overdue within seconds; what is open for longer, it cannot end.
OVERDUE_MS = 60_000


class Figures(NamedTuple):
    """What the sampler made of several views; empty while nothing is known of now."""

    partition_rates: Mapping[TopicPartition, float]
    topic_rates: Mapping[str, float]
    consumed: Mapping[tuple[str, str], float]  # by group and topic
    behind_s: Mapping[str, float]  # by group, where it is behind


NO_FIGURES = Figures({}, {}, {}, {})


class TopicRow(NamedTuple):
    name: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    record_count: int
    size_bytes: int | None
    rate: float | None  # None: not known now
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
    rate: float | None
    behind_s: float | None  # how old its oldest unread record is, at least
    sink_batch: int | None  # the next batch of the sink whose marker this group is


class TopicLag(NamedTuple):
    group_id: str
    state: str
    lag: int
    rate: float | None


class LagRow(NamedTuple):
    """One partition of a group."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    lag: int | None
    member: str
    client: str


class BrokerRow(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leader_count: int
    replica_count: int
    not_in_isr_count: int
    rate: float | None
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
        figures: Figures,
        pipelines: Sequence[PipelineRow] = (),
        now_ms: int = 0,
    ) -> None:
        self.view = view
        self.figures = figures
        self._pipelines = pipelines
        self._now_ms = now_ms

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
                self.figures.topic_rates.get(name),
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
            rates = [self.figures.consumed.get((group_id, name)) for name in topics]
            known = [one for one in rates if one is not None]
            rows[group_id] = GroupRow(
                group_id,
                group.state,
                group.group_type,
                group.protocol_type,
                group.coordinator,
                group.is_rebalancing,
                len(topics),
                len(offsets),
                self.view.lag_of(group_id),
                sum(known) if known else None,
                self.figures.behind_s.get(group_id),
                self.view.markers.get(group_id),
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
                key = (topic.name, partition.number)
                rates[partition.leader] += self.figures.partition_rates.get(key, 0.0)
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
                rates[broker.broker_id] if self.figures.partition_rates else None,
                sizes[broker.broker_id],
                offline[broker.broker_id],
            )
            for broker in metadata.brokers.values()
        ]

    @cached_property
    def pipelines(self) -> list[PipelineRow]:
        lags = {group_id: row.lag for group_id, row in self.groups.items()}
        return [with_group_lag(row, lags) for row in self._pipelines]

    def groups_of_topic(self, name: str) -> list[TopicLag]:
        """The groups that committed offsets of a topic, the slowest first."""
        rows = [
            TopicLag(
                group_id,
                self.view.groups[group_id].state,
                lag,
                self.figures.consumed.get((group_id, name)),
            )
            for group_id, lag in self.lags_by_topic.get(name, {}).items()
            if group_id in self.view.groups
        ]
        return sorted(rows, key=lambda row: (-row.lag, row.group_id))

    def partitions_of_group(
        self, group_id: str, description: GroupDescription | None
    ) -> list[LagRow]:
        """Every partition that a group committed or is assigned, the slowest first."""
        view = self.view
        committed = view.committed.get(group_id, {})
        owners: dict[TopicPartition, tuple[str, str]] = {}
        for member in description.members if description else ():
            for key in member.assignment:
                owners[key] = (member.member_id, member.client_id)
        rows = []
        for key in sorted(committed.keys() | owners.keys()):
            offset = committed.get(key)
            owner, client = owners.get(key, ("", ""))
            lag = None if offset is None else view.partition_lag(key, offset)
            rows.append(LagRow(*key, offset, view.end_offsets.get(key), lag, owner, client))
        return sorted(rows, key=lambda one: (-(one.lag or 0), one.topic, one.partition))

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
        found = [
            *self._broker_checks(),
            *self._partition_checks(),
            *self._directory_checks(),
            *self._group_checks(),
            *self._transaction_checks(),
            *self._pipeline_checks(),
        ]
        return sorted(found, key=lambda check: check.severity != "bad")

    def _broker_checks(self) -> Iterator[Check]:
        view = self.view
        if view.trouble is not None:
            yield Check("bad", "The cluster does not answer", view.trouble, "/brokers")
            return
        for broker_id, why in view.group_troubles.items():
            yield Check("warn", f"Broker {broker_id} does not tell its groups", why, "/groups")

    def _partition_checks(self) -> Iterator[Check]:
        offline = sum(row.offline_count for row in self.topics.values())
        if offline:
            text = f"{offline:,} partition{_s(offline)} without a leader"
            yield Check("bad", text, "Nobody can read or write them.", "/topics?trouble=1")
        under = sum(row.under_replicated_count for row in self.topics.values())
        if under:
            text = f"{under:,} under-replicated partition{_s(under)}"
            yield Check("warn", text, "A replica is down or behind.", "/topics?trouble=1")

    def _directory_checks(self) -> Iterator[Check]:
        for directory in self.view.log_directories:
            what = f"{directory.path} of broker {directory.broker_id}"
            if directory.error is not None:
                yield Check("bad", f"Log directory {what} is offline", directory.error, "/brokers")
            elif (used := directory.used_share) is not None and used >= DISK_USED_WARN:
                severity = "bad" if used >= DISK_USED_BAD else "warn"
                text = f"The volume of {what} is {used:.0%} full"
                yield Check(severity, text, "A log that cannot grow stops its broker.", "/brokers")

    def _group_checks(self) -> Iterator[Check]:
        rows = self.groups.values()
        slow = [row for row in rows if row.behind_s is not None and row.behind_s > SLOW_GROUP_S]
        if slow:
            text = f"{len(slow):,} group{_s(len(slow))} more than five minutes behind"
            yield Check("warn", text, slow[0].group_id, "/groups?sort=-behind")
        rebalancing = [row for row in rows if row.is_rebalancing]
        if rebalancing:
            text = f"{len(rebalancing):,} group{_s(len(rebalancing))} rebalancing"
            yield Check("warn", text, rebalancing[0].group_id, "/groups?sort=state")

    def _transaction_checks(self) -> Iterator[Check]:
        overdue = [
            one
            for one in self.view.open_transactions
            if (one.age_ms(self._now_ms) or 0) > one.timeout_ms + OVERDUE_MS
        ]
        if overdue:
            text = f"{len(overdue):,} transaction{_s(len(overdue))} open beyond the timeout"
            detail = f"{overdue[0].transactional_id}: who reads committed records waits for it."
            yield Check("bad", text, detail, "/transactions")

    def _pipeline_checks(self) -> Iterator[Check]:
        for one in self.pipelines:
            if one.tone == "bad":
                text = f"Pipeline {one.name} is {one.state}"
                detail = one.last_error or "Its supervisor is gone."
                yield Check("bad", text, detail, "/pipelines")


def _s(count: int) -> str:
    return "" if count == 1 else "s"
