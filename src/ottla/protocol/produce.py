"""What a produce request asks, and the bytes of its answer: versions 3 to 13. Pure.

This runs for every batch a client writes, so it is done by hand in one pass: no entity is
built, and the records stay slices of the buffer that the request arrived in. They are valid
only as long as that buffer is, and writable where it is.

Up to version 12 a topic is its name; in version 13 it is its id, sixteen raw bytes.

Invariant: parse and encode agree with kio's schemas for every version, byte for byte; the
tests hold them against each other.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import read_unsigned_varint, skip_tagged_fields
from ottla.protocol.primitives import (
    CompactEndpoint,
    compact_array_length,
    compact_bytes,
    compact_nullable_string,
    legacy_nullable_string,
    legacy_string,
    node_endpoints_tag,
)

VERSION_MIN = 3
VERSION_MAX = 13
FLEXIBLE_VERSION = 9
TOPIC_ID_VERSION = 13
LEADER_VERSION = 10  # from here on errors can name the new leader (KIP-951)

_SHORT = Struct(">h")
_INT = Struct(">i")
_INDEX_AND_LENGTH = Struct(">ii")
_ACKS_TIMEOUT_BYTE = Struct(">hiB")
_INDEX_AND_TWO_BYTES = Struct(">iBB")
_ACKS_TIMEOUT_COUNT = Struct(">hii")
_RESULT_V3 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")
_RESULT_V8 = Struct(">ihqqqi")
_CURRENT_LEADER_TAG = Struct(">BBBiiB")
_THROTTLE_AND_TAGS = Struct(">iB")
_new_tuple = tuple.__new__  # what a NamedTuple's own constructor calls, without the detour


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str | bytes, list[tuple[int, memoryview | None]]]]


class PartitionProduceResult(NamedTuple):
    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()  # (index in the batch, message)
    current_leader: tuple[int, int] | None = None  # (broker id, leader epoch)


def parse_produce(version: int, buffer: memoryview, start: int, end: int) -> ProduceRequest:
    """The produce request whose body is [start, end); KafkaError(INVALID_REQUEST) if it is none."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"Produce version {version} is not supported"
        )
    try:
        if version >= FLEXIBLE_VERSION:
            return _parse_flexible(version, buffer[:end], start, end)
        return _parse_legacy(buffer[:end], start, end)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise _malformed() from error


def _parse_flexible(version: int, view: memoryview, pos: int, end: int) -> ProduceRequest:
    transactional_id = None
    if view[pos] == 0:
        pos += 1
    else:
        transactional_id, pos = _read_nullable_string(view, pos, end)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_BYTE.unpack_from(view, pos)
    pos += 7
    if not 0 < topic_count < 0x80:
        topic_count, pos = _read_count(view, pos - 1, end)
    topics: list[tuple[str | bytes, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count - 1):
        topic: str | bytes
        if version >= TOPIC_ID_VERSION:
            name_end = pos + 16
            topic = view[pos:name_end].tobytes()
        else:
            length = view[pos]
            pos += 1
            if not 0 < length < 0x80:
                length, pos = _read_count(view, pos - 1, end)
            name_end = pos + length - 1
            topic = view[pos:name_end].tobytes().decode()
        partition_count = view[name_end]  # also finds a name that passes the end
        pos = name_end + 1
        if not 0 < partition_count < 0x80:
            partition_count, pos = _read_count(view, name_end, end)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count - 1):
            # Tagged fields follow, so a second byte is there whether it is length or not.
            index, length, second = _INDEX_AND_TWO_BYTES.unpack_from(view, pos)
            if length < 0x80:
                pos += 5
            elif second < 0x80:
                length = length & 0x7F | second << 7
                pos += 6
            else:
                length, pos = read_unsigned_varint(view, pos + 4, end)
            if length == 0:
                partitions.append((index, None))
            else:
                records_end = pos + length - 1
                partitions.append((index, view[pos:records_end]))
                pos = records_end
            if view[pos] == 0:  # also finds records that pass the end
                pos += 1
            else:
                pos = skip_tagged_fields(view, pos, end)
        topics.append((topic, partitions))
        pos = pos + 1 if view[pos] == 0 else skip_tagged_fields(view, pos, end)
    if view[pos] != 0:
        skip_tagged_fields(view, pos, end)
    return _new_tuple(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _parse_legacy(view: memoryview, pos: int, end: int) -> ProduceRequest:
    length = _SHORT.unpack_from(view, pos)[0]
    pos += 2
    transactional_id = None
    if length >= 0:
        if pos + length > end:
            raise _malformed()
        transactional_id = view[pos : pos + length].tobytes().decode()
        pos += length
    elif length != -1:
        raise _malformed()
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(view, pos)
    if not 0 <= topic_count <= end - pos:
        raise _malformed()
    pos += 10
    topics: list[tuple[str | bytes, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        length = _SHORT.unpack_from(view, pos)[0]
        name_end = pos + 2 + length
        if length < 0 or name_end > end:
            raise _malformed()
        topic = view[pos + 2 : name_end].tobytes().decode()
        partition_count = _INT.unpack_from(view, name_end)[0]
        pos = name_end + 4
        if not 0 <= partition_count <= end - pos:
            raise _malformed()
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index, length = _INDEX_AND_LENGTH.unpack_from(view, pos)
            pos += 8
            if length >= 0:
                if pos + length > end:
                    raise _malformed()
                partitions.append((index, view[pos : pos + length]))
                pos += length
            elif length == -1:
                partitions.append((index, None))
            else:
                raise _malformed()
        topics.append((topic, partitions))
    return _new_tuple(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _read_nullable_string(view: memoryview, pos: int, end: int) -> tuple[str | None, int]:
    length, pos = read_unsigned_varint(view, pos, end)
    if length == 0:
        return None, pos
    string_end = pos + length - 1
    if string_end > end:
        raise _malformed()
    return view[pos:string_end].tobytes().decode(), string_end


def _read_count(view: memoryview, pos: int, end: int) -> tuple[int, int]:
    """A compact count or length, plus one as on the wire, that is not null and can be true."""
    count, pos = read_unsigned_varint(view, pos, end)
    if not 0 < count <= end - pos + 1:
        raise _malformed()
    return count, pos


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[PartitionProduceResult]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[CompactEndpoint] = (),
) -> bytes:
    """The response from its correlation id on."""
    if version < FLEXIBLE_VERSION:
        return _encode_legacy(version, correlation_id, topics, throttle_time_ms)
    parts = [_INT.pack(correlation_id), b"\0", compact_array_length(len(topics))]
    append = parts.append
    for topic, results in topics:
        append(topic if isinstance(topic, bytes) else compact_bytes(topic.encode()))
        append(compact_array_length(len(results)))
        for result in results:
            partition, error_code, base_offset, append_time, log_start, message, errors, leader = (
                result
            )
            append(_RESULT_V5.pack(partition, error_code, base_offset, append_time, log_start))
            if errors or message is not None or leader is not None:
                _append_details(parts, version, errors, message, leader)
            else:
                append(b"\1\0\0")
        append(b"\0")
    if node_endpoints and version >= LEADER_VERSION:
        append(_INT.pack(throttle_time_ms))
        append(node_endpoints_tag(node_endpoints))
    else:
        append(_THROTTLE_AND_TAGS.pack(throttle_time_ms, 0))
    return b"".join(parts)


def _append_details(
    parts: list[bytes],
    version: int,
    errors: Sequence[tuple[int, str | None]],
    message: str | None,
    leader: tuple[int, int] | None,
) -> None:
    parts.append(compact_array_length(len(errors)))
    for index, sentence in errors:
        parts += (_INT.pack(index), compact_nullable_string(sentence), b"\0")
    parts.append(compact_nullable_string(message))
    if leader is not None and leader != (-1, -1) and version >= LEADER_VERSION:
        parts.append(_CURRENT_LEADER_TAG.pack(1, 0, 9, *leader, 0))
    else:
        parts.append(b"\0")


def _encode_legacy(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[PartitionProduceResult]]],
    throttle_time_ms: int,
) -> bytes:
    parts = [_INDEX_AND_LENGTH.pack(correlation_id, len(topics))]
    append = parts.append
    for topic, results in topics:
        if isinstance(topic, bytes):
            raise ValueError(f"version {version} names topics, it has no ids")
        append(legacy_string(topic))
        append(_INT.pack(len(results)))
        for result in results:
            if version >= 8:
                append(_RESULT_V8.pack(*result[:5], len(result.record_errors)))
                for index, sentence in result.record_errors:
                    parts += (_INT.pack(index), legacy_nullable_string(sentence))
                append(legacy_nullable_string(result.error_message))
            elif version >= 5:
                append(_RESULT_V5.pack(*result[:5]))
            else:
                append(_RESULT_V3.pack(*result[:4]))
    append(_INT.pack(throttle_time_ms))
    return b"".join(parts)


def _malformed() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, "The produce request is malformed")
