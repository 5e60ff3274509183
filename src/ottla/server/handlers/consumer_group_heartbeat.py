"""ConsumerGroupHeartbeat: one request by which members join, live, change and leave (KIP-848).

Versions 0 and 1; from 1 on with a regular expression for topics, and members bring their own id.

A member of a group in which nothing happens says the same over and over. Such a heartbeat is
recognised as bytes, and answered with the bytes of the answer before.
"""

from collections.abc import Awaitable
from struct import Struct
from typing import Any

from ottla.coordinators.group.consumer.requests import HeartbeatRequest, heartbeat_error
from ottla.coordinators.group.consumer.rest import Rest
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import duration_ms, encode_response, given
from ottla.protocol.repeated_request import RepeatedRequest
from ottla.server.connection import Expected
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

OWN_MEMBER_ID_FROM = 1
ZERO_ID = bytes(16)
_CONSUMER_GROUP_HEARTBEAT = int(ApiKey.CONSUMER_GROUP_HEARTBEAT)
_CORRELATION = Struct(">i")


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    if call.version >= OWN_MEMBER_ID_FROM and not request.member_id.strip():
        return heartbeat_error(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    topics = request.subscribed_topic_names
    owned = request.topic_partitions
    heartbeat = HeartbeatRequest(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        duration_ms(request.rebalance_timeout),
        None if topics is None else frozenset(topics),
        given(request, "subscribed_topic_regex", None),
        request.server_assignor,
        None
        if owned is None
        else {
            ZERO_ID if one.topic_id is None else one.topic_id.bytes: tuple(one.partitions)
            for one in owned
        },
        call.client_id or "",
        f"/{call.client_host}",
        "" if request.member_id else str(services.runtime.random.uuid4()),
    )
    answer = services.groups.consumer_heartbeat(heartbeat)
    rest = None
    if isinstance(answer, dict) and answer["assignment"] is None and not answer["error_code"]:
        rest = services.groups.rest_of(heartbeat, answer)
    call.connection.expect(
        call.header, None if rest is None else _expected(services, call, rest, answer)
    )
    return answer


def _expected(services: Services, call: Call, rest: Rest, fields: Any) -> Expected:
    """Answers the same request with `fields`, as long as the member is at rest."""
    repeated = RepeatedRequest(call.frame)
    body = encode_response(_CONSUMER_GROUP_HEARTBEAT, call.version, 0, fields)[_CORRELATION.size :]
    requests, groups = services.metrics.requests, services.groups

    def answer(buffer: memoryview, start: int, end: int) -> bytes | None:
        correlation_id = repeated.correlation_id_in(buffer, start, end)
        if correlation_id is None or not groups.stay(rest):
            return None
        requests[_CONSUMER_GROUP_HEARTBEAT] += 1
        return _CORRELATION.pack(correlation_id) + body

    return answer
