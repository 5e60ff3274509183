"""The questions that only look: metadata, offsets, groups, log directories, configs, quorum,
transactions.

Each is one request per broker that has to be asked, however many topics or groups there are. An
error of one partition or group leaves it out of the answer rather than failing the page.
Shell over `Brokers`; keeps nothing but the coordinators it found.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.errors import code_of
from ottla.console.kafka.brokers import Brokers
from ottla.console.kafka.model import (
    BrokerView,
    ConfigEntry,
    GroupDescription,
    GroupView,
    LogDirectory,
    MemberView,
    Metadata,
    PartitionView,
    ProducerView,
    QuorumReplica,
    QuorumView,
    TopicPartition,
    TopicView,
    TransactionView,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import duration_ms, given, timestamp_ms

LATEST = -1
EARLIEST = -2
CONSUMER_REPLICA = -1
# Not a consumer, so the answer is the end of the log and not what a consumer may read.
DEBUGGING_REPLICA = -2
# Groups per OffsetFetch or DescribeGroups: keeps one answer of a busy cluster below a megabyte.
GROUPS_PER_REQUEST = 200
# Partitions per ListOffsets. A broker that has not opened a log yet opens it for the answer, and
# must not be busy with one question for longer than others wait.
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


def check(code: int, message: str | None = None) -> None:
    """Raise what the broker answered, if it answered an error."""
    if code != ErrorCode.NONE:
        raise KafkaError(code_of(code), message or code_of(code).name)


class Questions:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._coordinators: dict[tuple[int, str], int] = {}

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
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) that answers a timestamp for each partition, from its leader."""
        by_leader: dict[int, dict[str, list[dict[str, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (name, index), timestamp in timestamps.items():
            topic = metadata.topics.get(name)
            if topic is None or index >= len(topic.partitions):
                continue
            partition = topic.partitions[index]
            if partition.leader in metadata.brokers:
                by_leader[partition.leader][name].append(
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
                )
        answers = await asyncio.gather(
            *(
                self._offsets_of(leader, part, is_committed, replica_id)
                for leader, topics in by_leader.items()
                for part in _parts(topics)
            ),
            return_exceptions=True,
        )
        return _merged(answers)

    async def _offsets_of(
        self,
        leader: int,
        topics: Mapping[str, list[dict[str, int]]],
        is_committed: bool,
        replica_id: int,
    ) -> dict[TopicPartition, tuple[int, int]]:
        fields = {
            "replica_id": replica_id,
            "isolation_level": int(is_committed),
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        answer = await self.brokers.ask(leader, ApiKey.LIST_OFFSETS, (4, 8), fields)
        return {
            (topic.name, p.partition_index): (p.offset, p.timestamp)
            for topic in answer.topics
            for p in topic.partitions
            if p.error_code == ErrorCode.NONE
        }

    async def groups(self, metadata: Metadata) -> tuple[dict[str, GroupView], set[int]]:
        """Every group from the brokers that coordinate them, and the brokers that kept silent."""
        found: dict[str, GroupView] = {}
        silent: set[int] = set()
        answers = await asyncio.gather(
            *(
                self.brokers.ask(b, ApiKey.LIST_GROUPS, (4, 5), {"states_filter": []})
                for b in metadata.brokers
            ),
            return_exceptions=True,
        )
        for broker_id, answered in zip(metadata.brokers, answers, strict=True):
            if isinstance(answered, BaseException):
                _raise_unless_expected(answered)
                silent.add(broker_id)
                continue
            for group in answered.groups:
                group_type = str(given(group, "group_type", "classic")).lower()
                found[group.group_id] = GroupView(
                    group.group_id, group.group_state, group_type, group.protocol_type, broker_id
                )
                self._coordinators[0, group.group_id] = broker_id
        return dict(sorted(found.items())), silent

    async def committed(self, groups: Iterable[GroupView]) -> dict[str, dict[TopicPartition, int]]:
        """The committed offsets of many groups, a few requests per coordinator."""
        by_coordinator: dict[int, list[str]] = defaultdict(list)
        for group in groups:
            by_coordinator[group.coordinator].append(group.group_id)
        batches = [
            (coordinator, ids[start : start + GROUPS_PER_REQUEST])
            for coordinator, ids in by_coordinator.items()
            for start in range(0, len(ids), GROUPS_PER_REQUEST)
        ]
        answers = await asyncio.gather(
            *(self._committed_at(coordinator, ids) for coordinator, ids in batches),
            return_exceptions=True,
        )
        return _merged(answers)

    async def _committed_at(
        self, coordinator: int, group_ids: Sequence[str]
    ) -> dict[str, dict[TopicPartition, int]]:
        fields = {
            "groups": [
                {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
                for group_id in group_ids
            ],
            "require_stable": False,
        }
        answer = await self.brokers.ask(coordinator, ApiKey.OFFSET_FETCH, (8, 9), fields)
        return {
            group.group_id: {
                (topic.name, p.partition_index): p.committed_offset
                for topic in group.topics
                for p in topic.partitions
                if p.error_code == ErrorCode.NONE and p.committed_offset >= 0
            }
            for group in answer.groups
            if group.error_code == ErrorCode.NONE
        }

    async def coordinator(self, key: str, *, is_transaction: bool = False) -> int:
        """Which broker coordinates a group or a transactional id."""
        fields = {"key_type": int(is_transaction), "coordinator_keys": [key]}
        answer = await self.brokers.ask_any(ApiKey.FIND_COORDINATOR, (4, 5), fields)
        found = answer.coordinators[0]
        check(found.error_code, found.error_message)
        node_id = int(found.node_id)
        self._coordinators[int(is_transaction), key] = node_id
        return node_id

    async def describe_group(self, group: GroupView) -> GroupDescription:
        """Members and assignments, asked in the words of the group's own protocol."""
        if group.group_type == "consumer":
            return await self._describe_consumer_group(group)
        fields = {"groups": [group.group_id], "include_authorized_operations": False}
        answer = await self.brokers.ask(group.coordinator, ApiKey.DESCRIBE_GROUPS, (4, 5), fields)
        found = answer.groups[0]
        check(found.error_code)
        is_consumer = found.protocol_type in ("", "consumer")
        members = tuple(
            MemberView(
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host.removeprefix("/"),
                parse_assignment(m.member_assignment) if is_consumer else (),
                None,
                None,
            )
            for m in found.members
        )
        return GroupDescription(
            group.group_id,
            found.group_state,
            group.group_type,
            found.protocol_data,
            None,
            group.coordinator,
            members,
        )

    async def _describe_consumer_group(self, group: GroupView) -> GroupDescription:
        fields = {"group_ids": [group.group_id], "include_authorized_operations": False}
        answer = await self.brokers.ask(
            group.coordinator, ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), fields
        )
        found = answer.groups[0]
        check(found.error_code, found.error_message)
        members = tuple(
            MemberView(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host.removeprefix("/"),
                _assigned(m.assignment),
                _assigned(m.target_assignment),
                m.member_epoch,
            )
            for m in found.members
        )
        return GroupDescription(
            group.group_id,
            found.group_state,
            group.group_type,
            found.assignor_name,
            found.group_epoch,
            group.coordinator,
            members,
        )

    async def log_directories(
        self, metadata: Metadata
    ) -> tuple[tuple[LogDirectory, ...], dict[TopicPartition, int]]:
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
        for broker_id, answered in zip(metadata.brokers, answers, strict=True):
            if isinstance(answered, BaseException):
                _raise_unless_expected(answered)
                continue
            for result in answered.results:
                directories.append(_directory(broker_id, result, sizes))
        return tuple(directories), sizes

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

    async def producers(self, metadata: Metadata, topic: str) -> list[ProducerView]:
        """The producers that the leaders of a topic remember."""
        by_leader: dict[int, list[int]] = defaultdict(list)
        for partition in metadata.topics[topic].partitions:
            if partition.leader in metadata.brokers:
                by_leader[partition.leader].append(partition.number)
        answers = await asyncio.gather(
            *(
                self.brokers.ask(
                    leader,
                    ApiKey.DESCRIBE_PRODUCERS,
                    (0, 0),
                    {"topics": [{"name": topic, "partition_indexes": indexes}]},
                )
                for leader, indexes in by_leader.items()
            )
        )
        return [
            ProducerView(
                p.partition_index,
                state.producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp,
                state.current_txn_start_offset,
            )
            for answer in answers
            for t in answer.topics
            for p in t.partitions
            for state in p.active_producers
        ]

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

    async def transactions(self, metadata: Metadata) -> list[TransactionView]:
        """Every transactional id that the coordinators know, with what it has open."""
        listed = await asyncio.gather(
            *(
                self.brokers.ask(
                    b,
                    ApiKey.LIST_TRANSACTIONS,
                    (0, 1),
                    {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
                )
                for b in metadata.brokers
            )
        )
        found: list[TransactionView] = []
        for broker_id, answer in zip(metadata.brokers, listed, strict=True):
            check(answer.error_code)
            ids = [state.transactional_id for state in answer.transaction_states]
            for start in range(0, len(ids), GROUPS_PER_REQUEST):
                found += await self._described(broker_id, ids[start : start + GROUPS_PER_REQUEST])
        return found

    async def _described(self, broker_id: int, ids: Sequence[str]) -> list[TransactionView]:
        answer = await self.brokers.ask(
            broker_id, ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), {"transactional_ids": ids}
        )
        return [
            TransactionView(
                state.transactional_id,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                duration_ms(state.transaction_timeout),
                -1
                if state.transaction_start_time is None
                else timestamp_ms(state.transaction_start_time),
                tuple((t.topic, index) for t in state.topics for index in t.partitions),
                broker_id,
            )
            for state in answer.transaction_states
            if state.error_code == ErrorCode.NONE
        ]


def _parts(
    topics: Mapping[str, list[dict[str, int]]],
) -> Iterable[dict[str, list[dict[str, int]]]]:
    """A large question in parts that each are answered soon."""
    part: dict[str, list[dict[str, int]]] = {}
    count = 0
    for name, partitions in topics.items():
        part[name] = partitions
        count += len(partitions)
        if count >= PARTITIONS_PER_REQUEST:
            yield part
            part, count = {}, 0
    if part:
        yield part


def parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a classic member's assignment; nothing if it is not one.

    Members write these bytes, so any length in them may be a lie.
    """
    found: list[TopicPartition] = []
    try:
        _version, topics = struct.unpack_from(">hi", data)
        position = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, position)
            name = data[position + 2 : position + 2 + length].decode()
            (count,) = struct.unpack_from(">i", data, position + 2 + length)
            position += 6 + length
            if not 0 <= count <= (len(data) - position) // 4:
                return ()
            indexes = struct.unpack_from(f">{count}i", data, position)
            position += 4 * count
            found += [(name, index) for index in indexes]
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def _merged(answers: Iterable[Any]) -> dict[Any, Any]:
    merged: dict[Any, Any] = {}
    for answer in answers:
        if isinstance(answer, BaseException):
            _raise_unless_expected(answer)
        else:
            merged.update(answer)
    return merged


def _raise_unless_expected(error: BaseException) -> None:
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


def _assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            (str(t.topic_name), int(index))
            for t in assignment.topic_partitions
            for index in t.partitions
        )
    )


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
        (synonym.name, synonym.value, _named(CONFIG_SOURCES, synonym.source))
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
