"""What a consumer group starts from: nothing, a classic group, or what the log said. Pure."""

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import JOIN_EPOCH, MemberState
from ottla.coordinators.group.consumer.migration import decide_upgrade
from ottla.coordinators.group.consumer.records import decode_consumer_record
from ottla.coordinators.group.consumer.requests import HeartbeatRequest
from ottla.coordinators.group.consumer.settings import Context
from ottla.coordinators.group.consumer.timers import TimerChange, TimerKind
from ottla.coordinators.record_fields import FieldReader
from ottla.protocol.errors import ErrorCode, KafkaError


def base_group(
    known: ClassicGroup | ConsumerGroup | None,
    request: HeartbeatRequest,
    context: Context,
    out: Decision,
) -> ConsumerGroup:
    """The group that a heartbeat is for; who joins makes one, or turns a classic group into one."""
    if isinstance(known, ConsumerGroup):
        if known.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return known
    shown = request.group_id[:200]
    if request.member_epoch != JOIN_EPOCH:
        sentence = (
            f"Group {shown} not found."
            if known is None
            else (f"Group {shown} is not a consumer group.")
        )
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, sentence)
    group = ConsumerGroup(request.group_id)
    if known is not None:
        out.records += decide_upgrade(known, context)
        for key, value in out.records:
            reader = FieldReader(key)
            record = decode_consumer_record(reader.int16(), reader, value)
            if record is not None:
                group.replay(record)
    return group


def missing_timers(group: ConsumerGroup, context: Context) -> list[TimerChange]:
    """Deadlines for members that have none: to show up, and to give back what they owe."""
    now_ms = context.now.monotonic_ms
    changes = []
    for member_id, member in group.members.items():
        session_ms = context.settings.session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        changes.append(
            TimerChange(TimerKind.SESSION, member_id, now_ms + session_ms, only_if_absent=True)
        )
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            changes.append(
                TimerChange(
                    TimerKind.REBALANCE,
                    member_id,
                    now_ms + member.rebalance_timeout_ms,
                    member.epoch,
                    only_if_absent=True,
                )
            )
    return changes
