"""What a client may try again, and what it must tell its user. Pure.

Everything that goes wrong leaves the client as a `KafkaError`: with the broker's own code, or, if
no broker could be asked, as `Unreachable` with the code that Apache Kafka's clients use for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.metadata import TopicPartition

RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes that may pass by themselves: those that Apache Kafka derives from RetriableException."""

STALE_METADATA: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Codes after which leaders and topic ids must be asked for anew."""

STALE_COORDINATOR: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Codes after which the coordinator must be looked up anew."""


class Unreachable(KafkaError):
    """No broker answered: refused, lost or too slow."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        super().__init__(code, message)


class CorruptBatch(KafkaError):
    """Bytes of a partition that are not what a producer wrote; they will be the same next time.

    A producer may send again what arrived damaged, so the code alone counts as retriable.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int, why: str) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"The batch at offset {offset} of topic {topic_partition.topic}, partition "
            f"{topic_partition.partition}, is corrupt: {why}. Compare the replicas with 'ottla log "
            "dump', or start reading behind it (in Spark by startingOffsets).",
        )


def is_retriable(error: KafkaError) -> bool:
    return error.code in RETRIABLE and not isinstance(error, CorruptBatch)


def code_of(number: int) -> ErrorCode:
    """The error code of a number on the wire; one from a newer broker is an unknown error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def raise_for(number: int, what: str, message: str | None = None) -> None:
    """Raise if the broker answered with an error; `what` says what could not be done."""
    code = code_of(int(number))
    if code is not ErrorCode.NONE:
        said = f"{code.name}: {message}" if message else code.name
        raise KafkaError(code, f"{what}: {said}")
