"""The produce that a client sends again and again, recognised without being parsed. Pure.

A producer that writes to one partition repeats itself: from one request to the next only the
correlation id and the records change, and the bytes before them say who writes where. They are
compared, not parsed, and the answer is packed at once.

Invariant: what is recognised is what `parse_produce` would have found, and the answer is what
`encode_produce_response` would have written; the tests hold them against each other.
"""

from struct import Struct

from ottla.protocol.frames import read_unsigned_varint
from ottla.protocol.primitives import compact_bytes, unsigned_varint
from ottla.protocol.produce import FLEXIBLE_VERSION, ProduceRequest

_HEAD_AT = 8  # behind API key, version and correlation id
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
_NO_ERRORS = b"\1\0\0\0"  # no record errors, no message, no tags of the partition, of the topic


class RepeatedProduce:
    __slots__ = (
        "_head",
        "_pack_answer",
        "_topic_bytes",
        "_unpack_head",
        "acks",
        "partition",
        "records_at",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(self, version: int, request: ProduceRequest, head: bytes) -> None:
        """`head` is the request up to the length of its records."""
        topic, ((self.partition, _),) = request.topics[0]
        self.version = version
        self.topic = topic
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._head = head[_HEAD_AT:]
        self._unpack_head = Struct(f">4xi{len(self._head)}s").unpack_from
        self.records_at = len(head)
        self._topic_bytes = topic if isinstance(topic, bytes) else compact_bytes(topic.encode())
        self._pack_answer = Struct(f">iBB{len(self._topic_bytes)}sBihqqq4siB").pack

    @classmethod
    def of(
        cls, version: int, request: ProduceRequest, frame: memoryview
    ) -> "RepeatedProduce | None":
        """The request in `frame`, as one to expect again; None if it is not of the kind."""
        topics = request.topics
        if (
            version < FLEXIBLE_VERSION
            or request.transactional_id is not None
            or request.acks not in (-1, 1)
            or len(topics) != 1
            or len(topics[0][1]) != 1
        ):
            return None
        records = topics[0][1][0][1]
        if not records or frame[-3:] != _NO_TAGS:
            return None
        length = unsigned_varint(len(records) + 1)
        records_at = len(frame) - len(_NO_TAGS) - len(records)
        head_end = records_at - len(length)
        if frame[head_end:records_at] != length:
            return None  # written with more bytes than it takes
        return cls(version, request, bytes(frame[:head_end]))

    def records_in(self, buffer: memoryview, start: int, end: int) -> tuple[int, memoryview] | None:
        """Correlation id and records of the produce in [start, end); None if it is another.

        API key and version have to be the same; they are not looked at.
        """
        length_at = start + self.records_at
        records_end = end - 3
        if length_at >= records_end:
            return None
        correlation_id, head = self._unpack_head(buffer, start)
        if head != self._head or buffer[records_end:end] != _NO_TAGS:
            return None
        length, records_start = read_unsigned_varint(buffer, length_at, records_end)
        if records_start + length - 1 != records_end or length == 1:
            return None
        return correlation_id, buffer[records_start:records_end]

    def encode_answer(
        self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """The response to records that were stored."""
        answer: bytes = self._pack_answer(
            correlation_id,
            0,
            2,
            self._topic_bytes,
            2,
            self.partition,
            0,
            base_offset,
            append_time_ms,
            log_start_offset,
            _NO_ERRORS,
            0,
            0,
        )
        return answer
