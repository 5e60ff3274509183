"""How a member comes closer to its target: first it gives back, then it is given (KIP-848).

A partition is given to a member only when nobody else holds it or is still giving it back, so each
has one reader at any time without the group ever stopping as a whole. A member moves to the
target's epoch as soon as it has nothing left to give back; what it still waits for comes with later
heartbeats.

Pure.
"""

from collections.abc import Callable, Mapping

from ottla.coordinators.group.consumer.member import (
    NOTHING_HELD,
    ConsumerMember,
    Held,
    MemberState,
    Owned,
    Target,
    TopicId,
)
from ottla.protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[TopicId, int], bool]


def reconciled(
    member: ConsumerMember,
    target: Target,
    target_epoch: int,
    *,
    is_free: IsFree,
    owned: Owned | None,
    has_changed: bool = False,
) -> ConsumerMember:
    """The member after one heartbeat in which it said that it owns `owned` (None: not said).

    `has_changed`: it wants other topics than before, so the target may have lost some.
    """
    state = member.state
    if state is MemberState.STABLE:
        if member.epoch == target_epoch and not has_changed:
            return member
        return _next(member, member.epoch, target, target_epoch, is_free, owned)
    if state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.pending_revocation):
            return member
        return _next(member, member.epoch, target, target_epoch, is_free, owned)
    if state is MemberState.UNRELEASED_PARTITIONS:
        return _next(member, member.epoch, target, target_epoch, is_free, owned)
    if owned is None or any(owned.values()):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this version does not know; it must rejoin",
        )
    return _next(member, target_epoch, target, target_epoch, is_free, owned)


def _next(
    member: ConsumerMember,
    epoch: int,
    target: Target,
    target_epoch: int,
    is_free: IsFree,
    owned: Owned | None,
) -> ConsumerMember:
    kept: dict[TopicId, Mapping[int, int]] = {}
    revoked: dict[TopicId, Mapping[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        keep = {one: since for one, since in partitions.items() if one in wanted}
        drop = {one: since for one, since in partitions.items() if one not in wanted}
        if keep:
            kept[topic_id] = keep
        if drop:
            revoked[topic_id] = drop
    if revoked and _owns_any(owned, revoked):
        return member.moved(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    is_waiting = False
    for topic_id, wanted in target.items():
        have = kept.get(topic_id, {})
        fresh = {}
        for one in wanted:
            if one in have:
                continue
            if is_free(topic_id, one):
                fresh[one] = target_epoch
            else:
                is_waiting = True
        if fresh:
            kept[topic_id] = {**have, **fresh}
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return member.moved(target_epoch, state, kept, NOTHING_HELD)


def _owns_any(owned: Owned | None, partitions: Held) -> bool:
    """Whether the member still has one of them; so, if it does not say."""
    if owned is None:
        return True
    return any(
        one in partitions.get(topic_id, ()) for topic_id, ones in owned.items() for one in ones
    )
