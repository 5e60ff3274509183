"""What the group coordinator writes to `__consumer_offsets`, in Kafka's own bytes.

A record's key begins with its type (0 and 1: an offset, 2: a group), its value with the version
of the value; no value is a tombstone. Versions are written as Apache Kafka 4.3 writes them and
all older ones are read, so that the topic moves between the two. Types of other protocols
(consumer, share and streams groups) are left alone.

Pure. Invariant: `decode_record(*encode(x))` is x.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from ottla.coordinators.record_fields import FieldReader, corrupt
from ottla.protocol.primitives import (
    compact_bytes,
    legacy_nullable_string,
    legacy_string,
)
from ottla.protocol.uuids import ZERO

OFFSET_COMMIT_TYPES = (0, 1)
OFFSET_COMMIT_TYPE = 1
GROUP_METADATA_TYPE = 2

OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1  # the only one with room for it; clients up to v4 ask for it
GROUP_VALUE_VERSION = 3
VALUE_VERSION_MAX = 4

NO_TIMESTAMP = -1

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_OFFSET_START = Struct(">hqi")
_OFFSET_START_WITH_EXPIRY = Struct(">hq")
_TWO_LONGS = Struct(">qq")
_TWO_INTS = Struct(">ii")
_TOPIC_ID_TAG = b"\1\0\x10"  # one tagged field, tag 0, sixteen bytes
_SHORT_OFFSET = Struct(">hqiBq3s16s")  # a value without metadata
_OFFSET_COMMIT_PREFIX = _SHORT.pack(OFFSET_COMMIT_TYPE)
# The same groups commit the same partitions again and again; some 200 bytes for each.
_KEYS_REMEMBERED = 16_384
_TOPIC_IDS_REMEMBERED = 1024


class CoordinatorRecord(NamedTuple):
    """A key and a value as they lie in the log; no value is a tombstone."""

    key: bytes
    value: bytes | None


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID = ZERO


class MemberMetadata(NamedTuple):
    """A member of a generation, with what it subscribed to and what it was given."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group as the log knows it: its last complete generation."""

    protocol_type: str  # empty for a group that only stores offsets
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class OffsetRecord(NamedTuple):
    key: OffsetKey
    value: CommittedOffset | None


class GroupRecord(NamedTuple):
    group_id: str
    value: GroupMetadata | None


def offset_record(key: OffsetKey, committed: CommittedOffset) -> CoordinatorRecord:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        value = (
            _OFFSET_START_WITH_EXPIRY.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY, committed.offset)
            + legacy_string(committed.metadata)
            + _TWO_LONGS.pack(committed.commit_timestamp_ms, committed.expire_timestamp_ms)
        )
    else:
        has_topic_id = committed.topic_id != ZERO
        value = (
            _OFFSET_START.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch)
            + compact_bytes(committed.metadata.encode())
            + _LONG.pack(committed.commit_timestamp_ms)
            + (_TOPIC_ID_TAG + committed.topic_id.bytes if has_topic_id else b"\0")
        )
    return CoordinatorRecord(_offset_key(key), value)


def offset_tombstone(key: OffsetKey) -> CoordinatorRecord:
    return CoordinatorRecord(_offset_key(key), None)


def group_record(group_id: str, group: GroupMetadata) -> CoordinatorRecord:
    parts = [
        _SHORT.pack(GROUP_VALUE_VERSION),
        legacy_string(group.protocol_type),
        _INT.pack(group.generation),
        legacy_nullable_string(group.protocol),
        legacy_nullable_string(group.leader),
        _LONG.pack(group.state_timestamp_ms),
        _INT.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            legacy_string(member.member_id),
            legacy_nullable_string(member.group_instance_id),
            legacy_string(member.client_id),
            legacy_string(member.client_host),
            _TWO_INTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _INT.pack(len(member.subscription)),
            member.subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    return CoordinatorRecord(_group_key(group_id), b"".join(parts))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_group_key(group_id), None)


def decode_record(key: bytes, value: bytes | None) -> OffsetRecord | GroupRecord | None:
    """What a record says; None for types of other protocols. CORRUPT_MESSAGE if it is damaged."""
    if key[:2] == _OFFSET_COMMIT_PREFIX:
        return OffsetRecord(
            _decode_offset_key(key), None if value is None else _decode_offset(value)
        )
    reader = FieldReader(key)
    record_type = reader.int16()
    if record_type in OFFSET_COMMIT_TYPES:
        offset_key = OffsetKey(reader.string(), reader.string(), reader.int32())
        return OffsetRecord(offset_key, None if value is None else _decode_offset(value))
    if record_type == GROUP_METADATA_TYPE:
        return GroupRecord(reader.string(), None if value is None else _decode_group(value))
    return None


@lru_cache(_KEYS_REMEMBERED)
def _decode_offset_key(key: bytes) -> OffsetKey:
    reader = FieldReader(key, 2)
    return OffsetKey(reader.string(), reader.string(), reader.int32())


@lru_cache(_KEYS_REMEMBERED)
def _offset_key(key: OffsetKey) -> bytes:
    return b"".join(
        (
            _SHORT.pack(OFFSET_COMMIT_TYPE),
            legacy_string(key.group_id),
            legacy_string(key.topic),
            _INT.pack(key.partition),
        )
    )


def _group_key(group_id: str) -> bytes:
    return _SHORT.pack(GROUP_METADATA_TYPE) + legacy_string(group_id)


def _value_version(value: bytes) -> int:
    version = FieldReader(value).int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise corrupt(f"its value has version {version}")
    return version


@lru_cache(_TOPIC_IDS_REMEMBERED)
def _topic_id(raw_id: bytes) -> UUID:
    return UUID(bytes=raw_id)


def _decode_offset(value: bytes) -> CommittedOffset:
    if len(value) == _SHORT_OFFSET.size:
        version, offset, leader_epoch, length, commit_ms, tags, raw_id = _SHORT_OFFSET.unpack(value)
        if version == OFFSET_VALUE_VERSION and length == 1 and tags == _TOPIC_ID_TAG:
            # No metadata and a topic id: what nearly every client commits.
            return CommittedOffset(
                offset, leader_epoch, "", commit_ms, NO_TIMESTAMP, _topic_id(raw_id)
            )
    version = _value_version(value)
    reader = FieldReader(value, 2, is_flexible=version >= 4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    topic_id = ZERO
    if version >= 4:
        raw_id = reader.tagged().get(0)
        if raw_id is not None:
            topic_id = FieldReader(raw_id).uuid()
    return CommittedOffset(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def _decode_group(value: bytes) -> GroupMetadata:
    version = _value_version(value)
    reader = FieldReader(value, 2, is_flexible=version >= 4)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_decode_member(reader, version) for _ in range(reader.array_length()))
    return GroupMetadata(protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _decode_member(reader: FieldReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.sized_bytes()
    assignment = reader.sized_bytes()
    if version >= 4:
        reader.tagged()
    return MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
