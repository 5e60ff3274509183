"""SyncGroup: the leader hands in everybody's assignment, and each member gets its own.

Versions 0 to 5. The answer comes when the log has the assignments. Version 5 names the protocol
again, so that a member which lost track of the group notices.
"""

from collections.abc import Awaitable
from typing import Any

from ottla.coordinators.group.requests import SyncRequest, sync_error
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

PROTOCOL_FROM = 5


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    protocol_type: str | None = given(request, "protocol_type", None)
    protocol: str | None = given(request, "protocol_name", None)
    if call.version >= PROTOCOL_FROM and (protocol_type is None or protocol is None):
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return services.groups.sync(
        request.group_id,
        SyncRequest(
            request.member_id,
            given(request, "group_instance_id", None),
            request.generation_id,
            protocol_type,
            protocol,
            [(one.member_id, bytes(one.assignment)) for one in request.assignments],
        ),
    )
