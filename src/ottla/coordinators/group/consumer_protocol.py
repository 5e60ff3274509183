"""The consumer protocol that travels inside JoinGroup and SyncGroup: subscriptions, assignments.

The coordinator looks into it where classic members meet the server's assignors, and to know which
topics a classic group reads. Later versions append fields, so what a newer one has is read as far
as it is known. Pure.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.coordinators.record_fields import FieldReader
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import legacy_string

CONSUMER_PROTOCOL_TYPE = "consumer"
PROTOCOL_VERSION_MAX = 3
NamedPartitions: TypeAlias = Mapping[str, tuple[int, ...]]

_SHORT = Struct(">h")
_INT = Struct(">i")
_NULL_BYTES = _INT.pack(-1)


class Subscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: NamedPartitions = {}  # none where the version has no room for them
    generation: int = -1
    rack_id: str | None = None


def parse_subscription(data: bytes) -> Subscription:
    """What a member subscribes to; CORRUPT_MESSAGE if it cannot be read."""
    reader = FieldReader(data)
    version, topics = _parse_start(reader)
    reader.nullable_bytes()
    owned: NamedPartitions = {}
    generation, rack_id = -1, None
    if version >= 1:
        owned = _parse_partitions(reader)
    if version >= 2:
        generation = reader.int32()
    if version >= 3:
        rack_id = reader.nullable_string()
    return Subscription(version, topics, owned, generation, rack_id)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None, which is no error, if one of them cannot be read.

    Of each only the start is read, which all versions have alike.
    """
    topics: set[str] = set()
    try:
        for data in subscriptions:
            version, of_one = _parse_start(FieldReader(data))
            if version < 0:
                return None
            topics |= of_one
    except KafkaError:
        return None
    return frozenset(topics)


def parse_assignment(data: bytes) -> NamedPartitions:
    """What a leader gave to a member; nothing if it gave no bytes. CORRUPT_MESSAGE if damaged."""
    if not data:
        return {}
    reader = FieldReader(data)
    reader.int16()
    return _parse_partitions(reader)


def encode_assignment(partitions: NamedPartitions, version: int) -> bytes:
    parts = [_SHORT.pack(max(0, min(version, PROTOCOL_VERSION_MAX))), _INT.pack(len(partitions))]
    for topic in sorted(partitions):
        indexes = partitions[topic]
        parts += (
            legacy_string(topic),
            _INT.pack(len(indexes)),
            Struct(f">{len(indexes)}i").pack(*indexes),
        )
    parts.append(_NULL_BYTES)
    return b"".join(parts)


def _parse_start(reader: FieldReader) -> tuple[int, frozenset[str]]:
    version = reader.int16()
    return version, frozenset(reader.string() for _ in range(reader.array_length()))


def _parse_partitions(reader: FieldReader) -> NamedPartitions:
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(reader.array_length()):
        topic = reader.string()
        found[topic] = tuple(reader.int32() for _ in range(reader.array_length()))
    return found
