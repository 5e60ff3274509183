"""What members ask of their group, freed from versions, and the answers that refuse them. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.coordinators.group.effects import Fields
from ottla.coordinators.group.members import NO_ASSIGNMENT, Protocols
from ottla.protocol.errors import ErrorCode

NO_MEMBER_ID = ""


class GroupLimits(NamedTuple):
    """Settings of the broker that a group obeys."""

    initial_rebalance_delay_ms: int = 3000
    size_max: int = 2**31 - 1


class JoinRequest(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str  # the id to hand out if it has none
    requires_known_member_id: bool  # v4 and later join twice, first to get an id (KIP-394)
    can_skip_assignment: bool  # v9 and later (KIP-814)


class SyncRequest(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Sequence[tuple[str, bytes]]


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None


def join_error(code: ErrorCode, member_id: str) -> Fields:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": NO_MEMBER_ID,
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


def sync_error(code: ErrorCode) -> Fields:
    return {
        "error_code": code,
        "protocol_type": None,
        "protocol_name": None,
        "assignment": NO_ASSIGNMENT,
    }
