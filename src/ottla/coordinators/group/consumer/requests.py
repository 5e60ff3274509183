"""ConsumerGroupHeartbeat freed from versions, and what is wrong with it in itself. Pure."""

from typing import NamedTuple

from ottla.coordinators.group.consumer.assignors import ASSIGNORS
from ottla.coordinators.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Owned,
)
from ottla.coordinators.group.consumer.settings import ConsumerGroupSettings
from ottla.coordinators.group.effects import Fields
from ottla.protocol.errors import ErrorCode, KafkaError

UNCHANGED_TIMEOUT = -1


class HeartbeatRequest(NamedTuple):
    """Everything but the first three fields is None where it is as before."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topics: frozenset[str] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Owned | None = None
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""  # the id to hand out if it has none

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, so that it wants to hear everything."""
        return self.member_epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != UNCHANGED_TIMEOUT
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


def check_heartbeat(request: HeartbeatRequest, settings: ConsumerGroupSettings) -> None:
    """INVALID_REQUEST or UNSUPPORTED_ASSIGNOR if no group could take it."""
    _refuse_blank(request.group_id, "GroupId can't be empty.")
    _refuse_blank(request.instance_id, "InstanceId can't be empty.")
    _refuse_blank(request.rack_id, "RackId can't be empty.")
    epoch = request.member_epoch
    if epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _refuse_blank(request.member_id, "MemberId can't be empty.")
    elif epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        _refuse_blank(request.member_id, "MemberId can't be empty.")
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    else:
        raise _invalid("MemberEpoch is invalid.")
    name = request.server_assignor
    if name is not None and (name not in settings.assignors or name not in ASSIGNORS):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {name[:200]} is not supported."
            f" Supported assignors: {', '.join(settings.assignors)}.",
        )


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or any(request.owned.values()):
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
        )


def heartbeat_error(code: ErrorCode, message: str | None) -> Fields:
    return {
        "error_code": code,
        "error_message": message,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }


def _refuse_blank(text: str | None, sentence: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(sentence)


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)
