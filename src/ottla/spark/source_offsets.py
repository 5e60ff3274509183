"""Which partitions a query reads and where: options made into offsets by asking the cluster.

Partitions are those that exist now; a topic that is subscribed to by name must exist. Positions
given partition by partition must name all of them, as in Spark's connector: what is left out would
otherwise be read from an arbitrary place.

Shell over a client, on the driver; each question is one round to the leaders. One that fails, and a
log end below what was known (a leader that has just changed may be behind), is asked up to
`fetchOffset.numRetries` times in all.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from time import monotonic, sleep
from typing import TypeVar

from ottla.client import (
    EARLIEST,
    LATEST,
    Client,
    TopicPartition,
    list_offsets,
)
from ottla.client.offsets import NO_OFFSET
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.option_values import OptionError
from ottla.spark.options import Position, SourceOptions, Subscription
from ottla.spark.source_ranges import Offsets

T = TypeVar("T")

logger = logging.getLogger(__name__)


class TopicGone(KafkaError):
    """A topic that the query names does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic '{topic}' does not exist. If it was deleted, remove it from the query, or "
            "create it anew and start the query with a new checkpoint: offsets in the old one mean "
            "the topic that is gone.",
        )


class OffsetReader:
    """Answers where the partitions of one query begin and end."""

    def __init__(self, options: SourceOptions, client: Client) -> None:
        self._options = options
        self._client = client
        self._cached: tuple[float, tuple[TopicPartition, ...]] | None = None

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the query, sorted."""
        ttl_s = self._options.partition_cache_ttl_ms / 1000
        if self._cached is not None and ttl_s > 0 and monotonic() - self._cached[0] < ttl_s:
            return self._cached[1]
        found = tuple(sorted(self._attempted(self._find_partitions)))
        self._cached = (monotonic(), found)
        return found

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """The ends of all partitions now; never one below `known` without asking again."""
        partitions = self.partitions()
        found = self._listed(dict.fromkeys(partitions, LATEST))
        for _ in range(self._options.fetch_offset_attempts - 1):
            if known is None or all(found[tp] >= known.get(tp, 0) for tp in found):
                break
            self._pause()
            found = self._listed(dict.fromkeys(partitions, LATEST))
        return found

    def resolve(self, position: Position, *, is_start: bool) -> Offsets:
        """Offsets for a position of the options; EARLIEST and LATEST become what they are now."""
        partitions = self.partitions()
        if position.everywhere is not None:
            return self._listed(dict.fromkeys(partitions, position.everywhere))
        if position.timestamp_ms is not None:
            return self._at_times(dict.fromkeys(partitions, position.timestamp_ms), is_start)
        if position.timestamps_ms:
            self._check_complete(position, position.timestamps_ms, partitions)
            return self._at_times(position.timestamps_ms, is_start)
        self._check_complete(position, position.offsets, partitions)
        asked = {tp: offset for tp, offset in position.offsets.items() if offset < 0}
        return {**position.offsets, **self._listed(asked)}

    def first_at_or_after(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset at or after each time, NO_OFFSET where there is none."""
        return self._listed(times_ms)

    def _attempted(self, question: Callable[[], T]) -> T:
        """The answer, or what went wrong the last time that it was asked for."""
        for _ in range(self._options.fetch_offset_attempts - 1):
            try:
                return question()
            except KafkaError as error:
                logger.warning("Offsets cannot be fetched, trying again: %s", error)
                self._pause()
        return question()

    def _pause(self) -> None:
        sleep(self._options.fetch_offset_interval_ms / 1000)
        self._client.forget_topics()

    def _find_partitions(self) -> list[TopicPartition]:
        topics = self._options.topics
        if topics.kind is Subscription.PATTERN:
            pattern = re.compile(topics.text)
            found = self._client.retrying(lambda: self._client.metadata(None)).topics.values()
            matching = [
                topic for topic in found if not topic.is_internal and pattern.search(topic.name)
            ]
            return [TopicPartition(topic.name, p) for topic in matching for p in topic.partitions]
        if topics.kind is Subscription.TOPICS:
            return [
                TopicPartition(name, partition)
                for name, numbers in self._existing(topics.names).items()
                for partition in numbers
            ]
        existing = self._existing(dict.fromkeys(tp.topic for tp in topics.partitions))
        for topic, partition in topics.partitions:
            if partition not in existing[topic]:
                raise OptionError(f"assign: topic '{topic}' has no partition {partition}")
        return list(topics.partitions)

    def _existing(self, names: Iterable[str]) -> dict[str, list[int]]:
        wanted = list(names)
        found = self._client.retrying(lambda: self._client.metadata(wanted)).topics
        existing: dict[str, list[int]] = {}
        for name in wanted:
            topic = found.get(name)
            if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicGone(name)
            if topic.error is not ErrorCode.NONE:
                raise KafkaError(topic.error, f"Topic '{name}' cannot be read: {topic.error.name}")
            existing[name] = list(topic.partitions)
        return existing

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        is_read_committed = self._options.client.is_read_committed
        found = self._attempted(
            lambda: list_offsets(self._client, wanted, is_read_committed=is_read_committed)
        )
        return {topic_partition: answer.offset for topic_partition, answer in found.items()}

    def _at_times(self, times_ms: Mapping[TopicPartition, int], is_start: bool) -> Offsets:
        """The first offset at or after each time; where there is none, the end or an error."""
        asked = {tp: time_ms for tp, time_ms in times_ms.items() if time_ms >= 0}
        special = {tp: time_ms for tp, time_ms in times_ms.items() if time_ms < 0}
        found = self._listed({**asked, **special})
        missing = [tp for tp in asked if found[tp] == NO_OFFSET]
        if missing and is_start and not self._options.is_latest_if_no_offset:
            raise OptionError(
                f"No offset matched from request of topic-partition {missing[0]} and timestamp "
                f"{asked[missing[0]]}. Set startingOffsetsByTimestampStrategy to 'latest' to start "
                "such partitions at their end."
            )
        return {**found, **self._listed(dict.fromkeys(missing, LATEST))}

    def _check_complete(
        self,
        position: Position,
        given: Mapping[TopicPartition, int],
        partitions: tuple[TopicPartition, ...],
    ) -> None:
        if set(given) != set(partitions):
            raise OptionError(
                f"If {position.option} contains specific offsets, you must specify all "
                "TopicPartitions. Use -1 for latest, -2 for earliest. Specified: "
                f"{', '.join(map(str, sorted(given)))}. Assigned: {', '.join(map(str, partitions))}"
            )
