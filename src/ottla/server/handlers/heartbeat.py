"""Heartbeat: a member says that it lives, and hears whether its group rebalances.

Versions 0 to 4.
"""

from collections.abc import Awaitable
from typing import Any

from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    return services.groups.heartbeat(
        request.group_id,
        request.member_id,
        given(request, "group_instance_id", None),
        request.generation_id,
    )
