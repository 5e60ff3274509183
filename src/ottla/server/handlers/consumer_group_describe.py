"""ConsumerGroupDescribe: epochs, members and assignments of consumer groups (KIP-848).

Versions 0 and 1; from 1 on with the protocol that each member speaks (KIP-1099). Classic groups are
described by DescribeGroups, and are not found here.
"""

from typing import Any
from uuid import UUID

from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember, Owned
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.dispatch import Call, Fields
from ottla.server.operations import GROUP_OPERATIONS, NOT_ASKED
from ottla.server.services import Services

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def handle(services: Services, call: Call, request: Any) -> Fields:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return {"groups": [_describe(services, group_id, operations) for group_id in request.group_ids]}


def _describe(services: Services, group_id: str, operations: int) -> Fields:
    try:
        group = services.groups.consumer_group(group_id)
    except KafkaError as error:
        return {
            "error_code": error.code,
            "error_message": error.message,
            "group_id": group_id,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": [],
            "authorized_operations": NOT_ASKED,
        }
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": max(group.target_epoch.epoch, 0),
        "assignor_name": group.preferred_assignor() or services.groups.default_assignor(group_id),
        "members": [_member(services, group, one) for one in group.members.values()],
        "authorized_operations": operations,
    }


def _member(services: Services, group: ConsumerGroup, member: ConsumerMember) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.regex,
        "assignment": _assignment(services, _held(member)),
        "target_assignment": _assignment(services, group.target_of(member.member_id)),
        "member_type": CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    }


def _held(member: ConsumerMember) -> Owned:
    """All that it may be reading, what it is about to give back included."""
    held = {topic_id: set(partitions) for topic_id, partitions in member.assigned.items()}
    for topic_id, partitions in member.pending_revocation.items():
        held.setdefault(topic_id, set()).update(partitions)
    return held


def _assignment(services: Services, partitions: Owned) -> Fields:
    """Topics that are gone have no name, and are left out."""
    shown = []
    for topic_id in sorted(partitions):
        name = services.topic_name(topic_id)
        if name is not None:
            shown.append(
                {
                    "topic_id": UUID(bytes=topic_id),
                    "topic_name": name,
                    "partitions": sorted(partitions[topic_id]),
                }
            )
    return {"topic_partitions": shown}
