"""DescribeGroups: state, protocol and members of classic groups.

Versions 0 to 6; from 3 on with what the caller may do, if it asks. A group that is not there is
shown as dead, and from version 6 on with GROUP_ID_NOT_FOUND. Metadata and assignments are shown of
a stable group only: before, members have not agreed on a protocol.
"""

from typing import Any

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.states import GroupState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.operations import GROUP_OPERATIONS, NOT_ASKED
from ottla.server.services import Services

NOT_FOUND_FROM = 6


def handle(services: Services, call: Call, request: Any) -> Fields:
    is_asked = given(request, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if is_asked else NOT_ASKED
    return {
        "groups": [_describe(services, call.version, one, operations) for one in request.groups]
    }


def _describe(services: Services, version: int, group_id: str, operations: int) -> Fields:
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
            "authorized_operations": operations if code is ErrorCode.NONE else NOT_ASKED,
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
        "authorized_operations": operations,
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
