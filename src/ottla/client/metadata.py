"""What a client knows of a cluster: brokers, topics, their ids and leaders. Pure values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from ottla.client.config import Address
from ottla.client.errors import code_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given

NO_LEADER = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionMetadata(NamedTuple):
    leader: int
    leader_epoch: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: UUID | None
    is_internal: bool
    error: ErrorCode
    partitions: dict[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Address]
    topics: dict[str, TopicMetadata]


def read_metadata(response: Any) -> ClusterMetadata:
    """The values of a Metadata response of any version."""
    topics = (_read_topic(entry) for entry in response.topics if entry.name is not None)
    return ClusterMetadata(
        given(response, "cluster_id", None),
        int(given(response, "controller_id", -1)),
        {
            int(broker.node_id): Address(broker.host, int(broker.port))
            for broker in response.brokers
        },
        {topic.name: topic for topic in topics},
    )


def _read_topic(entry: Any) -> TopicMetadata:
    partitions = {
        int(found.partition_index): PartitionMetadata(
            int(found.leader_id),
            int(given(found, "leader_epoch", -1)),
            code_of(int(found.error_code)),
        )
        for found in entry.partitions
    }
    return TopicMetadata(
        str(entry.name),
        given(entry, "topic_id", None),
        bool(given(entry, "is_internal", False)),
        code_of(int(entry.error_code)),
        dict(sorted(partitions.items())),
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers grouped under their topic, in the order given."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
