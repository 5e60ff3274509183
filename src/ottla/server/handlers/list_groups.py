"""ListGroups: the groups that this broker coordinates.

Versions 0 to 5; from 4 on filtered by state, from 5 on by type.
"""

from typing import Any

from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

CLASSIC = "classic"
CONSUMER = "consumer"


def handle(services: Services, call: Call, request: Any) -> Fields:
    states_filter: tuple[str, ...] = given(request, "states_filter", ())
    types_filter: tuple[str, ...] = given(request, "types_filter", ())
    states = {state.lower() for state in states_filter}
    types = {kind.lower() for kind in types_filter}
    try:
        groups = [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC,
            }
            for group in services.groups.list_groups()
            if not group.is_dead
            and (not states or group.state.value.lower() in states)
            and (not types or (CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC) in types)
        ]
    except KafkaError as error:
        return {"error_code": error.code, "groups": []}
    return {"error_code": ErrorCode.NONE, "groups": groups}
