"""What the broker counts. Plain integers on the hot paths; names and labels at scrape.

The names are those that dashboards of Apache Kafka read: the JMX exporter's for the broker,
kafka_exporter's for topics and partitions.
"""

from collections import defaultdict
from collections.abc import Container


class TopicCounters:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0


class Metrics:
    """Owned by the event loop's thread; read by the scrape in the same thread."""

    __slots__ = ("requests", "topics")

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.topics: dict[str, TopicCounters] = {}

    def topic(self, name: str, known: Container[str]) -> TopicCounters | None:
        """A topic's counters; none of one that is not `known`: anybody can make up names."""
        found = self.topics.get(name)
        if found is None and name in known:
            found = self.topics[name] = TopicCounters()
        return found

    def forget_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
