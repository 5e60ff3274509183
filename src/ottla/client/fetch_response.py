"""The raw record batches of a fetch response, as views into the received frame. Pure.

The general decoder would copy the records of every partition; here they stay where the socket put
them. Versions 4 to 18: flexible from 12, topic ids instead of names from 13.

Every length is held against the frame; a misfit is KafkaError(CORRUPT_MESSAGE).
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import read_unsigned_varint, skip_tagged_fields

FLEXIBLE_VERSION = 12
TOPIC_ID_VERSION = 13

_INT = Struct(">i")
_SHORT = Struct(">h")
_HEAD_V4 = Struct(">i")
_HEAD_V7 = Struct(">ihi")
_PARTITION_V4 = Struct(">ihqq")
_PARTITION_V5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int  # -1 before version 5
    aborted_transactions: tuple[AbortedTransaction, ...]
    preferred_read_replica: int
    records: memoryview


class FetchedTopic(NamedTuple):
    topic: str | UUID
    partitions: list[FetchedPartition]


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]


def parse_fetch_response(version: int, frame: memoryview, body_start: int) -> FetchResponse:
    """The response in `frame`; its record views are good as long as the frame's buffer is."""
    try:
        return _parse(_Reader(frame, body_start), version)
    except (StructError, IndexError, UnicodeDecodeError, KafkaError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"The bytes are not a FetchResponse: {error}"
        ) from error


def _parse(reader: "_Reader", version: int) -> FetchResponse:
    flexible = version >= FLEXIBLE_VERSION
    error_code = session_id = 0
    if version >= 7:
        throttle_time_ms, error_code, session_id = reader.unpack(_HEAD_V7)
    else:
        (throttle_time_ms,) = reader.unpack(_HEAD_V4)
    topics: list[FetchedTopic] = []
    for _ in range(reader.count(flexible)):
        topic: str | UUID
        if version >= TOPIC_ID_VERSION:
            topic = UUID(bytes=bytes(reader.take(16)))
        else:
            topic = bytes(reader.take(reader.string_length(flexible))).decode()
        partitions = [
            _parse_partition(reader, version, flexible) for _ in range(reader.count(flexible))
        ]
        if flexible:
            reader.skip_tags()
        topics.append(FetchedTopic(topic, partitions))
    return FetchResponse(throttle_time_ms, error_code, session_id, topics)


def _parse_partition(reader: "_Reader", version: int, flexible: bool) -> FetchedPartition:
    log_start_offset = -1
    if version >= 5:
        partition, error, watermark, stable, log_start_offset = reader.unpack(_PARTITION_V5)
    else:
        partition, error, watermark, stable = reader.unpack(_PARTITION_V4)
    aborted: list[AbortedTransaction] = []
    for _ in range(reader.count(flexible)):
        aborted.append(AbortedTransaction(*reader.unpack(_ABORTED)))
        if flexible:
            reader.skip_tags()
    preferred = reader.unpack(_INT)[0] if version >= 11 else -1
    records = reader.take(reader.count(flexible))
    if flexible:
        reader.skip_tags()
    return FetchedPartition(
        partition, error, watermark, stable, log_start_offset, tuple(aborted), preferred, records
    )


class _Reader:
    def __init__(self, frame: memoryview, position: int) -> None:
        self._frame = frame
        self._position = position
        self._end = len(frame)

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._frame, self._position)
        self._position += layout.size
        return values

    def take(self, size: int) -> memoryview:
        end = self._position + size
        if size < 0 or end > self._end:
            raise IndexError(f"a length of {size} passes the end")
        piece = self._frame[self._position : end]
        self._position = end
        return piece

    def count(self, flexible: bool) -> int:
        """An array's or a byte string's length; null counts as none."""
        if flexible:
            value, self._position = read_unsigned_varint(self._frame, self._position, self._end)
            count = value - 1
        else:
            (count,) = self.unpack(_INT)
        if count > self._end - self._position:
            raise IndexError(f"a count of {count} passes the end")
        return max(count, 0)

    def string_length(self, flexible: bool) -> int:
        return self.count(True) if flexible else self.unpack(_SHORT)[0]

    def skip_tags(self) -> None:
        if self._frame[self._position] == 0:
            self._position += 1
        else:
            self._position = skip_tagged_fields(self._frame, self._position, self._end)
