"""LeaveGroup: members go, and their group rebalances at once instead of after a timeout.

Versions 0 to 5; from 3 on several at once, static ones by their instance id (KIP-345).
"""

import inspect
from collections.abc import Awaitable
from typing import Any

from ottla.coordinators.group.requests import LeavingMember
from ottla.protocol.errors import ErrorCode
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

BATCHED_FROM = 3


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    if call.version >= BATCHED_FROM:
        leaving = [LeavingMember(one.member_id, one.group_instance_id) for one in request.members]
        return services.groups.leave(request.group_id, leaving)
    answer = services.groups.leave(request.group_id, [LeavingMember(request.member_id, None)])
    if inspect.isawaitable(answer):
        return _single_later(answer)
    return _single(answer)


async def _single_later(answer: Awaitable[Fields]) -> Fields:
    return _single(await answer)


def _single(answer: Fields) -> Fields:
    """The error of the only member is the error of the request."""
    code = answer["error_code"]
    if code is ErrorCode.NONE and answer["members"]:
        code = answer["members"][0]["error_code"]
    return {"error_code": code}
