"""The consumer protocol that travels inside JoinGroup and SyncGroup: subscriptions, assignments.

The coordinator looks into it only where classic members meet the server's assignors. Later versions
append fields, so what a newer one has is read as far as it is known. Pure.
"""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.coordinators.record_fields import FieldReader
from ottla.protocol.primitives import legacy_string

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
    version = reader.int16()
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
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


def _parse_partitions(reader: FieldReader) -> NamedPartitions:
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(reader.array_length()):
        topic = reader.string()
        found[topic] = tuple(reader.int32() for _ in range(reader.array_length()))
    return found
