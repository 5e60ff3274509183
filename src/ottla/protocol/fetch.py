"""What a fetch request asks, and the bytes around the records of its answer. Pure.

Versions 4 to 18.

The records themselves never pass through here. A response is a list of parts: bytes to write
as they are, and slots that say which records, of which length, go in between, so that the
connection can have the kernel send them straight from the file.

Up to version 12 a topic is its name; from 13 on its id, sixteen raw bytes. From version 15 on
a follower names itself in a tagged field (KIP-903).

Invariant: parse and encode agree with kio's schemas for every version, byte for byte; the
tests hold them against each other.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import read_unsigned_varint, skip_tagged_fields
from ottla.protocol.primitives import (
    CompactEndpoint,
    compact_array_length,
    compact_bytes,
    legacy_string,
    node_endpoints_tag,
    unsigned_varint,
)

VERSION_MIN = 4
VERSION_MAX = 18
FLEXIBLE_VERSION = 12
TOPIC_ID_VERSION = 13
REPLICA_STATE_VERSION = 15
NODE_ENDPOINTS_VERSION = 16

NO_HIGH_WATERMARK = (1 << 63) - 1  # what version 18 takes a follower without one to have

_SHORT = Struct(">h")
_INT = Struct(">i")
_HEAD_V4 = Struct(">iiiib")
_HEAD_V7 = Struct(">iiiibii")
_HEAD_V15 = Struct(">iiibii")
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_REPLICA_STATE = Struct(">iq")
_HIGH_WATERMARK = Struct(">q")

_RESPONSE_V4 = Struct(">iii")
_RESPONSE_V7 = Struct(">iihii")
_RESPONSE_V12 = Struct(">iBihi")
_RESULT_V4 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END_TAG = Struct(">BBiqB")
_LEADER_TAG = Struct(">BBiiB")
_SNAPSHOT_TAG = Struct(">BBqiB")
_ABORTED_FLEXIBLE = Struct(">qqB")

_NO_PARTITION_TAGS = (None, NO_HIGH_WATERMARK)
_new_tuple = tuple.__new__  # what a NamedTuple's own constructor calls, without the detour


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes | None = None
    high_watermark: int = NO_HIGH_WATERMARK


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str | bytes, list[FetchPartition]]]
    forgotten_topics: list[tuple[str | bytes, list[int]]]
    rack_id: str
    cluster_id: str | None = None
    replica_epoch: int = -1


class FetchPartitionResult(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Any = None  # whatever the connection knows how to send
    records_length: int = 0
    aborted_transactions: Sequence[tuple[int, int]] | None = None  # (producer id, first offset)
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end offset)
    current_leader: tuple[int, int] | None = None  # (broker id, leader epoch)
    snapshot_id: tuple[int, int] | None = None  # (end offset, epoch)


class RecordsSlot(NamedTuple):
    """Here `length` bytes of `records` are sent."""

    records: Any
    length: int


def parse_fetch(version: int, buffer: memoryview, start: int, end: int) -> FetchRequest:
    """The fetch request whose body is [start, end); KafkaError(INVALID_REQUEST) if it is none."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Fetch version {version} is not supported")
    try:
        if version >= FLEXIBLE_VERSION:
            return _parse_flexible(version, buffer[:end], start, end)
        return _parse_legacy(version, buffer[:end], start, end)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise _malformed() from error


def _parse_flexible(version: int, view: memoryview, pos: int, end: int) -> FetchRequest:
    replica_id = -1
    if version < REPLICA_STATE_VERSION:
        replica_id = _INT.unpack_from(view, pos)[0]
        pos += 4
    max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_V15.unpack_from(
        view, pos
    )
    topic_count, pos = _read_count(view, pos + 21, end)
    topics: list[tuple[str | bytes, list[FetchPartition]]] = []
    for _ in range(topic_count):
        topic: str | bytes
        if version >= TOPIC_ID_VERSION:
            topic = view[pos : pos + 16].tobytes()
            pos += 16
        else:
            topic, pos = _read_string(view, pos, end)
        partition_count = view[pos] - 1  # also finds a topic that passes the end
        pos += 1
        if not 0 <= partition_count < 0x7F:
            partition_count, pos = _read_count(view, pos - 1, end)
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            fields = _PARTITION_V12.unpack_from(view, pos)
            pos += 32
            if view[pos] == 0:
                pos += 1
                partitions.append(_new_tuple(FetchPartition, fields + _NO_PARTITION_TAGS))
            else:
                partition, pos = _read_partition_tags(version, fields, view, pos, end)
                partitions.append(partition)
        topics.append((topic, partitions))
        pos = pos + 1 if view[pos] == 0 else skip_tagged_fields(view, pos, end)
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if view[pos] == 1:
        pos += 1
    else:
        forgotten, pos = _read_forgotten(version, view, pos, end)
    rack_id = ""
    if view[pos] == 1:
        pos += 1
    else:
        rack_id, pos = _read_string(view, pos, end)
    cluster_id = None
    replica_epoch = -1
    if view[pos] != 0:
        for tag, tag_start, tag_end in _read_tags(view, pos, end)[0]:
            if tag == 0:
                cluster_id = _read_nullable_string(view, tag_start, tag_end)
            elif tag == 1 and version >= REPLICA_STATE_VERSION:
                replica_id, replica_epoch = _REPLICA_STATE.unpack_from(view[:tag_end], tag_start)
    head = (replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch)
    return _new_tuple(FetchRequest, (*head, topics, forgotten, rack_id, cluster_id, replica_epoch))


def _parse_legacy(version: int, view: memoryview, pos: int, end: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= 7:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = (
            _HEAD_V7.unpack_from(view, pos)
        )
        pos += _HEAD_V7.size
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_V4.unpack_from(view, pos)
        pos += _HEAD_V4.size
    topic_count, pos = _read_legacy_count(view, pos, end)
    topics: list[tuple[str | bytes, list[FetchPartition]]] = []
    for _ in range(topic_count):
        topic, pos = _read_legacy_string(view, pos, end)
        partition_count, pos = _read_legacy_count(view, pos, end)
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, offset, log_start, size = _PARTITION_V9.unpack_from(view, pos)
                pos += 28
            elif version >= 5:
                index, offset, log_start, size = _PARTITION_V5.unpack_from(view, pos)
                epoch = -1
                pos += 24
            else:
                index, offset, size = _PARTITION_V4.unpack_from(view, pos)
                epoch = log_start = -1
                pos += 16
            partitions.append(
                _new_tuple(
                    FetchPartition,
                    (index, epoch, offset, -1, log_start, size, None, NO_HIGH_WATERMARK),
                )
            )
        topics.append((topic, partitions))
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if version >= 7:
        forgotten_count, pos = _read_legacy_count(view, pos, end)
        for _ in range(forgotten_count):
            topic, pos = _read_legacy_string(view, pos, end)
            count, pos = _read_legacy_count(view, pos, end)
            forgotten.append((topic, list(Struct(f">{count}i").unpack_from(view, pos))))
            pos += 4 * count
    rack_id = ""
    if version >= 11:
        rack_id, pos = _read_legacy_string(view, pos, end)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )


def _read_forgotten(
    version: int, view: memoryview, pos: int, end: int
) -> tuple[list[tuple[str | bytes, list[int]]], int]:
    forgotten: list[tuple[str | bytes, list[int]]] = []
    forgotten_count, pos = _read_count(view, pos, end)
    for _ in range(forgotten_count):
        topic, pos = _read_topic(version, view, pos, end)
        count, pos = _read_count(view, pos, end)
        forgotten.append((topic, list(Struct(f">{count}i").unpack_from(view, pos))))
        pos = skip_tagged_fields(view, pos + 4 * count, end)
    return forgotten, pos


def _read_partition_tags(
    version: int, fields: tuple[Any, ...], view: memoryview, pos: int, end: int
) -> tuple[FetchPartition, int]:
    directory_id = None
    high_watermark = NO_HIGH_WATERMARK
    tags, pos = _read_tags(view, pos, end)
    for tag, tag_start, tag_end in tags:
        if tag == 0 and version >= 17:
            if tag_end - tag_start < 16:
                raise _malformed()
            directory_id = view[tag_start : tag_start + 16].tobytes()
        elif tag == 1 and version >= 18:
            high_watermark = _HIGH_WATERMARK.unpack_from(view[:tag_end], tag_start)[0]
    return _new_tuple(FetchPartition, (*fields, directory_id, high_watermark)), pos


def _read_tags(view: memoryview, pos: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """(tag, start, end) of each tagged field of a section, and the position after it."""
    count, pos = read_unsigned_varint(view, pos, end)
    tags: list[tuple[int, int, int]] = []
    for _ in range(count):
        tag, pos = read_unsigned_varint(view, pos, end)
        size, pos = read_unsigned_varint(view, pos, end)
        if pos + size > end:
            raise _malformed()
        tags.append((tag, pos, pos + size))
        pos += size
    return tags, pos


def _read_topic(version: int, view: memoryview, pos: int, end: int) -> tuple[str | bytes, int]:
    if version >= TOPIC_ID_VERSION:
        if pos + 16 > end:
            raise _malformed()
        return view[pos : pos + 16].tobytes(), pos + 16
    return _read_string(view, pos, end)


def _read_string(view: memoryview, pos: int, end: int) -> tuple[str, int]:
    length = view[pos]
    pos += 1
    if length == 1:
        return "", pos
    if length >= 0x80:
        length, pos = read_unsigned_varint(view, pos - 1, end)
    string_end = pos + length - 1
    if length == 0 or string_end > end:
        raise _malformed()
    return view[pos:string_end].tobytes().decode(), string_end


def _read_nullable_string(view: memoryview, pos: int, end: int) -> str | None:
    if pos >= end:
        raise _malformed()
    return None if view[pos] == 0 else _read_string(view, pos, end)[0]


def _read_count(view: memoryview, pos: int, end: int) -> tuple[int, int]:
    count = view[pos]
    pos += 1
    if count >= 0x80:
        count, pos = read_unsigned_varint(view, pos - 1, end)
    if not 0 < count <= end - pos + 1:
        raise _malformed()
    return count - 1, pos


def _read_legacy_string(view: memoryview, pos: int, end: int) -> tuple[str, int]:
    length = _SHORT.unpack_from(view, pos)[0]
    string_end = pos + 2 + length
    if length < 0 or string_end > end:
        raise _malformed()
    return view[pos + 2 : string_end].tobytes().decode(), string_end


def _read_legacy_count(view: memoryview, pos: int, end: int) -> tuple[int, int]:
    count = _INT.unpack_from(view, pos)[0]
    pos += 4
    if not 0 <= count <= end - pos:
        raise _malformed()
    return count, pos


def encode_fetch_response_parts(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[FetchPartitionResult]]],
    node_endpoints: Sequence[CompactEndpoint] = (),
) -> list[bytes | RecordsSlot]:
    """The response from its correlation id on, its records as slots between bytes.

    Neighbouring bytes are joined: no two parts that follow each other are both bytes.
    """
    parts: list[bytes | RecordsSlot] = []
    if version >= FLEXIBLE_VERSION:
        head = [_RESPONSE_V12.pack(correlation_id, 0, throttle_time_ms, error_code, session_id)]
        head.append(compact_array_length(len(topics)))
        for topic, results in topics:
            head.append(topic if isinstance(topic, bytes) else compact_bytes(topic.encode()))
            head.append(compact_array_length(len(results)))
            for result in results:
                _append_flexible(parts, head, result)
            head.append(b"\0")
        if node_endpoints and version >= NODE_ENDPOINTS_VERSION:
            head.append(node_endpoints_tag(node_endpoints))
        else:
            head.append(b"\0")
    else:
        if version >= 7:
            head = [
                _RESPONSE_V7.pack(
                    correlation_id, throttle_time_ms, error_code, session_id, len(topics)
                )
            ]
        else:
            head = [_RESPONSE_V4.pack(correlation_id, throttle_time_ms, len(topics))]
        for topic, results in topics:
            if isinstance(topic, bytes):
                raise ValueError(f"version {version} names topics, it has no ids")
            head.append(legacy_string(topic))
            head.append(_INT.pack(len(results)))
            for result in results:
                _append_legacy(version, parts, head, result)
    if head:
        parts.append(b"".join(head))
    return parts


def _append_flexible(
    parts: list[bytes | RecordsSlot], head: list[bytes], result: FetchPartitionResult
) -> None:
    """Write one partition's fields to `head`; with records, close it and start the next."""
    (
        partition,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        records,
        records_length,
        aborted,
        preferred,
        diverging_epoch,
        current_leader,
        snapshot_id,
    ) = result
    head.append(
        _RESULT_V5.pack(partition, error_code, high_watermark, last_stable_offset, log_start_offset)
    )
    if aborted is None:
        head.append(b"\0")
    else:
        head.append(compact_array_length(len(aborted)))
        for producer_id, first_offset in aborted:
            head.append(_ABORTED_FLEXIBLE.pack(producer_id, first_offset, 0))
    head.append(_INT.pack(preferred))
    head.append(unsigned_varint(records_length + 1))
    if records_length:
        parts.append(b"".join(head))
        parts.append(RecordsSlot(records, records_length))
        head.clear()
    if diverging_epoch is None and current_leader is None and snapshot_id is None:
        head.append(b"\0")
    else:
        head.append(_partition_tags(diverging_epoch, current_leader, snapshot_id))


def _partition_tags(
    diverging_epoch: tuple[int, int] | None,
    current_leader: tuple[int, int] | None,
    snapshot_id: tuple[int, int] | None,
) -> bytes:
    tags: list[bytes] = []
    if diverging_epoch is not None and diverging_epoch != (-1, -1):
        tags.append(_EPOCH_END_TAG.pack(0, 13, *diverging_epoch, 0))
    if current_leader is not None and current_leader != (-1, -1):
        tags.append(_LEADER_TAG.pack(1, 9, *current_leader, 0))
    if snapshot_id is not None and snapshot_id != (-1, -1):
        tags.append(_SNAPSHOT_TAG.pack(2, 13, *snapshot_id, 0))
    return unsigned_varint(len(tags)) + b"".join(tags)


def _append_legacy(
    version: int,
    parts: list[bytes | RecordsSlot],
    head: list[bytes],
    result: FetchPartitionResult,
) -> None:
    if version >= 5:
        head.append(_RESULT_V5.pack(*result[:5]))
    else:
        head.append(_RESULT_V4.pack(*result[:4]))
    aborted = result.aborted_transactions
    if aborted is None:
        head.append(b"\xff\xff\xff\xff")
    else:
        head.append(_INT.pack(len(aborted)))
        for producer_id, first_offset in aborted:
            head.append(_ABORTED.pack(producer_id, first_offset))
    if version >= 11:
        head.append(_INT.pack(result.preferred_read_replica))
    head.append(_INT.pack(result.records_length))
    if result.records_length:
        parts.append(b"".join(head))
        parts.append(RecordsSlot(result.records, result.records_length))
        head.clear()


def _malformed() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, "The fetch request is malformed")
