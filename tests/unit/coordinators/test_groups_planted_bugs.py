"""Bugs that coordinators have had, planted one by one: the property machines find each of them.

A machine that finds nothing may be blind. Each bug here is a realistic slip, patched into the code
for the time of a test; a world walked from successive seeds must find fault with what it sees,
within its budget. A bug that makes the code raise something is a bad plant, and fails its test.
"""

import random
from collections.abc import Callable
from typing import Any

import consumer_world
import pytest
from group_world import World as ClassicWorld
from test_coordinators_group_machine import WALK_STEPS, _step

from ottla.coordinators.group import shard
from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer import (
    advance,
    decisions,
    loading,
    migration,
)
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember, MemberState
from ottla.coordinators.group.consumer.records import GroupEpoch
from ottla.coordinators.group.consumer.timers import GroupTimers, TimerChange, TimerKind
from ottla.coordinators.group.members import Members

WALKS_MAX = 60
Patch = pytest.MonkeyPatch


def assign_before_others_have_revoked(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "is_held_by_other", lambda *_: False)


def take_revocation_for_granted(patch: Patch) -> None:
    """The member is moved on although it still owns what it was told to give back."""

    def hasty(member: ConsumerMember, *arguments: Any, **named: Any) -> ConsumerMember:
        moved = honest(member, *arguments, **named)
        if moved.state is MemberState.UNREVOKED_PARTITIONS:
            return moved._replace(state=MemberState.STABLE, pending_revocation={})
        return moved

    honest = advance.reconciled
    patch.setattr(advance, "reconciled", hasty)


def keep_the_epoch_when_a_member_goes(patch: Patch) -> None:
    patch.setattr(decisions, "GroupEpoch", lambda epoch, hash_: GroupEpoch(epoch - 1, hash_))


def let_a_fenced_epoch_commit(patch: Patch) -> None:
    patch.setattr(shard, "may_commit", lambda *_: True)


def let_a_stranger_commit(patch: Patch) -> None:
    patch.setattr(shard, "check_commit", lambda *_, **__: None)


def replace_a_running_static_member(patch: Patch) -> None:
    def careless(group: ConsumerGroup, *arguments: Any, is_classic: bool) -> Any:
        return honest(group, *arguments, is_classic=True)

    honest = decisions.static_place
    patch.setattr(decisions, "static_place", careless)


def forget_a_tombstone_in_replay(patch: Patch) -> None:
    def forgetful(group: ConsumerGroup, member_id: str, value: ConsumerMember | None) -> None:
        if value is not None:
            honest(group, member_id, value)

    honest = ConsumerGroup._replay_member
    patch.setattr(ConsumerGroup, "_replay_member", forgetful)


def leave_the_session_timer_as_it_is(patch: Patch) -> None:
    def lazy(timers: GroupTimers, change: TimerChange) -> None:
        if change.kind is TimerKind.SESSION:
            change = change._replace(only_if_absent=True)
        honest(timers, change)

    honest = GroupTimers.apply
    patch.setattr(GroupTimers, "apply", lazy)


def wait_for_ever_for_a_revocation(patch: Patch) -> None:
    patch.setattr(advance.Turn, "_watch_revocation", lambda *_: None)


def downgrade_without_a_rebalance(patch: Patch) -> None:
    def quiet(*arguments: Any, **named: Any) -> bool:
        is_classic = honest(*arguments, **named)
        arguments[3].needs_rebalance = False
        return is_classic

    honest = migration.decide_downgrade
    patch.setattr(decisions, "decide_downgrade", quiet)


def upgrade_without_what_members_hold(patch: Patch) -> None:
    patch.setattr(migration, "_held", lambda *_: {})


def lose_the_members_of_a_classic_group(patch: Patch) -> None:
    """An upgrade starts from an empty group, as if nobody had been in it."""

    def empty(known: object, *arguments: Any) -> ConsumerGroup:
        return honest(known if isinstance(known, ConsumerGroup) else None, *arguments)

    honest = loading.base_group
    patch.setattr(loading, "base_group", empty)


def accept_a_stale_generation_on_commit(patch: Patch) -> None:
    def trusting(group: ClassicGroup, member_id: str, instance_id: str | None, *_: Any) -> None:
        if group.members:
            group.members.validated(member_id, instance_id)

    patch.setattr(ClassicGroup, "check_commit", trusting)


def replace_a_static_member_without_fencing(patch: Patch) -> None:
    """The old process goes on under its id, beside the new one."""

    def trusting(members: Members, member_id: str, instance_id: str | None) -> Any:
        holder = members.static_ids.get(instance_id or "", member_id)
        return honest(members, holder, None)

    honest = Members.validated
    patch.setattr(Members, "validated", trusting)


def forget_classic_sessions(patch: Patch) -> None:
    """A heartbeat does not move the deadline."""

    def lazy(group: ClassicGroup, member: Any, now: Any) -> None:
        if not member.session_deadline_ms:
            honest(group, member, now)

    honest = ClassicGroup._keep_alive
    patch.setattr(ClassicGroup, "_keep_alive", lazy)


def answer_before_the_log_has_it(patch: Patch) -> None:
    """Members get their share when the leader has sent it, not when it is committed."""

    def hasty(group: ClassicGroup, request: Any, waiter: Any, now: Any) -> Any:
        out = honest(group, request, waiter, now)
        for write in out.writes:
            group._become_stable(write.metadata, out, now)
        return out

    honest = ClassicGroup.decide_sync
    patch.setattr(ClassicGroup, "decide_sync", hasty)


NEW_PROTOCOL = (
    assign_before_others_have_revoked,
    take_revocation_for_granted,
    keep_the_epoch_when_a_member_goes,
    let_a_fenced_epoch_commit,
    let_a_stranger_commit,
    replace_a_running_static_member,
    forget_a_tombstone_in_replay,
    leave_the_session_timer_as_it_is,
    wait_for_ever_for_a_revocation,
    downgrade_without_a_rebalance,
    upgrade_without_what_members_hold,
    lose_the_members_of_a_classic_group,
)
CLASSIC_PROTOCOL = (
    accept_a_stale_generation_on_commit,
    replace_a_static_member_without_fencing,
    forget_classic_sessions,
    answer_before_the_log_has_it,
)


def classic_walk(seed: int) -> None:
    chance = random.Random(seed)
    world = ClassicWorld()
    for _ in range(WALK_STEPS):
        _step(world, chance)
        world.check()
    world.check_end()


def walks_until_found(walk: Callable[[int], object]) -> int | None:
    for seed in range(WALKS_MAX):
        try:
            walk(seed)
        except AssertionError:
            return seed
    return None


@pytest.mark.parametrize("plant", NEW_PROTOCOL)
def test_machine_of_consumer_groups_finds_the_bug(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    assert walks_until_found(consumer_world.walk) is not None


@pytest.mark.parametrize("plant", CLASSIC_PROTOCOL)
def test_machine_of_classic_groups_finds_the_bug(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    assert walks_until_found(classic_walk) is not None


def test_machines_find_nothing_where_no_bug_is_planted() -> None:
    for seed in range(5):
        consumer_world.walk(seed)
        classic_walk(seed)
