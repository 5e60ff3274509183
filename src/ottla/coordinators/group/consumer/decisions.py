"""What a consumer group answers to its members' heartbeats, and when it lets members go.

Every decision comes from the replayed state alone and changes nothing; the shell writes its records
and tells the member once they are committed. A heartbeat that changes nothing costs no record and
no look at the other members.

Pure; the shell is coordinator.py. Invariants: a member is never told of a partition that another
may still read; an epoch that a member was told is in the log.
"""

from collections.abc import Sequence
from uuid import UUID

from ottla.coordinators.group.consumer.advance import Turn
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import (
    JOIN_EPOCH,
    NOTHING_HELD,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Held,
    Owned,
    is_subset,
    same_partitions,
)
from ottla.coordinators.group.consumer.migration import decide_downgrade
from ottla.coordinators.group.consumer.records import (
    PARTITION_METADATA_TYPE,
    REGEX_TYPE,
    GroupEpoch,
    current_assignment_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    target_member_record,
    tombstone,
)
from ottla.coordinators.group.consumer.requests import UNCHANGED_TIMEOUT, HeartbeatRequest
from ottla.coordinators.group.consumer.settings import Context
from ottla.coordinators.group.consumer.timers import Expired, TimerChange, TimerKind
from ottla.coordinators.group.consumer.topics import metadata_hash
from ottla.coordinators.group.effects import Fields
from ottla.protocol.errors import ErrorCode, KafkaError


def decide_heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, context: Context, out: Decision
) -> None:
    """A member joins, or says that it lives, what it wants and what it owns."""
    member_id = request.member_id or request.new_member_id
    check_size(group, member_id, request.instance_id, context)
    is_joining = request.member_epoch == JOIN_EPOCH
    replaced_id = None
    before: ConsumerMember | None
    if request.instance_id is None:
        before = group.members.get(member_id) if is_joining else group.member(member_id)
        if before is not None and not is_joining:  # who joins again owns nothing any more
            _check_epoch(before, request.member_epoch, request.owned)
    elif is_joining:
        before, replaced_id = static_place(
            group, member_id, request.instance_id, out, is_classic=False
        )
    else:
        before = checked_static_member(group, member_id, request.instance_id)
        _check_epoch(before, request.member_epoch, request.owned)
    after = _updated(before or ConsumerMember(member_id), request)
    turn = Turn(group, context, out, before=before, after=after, replaced_id=replaced_id)
    member = turn.take(request.owned)
    settings = context.settings
    session_deadline_ms = context.now.monotonic_ms + settings.session_timeout_ms
    out.timers.append(TimerChange(TimerKind.SESSION, member_id, session_deadline_ms))
    if before is not None and before.classic is not None:
        out.timers.append(TimerChange(TimerKind.JOIN, member_id, None))
        out.timers.append(TimerChange(TimerKind.SYNC, member_id, None))
    known = NOTHING_HELD if before is None else before.assigned
    is_told = request.is_full or not same_partitions(known, member.assigned)
    out.response = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "member_id": member_id,
        "member_epoch": member.epoch,
        "heartbeat_interval": settings.heartbeat_interval_ms,
        "assignment": _assignment(member.assigned) if is_told else None,
    }


def decide_leave(
    group: ConsumerGroup, request: HeartbeatRequest, context: Context, out: Decision
) -> None:
    """A member goes for good (-1), or a static one for a while (-2)."""
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = checked_static_member(group, request.member_id, request.instance_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        away = member._replace(epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING_HELD)
        out.records.append(current_assignment_record(group.group_id, away))
    else:
        decide_remove(group, [member.member_id], context, out)
    out.response = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "heartbeat_interval": 0,
        "assignment": None,
    }


def decide_expired(
    group: ConsumerGroup, expired: Sequence[Expired], context: Context, out: Decision
) -> None:
    """Members whose time is up go, all of them with one epoch."""
    late: dict[str, None] = {}
    for one in expired:
        member = group.members.get(one.member_id)
        if member is None:
            continue
        if one.kind is TimerKind.REBALANCE and member.epoch != one.member_epoch:
            continue  # it did what it was told
        late[one.member_id] = None
    if late:
        decide_remove(group, list(late), context, out)


def decide_remove(
    group: ConsumerGroup, member_ids: Sequence[str], context: Context, out: Decision
) -> None:
    """Members go; what they held is free once this is written. The group may become classic."""
    if decide_downgrade(group, member_ids, context, out):
        return
    group_id = group.group_id
    regexes = dict(group.regexes)
    topic_counts, regex_counts = group.topic_counts.copy(), group.regex_counts.copy()
    for member_id in member_ids:
        out.records += member_tombstones(group_id, member_id)
        out.removed.append(member_id)
        member = group.members[member_id]
        topic_counts.subtract(member.topics)
        if member.regex:
            regex_counts[member.regex] -= 1
            if not regex_counts[member.regex] and regexes.pop(member.regex, None) is not None:
                out.records.append(tombstone(REGEX_TYPE, group_id, member.regex))
    names = {name for name, count in topic_counts.items() if count > 0}
    for resolved in regexes.values():
        names |= resolved.topics
    if group.has_partition_metadata:
        out.records.append(tombstone(PARTITION_METADATA_TYPE, group_id))
    found = metadata_hash(names, context.image)
    out.records.append(group_epoch_record(group_id, GroupEpoch(group.epoch + 1, found)))


def static_place(
    group: ConsumerGroup, member_id: str, instance_id: str, out: Decision, *, is_classic: bool
) -> tuple[ConsumerMember | None, str | None]:
    """The place of a static member that joins: a new one, or the one it left, under its new id.

    UNRELEASED_INSTANCE_ID while another process has it.
    """
    existing = group.static_member(instance_id)
    if existing is None:
        return None, None
    if not is_classic and existing.classic is None and not existing.has_left:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id[:200]} with instance id {instance_id[:200]} cannot join the"
            f" group because the instance id is owned by {existing.member_id[:200]} member.",
        )
    member = existing._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    group_id = group.group_id
    if existing.member_id != member_id:
        out.records += member_tombstones(group_id, existing.member_id)
        out.removed.append(existing.member_id)
    out.records += (
        member_record(group_id, member),
        target_member_record(group_id, member_id, group.target_of(existing.member_id)),
        current_assignment_record(group_id, member),
    )
    return member, existing.member_id


def checked_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member that asks; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it was replaced."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id[:200]} is unknown."
        )
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id[:200]} with instance id {instance_id[:200]} was fenced by"
            f" member {member.member_id[:200]}.",
        )
    return member


def check_size(
    group: ConsumerGroup, member_id: str, instance_id: str | None, context: Context
) -> None:
    """A full group takes nobody new; a static member that comes back is not new."""
    size_max = context.settings.size_max
    if (
        len(group.members) >= size_max
        and member_id not in group.members
        and instance_id not in group.static_ids
    ):
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    *,
    is_transactional: bool,
    is_old_version: bool,
) -> ConsumerMember | None:
    """Who commits; None for somebody outside the group who may. Older epochs: `may_commit`."""
    if epoch < 0 and not group.members:
        return None
    if is_transactional and epoch == -1 and not member_id and instance_id is None:
        return None  # a producer that was not told which member it works for
    member = group.member(member_id)
    if is_old_version and member.classic is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch > member.epoch:
        raise stale(member)
    return member


def may_commit(member: ConsumerMember, epoch: int, topic_id: UUID, partition: int) -> bool:
    """Whether the member has held the partition without a break since the epoch it names."""
    if epoch == member.epoch:
        return True
    since = member.assignment_epoch(topic_id.bytes, partition)
    return since is not None and since <= epoch


def stale(member: ConsumerMember) -> KafkaError:
    """What a member of another epoch is told, in the words of its protocol."""
    return KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    )


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse to tell offsets to a member of another epoch, who would start from old ones."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise stale(member)


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    if epoch == member.epoch:
        return
    # The answer with the newest epoch may have been lost; then it owns nothing beyond.
    if (
        epoch == member.previous_epoch
        and epoch < member.epoch
        and (is_subset(owned, member.assigned))
    ):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by"
        f" the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with what the heartbeat says; the same object's equal if that is nothing new."""
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerMember(
        member.member_id,
        member.instance_id if request.instance_id is None else request.instance_id,
        member.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        member.topics if request.topics is None else request.topics,
        member.regex if request.regex is None else request.regex,
        member.rebalance_timeout_ms if timeout_ms == UNCHANGED_TIMEOUT else timeout_ms,
        member.server_assignor if request.server_assignor is None else request.server_assignor,
        None,  # it no longer speaks the classic protocol
        *member.current_assignment,
    )


def _assignment(held: Held) -> Fields:
    return {
        "topic_partitions": [
            {"topic_id": UUID(bytes=topic_id), "partitions": sorted(held[topic_id])}
            for topic_id in sorted(held)
        ]
    }
