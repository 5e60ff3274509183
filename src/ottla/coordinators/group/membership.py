"""Members of groups as the shell serves them: requests, effects, decisions and deadlines.

Groups decide, classic ones step by step (effects), consumer groups as records and an answer
(decisions). Here both are performed: records go to the log, answers to whoever waits, deadlines to
the loop. A group may change its kind with one write; whoever waited in the old one is told to
rejoin.

Owned by the event loop's thread. Invariants: each waiter is answered once; a group that is no
longer the shard's gets no more events; a consumer group decides only when nothing it decided is
under way (turns.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from ottla.coordinators.group.classic_group import NEVER_MS, ClassicGroup
from ottla.coordinators.group.consumer.classic_members import (
    decide_classic_heartbeat,
    decide_classic_leave,
    decide_join,
    decide_sync,
)
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.decisions import (
    decide_expired,
    decide_heartbeat,
    decide_leave,
)
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.loading import base_group, missing_timers
from ottla.coordinators.group.consumer.member import JOIN_EPOCH
from ottla.coordinators.group.consumer.migration import group_tombstones
from ottla.coordinators.group.consumer.requests import HeartbeatRequest, heartbeat_error
from ottla.coordinators.group.consumer.rest import Rest
from ottla.coordinators.group.consumer.settings import Context
from ottla.coordinators.group.consumer.timers import Expired, TimerChange
from ottla.coordinators.group.effects import Effects, Fields, GroupWrite, Moment
from ottla.coordinators.group.members import Waiter
from ottla.coordinators.group.pace import Pace
from ottla.coordinators.group.records import group_record
from ottla.coordinators.group.requests import (
    NO_MEMBER_ID,
    JoinRequest,
    LeavingMember,
    SyncRequest,
    join_error,
    sync_error,
)
from ottla.coordinators.group.shard import Group, GroupShard
from ottla.coordinators.group.turns import GroupLed, Turns, decision_key, group_key
from ottla.coordinators.runtime import TOO_LARGE, CoordinatorRuntime, Phase, answer
from ottla.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

# Members that could not be removed, as the log refused, are tried again after this.
EXPIRY_RETRY_MS = 1000

Refusal = Callable[[KafkaError], Fields]


class Membership:
    def __init__(
        self,
        shards: CoordinatorRuntime[GroupShard],
        *,
        now: Callable[[], Moment],
        image: Callable[[], MetadataImage],
        context: Callable[[str], Context],
    ) -> None:
        self._shards = shards
        self._now = now
        self._image = image
        self._context = context
        self._turns = Turns()
        self._joins = Pace()
        self._timers: dict[Group, tuple[int, asyncio.TimerHandle]] = {}

    # Members of consumer groups

    def consumer_heartbeat(
        self, led: GroupLed, request: HeartbeatRequest
    ) -> Fields | Awaitable[Fields]:
        waiter = _waiter()
        operation = partial(self._consumer_heartbeat, led, request, waiter)
        if request.member_epoch == JOIN_EPOCH:
            self._joins.take(partial(self._turns.take, led, request.group_id, operation))
        else:
            self._turns.take(led, request.group_id, operation)
        return answer(waiter)

    def _consumer_heartbeat(
        self, led: GroupLed, request: HeartbeatRequest, waiter: "asyncio.Future[Fields]"
    ) -> None:
        known = led.shard.groups.get(request.group_id)
        if isinstance(known, ClassicGroup) and led.in_flight[group_key(request.group_id)]:
            # It may turn over, and what its members hold is known only when that has landed.
            operation = partial(self._consumer_heartbeat, led, request, waiter)
            self._turns.take(led, request.group_id, operation, is_alone=True)
            return

        def decide(context: Context, out: Decision) -> None:
            group = base_group(known, request, context, out)
            if request.is_leaving:
                decide_leave(group, request, context, out)
            else:
                decide_heartbeat(group, request, context, out)

        self._decide(led, request.group_id, waiter, decide, _refuse_heartbeat)

    def stay(self, led: GroupLed, rest: Rest) -> bool:
        """Note that a member at rest lives; False if it is no longer at rest."""
        group, member, settings = rest
        group_id = group.group_id
        if (
            led.shard.groups.get(group_id) is not group
            or not rest.lasts
            or not self._turns.is_free(led, group_id)
        ):
            return False
        deadline_ms = self._now().monotonic_ms + settings.session_timeout_ms
        group.timers.set_session(member.member_id, deadline_ms)
        self.arm(led, group)
        return True

    # Members of classic groups, and classic members of consumer groups

    def join(
        self, led: GroupLed, group_id: str, request: JoinRequest
    ) -> Fields | Awaitable[Fields]:
        waiter = _waiter()
        self._turns.take(led, group_id, partial(self._join, led, group_id, request, waiter))
        return answer(waiter)

    def _join(
        self,
        led: GroupLed,
        group_id: str,
        request: JoinRequest,
        waiter: "asyncio.Future[Fields]",
    ) -> None:
        group = led.shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            self._join_classic(led, group_id, request, waiter)
        elif group.members or group.is_dead:

            def decide(context: Context, out: Decision) -> None:
                decide_join(_alive(group), request, context, out)

            self._decide(
                led, group_id, waiter, decide, lambda error: join_error(error.code, NO_MEMBER_ID)
            )
        elif request.member_id:
            tell(waiter, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            # Nobody is left in it: it makes room for a classic group, and keeps its offsets.
            def on_done(code: ErrorCode) -> None:
                if code is ErrorCode.NONE:
                    self._disarm(group)
                    self._join_classic(led, group_id, request, waiter)
                else:
                    tell(waiter, join_error(code, request.member_id))

            self._shards.write(led, decision_key(group_id), group_tombstones(group), on_done)

    def _join_classic(
        self,
        led: GroupLed,
        group_id: str,
        request: JoinRequest,
        waiter: "asyncio.Future[Fields]",
    ) -> None:
        if led.phase is not Phase.ACTIVE:
            tell(waiter, join_error(ErrorCode.NOT_COORDINATOR, request.member_id))
            return
        if request.member_id and group_id not in led.shard.groups:
            tell(waiter, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return
        now = self._now()
        group = led.shard.classic_or_new(group_id, now)
        self._perform(led, group, group.decide_join(request, waiter, now))
        led.shard.forget_if_unused(group_id)

    def sync(
        self, led: GroupLed, group_id: str, request: SyncRequest
    ) -> Fields | Awaitable[Fields]:
        waiter = _waiter()
        self._turns.take(led, group_id, partial(self._sync, led, group_id, request, waiter))
        return answer(waiter)

    def _sync(
        self,
        led: GroupLed,
        group_id: str,
        request: SyncRequest,
        waiter: "asyncio.Future[Fields]",
    ) -> None:
        group = led.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._decide(
                led,
                group_id,
                waiter,
                lambda context, out: decide_sync(_alive(group), request, context, out),
                lambda error: sync_error(error.code),
            )
        elif led.phase is not Phase.ACTIVE:
            tell(waiter, sync_error(ErrorCode.NOT_COORDINATOR))
        elif group is None or not group.members:
            tell(waiter, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._perform(led, group, group.decide_sync(request, waiter, self._now()))

    def heartbeat(
        self,
        led: GroupLed,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> Fields | Awaitable[Fields]:
        waiter = _waiter()

        def operation() -> None:
            group = led.shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):

                def decide(context: Context, out: Decision) -> None:
                    code = decide_classic_heartbeat(
                        _alive(group), member_id, instance_id, generation, context, out
                    )
                    out.response = {"error_code": code}

                self._decide(led, group_id, waiter, decide, _refuse)
            elif led.phase is not Phase.ACTIVE:
                tell(waiter, {"error_code": ErrorCode.NOT_COORDINATOR})
            elif group is None:
                tell(waiter, {"error_code": ErrorCode.UNKNOWN_MEMBER_ID})
            else:
                code = group.decide_heartbeat(member_id, instance_id, generation, self._now())
                self.arm(led, group)
                tell(waiter, {"error_code": code})

        self._turns.take(led, group_id, operation)
        return answer(waiter)

    def leave(
        self, led: GroupLed, group_id: str, leaving: Sequence[LeavingMember]
    ) -> Fields | Awaitable[Fields]:
        waiter = _waiter()
        self._turns.take(led, group_id, partial(self._leave, led, group_id, leaving, waiter))
        return answer(waiter)

    def _leave(
        self,
        led: GroupLed,
        group_id: str,
        leaving: Sequence[LeavingMember],
        waiter: "asyncio.Future[Fields]",
    ) -> None:
        group = led.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._decide(
                led,
                group_id,
                waiter,
                lambda context, out: decide_classic_leave(_alive(group), leaving, context, out),
                lambda error: {"error_code": error.code, "members": []},
            )
        elif led.phase is not Phase.ACTIVE:
            tell(waiter, {"error_code": ErrorCode.NOT_COORDINATOR, "members": []})
        elif group is None:
            tell(waiter, _all_unknown(leaving))
        else:
            self._perform(led, group, group.decide_leave(leaving, waiter, self._now()))
            led.shard.forget_if_unused(group_id)

    # Decisions about consumer groups

    def _decide(
        self,
        led: GroupLed,
        group_id: str,
        waiter: "asyncio.Future[Fields]",
        decide: Callable[[Context, Decision], None],
        refuse: Refusal,
    ) -> None:
        """Write what is decided now, and answer when it is committed."""
        context = self._context(group_id)
        decision = Decision()
        try:
            if led.phase is not Phase.ACTIVE:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            decide(context, decision)
        except KafkaError as error:
            tell(waiter, refuse(error))
            return
        if decision.response is not None:
            response = decision.response
            self._conclude(
                led,
                group_id,
                context,
                decision,
                lambda code: tell(
                    waiter, response if code is ErrorCode.NONE else refuse(KafkaError(code))
                ),
            )

    def _conclude(
        self,
        led: GroupLed,
        group_id: str,
        context: Context,
        decision: Decision,
        on_outcome: Callable[[ErrorCode], None],
    ) -> None:
        previous = led.shard.groups.get(group_id)

        def on_done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._settle(led, group_id, previous, context, decision)
            else:
                log.warning("group %s could not be written: %s", group_id, code.name)
                # It may land late; whatever it made of the group then has its deadlines set.
                self._turns.take(
                    led,
                    group_id,
                    lambda: self._settle(led, group_id, previous, self._context(group_id), None),
                )
            on_outcome(ErrorCode.UNKNOWN_SERVER_ERROR if code in TOO_LARGE else code)

        self._shards.write(led, decision_key(group_id), decision.records, on_done)

    def _settle(
        self,
        led: GroupLed,
        group_id: str,
        previous: Group | None,
        context: Context,
        decision: Decision | None,
    ) -> None:
        """The log has what was decided, or something unknown: see to waiters and deadlines."""
        group = led.shard.groups.get(group_id)
        if previous is not None and group is not previous:
            self._disarm(previous)
            if isinstance(previous, ClassicGroup):
                self._reply(previous.abandon(ErrorCode.REBALANCE_IN_PROGRESS))
        if isinstance(group, ConsumerGroup):
            if decision is not None:
                self._apply(group, context, decision)
            if decision is None or group is not previous:
                _set(group, missing_timers(group, context))
            self.arm(led, group)
        elif isinstance(group, ClassicGroup) and group is not previous:
            now = self._now()
            group.on_loaded(now)
            is_unsettled = decision is None or decision.needs_rebalance
            self._perform(led, group, group.start_rebalance(now) if is_unsettled else Effects())

    def _apply(self, group: ConsumerGroup, context: Context, decision: Decision) -> None:
        for member_id in decision.removed:
            group.timers.forget(member_id)
        if decision.handed_out is not None:
            group.hand_out(decision.handed_out)
        _set(group, decision.timers)
        if decision.is_metadata_fresh and self._image() is context.image:
            group.is_metadata_stale = False

    # Effects of classic groups

    def _perform(self, led: GroupLed, group: ClassicGroup, effects: Effects) -> None:
        self._reply(effects)
        for write in effects.writes:
            self._shards.write(
                led,
                group_key(group.group_id),
                [group_record(group.group_id, write.metadata)],
                partial(self._on_group_write, led, group, write),
            )
        self.arm(led, group)

    def _reply(self, effects: Effects) -> None:
        for waiter, response in effects.replies:
            tell(waiter, response)

    def _on_group_write(
        self, led: GroupLed, group: ClassicGroup, write: GroupWrite, code: ErrorCode
    ) -> None:
        now = self._now()
        if code is ErrorCode.NONE:
            effects = group.on_written(write, now)
        else:
            log.warning("group %s could not be written: %s", group.group_id, code.name)
            if code in TOO_LARGE:
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            effects = group.on_write_failed(write, code, now)
        self._perform(led, group, effects)

    # Deadlines

    def arm(self, led: GroupLed, group: Group) -> None:
        """Wake up by the group's next deadline. One that moves back costs nothing."""
        wake_at_ms = group.wake_at_ms
        armed = self._timers.get(group)
        if wake_at_ms >= NEVER_MS or (armed is not None and armed[0] <= wake_at_ms):
            return
        if led.shard.groups.get(group.group_id) is not group:
            return
        if armed is not None:
            armed[1].cancel()
        # Deadlines are whole milliseconds, rounded down; a millisecond later it has passed.
        handle = asyncio.get_running_loop().call_at(
            (wake_at_ms + 1) / 1000, self._on_timer, led, group
        )
        self._timers[group] = (wake_at_ms, handle)

    def _disarm(self, group: Group) -> None:
        armed = self._timers.pop(group, None)
        if armed is not None:
            armed[1].cancel()

    def _on_timer(self, led: GroupLed, group: Group) -> None:
        self._timers.pop(group, None)
        self._turns.take(led, group.group_id, partial(self._on_time, led, group))

    def _on_time(self, led: GroupLed, group: Group) -> None:
        if led.phase is not Phase.ACTIVE or led.shard.groups.get(group.group_id) is not group:
            return  # given up, deleted or turned into the other kind meanwhile
        now = self._now()
        if isinstance(group, ClassicGroup):
            self._perform(led, group, group.on_time(now))
            led.shard.forget_if_unused(group.group_id)
            return
        expired = group.timers.expired(now.monotonic_ms)
        context = self._context(group.group_id)
        decision = Decision()
        decide_expired(group, expired, context, decision)

        def on_outcome(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                _set(group, _again(expired, self._now().monotonic_ms + EXPIRY_RETRY_MS))
                self.arm(led, group)

        self._conclude(led, group.group_id, context, decision, on_outcome)

    # Partitions that come and go

    def on_loaded(self, led: GroupLed) -> None:
        led.shard.on_loaded(self._now())
        for group in led.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                _set(group, missing_timers(group, self._context(group.group_id)))
            self.arm(led, group)

    def on_unloaded(self, led: GroupLed) -> None:
        for group in led.shard.groups.values():
            self._disarm(group)
            if isinstance(group, ClassicGroup):
                group.wake_at_ms = NEVER_MS
                self._reply(group.abandon(ErrorCode.NOT_COORDINATOR))


def _waiter() -> "asyncio.Future[Fields]":
    return asyncio.get_running_loop().create_future()


def tell(waiter: Waiter, response: Fields) -> None:
    if isinstance(waiter, asyncio.Future) and not waiter.done():
        waiter.set_result(response)


def _set(group: ConsumerGroup, changes: Iterable[TimerChange]) -> None:
    for change in changes:
        group.timers.apply(change)


def _again(expired: Sequence[Expired], deadline_ms: int) -> list[TimerChange]:
    return [TimerChange(one.kind, one.member_id, deadline_ms, one.member_epoch) for one in expired]


def _alive(group: ConsumerGroup) -> ConsumerGroup:
    if group.is_dead:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return group


def _refuse_heartbeat(error: KafkaError) -> Fields:
    return heartbeat_error(error.code, error.message)


def _refuse(error: KafkaError) -> Fields:
    return {"error_code": error.code}


def _all_unknown(leaving: Sequence[LeavingMember]) -> Fields:
    return {
        "error_code": ErrorCode.NONE,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "error_code": ErrorCode.UNKNOWN_MEMBER_ID,
            }
            for one in leaving
        ],
    }
