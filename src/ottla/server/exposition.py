"""The broker's state as Prometheus text, gathered when someone asks.

The names are those that dashboards of Apache Kafka read already: kafka_exporter's for topics,
partitions and consumer groups, the JMX exporter's for the broker. Nothing is counted here; see
metrics.py. The text is written by hand: the client library takes 16 us for a sample and this takes
one, and a scrape holds the event loop. The library only tells of the process; it is imported when
`/metrics` is first asked for, as it costs start time and memory.

A partition whose log was never opened is as far as it was when last checkpointed. Logs that groups
read are opened, a few with each scrape, so that their lag is exact soon after a restart.

Groups times partitions may be more series than anyone stores. Beyond GROUP_PARTITIONS_MAX only
the sums over a topic are shown, and a gauge says how many partitions are missing.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import KafkaError
from ottla.replication.partition import Partition
from ottla.server.services import Services
from ottla.server.topology import NO_LEADER

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GROUP_PARTITIONS_MAX = 20_000  # 40,000 series, some 40 ms of the event loop
LOGS_OPENED_PER_SCRAPE = 64  # each takes a few reads; a scrape must not stall the broker

Sample: TypeAlias = tuple[str, float]  # the labels as text, without braces, and the value
Samples: TypeAlias = Iterable[Sample]

_TOPIC_COUNTERS = (
    ("messagesin", "Records appended", "messages_in"),
    ("bytesin", "Bytes appended", "bytes_in"),
    ("bytesout", "Bytes sent to consumers and followers", "bytes_out"),
    ("totalproducerequests", "Produce requests", "produce_requests"),
    ("totalfetchrequests", "Fetches of partitions", "fetch_requests"),
    ("failedproducerequests", "Produce requests that failed", "failed_produce_requests"),
    ("failedfetchrequests", "Fetches of partitions that failed", "failed_fetch_requests"),
)
_PARTITION_GAUGES = {
    "kafka_topic_partition_current_offset": "The high watermark",
    "kafka_topic_partition_oldest_offset": "The log start offset",
    "kafka_topic_partition_in_sync_replica": "In-sync replicas",
    "kafka_topic_partition_leader": "The leader's broker id",
    "kafka_topic_partition_leader_is_preferred": "1 if the first replica leads",
    "kafka_topic_partition_replicas": "Replicas",
    "kafka_topic_partition_under_replicated_partition": "1 if replicas are missing from the ISR",
    "kafka_log_log_size": "Bytes in the log",
}
_GROUP_GAUGES = {
    "kafka_consumergroup_members": "Members of a group",
    "kafka_consumergroup_current_offset": "The committed offset",
    "kafka_consumergroup_lag": "Records between the committed offset and the high watermark",
    "kafka_consumergroup_current_offset_sum": "Committed offsets, summed over a topic",
    "kafka_consumergroup_lag_sum": "Lag, summed over a topic",
}


def render(services: Services) -> bytes:
    """The whole page."""
    page = Page()
    _add_topic_traffic(page, services)
    _add_cluster(page, services)
    _add_partitions(page, services)
    _add_cleaner(page, services)
    _add_groups(page, services)
    _add_requests(page, services)
    return page.encode() + _process_metrics()


class Page:
    """Families of samples in the text format, version 0.0.4."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, documentation: str, samples: Samples) -> None:
        """A family with its samples; one without samples still tells that it exists."""
        lines = self._lines
        lines.append(f"# HELP {name} {documentation}")
        lines.append(f"# TYPE {name} {kind}")
        for labels, value in samples:
            # Integers stay exact; Prometheus reads them as floats itself.
            number = f"{int(value)}.0" if isinstance(value, int) else repr(value)
            lines.append(f"{name}{{{labels}}} {number}" if labels else f"{name} {number}")

    def encode(self) -> bytes:
        return "\n".join([*self._lines, ""]).encode()


def label(name: str, value: str) -> str:
    """`name="value"`, whatever the value holds."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'


def _add_topic_traffic(page: Page, services: Services) -> None:
    labelled = [(label("topic", name), found) for name, found in services.metrics.topics.items()]
    for name, documentation, attribute in _TOPIC_COUNTERS:
        page.add(
            f"kafka_server_brokertopicmetrics_{name}_total",
            "counter",
            documentation,
            [(labels, getattr(counters, attribute)) for labels, counters in labelled],
        )


def _add_requests(page: Page, services: Services) -> None:
    page.add(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        "Requests received",
        [
            (label("request", ApiKey(key).name), count)
            for key, count in services.metrics.requests.items()
        ],
    )


def _add_cluster(page: Page, services: Services) -> None:
    image = services.image
    replicas = services.replicas
    leading = [partition for partition in replicas if partition.is_leader]
    all_partitions = [one for topic in image.topics.values() for one in topic.partitions.values()]
    gauges = {
        "kafka_brokers": ("Brokers in service", sum(not b.fenced for b in image.brokers.values())),
        "kafka_server_replicamanager_leadercount": ("Partitions led here", len(leading)),
        "kafka_server_replicamanager_partitioncount": (
            "Partitions held here",
            len(replicas.partitions),
        ),
        "kafka_server_replicamanager_underreplicatedpartitions": (
            "Partitions led here with fewer in-sync replicas than replicas",
            sum(len(p.state.isr) < len(p.state.replicas) for p in leading),
        ),
        "kafka_server_replicamanager_partitionswithlatetransactionscount": (
            "Partitions led here with a transaction that should have ended",
            _late_transactions(services, leading),
        ),
        "kafka_controller_kafkacontroller_activecontrollercount": (
            "1 where this node is the active controller",
            1,
        ),
        "kafka_controller_kafkacontroller_offlinepartitionscount": (
            "Partitions without a leader",
            sum(one.leader == NO_LEADER for one in all_partitions),
        ),
        "kafka_log_logmanager_offlinelogdirectorycount": (
            "Log directories that failed",
            sum(one.failure is not None for one in services.logs.directories),
        ),
    }
    for name, (documentation, value) in gauges.items():
        page.add(name, "gauge", documentation, [("", value)])
    page.add(
        "kafka_log_logmanager_logdirectoryoffline",
        "gauge",
        "1 if this log directory failed",
        [
            (label("logDirectory", directory.path), directory.failure is not None)
            for directory in services.logs.directories
        ],
    )
    page.add(
        "ottla_log_directory_full",
        "gauge",
        "1 if this log directory refuses writes for want of room",
        [
            (label("logDirectory", directory.path), directory.fullness.cause is not None)
            for directory in services.logs.directories
        ],
    )
    page.add(
        "ottla_log_directory_refusals_total",
        "counter",
        "Writes and reads refused for want of room",
        [
            (label("logDirectory", directory.path), directory.fullness.refusals_total)
            for directory in services.logs.directories
        ],
    )


def _late_transactions(services: Services, leading: list[Partition]) -> int:
    now_ms = services.runtime.clock.wall_ms()
    timeout_ms_max = services.config.transaction_max_timeout_ms
    return sum(
        one.is_open
        and one.log.producers.has_late_transaction(
            now_ms, transaction_timeout_ms_max=timeout_ms_max
        )
        for one in leading
    )


def _add_partitions(page: Page, services: Services) -> None:
    counts: list[Sample] = []
    gauges: dict[str, list[Sample]] = {name: [] for name in _PARTITION_GAUGES}
    (current, oldest, in_sync, leader, is_preferred, replicas, is_under, size) = gauges.values()
    held = services.replicas.partitions
    for topic in services.image.topics.values():
        topic_label = label("topic", topic.name)
        counts.append((topic_label, len(topic.partitions)))
        for index, partition in topic.partitions.items():
            labels = f'{topic_label},partition="{index}"'
            isr_count, replica_count = len(partition.isr), len(partition.replicas)
            in_sync.append((labels, isr_count))
            leader.append((labels, partition.leader))
            is_preferred.append((labels, partition.leader == partition.replicas[0]))
            replicas.append((labels, replica_count))
            is_under.append((labels, isr_count < replica_count))
            found = held.get((topic.name, index))
            if found is None:
                continue
            current.append((labels, found.in_sync.high_watermark))
            if found.is_open:
                oldest.append((labels, found.log.log_start_offset))
                size.append((labels, found.log.size_bytes()))
    page.add("kafka_topic_partitions", "gauge", "Partitions", counts)
    for name, documentation in _PARTITION_GAUGES.items():
        page.add(name, "gauge", documentation, gauges[name])


def _add_cleaner(page: Page, services: Services) -> None:
    metrics = services.cleaner.metrics
    recopied = metrics.bytes_written / metrics.bytes_read if metrics.bytes_read else 0.0
    since_ms = services.runtime.clock.wall_ms() - metrics.last_round_ms
    gauges = {
        "logcleaner_cleaner_recopy_percent": ("Share of cleaned bytes that stayed", 100 * recopied),
        "logcleaner_max_buffer_utilization_percent": (
            "How full the offset map of the last cleaning was",
            100 * metrics.buffer_utilization,
        ),
        "logcleaner_max_clean_time_secs": ("Seconds of the last cleaning", metrics.clean_seconds),
        "logcleaner_max_compaction_delay_secs": (
            "By how much max.compaction.lag.ms is exceeded",
            metrics.compaction_delay_ms_max / 1000,
        ),
        "logcleanermanager_max_dirty_percent": (
            "The dirtiest log's share of bytes that could be cleaned",
            100 * metrics.dirty_ratio_max,
        ),
        "logcleanermanager_time_since_last_run_ms": ("Since logs were looked at", since_ms),
    }
    for name, (documentation, value) in gauges.items():
        page.add(f"kafka_log_{name}", "gauge", documentation, [("", value)])
    page.add(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        "Partitions whose cleaning failed",
        [
            (label("logDirectory", one.path), services.cleaner.uncleanable_count(one))
            for one in services.logs.directories
        ],
    )


def _add_groups(page: Page, services: Services) -> None:
    gauges: dict[str, list[Sample]] = {name: [] for name in _GROUP_GAUGES}
    (members, current, lag, current_sum, lag_sum) = gauges.values()
    ends = LogEnds(services)
    left = GROUP_PARTITIONS_MAX
    omitted = 0
    for led in services.groups.shards:
        shard = led.shard
        for group_id in {**shard.groups, **dict.fromkeys(shard.offsets.group_ids())}:
            group_label = label("consumergroup", group_id)
            group = shard.groups.get(group_id)
            members.append((group_label, 0 if group is None else len(group.members)))
            offset_sums: defaultdict[str, int] = defaultdict(int)
            lag_sums: dict[str, int] = {}
            for (topic, index), committed in shard.offsets.of(group_id).items():
                end = ends.of(topic, index)
                behind = None if end is None else max(0, end - committed.offset)
                offset_sums[topic] += committed.offset
                if behind is not None:
                    lag_sums[topic] = lag_sums.get(topic, 0) + behind
                if left <= 0:
                    omitted += 1
                    continue
                left -= 1
                labels = f'{group_label},{label("topic", topic)},partition="{index}"'
                current.append((labels, committed.offset))
                if behind is not None:
                    lag.append((labels, behind))
            for topic, total in offset_sums.items():
                current_sum.append((f"{group_label},{label('topic', topic)}", total))
            for topic, total in lag_sums.items():
                lag_sum.append((f"{group_label},{label('topic', topic)}", total))
    for name, documentation in _GROUP_GAUGES.items():
        page.add(name, "gauge", documentation, gauges[name])
    page.add(
        "ottla_consumergroup_partitions_omitted",
        "gauge",
        "Partitions of groups of which only the sum over their topic is shown",
        [("", omitted)],
    )


class LogEnds:
    """High watermarks for one scrape; opens a bounded number of logs that were never opened."""

    def __init__(self, services: Services) -> None:
        self._partitions = services.replicas.partitions
        self._may_open = LOGS_OPENED_PER_SCRAPE

    def of(self, topic: str, index: int) -> int | None:
        """None where this broker does not hold the partition, or its directory failed."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            return None
        if not partition.is_open and self._may_open > 0:
            self._may_open -= 1
            return _opened_end(partition)
        return partition.in_sync.high_watermark


def _opened_end(partition: Partition) -> int | None:
    try:
        return partition.high_watermark
    except (KafkaError, OSError):
        return None  # the storage has told of it already; a scrape only reads


def _process_metrics() -> bytes:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return generate_latest(registry)
