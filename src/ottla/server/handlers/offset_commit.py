"""OffsetCommit: how far a group has read.

Versions 2 to 10; from 10 on topics are named by id. Each partition is answered on its own; what is
wrong with the group or the member is said of every partition, as the response has no other place.

Raw, because a consumer sends the same request with other offsets again and again: it is recognised
as bytes, and the answer to one that went well is packed once.
"""

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Any

from ottla.coordinators.group.shard import CommitRequest, WantedOffset
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import RequestHeader
from ottla.protocol.messages import decode_request, duration_ms, encode_response, given
from ottla.protocol.repeated_commit import RepeatedCommit
from ottla.protocol.uuids import ZERO
from ottla.server.commit_partitions import CommitPartitions
from ottla.server.connection import Answer, Behind, Connection, Deferred, Expected
from ottla.server.services import Services

TOPIC_IDS_FROM = 10
RETENTION_UNTIL = 4
BROKER_RETENTION_MS = -1
_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)
_CORRELATION = Struct(">i")


def handle(
    services: Services, connection: Connection, header: RequestHeader, buffer: memoryview, end: int
) -> Answer | Deferred:
    version = header.api_version
    request = decode_request(_OFFSET_COMMIT, version, buffer[header.body_start : end])
    commit = _Commit(services, version, request)
    repeated = None
    if commit.is_sound:
        repeated = RepeatedCommit.of(version, request, buffer[header.start : end])
    connection.expect(header, None if repeated is None else _expected(services, repeated, commit))
    return commit.perform(commit.wanted, header.correlation_id)


def _expected(services: Services, repeated: RepeatedCommit, commit: "_Commit") -> Expected:
    """Commits the same partitions again, as long as the metadata is what it was."""
    # Not the image itself: a connection that falls silent would keep an old one alive.
    known_at, requests = services.image.offset, services.metrics.requests

    def answer(buffer: memoryview, start: int, end: int) -> bytes | Deferred | None:
        found = repeated.offsets_in(buffer, start, end)
        if found is None or services.image.offset != known_at:
            return None
        requests[_OFFSET_COMMIT] += 1
        correlation_id, offsets = found
        wanted = [
            WantedOffset(topic, topic_id, index, offset, leader_epoch, metadata)
            for (topic, topic_id, index, _, _, metadata), (offset, leader_epoch) in zip(
                commit.wanted, offsets, strict=True
            )
        ]
        return commit.perform(wanted, correlation_id)

    return answer


class _Commit:
    """What a request has in common with those that repeat it."""

    __slots__ = ("_common", "_partitions", "_services", "_version", "_well", "_well_answer")

    def __init__(self, services: Services, version: int, request: Any) -> None:
        self._services = services
        self._version = version
        self._partitions = CommitPartitions()
        for topic in request.topics:
            self._add(topic)
        retention_ms = BROKER_RETENTION_MS
        if version <= RETENTION_UNTIL:
            retention_ms = duration_ms(request.retention_time)
        self._common = CommitRequest(
            request.group_id,
            request.member_id,
            given(request, "group_instance_id", None),
            request.generation_id_or_member_epoch,
            retention_ms,
            version,
        )
        self._well = [ErrorCode.NONE] * len(self.wanted)
        self._well_answer = b""  # without its correlation id; made when first needed

    @property
    def wanted(self) -> list[WantedOffset]:
        return self._partitions.wanted

    @property
    def is_sound(self) -> bool:
        """Whether every partition is there."""
        return self._partitions.are_all_there

    def perform(self, wanted: Sequence[WantedOffset], correlation_id: int) -> bytes | Deferred:
        """Commit these offsets of the same partitions."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def on_decided(codes: list[ErrorCode]) -> None:
            if not answer.done():  # as it is when the client has hung up
                answer.set_result(self._answer(codes, correlation_id))

        try:
            self._services.groups.commit(self._common, wanted, on_decided)
        except KafkaError as error:
            on_decided([error.code] * len(wanted))
        return answer.result() if answer.done() else Deferred(answer, Behind.ALIKE)

    def _add(self, topic: Any) -> None:
        image, unknown = self._services.image, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._version >= TOPIC_IDS_FROM:
            found = image.topic_with_id(topic.topic_id or ZERO)
            if found is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found = image.topics.get(topic.name)
        self._partitions.add(topic, found, unknown)

    def _answer(self, decided: list[ErrorCode], correlation_id: int) -> bytes:
        if decided != self._well:
            return self._encode(decided, correlation_id)
        if not self._well_answer:
            self._well_answer = self._encode(decided, correlation_id)[_CORRELATION.size :]
        return _CORRELATION.pack(correlation_id) + self._well_answer

    def _encode(self, decided: Sequence[ErrorCode], correlation_id: int) -> bytes:
        answer = self._partitions.answer(decided)
        return encode_response(_OFFSET_COMMIT, self._version, correlation_id, answer)
