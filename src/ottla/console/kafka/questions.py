"""The questions that only look: metadata, offsets, log directories, settings, quorum.

Each is a few requests per broker that has to be asked, however many topics there are. An error of
one partition or broker leaves it out of the answer rather than failing the page; where an absence
could be taken for an empty cluster, the answer says who kept silent. Shell over `Brokers`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client.errors import code_of
from ottla.console.kafka.brokers import Brokers
from ottla.console.kafka.model import (
    BrokerView,
    ConfigEntry,
    LogDirectory,
    Metadata,
    PartitionView,
    QuorumReplica,
    QuorumView,
    Synonym,
    TopicPartition,
    TopicView,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
CONSUMER_REPLICA = -1
# Not a consumer, so the answer is the end of the log and not what a consumer may read.
DEBUGGING_REPLICA = -2
# Partitions per ListOffsets or DescribeProducers. A broker that has not opened a log yet opens it
# for the answer, and must not be busy with one question for longer than others wait.
PARTITIONS_PER_REQUEST = 500
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

CONFIG_TYPES = (
    "unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password",
)  # fmt: skip
CONFIG_SOURCES = (
    "unknown", "topic", "broker", "cluster default", "static", "default", "broker logger",
    "client metrics", "group",
)  # fmt: skip
_DEFAULT_SOURCE = 5
_NO_LEADER = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "Nobody leads it now.")
_NO_PARTITION = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")


class Offsets(NamedTuple):
    """(offset, timestamp) by partition, and why there is none of others."""

    found: dict[TopicPartition, tuple[int, int]]
    troubles: dict[TopicPartition, KafkaError]


class LogDirectories(NamedTuple):
    found: tuple[LogDirectory, ...]
    sizes: dict[TopicPartition, int]
    troubles: dict[int, str]  # brokers that did not tell theirs, and why


def check(code: int, message: str | None = None) -> None:
    """Raise what the broker answered, if it answered an error."""
    if code != ErrorCode.NONE:
        raise KafkaError(code_of(code), message or code_of(code).name)


class Questions:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers

    async def metadata(self) -> Metadata:
        """Brokers, topics and partitions of the whole cluster."""
        fields = {"topics": None, "allow_auto_topic_creation": False}
        answer = await self.brokers.ask_any(ApiKey.METADATA, (10, 12), fields)
        brokers = {
            b.node_id: BrokerView(b.node_id, b.host, b.port, b.rack)
            for b in sorted(answer.brokers, key=lambda broker: int(broker.node_id))
        }
        self.brokers.know(brokers)
        topics = {
            t.name: _topic(t)
            for t in sorted(answer.topics, key=lambda topic: str(topic.name))
            if t.name is not None and t.error_code == ErrorCode.NONE
        }
        return Metadata(answer.cluster_id or "", answer.controller_id, brokers, topics)

    async def offsets(
        self,
        metadata: Metadata,
        timestamps: Mapping[TopicPartition, int],
        *,
        is_committed: bool,
        replica_id: int = CONSUMER_REPLICA,
    ) -> Offsets:
        """(offset, timestamp) that answers a timestamp for each partition, from its leader."""
        answer = Offsets({}, {})
        by_leader: dict[int, dict[str, list[dict[str, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (name, index), timestamp in timestamps.items():
            topic = metadata.topics.get(name)
            if topic is None or index >= len(topic.partitions):
                answer.troubles[name, index] = _NO_PARTITION
                continue
            partition = topic.partitions[index]
            if partition.leader in metadata.brokers:
                by_leader[partition.leader][name].append(
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
                )
            else:
                answer.troubles[name, index] = _NO_LEADER
        await asyncio.gather(
            *(
                self._offsets_of(leader, part, is_committed, replica_id, answer)
                for leader, topics in by_leader.items()
                for part in parts(topics)
            )
        )
        return answer

    async def _offsets_of(
        self,
        leader: int,
        topics: Mapping[str, list[dict[str, int]]],
        is_committed: bool,
        replica_id: int,
        answer: Offsets,
    ) -> None:
        fields = {
            "replica_id": replica_id,
            "isolation_level": int(is_committed),
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        try:
            response = await self.brokers.ask(leader, ApiKey.LIST_OFFSETS, (4, 8), fields)
        except KafkaError as error:
            for name, parts in topics.items():
                for part in parts:
                    answer.troubles[name, part["partition_index"]] = error
            return
        for topic in response.topics:
            for p in topic.partitions:
                if p.error_code == ErrorCode.NONE:
                    answer.found[topic.name, p.partition_index] = (p.offset, p.timestamp)
                else:
                    code = code_of(p.error_code)
                    answer.troubles[topic.name, p.partition_index] = KafkaError(code, code.name)

    async def log_directories(self, metadata: Metadata) -> LogDirectories:
        """Every log directory, and the bytes of each partition on the broker that has most."""
        answers = await asyncio.gather(
            *(
                self.brokers.ask(b, ApiKey.DESCRIBE_LOG_DIRS, (2, 4), {"topics": None})
                for b in metadata.brokers
            ),
            return_exceptions=True,
        )
        directories: list[LogDirectory] = []
        sizes: dict[TopicPartition, int] = {}
        troubles: dict[int, str] = {}
        for broker_id, answered in zip(metadata.brokers, answers, strict=True):
            if isinstance(answered, BaseException):
                raise_unless_expected(answered)
                troubles[broker_id] = str(answered)
                continue
            for result in answered.results:
                directories.append(_directory(broker_id, result, sizes))
        return LogDirectories(tuple(directories), sizes, troubles)

    async def configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """Every setting of a topic or broker, with its documentation and default."""
        fields = {
            "resources": [
                {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
            ],
            "include_synonyms": True,
            "include_documentation": True,
        }
        if resource_type == BROKER_RESOURCE:
            answer = await self.brokers.ask(int(name), ApiKey.DESCRIBE_CONFIGS, (3, 4), fields)
        else:
            answer = await self.brokers.ask_any(ApiKey.DESCRIBE_CONFIGS, (3, 4), fields)
        result = answer.results[0]
        check(result.error_code, result.error_message)
        return sorted(map(_config_entry, result.configs), key=lambda entry: entry.name)

    async def quorum(self) -> QuorumView:
        """The state of the metadata quorum, as its leader tells it."""
        topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        answer = await self.brokers.ask_any(ApiKey.DESCRIBE_QUORUM, (1, 2), {"topics": [topic]})
        check(answer.error_code, given(answer, "error_message", None))
        partition = answer.topics[0].partitions[0]
        check(partition.error_code, given(partition, "error_message", None))
        return QuorumView(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            tuple(map(_quorum_replica, partition.current_voters)),
            tuple(map(_quorum_replica, partition.observers)),
        )


def parts(topics: Mapping[str, list[T]]) -> Iterable[dict[str, list[T]]]:
    """A large question in parts that each are answered soon."""
    part: dict[str, list[T]] = {}
    count = 0
    for name, partitions in topics.items():
        part[name] = partitions
        count += len(partitions)
        if count >= PARTITIONS_PER_REQUEST:
            yield part
            part, count = {}, 0
    if part:
        yield part


def raise_unless_expected(error: BaseException) -> None:
    """A broker that is gone, or has moved on, is left out; a defect is not."""
    if not isinstance(error, KafkaError):
        raise error


def _topic(topic: Any) -> TopicView:
    partitions = tuple(
        PartitionView(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    )
    topic_id = given(topic, "topic_id", None)
    return TopicView(str(topic.name), str(topic_id or ""), topic.is_internal, partitions)


def _directory(broker_id: int, result: Any, sizes: dict[TopicPartition, int]) -> LogDirectory:
    total = count = 0
    for topic in result.topics:
        for p in topic.partitions:
            count += 1
            total += p.partition_size
            key = (topic.name, p.partition_index)
            sizes[key] = max(sizes.get(key, 0), p.partition_size)
    error = None if result.error_code == ErrorCode.NONE else code_of(result.error_code).name
    return LogDirectory(
        broker_id,
        result.log_dir,
        error,
        given(result, "total_bytes", -1),
        given(result, "usable_bytes", -1),
        total,
        count,
    )


def _config_entry(config: Any) -> ConfigEntry:
    synonyms = tuple(
        Synonym(synonym.name, synonym.value, _named(CONFIG_SOURCES, synonym.source))
        for synonym in config.synonyms
    )
    is_default = config.config_source == _DEFAULT_SOURCE
    default = next((s.value for s in config.synonyms if s.source == _DEFAULT_SOURCE), None)
    if default is None and is_default and not config.is_sensitive:
        default = config.value  # Kafka names no synonym for what no broker setting backs
    return ConfigEntry(
        config.name,
        None if config.is_sensitive else config.value,
        _named(CONFIG_SOURCES, config.config_source),
        is_default,
        config.read_only,
        config.is_sensitive,
        _named(CONFIG_TYPES, config.config_type),
        config.documentation or "",
        default,
        synonyms,
    )


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _quorum_replica(state: Any) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.log_end_offset,
        given(state, "last_fetch_timestamp", -1),
        given(state, "last_caught_up_timestamp", -1),
    )
