"""The broker's state as Prometheus text, gathered when someone asks.

The names are those that dashboards of Apache Kafka read already: kafka_exporter's for topics and
partitions, the JMX exporter's for the broker. Nothing is counted here; see metrics.py. Partitions
whose logs were never opened report what is known without opening them. Imported when `/metrics`
is first asked for, as the client library costs start time and memory.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.protocol.api import ApiKey
from ottla.server.metrics import TopicCounters
from ottla.server.services import Services
from ottla.server.topology import NO_LEADER

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOPIC_COUNTERS = (
    ("messagesin", "Records appended", "messages_in"),
    ("bytesin", "Bytes appended", "bytes_in"),
    ("bytesout", "Bytes sent to consumers and followers", "bytes_out"),
    ("totalproducerequests", "Produce requests", "produce_requests"),
    ("totalfetchrequests", "Fetches of partitions", "fetch_requests"),
    ("failedproducerequests", "Produce requests that failed", "failed_produce_requests"),
    ("failedfetchrequests", "Fetches of partitions that failed", "failed_fetch_requests"),
)


class BrokerCollector(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._topic_traffic()
        yield from self._cluster()
        yield from self._partitions()
        yield from self._requests()

    def _topic_traffic(self) -> Iterator[Metric]:
        topics = self._services.metrics.topics
        for name, documentation, attribute in _TOPIC_COUNTERS:
            family = CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_{name}", documentation, labels=["topic"]
            )
            for topic, counters in topics.items():
                family.add_metric([topic], _read(counters, attribute))
            yield family

    def _requests(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "kafka_network_requestmetrics_requests", "Requests received", labels=["request"]
        )
        for key, count in self._services.metrics.requests.items():
            family.add_metric([ApiKey(key).name], count)
        yield family

    def _cluster(self) -> Iterator[Metric]:
        image = self._services.image
        replicas = self._services.replicas
        leading = [partition for partition in replicas if partition.is_leader]
        all_partitions = [
            one for topic in image.topics.values() for one in topic.partitions.values()
        ]
        gauges = {
            "kafka_brokers": (
                "Brokers in service",
                sum(not b.fenced for b in image.brokers.values()),
            ),
            "kafka_server_replicamanager_leadercount": ("Partitions led here", len(leading)),
            "kafka_server_replicamanager_partitioncount": (
                "Partitions held here",
                len(replicas.partitions),
            ),
            "kafka_server_replicamanager_underreplicatedpartitions": (
                "Partitions led here with fewer in-sync replicas than replicas",
                sum(len(p.state.isr) < len(p.state.replicas) for p in leading),
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
                sum(one.failure is not None for one in self._services.logs.directories),
            ),
        }
        for name, (documentation, value) in gauges.items():
            yield GaugeMetricFamily(name, documentation, value=value)
        offline = GaugeMetricFamily(
            "kafka_log_logmanager_logdirectoryoffline",
            "1 if this log directory failed",
            labels=["logDirectory"],
        )
        for directory in self._services.logs.directories:
            offline.add_metric([directory.path], directory.failure is not None)
        yield offline

    def _partitions(self) -> Iterator[Metric]:
        image = self._services.image
        count = GaugeMetricFamily("kafka_topic_partitions", "Partitions", labels=["topic"])
        labels = ["topic", "partition"]
        families = {
            name: GaugeMetricFamily(f"kafka_topic_partition_{name}", documentation, labels=labels)
            for name, documentation in (
                ("current_offset", "The high watermark"),
                ("oldest_offset", "The log start offset"),
                ("in_sync_replica", "In-sync replicas"),
                ("leader", "The leader's broker id"),
                ("leader_is_preferred", "1 if the first replica leads"),
                ("replicas", "Replicas"),
                ("under_replicated_partition", "1 if replicas are missing from the ISR"),
            )
        }
        size = GaugeMetricFamily("kafka_log_log_size", "Bytes in the log", labels=labels)
        for topic in image.topics.values():
            count.add_metric([topic.name], len(topic.partitions))
            for index, partition in topic.partitions.items():
                label = [topic.name, str(index)]
                facts = {
                    "in_sync_replica": len(partition.isr),
                    "leader": partition.leader,
                    "leader_is_preferred": partition.leader == partition.replicas[0],
                    "replicas": len(partition.replicas),
                    "under_replicated_partition": len(partition.isr) < len(partition.replicas),
                }
                held = self._services.replicas.partitions.get((topic.name, index))
                if held is not None and held.is_open:
                    facts["current_offset"] = held.high_watermark
                    facts["oldest_offset"] = held.log.log_start_offset
                    size.add_metric(label, held.log.size_bytes())
                for name, value in facts.items():
                    families[name].add_metric(label, value)
        yield count
        yield from families.values()
        yield size


def _read(counters: TopicCounters, attribute: str) -> int:
    value: int = getattr(counters, attribute)
    return value


def render(services: Services) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(services))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
