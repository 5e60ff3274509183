"""The fetch that a consumer sends again and again, recognised without being parsed. Pure.

A consumer of one partition outside a session repeats itself: from one request to the next only
the correlation id and the offset change. Parsing it anew each time costs more than reading the
records, so the first one is kept as bytes with a hole where the offset is, and the answer's
head as one struct.

Invariant: what is recognised is what `parse_fetch` would have found, and the answer is what
`encode_fetch_response_parts` would have written; the tests hold them against each other.
"""

from struct import Struct

from ottla.protocol.fetch import FLEXIBLE_VERSION, FetchRequest
from ottla.protocol.primitives import compact_bytes, unsigned_varint

_HEAD_AT = 8  # behind API key, version and correlation id
_PARTITION = Struct(">iiqiqi")
_OFFSET_BYTES = 8
_OFFSET_IN_PARTITION = 8
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the response


class RepeatedFetch:
    __slots__ = (
        "_aborted",
        "_frame",
        "_head",
        "_pack_head",
        "_tail",
        "_topic_bytes",
        "bytes_max",
        "is_read_committed",
        "leader_epoch",
        "min_bytes",
        "partition",
        "topic",
        "version",
    )

    def __init__(self, version: int, request: FetchRequest, frame: bytes, offset_at: int) -> None:
        self.topic, (asked,) = request.topics[0]
        self.version = version
        self.partition = asked.partition
        self.leader_epoch = asked.current_leader_epoch
        self.min_bytes = request.min_bytes
        self.bytes_max = max(min(asked.partition_max_bytes, request.max_bytes), 0)
        self.is_read_committed = request.isolation_level == 1
        self._aborted = 1 if self.is_read_committed else 0  # an empty list, or none
        topic = self.topic
        self._topic_bytes = topic if isinstance(topic, bytes) else compact_bytes(topic.encode())
        self._head = frame[_HEAD_AT:offset_at]
        self._tail = frame[offset_at + _OFFSET_BYTES :]
        self._frame = Struct(f">4xi{len(self._head)}sq{len(self._tail)}s")
        self._pack_head = Struct(f">iBihiB{len(self._topic_bytes)}sBihqqqBi").pack

    @classmethod
    def of(cls, version: int, request: FetchRequest, frame: memoryview) -> "RepeatedFetch | None":
        """The request in `frame`, as one to expect again; None if it is not of the kind."""
        topics = request.topics
        if (
            version < FLEXIBLE_VERSION
            or request.session_epoch >= 0
            or request.session_id
            or request.replica_id >= 0
            or request.min_bytes <= 0
            or len(topics) != 1
            or len(topics[0][1]) != 1
        ):
            return None
        asked = topics[0][1][0]
        if asked.last_fetched_epoch >= 0:
            return None
        whole = bytes(frame)
        place = whole.rfind(_PARTITION.pack(*asked[:6]))
        return cls(version, request, whole, place + _OFFSET_IN_PARTITION)

    def offset_in(self, buffer: memoryview, start: int, end: int) -> tuple[int, int] | None:
        """Correlation id and offset of the fetch in [start, end); None if it is another.

        API key and version have to be the same; they are not looked at.
        """
        if end - start != self._frame.size:
            return None
        correlation_id, head, offset, tail = self._frame.unpack_from(buffer, start)
        if offset < 0 or head != self._head or tail != self._tail:
            return None
        return correlation_id, offset

    def encode_answer(
        self,
        correlation_id: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: bytes | bytearray,
    ) -> bytes:
        """The response with these records, no error and no aborted transaction."""
        head = self._pack_head(
            correlation_id,
            0,
            0,
            0,
            0,
            2,
            self._topic_bytes,
            2,
            self.partition,
            0,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            self._aborted,
            -1,
        )
        return b"".join((head, unsigned_varint(len(records) + 1), records, _NO_TAGS))
