"""Members of a consumer group that still speak JoinGroup, SyncGroup and Heartbeat (KIP-848).

The server assigns for them as for the others; they hear of it in their own words. A heartbeat that
is answered by REBALANCE_IN_PROGRESS makes one rejoin with what it owns, which counts as its turn;
SyncGroup then gives it its share. Its member epoch is its generation.

Pure, like decisions.py.
"""

from collections.abc import Sequence

from ottla.coordinators.group.consumer.advance import Turn
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.decisions import (
    check_size,
    checked_static_member,
    decide_remove,
    static_place,
)
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    Owned,
)
from ottla.coordinators.group.consumer.migration import classic_assignment, decide_downgrade
from ottla.coordinators.group.consumer.settings import Context
from ottla.coordinators.group.consumer.timers import TimerChange, TimerKind
from ottla.coordinators.group.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartitions,
    parse_subscription,
)
from ottla.coordinators.group.effects import Fields
from ottla.coordinators.group.requests import (
    NO_MEMBER_ID,
    JoinRequest,
    LeavingMember,
    SyncRequest,
    join_error,
)
from ottla.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError


def decide_join(
    group: ConsumerGroup, request: JoinRequest, context: Context, out: Decision
) -> None:
    member_id = request.member_id or request.new_member_id
    if not context.settings.may_upgrade and not context.settings.may_downgrade:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_size(group, member_id, request.instance_id, context)
    if not group.supports_classic(request.protocol_type, {name for name, _ in request.protocols}):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_unknown = request.member_id == NO_MEMBER_ID
    if is_unknown and request.instance_id is None and request.requires_known_member_id:
        out.handed_out = member_id
        out.response = join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return
    before, replaced_id = _place(group, request, member_id, out)
    try:
        subscription = parse_subscription(request.protocols[0][1])
    except KafkaError:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
    known = before or ConsumerMember(member_id)
    after = known._replace(
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=subscription.topics,
        regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )
    turn = Turn(group, context, out, before=before, after=after, replaced_id=replaced_id)
    member = turn.take(_owned(subscription.owned, context.image))
    leaving = replaced_id or (member_id if before is not None else None)
    if leaving is not None and decide_downgrade(
        group, [leaving], context, out, joining=member, epoch=turn.epoch
    ):
        out.timers.clear()
    else:
        now_ms = context.now.monotonic_ms
        out.timers += (
            TimerChange(TimerKind.JOIN, member_id, None),
            TimerChange(TimerKind.REBALANCE, member_id, None),
            TimerChange(TimerKind.SESSION, member_id, now_ms + request.session_timeout_ms),
            TimerChange(TimerKind.SYNC, member_id, now_ms + request.rebalance_timeout_ms),
        )
    out.response = {
        "error_code": ErrorCode.NONE,
        "generation_id": member.epoch,
        "protocol_type": CONSUMER_PROTOCOL_TYPE,
        "protocol_name": request.protocols[0][0],
        "leader": NO_MEMBER_ID,
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


def decide_sync(
    group: ConsumerGroup, request: SyncRequest, context: Context, out: Decision
) -> None:
    member = _classic_member(group, request.member_id, request.instance_id)
    classic = _metadata_of(member)
    _check_generation(member, request.generation)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
        request.protocol not in (None, classic.protocols[0][0])
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    now_ms = context.now.monotonic_ms
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        out.timers.append(_rejoin_by(member, context))
        out.response = _sync_response(ErrorCode.REBALANCE_IN_PROGRESS, None, None, b"")
        return
    out.timers += (
        TimerChange(TimerKind.SYNC, member.member_id, None),
        TimerChange(TimerKind.SESSION, member.member_id, now_ms + classic.session_timeout_ms),
    )
    out.response = _sync_response(
        ErrorCode.NONE,
        request.protocol_type,
        request.protocol,
        classic_assignment(member, context.image),
    )


def decide_classic_heartbeat(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    context: Context,
    out: Decision,
) -> ErrorCode:
    member = _classic_member(group, member_id, instance_id)
    _check_generation(member, generation)
    deadline_ms = context.now.monotonic_ms + _metadata_of(member).session_timeout_ms
    out.timers.append(TimerChange(TimerKind.SESSION, member_id, deadline_ms))
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _is_waiting(group, member))
    ):
        out.timers.append(_rejoin_by(member, context))
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def decide_classic_leave(
    group: ConsumerGroup, leaving: Sequence[LeavingMember], context: Context, out: Decision
) -> None:
    results = []
    gone: dict[str, None] = {}
    for one in leaving:
        code = ErrorCode.NONE
        member_id = one.member_id
        try:
            member = _leaving_member(group, one)
            if member.member_id in gone:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = member.member_id
            gone[member_id] = None
        except KafkaError as error:
            code = error.code
        results.append(
            {
                "member_id": member_id,
                "group_instance_id": one.instance_id,
                "error_code": code,
            }
        )
    if gone:
        decide_remove(group, list(gone), context, out)
    out.response = {"error_code": ErrorCode.NONE, "members": results}


def _place(
    group: ConsumerGroup, request: JoinRequest, member_id: str, out: Decision
) -> tuple[ConsumerMember | None, str | None]:
    if request.instance_id is None:
        if request.member_id != NO_MEMBER_ID and not group.knows(member_id):
            # It was thrown out, and may still read what others have by now: it must start over.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group.members.get(member_id), None
    if request.member_id == NO_MEMBER_ID:
        return static_place(group, member_id, request.instance_id, out, is_classic=True)
    return checked_static_member(group, member_id, request.instance_id), None


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    if leaving.instance_id is None:
        member = group.member(leaving.member_id)
    elif leaving.member_id == NO_MEMBER_ID:
        found = group.static_member(leaving.instance_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = found
    else:
        member = checked_static_member(group, leaving.member_id, leaving.instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    member = (
        group.member(member_id)
        if instance_id is None
        else checked_static_member(group, member_id, instance_id)
    )
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _metadata_of(member: ConsumerMember) -> ClassicMetadata:
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _rejoin_by(member: ConsumerMember, context: Context) -> TimerChange:
    deadline_ms = context.now.monotonic_ms + member.rebalance_timeout_ms
    return TimerChange(TimerKind.JOIN, member.member_id, deadline_ms, only_if_absent=True)


def _is_waiting(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether something that it shall have is still with somebody else."""
    return any(
        partition not in member.assigned.get(topic_id, ())
        and group.is_held_by_other(topic_id, partition, member.member_id)
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def _owned(owned: NamedPartitions, image: MetadataImage) -> Owned:
    """By topic id; what it owns of topics that are gone, nobody else can want."""
    return {
        image.topics[name].topic_id.bytes: partitions
        for name, partitions in owned.items()
        if name in image.topics
    }


def _sync_response(
    code: ErrorCode, protocol_type: str | None, protocol: str | None, assignment: bytes
) -> Fields:
    return {
        "error_code": code,
        "protocol_type": protocol_type,
        "protocol_name": protocol,
        "assignment": assignment,
    }
