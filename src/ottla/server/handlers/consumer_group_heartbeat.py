"""ConsumerGroupHeartbeat: one request by which members join, live, change and leave (KIP-848).

Versions 0 and 1; from 1 on with a regular expression for topics, and members bring their own id.
"""

from collections.abc import Awaitable
from typing import Any

from ottla.coordinators.group.consumer.requests import HeartbeatRequest, heartbeat_error
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import duration_ms, given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

OWN_MEMBER_ID_FROM = 1
ZERO_ID = bytes(16)


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    if call.version >= OWN_MEMBER_ID_FROM and not request.member_id.strip():
        return heartbeat_error(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    topics = request.subscribed_topic_names
    owned = request.topic_partitions
    return services.groups.consumer_heartbeat(
        HeartbeatRequest(
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
    )
