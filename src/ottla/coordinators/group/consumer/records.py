"""What the log says of consumer groups, in Kafka's own bytes: record types 3 to 8 and 16.

Keys are written without flexible fields, values with them; every value has version 0 and grows by
tagged fields. Type 4 (the partitions of subscribed topics) is written by brokers before 4.1 only;
a group that has one gets a tombstone for it with its next epoch.

Pure. Invariant: `decode_consumer_record(*encode(x))` is x, and what a `DecidedRecord` says.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.coordinators.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberState,
    Target,
)
from ottla.coordinators.group.records import CoordinatorRecord
from ottla.coordinators.record_fields import FieldReader, corrupt
from ottla.protocol.primitives import (
    compact_array_length,
    compact_bytes,
    compact_nullable_string,
    legacy_string,
    unsigned_varint,
)

GROUP_EPOCH_TYPE = 3
PARTITION_METADATA_TYPE = 4
MEMBER_TYPE = 5
TARGET_EPOCH_TYPE = 6
TARGET_MEMBER_TYPE = 7
CURRENT_ASSIGNMENT_TYPE = 8
REGEX_TYPE = 16

# Some 200 bytes each; a rebalance writes a record of the same few types for every member.
_KEY_STARTS_REMEMBERED = 1024
# Members that come at once mostly ask for the same. Few, as each may be as long as a request.
_SUBSCRIPTIONS_REMEMBERED = 8

_STATES = {int(state): state for state in MemberState}

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_VERSION = _SHORT.pack(0)
_NO_TAGS = b"\0"
_ONE_TAG = b"\1\0"  # one tagged field, with tag 0
_PRESENT = b"\1"
_NO_CLASSIC_TAG = b"\1\0\1\0"  # Kafka writes the tag with a null in it


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    epoch: int
    timestamp_ms: int = 0


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, and when that was looked up."""

    topics: frozenset[str]
    metadata_version: int
    timestamp_ms: int


class GroupEpochRecord(NamedTuple):
    group_id: str
    value: GroupEpoch | None


class PartitionMetadataRecord(NamedTuple):
    group_id: str
    is_tombstone: bool


class MemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: ConsumerMember | None  # its subscription; the assignment comes with type 8


class TargetEpochRecord(NamedTuple):
    group_id: str
    value: TargetEpoch | None


class TargetMemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: Target | None


class CurrentAssignmentRecord(NamedTuple):
    group_id: str
    member_id: str
    value: CurrentAssignment | None


class RegexRecord(NamedTuple):
    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerRecord: TypeAlias = (
    GroupEpochRecord
    | PartitionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetMemberRecord
    | CurrentAssignmentRecord
    | RegexRecord
)


class DecidedRecord(CoordinatorRecord):
    """A record with what it says: whoever has decided it need not read it in its own bytes."""

    says: ConsumerRecord


# Writing


def group_epoch_record(group_id: str, value: GroupEpoch) -> CoordinatorRecord:
    tags = _NO_TAGS if value.metadata_hash == 0 else _long_tag(value.metadata_hash)
    return _decided(
        _key(GROUP_EPOCH_TYPE, group_id),
        _VERSION + _INT.pack(value.epoch) + tags,
        GroupEpochRecord(group_id, value),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    subscription = member.subscription
    member_id = member.member_id
    return _decided(
        _key(MEMBER_TYPE, group_id, member_id),
        _subscription_value(
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.topics,
            member.regex,
            member.rebalance_timeout_ms,
            member.server_assignor,
            member.classic,
        ),
        MemberRecord(group_id, member_id, subscription),
    )


@lru_cache(_SUBSCRIPTIONS_REMEMBERED)
def _subscription_value(
    instance_id: str | None,
    rack_id: str | None,
    client_id: str,
    client_host: str,
    topics: frozenset[str],
    regex: str,
    rebalance_timeout_ms: int,
    server_assignor: str | None,
    classic: ClassicMetadata | None,
) -> bytes:
    parts = [
        _VERSION,
        compact_nullable_string(instance_id),
        compact_nullable_string(rack_id),
        compact_nullable_string(client_id),
        compact_nullable_string(client_host),
        compact_array_length(len(topics)),
        *(compact_nullable_string(topic) for topic in sorted(topics)),
        compact_nullable_string(regex),
        _INT.pack(rebalance_timeout_ms),
        compact_nullable_string(server_assignor),
        _NO_CLASSIC_TAG if classic is None else _classic_tag(classic),
    ]
    return b"".join(parts)


def target_epoch_record(group_id: str, value: TargetEpoch) -> CoordinatorRecord:
    tags = _NO_TAGS if value.timestamp_ms == 0 else _long_tag(value.timestamp_ms)
    return _decided(
        _key(TARGET_EPOCH_TYPE, group_id),
        _VERSION + _INT.pack(value.epoch) + tags,
        TargetEpochRecord(group_id, value),
    )


def target_member_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    parts = [_VERSION, compact_array_length(len(target))]
    for topic_id in sorted(target):
        parts += (topic_id, _ints(sorted(target[topic_id])), _NO_TAGS)
    parts.append(_NO_TAGS)
    return _decided(
        _key(TARGET_MEMBER_TYPE, group_id, member_id),
        b"".join(parts),
        TargetMemberRecord(group_id, member_id, target),
    )


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = b"".join(
        (
            _VERSION,
            _INT.pack(member.epoch),
            _INT.pack(member.previous_epoch),
            bytes((member.state,)),
            _held(member.assigned),
            _held(member.pending_revocation),
            _NO_TAGS,
        )
    )
    member_id = member.member_id
    return _decided(
        _key(CURRENT_ASSIGNMENT_TYPE, group_id, member_id),
        value,
        CurrentAssignmentRecord(group_id, member_id, member.current_assignment),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    topics = sorted(resolved.topics)
    value = b"".join(
        (
            _VERSION,
            compact_array_length(len(topics)),
            *(compact_nullable_string(topic) for topic in topics),
            _LONG.pack(resolved.metadata_version),
            _LONG.pack(resolved.timestamp_ms),
            _NO_TAGS,
        )
    )
    return _decided(
        _key(REGEX_TYPE, group_id, regex), value, RegexRecord(group_id, regex, resolved)
    )


def tombstone(record_type: int, group_id: str, name: str | None = None) -> CoordinatorRecord:
    """`name` is that of a member or an expression, where records of the type have one."""
    return CoordinatorRecord(_key(record_type, group_id, name), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All that is known of a member; its subscription last, as that is what makes it one."""
    return [
        tombstone(record_type, group_id, member_id)
        for record_type in (CURRENT_ASSIGNMENT_TYPE, TARGET_MEMBER_TYPE, MEMBER_TYPE)
    ]


# Reading


def decode_consumer_record(
    record_type: int, key: FieldReader, value: bytes | None
) -> ConsumerRecord | None:
    """What a record says whose key is read up to its type; None for types of other protocols."""
    if record_type == GROUP_EPOCH_TYPE:
        return GroupEpochRecord(key.string(), None if value is None else _decode_epoch(value))
    if record_type == PARTITION_METADATA_TYPE:
        return PartitionMetadataRecord(key.string(), value is None)
    if record_type == MEMBER_TYPE:
        group_id, member_id = key.string(), key.string()
        return MemberRecord(
            group_id, member_id, None if value is None else _decode_member(member_id, value)
        )
    if record_type == TARGET_EPOCH_TYPE:
        return TargetEpochRecord(key.string(), None if value is None else _decode_target(value))
    if record_type == TARGET_MEMBER_TYPE:
        return TargetMemberRecord(
            key.string(), key.string(), None if value is None else _decode_target_member(value)
        )
    if record_type == CURRENT_ASSIGNMENT_TYPE:
        return CurrentAssignmentRecord(
            key.string(), key.string(), None if value is None else _decode_current(value)
        )
    if record_type == REGEX_TYPE:
        return RegexRecord(
            key.string(), key.string(), None if value is None else _decode_regex(value)
        )
    return None


def _decode_epoch(value: bytes) -> GroupEpoch:
    reader = _reader(value)
    return GroupEpoch(reader.int32(), _tagged_long(reader))


def _decode_target(value: bytes) -> TargetEpoch:
    reader = _reader(value)
    return TargetEpoch(reader.int32(), _tagged_long(reader))


def _decode_member(member_id: str, value: bytes) -> ConsumerMember:
    reader = _reader(value)
    instance_id = reader.nullable_string()
    rack_id = reader.nullable_string()
    client_id = reader.string()
    client_host = reader.string()
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    regex = reader.nullable_string() or ""
    rebalance_timeout_ms = reader.int32()
    server_assignor = reader.nullable_string()
    classic = reader.tagged().get(0)
    return ConsumerMember(
        member_id,
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        regex,
        rebalance_timeout_ms,
        server_assignor,
        None if classic is None else _decode_classic(classic),
    )


def _decode_classic(data: bytes) -> ClassicMetadata | None:
    if data[:1] != _PRESENT:
        return None
    reader = FieldReader(data, 1, is_flexible=True)
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_length()):
        protocols.append((reader.string(), reader.sized_bytes()))
        reader.tagged()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _decode_target_member(value: bytes) -> Target:
    reader = _reader(value)
    target = {}
    for _ in range(reader.array_length()):
        topic_id = reader.raw(16)
        target[topic_id] = frozenset(reader.int32() for _ in range(reader.array_length()))
        reader.tagged()
    return target


def _decode_current(value: bytes) -> CurrentAssignment:
    reader = _reader(value)
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.raw(1)[0]
    return CurrentAssignment(
        epoch,
        previous_epoch,
        _STATES.get(state, MemberState.UNKNOWN),
        _decode_held(reader, epoch),
        _decode_held(reader, epoch),
    )


def _decode_held(reader: FieldReader, epoch: int) -> Held:
    """A record of a broker before 4.3 has no epochs; the member's own is the strictest guess."""
    held: dict[bytes, Mapping[int, int]] = {}
    for _ in range(reader.array_length()):
        topic_id = reader.raw(16)
        partitions = [reader.int32() for _ in range(reader.array_length())]
        tag = reader.tagged().get(0)
        epochs = [epoch] * len(partitions)
        if tag is not None:
            tagged = FieldReader(tag, is_flexible=True)
            epochs = [tagged.int32() for _ in range(tagged.array_length())]
            if len(epochs) != len(partitions):
                raise corrupt(f"{len(partitions)} partitions have {len(epochs)} epochs")
        held[topic_id] = dict(zip(partitions, epochs, strict=True))
    return held


def _decode_regex(value: bytes) -> ResolvedRegex:
    reader = _reader(value)
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    return ResolvedRegex(topics, reader.int64(), reader.int64())


def _reader(value: bytes) -> FieldReader:
    version = FieldReader(value).int16()
    if version != 0:
        raise corrupt(f"its value has version {version}")
    return FieldReader(value, 2, is_flexible=True)


def _tagged_long(reader: FieldReader) -> int:
    found = reader.tagged().get(0)
    return 0 if found is None else FieldReader(found).int64()


# Small steps


def _decided(key: bytes, value: bytes, says: ConsumerRecord) -> DecidedRecord:
    record = DecidedRecord(key, value)
    record.says = says
    return record


def _key(record_type: int, group_id: str, name: str | None = None) -> bytes:
    start = _key_start(record_type, group_id)
    return start if name is None else start + legacy_string(name)


@lru_cache(_KEY_STARTS_REMEMBERED)
def _key_start(record_type: int, group_id: str) -> bytes:
    """The same for all members of a group."""
    return _SHORT.pack(record_type) + legacy_string(group_id)


def _long_tag(value: int) -> bytes:
    return _ONE_TAG + b"\x08" + _LONG.pack(value)


def _classic_tag(classic: ClassicMetadata) -> bytes:
    parts = [
        _PRESENT,
        _INT.pack(classic.session_timeout_ms),
        compact_array_length(len(classic.protocols)),
    ]
    for name, metadata in classic.protocols:
        parts += (compact_nullable_string(name), compact_bytes(metadata), _NO_TAGS)
    body = b"".join(parts) + _NO_TAGS
    return _ONE_TAG + unsigned_varint(len(body)) + body


def _held(held: Held) -> bytes:
    parts = [compact_array_length(len(held))]
    for topic_id in sorted(held):
        partitions = held[topic_id]
        indexes = sorted(partitions)
        epochs = _ints([partitions[index] for index in indexes])
        parts += (topic_id, _ints(indexes), _ONE_TAG, unsigned_varint(len(epochs)), epochs)
    return b"".join(parts)


def _ints(values: list[int]) -> bytes:
    return compact_array_length(len(values)) + Struct(f">{len(values)}i").pack(*values)
