"""Where partitions begin and end, which offset a time has, and how far a group has come.

Each question goes to the leader of its partition, or to the coordinator of its group; the questions
for one broker travel together. All are retried as a whole, for each can be asked twice unharmed.

A group is used here as a place to keep offsets, without members: commits carry no generation, which
a coordinator accepts as long as the group has no members.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.client import Client, CoordinatorType
from ottla.client.errors import raise_for
from ottla.client.metadata import TopicPartition, by_topic
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import given

LATEST = -1
EARLIEST = -2
NO_OFFSET = -1

_NO_GENERATION = -1
_OFFSET_COMMIT_VERSION_MAX = 9  # 10 names topics by id, which commits nothing for a recreated one
_OFFSET_FETCH_VERSION_MAX = 9  # as above


class OffsetAtTime(NamedTuple):
    offset: int  # NO_OFFSET if no record is as late
    timestamp_ms: int
    leader_epoch: int


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str | None = None
    leader_epoch: int = -1


def list_offsets(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    *,
    is_read_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAtTime]:
    """For each partition, its first offset at or after a time in ms, or at EARLIEST or LATEST.

    With `is_read_committed`, LATEST is the last stable offset.
    """
    found: dict[TopicPartition, OffsetAtTime] = {}

    def attempt() -> None:
        missing = [topic_partition for topic_partition in wanted if topic_partition not in found]
        for node_id, partitions in client.by_leader(missing).items():
            _list_offsets_of(client, node_id, partitions, wanted, is_read_committed, found)

    client.retrying(attempt, timeout_ms=timeout_ms)
    return {topic_partition: found[topic_partition] for topic_partition in wanted}


def _list_offsets_of(
    client: Client,
    node_id: int,
    partitions: list[TopicPartition],
    wanted: Mapping[TopicPartition, int],
    is_read_committed: bool,
    found: dict[TopicPartition, OffsetAtTime],
) -> None:
    connection = client.broker(node_id)
    version = connection.version_of(ApiKey.LIST_OFFSETS, lowest=2 if is_read_committed else 1)
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "current_leader_epoch": -1,
                    "timestamp": wanted[TopicPartition(topic, number)],
                }
                for number in numbers
            ],
        }
        for topic, numbers in by_topic(partitions).items()
    ]
    fields = {
        "replica_id": -1,
        "isolation_level": int(is_read_committed),
        "topics": topics,
        "timeout": client.config.request_timeout_ms,
    }
    response = connection.ask(ApiKey.LIST_OFFSETS, fields, version=version)
    for entry in response.topics:
        for answer in entry.partitions:
            topic_partition = TopicPartition(entry.name, int(answer.partition_index))
            raise_for(answer.error_code, f"The offsets of {topic_partition} cannot be listed")
            found[topic_partition] = OffsetAtTime(
                int(answer.offset), int(answer.timestamp), int(given(answer, "leader_epoch", -1))
            )


def committed_offsets(
    client: Client,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, CommittedOffset]:
    """What the group has committed, for these partitions or (None) for all; absent if nothing."""
    names = None if partitions is None else by_topic(partitions)

    def attempt() -> dict[TopicPartition, CommittedOffset]:
        node_id = client.coordinator(CoordinatorType.GROUP, group_id)
        connection = client.broker(node_id)
        version = connection.version_of(
            ApiKey.OFFSET_FETCH,
            lowest=7 if require_stable else 2,
            highest=_OFFSET_FETCH_VERSION_MAX,
        )
        topics = None
        if names is not None:
            topics = [
                {"name": topic, "partition_indexes": numbers} for topic, numbers in names.items()
            ]
        group = {
            "group_id": group_id,
            "topics": topics,
            "member_id": None,
            "member_epoch": -1,
        }
        fields = {**group, "groups": [group], "require_stable": require_stable}
        response = connection.ask(ApiKey.OFFSET_FETCH, fields, version=version)
        answer = response.groups[0] if version >= 8 else response
        raise_for(answer.error_code, f"The offsets of group '{group_id}' cannot be read")
        return _read_committed(group_id, answer.topics)

    return client.retrying(attempt)


def _read_committed(group_id: str, topics: Iterable[Any]) -> dict[TopicPartition, CommittedOffset]:
    found: dict[TopicPartition, CommittedOffset] = {}
    for entry in topics:
        for answer in entry.partitions:
            topic_partition = TopicPartition(entry.name, int(answer.partition_index))
            raise_for(answer.error_code, f"Group '{group_id}' on {topic_partition} cannot be read")
            if answer.committed_offset != NO_OFFSET:
                found[topic_partition] = CommittedOffset(
                    int(answer.committed_offset),
                    answer.metadata,
                    int(given(answer, "committed_leader_epoch", -1)),
                )
    return found


def commit_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Commit as a group without members; UNKNOWN_MEMBER_ID if it has some."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offsets[TopicPartition(topic, number)].offset,
                    "committed_leader_epoch": offsets[TopicPartition(topic, number)].leader_epoch,
                    "committed_metadata": offsets[TopicPartition(topic, number)].metadata or "",
                }
                for number in numbers
            ],
        }
        for topic, numbers in by_topic(offsets).items()
    ]
    fields = {
        "group_id": group_id,
        "generation_id_or_member_epoch": _NO_GENERATION,
        "generation_id": _NO_GENERATION,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": topics,
    }

    def attempt() -> None:
        node_id = client.coordinator(CoordinatorType.GROUP, group_id)
        connection = client.broker(node_id)
        version = connection.version_of(
            ApiKey.OFFSET_COMMIT, lowest=2, highest=_OFFSET_COMMIT_VERSION_MAX
        )
        response = connection.ask(ApiKey.OFFSET_COMMIT, fields, version=version)
        for entry in response.topics:
            for answer in entry.partitions:
                what = f"Group '{group_id}' cannot commit {entry.name}-{answer.partition_index}"
                raise_for(answer.error_code, what)

    if offsets:
        client.retrying(attempt)
