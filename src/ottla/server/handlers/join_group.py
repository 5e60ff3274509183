"""JoinGroup: become, or stay, a member of the next generation of a group.

Versions 0 to 9. The answer comes when the generation is complete. From version 4 on a new member
is first given an id and told to join with it (KIP-394), so that a lost answer leaves no ghost;
version 5 brings static members (KIP-345), version 9 leaders that need not assign (KIP-814).
"""

import inspect
from collections.abc import Awaitable
from typing import Any

from ottla.coordinators.group.requests import JoinRequest
from ottla.protocol.messages import duration_ms, given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

REBALANCE_TIMEOUT_FROM = 1
KNOWN_MEMBER_ID_FROM = 4
NULLABLE_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    session_timeout_ms = duration_ms(request.session_timeout)
    instance_id = given(request, "group_instance_id", None)
    client_id = call.client_id or ""
    name = client_id if instance_id is None else instance_id
    rebalance_timeout_ms = session_timeout_ms
    if call.version >= REBALANCE_TIMEOUT_FROM:
        rebalance_timeout_ms = max(duration_ms(request.rebalance_timeout), 0)
    answer = services.groups.join(
        request.group_id,
        JoinRequest(
            request.member_id,
            instance_id,
            client_id,
            f"/{call.client_host}",
            session_timeout_ms,
            rebalance_timeout_ms,
            request.protocol_type,
            tuple((one.name, bytes(one.metadata)) for one in request.protocols),
            f"{name}-{services.runtime.random.uuid4()}",
            call.version >= KNOWN_MEMBER_ID_FROM,
            call.version >= SKIP_ASSIGNMENT_FROM,
        ),
    )
    if inspect.isawaitable(answer):
        return _shape_later(answer, call.version)
    return _shape(answer, call.version)


async def _shape_later(answer: Awaitable[Fields], version: int) -> Fields:
    return _shape(await answer, version)


def _shape(answer: Fields, version: int) -> Fields:
    """Older versions know no null."""
    if answer["protocol_name"] is None and version < NULLABLE_PROTOCOL_FROM:
        return {**answer, "protocol_name": ""}
    return answer
