"""What the transaction coordinator writes to `__transaction_state`, in Kafka's own bytes.

The key is version 0: the transactional id. The value is version 1 (flexible) where the cluster
has finalized `transaction.version` 1 or later, else version 0; both are read.

Pure. Invariant: decoding what was encoded gives the same metadata, but for what the log does not
hold: the last producer epoch, and in version 0 the producers around this one and the client's
version.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.coordinators.record_fields import FieldReader, corrupt
from ottla.coordinators.transaction.metadata import TransactionMetadata
from ottla.coordinators.transaction.states import TransactionState
from ottla.protocol.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.primitives import compact_bytes, legacy_string, unsigned_varint
from ottla.protocol.producers import NO_PRODUCER_EPOCH

KEY_VERSION = 0
VALUE_VERSION_MAX = 1

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_START = Struct(">hqhib")
_END = Struct(">qq")
_PREVIOUS_PRODUCER_ID_TAG = 0
_NEXT_PRODUCER_ID_TAG = 1
_CLIENT_VERSION_TAG = 2
_NEXT_PRODUCER_EPOCH_TAG = 3


class TransactionRecord(NamedTuple):
    """A key and a value as they lie in the log; no value is a tombstone."""

    key: bytes
    value: bytes | None


def transaction_record(
    transactional_id: str, metadata: TransactionMetadata, *, transaction_version: int
) -> TransactionRecord:
    """`transaction_version` is the level that the cluster has finalized."""
    encode = _encode_flexible if transaction_version >= 1 else _encode_legacy
    return TransactionRecord(_key(transactional_id), encode(metadata))


def transaction_tombstone(transactional_id: str) -> TransactionRecord:
    return TransactionRecord(_key(transactional_id), None)


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for a kind of key that is not known."""
    reader = FieldReader(key)
    return reader.string() if reader.int16() == KEY_VERSION else None


def decode_value(value: bytes) -> TransactionMetadata:
    """CORRUPT_MESSAGE if it is damaged."""
    version = FieldReader(value).int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise corrupt(f"its value has version {version}")
    reader = FieldReader(value, 2, is_flexible=version >= 1)
    producer_id = reader.int64()
    producer_epoch = reader.int16()
    timeout_ms = reader.int32()
    number = reader.int8()
    try:
        state = TransactionState(number)
    except ValueError:
        raise corrupt(f"there is no state {number}") from None
    partitions = _decode_partitions(reader, is_flexible=version >= 1)
    last_update_ms = reader.int64()
    start_ms = reader.int64()
    tags = reader.tagged() if version >= 1 else {}
    return TransactionMetadata(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        start_ms,
        last_update_ms,
        _tagged(tags, _PREVIOUS_PRODUCER_ID_TAG, _LONG, NO_PRODUCER_ID),
        _tagged(tags, _NEXT_PRODUCER_ID_TAG, _LONG, NO_PRODUCER_ID),
        _tagged(tags, _NEXT_PRODUCER_EPOCH_TAG, _SHORT, NO_PRODUCER_EPOCH),
        client_version=_tagged(tags, _CLIENT_VERSION_TAG, _SHORT, 0),
    )


def _key(transactional_id: str) -> bytes:
    return _SHORT.pack(KEY_VERSION) + legacy_string(transactional_id)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def _start(metadata: TransactionMetadata, version: int) -> bytes:
    return _START.pack(
        version,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state,
    )


def _encode_legacy(metadata: TransactionMetadata) -> bytes:
    parts = [_start(metadata, 0)]
    if metadata.state is TransactionState.EMPTY:
        parts.append(_INT.pack(-1))
    else:
        topics = _by_topic(metadata.partitions)
        parts.append(_INT.pack(len(topics)))
        for topic, indexes in topics.items():
            parts += (legacy_string(topic), _INT.pack(len(indexes)), *map(_INT.pack, indexes))
    parts.append(_END.pack(metadata.last_update_ms, metadata.start_ms))
    return b"".join(parts)


def _encode_flexible(metadata: TransactionMetadata) -> bytes:
    parts = [_start(metadata, 1)]
    if metadata.state is TransactionState.EMPTY:
        parts.append(b"\0")  # null
    else:
        topics = _by_topic(metadata.partitions)
        parts.append(unsigned_varint(len(topics) + 1))
        for topic, indexes in topics.items():
            parts.append(compact_bytes(topic.encode()))
            parts.append(unsigned_varint(len(indexes) + 1))
            parts += map(_INT.pack, indexes)
            parts.append(b"\0")
    parts.append(_END.pack(metadata.last_update_ms, metadata.start_ms))
    tags = []
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tags.append(b"\0\x08" + _LONG.pack(metadata.previous_producer_id))
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tags.append(b"\1\x08" + _LONG.pack(metadata.next_producer_id))
    if metadata.client_version:
        tags.append(b"\2\x02" + _SHORT.pack(metadata.client_version))
    if metadata.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags.append(b"\3\x02" + _SHORT.pack(metadata.next_producer_epoch))
    return b"".join((*parts, unsigned_varint(len(tags)), *tags))


def _decode_partitions(reader: FieldReader, *, is_flexible: bool) -> frozenset[TopicPartition]:
    topics = reader.nullable_array_length()
    if topics is None:
        return frozenset()
    found: set[TopicPartition] = set()
    for _ in range(topics):
        topic = reader.string()
        found.update(TopicPartition(topic, reader.int32()) for _ in range(reader.array_length()))
        if is_flexible:
            reader.tagged()
    return frozenset(found)


def _tagged(tags: dict[int, bytes], tag: int, form: Struct, default: int) -> int:
    raw = tags.get(tag)
    if raw is None:
        return default
    if len(raw) != form.size:
        raise corrupt(f"tag {tag} has {len(raw)} bytes")
    value: int = form.unpack(raw)[0]
    return value
