"""DescribeGroups: state, protocol and members of classic groups.

Versions 0 to 6. A group that is not there is shown as dead, and from version 6 on with
GROUP_ID_NOT_FOUND. Metadata and assignments are shown of a stable group only: before, members
have not agreed on a protocol.
"""

from typing import Any

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.states import GroupState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

NOT_FOUND_FROM = 6


def handle(services: Services, call: Call, request: Any) -> Fields:
    return {"groups": [_describe(services, call.version, one) for one in request.groups]}


def _describe(services: Services, version: int, group_id: str) -> Fields:
    try:
        group = services.groups.classic_group(group_id)
    except KafkaError as error:
        is_missing = error.code is ErrorCode.GROUP_ID_NOT_FOUND
        code = ErrorCode.NONE if is_missing and version < NOT_FOUND_FROM else error.code
        return {
            "error_code": code,
            "error_message": error.message,
            "group_id": group_id,
            "group_state": GroupState.DEAD.value if is_missing else "",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    is_stable = group.state is GroupState.STABLE
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": _members(group),
    }


def _members(group: ClassicGroup) -> list[Fields]:
    is_stable = group.state is GroupState.STABLE
    return [
        {
            "member_id": one.member_id,
            "group_instance_id": one.instance_id,
            "client_id": one.client_id,
            "client_host": one.client_host,
            "member_metadata": one.metadata(group.protocol) if is_stable else b"",
            "member_assignment": one.assignment,
        }
        for one in group.members
    ]
