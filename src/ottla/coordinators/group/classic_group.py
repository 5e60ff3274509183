"""One classic group: who is in it, in which generation, and who waits for what.

Members join, one of them (the leader) assigns the partitions, all of them sync to fetch their
share; any change of membership starts over with the next generation. The coordinator never looks
into assignments: eager and cooperative rebalancing, Connect and Streams all pass through here.
Timeouts are deadlines kept here and acted upon by `on_time`, so that a test can hold the clock.

Two things are told apart. `recorded` is what the log has committed; only `replay` sets it, alive
and after a restart alike. Everything else is the live group, which runs ahead of the log by at
most one generation and is rebuilt from `recorded` by `on_loaded`.

Pure; owned by the shell in coordinator.py, which performs the effects. Invariants: a member is
told about a generation only by an answer that names it, and gets an assignment only once the log
has it; in STABLE the live group says what `recorded` says; `wake_at_ms` is never later than the
earliest deadline.
"""

from collections.abc import Iterable

from ottla.coordinators.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla.coordinators.group.effects import (
    Effects,
    Fields,
    GroupWrite,
    Moment,
    Purpose,
    Replacement,
)
from ottla.coordinators.group.members import NO_ASSIGNMENT, Member, Members, Waiter
from ottla.coordinators.group.records import GroupMetadata
from ottla.coordinators.group.requests import (
    NO_MEMBER_ID,
    GroupLimits,
    JoinRequest,
    LeavingMember,
    SyncRequest,
    join_error,
    sync_error,
)
from ottla.coordinators.group.states import TRANSITIONS, GroupState
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError

# A member that has no id yet cannot send heartbeats; its join is given up after this.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# Ids handed out and not used yet. A stranger can ask for any number; the oldest are forgotten.
PENDING_MEMBERS_MAX = 10_000
NEVER_MS = 2**62


class ClassicGroup:
    def __init__(self, group_id: str, limits: GroupLimits, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        self.members = Members()
        self.recorded: GroupMetadata | None = None
        self.wake_at_ms = NEVER_MS
        self._pending_joins: dict[str, int] = {}  # ids handed out, and until when they count
        self._pending_syncs: set[str] = set()
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = NEVER_MS
        self._is_initial_join = False
        self._initial_delay_left_ms = 0
        self._has_newcomer = False
        self._assigned_generation = -1  # whose assignment is with the log, or on its way

    # What others read

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_dead(self) -> bool:
        return self.state is GroupState.DEAD

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it or about to be."""
        return not self.members and not self._pending_joins

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether its members may be consuming `topic`; so, if their subscriptions are unknown."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Moment
    ) -> None:
        """Refuse a commit that does not come from a member of this generation."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is GroupState.EMPTY:
            return  # an admin, or a consumer that assigns itself
        if generation >= 0 or member_id or instance_id is not None:
            member = self.members.validated(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        else:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._keep_alive(member, now)  # a commit is a sign of life

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Refuse offsets of a transaction whose consumer was replaced (KIP-447).

        A producer that does not say for which member it commits is trusted, as it was before.
        """
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.members.validated(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def check_delete(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete_offsets(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY and not self.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # Requests

    def decide_join(self, request: JoinRequest, waiter: Waiter, now: Moment) -> Effects:
        out = Effects()
        try:
            if self.state is GroupState.DEAD:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if not self._accepts(request.member_id):
                self._remove(request.member_id, out)
                self._maybe_complete_join(out, now)
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
            if not self._supports(request):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if request.member_id == NO_MEMBER_ID:
                self._join_new(request, waiter, out, now)
            elif request.member_id in self._pending_joins:
                if request.instance_id is not None:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._add_member(request, request.member_id, waiter, out, now)
            else:
                self._rejoin(request, waiter, out, now)
        except KafkaError as error:
            kept_id = (
                NO_MEMBER_ID
                if error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
                else request.member_id
            )
            out.reply(waiter, join_error(error.code, kept_id))
        return out

    def decide_sync(self, request: SyncRequest, waiter: Waiter, now: Moment) -> Effects:
        out = Effects()
        try:
            member = self._check_sync(request)
        except KafkaError as error:
            out.reply(waiter, sync_error(error.code))
            return out
        self._pending_syncs.discard(member.member_id)
        if self.state is GroupState.STABLE:
            self._keep_alive(member, now)
            out.reply(waiter, self._sync_response(member))
            return out
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = waiter
        if self._is_leader(member) and self._assigned_generation != self.generation:
            self._assigned_generation = self.generation  # once; a retry must not change it
            given = dict(request.assignments)
            out.writes.append(
                GroupWrite(
                    Purpose.ASSIGNMENT,
                    self._metadata(
                        (one, given.get(one.member_id, NO_ASSIGNMENT)) for one in self.members
                    ),
                )
            )
        return out

    def decide_heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Moment
    ) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            member = self.members.validated(member_id, instance_id)
        except KafkaError as error:
            return error.code
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._keep_alive(member, now)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def decide_leave(
        self, leaving: Iterable[LeavingMember], waiter: Waiter, now: Moment
    ) -> Effects:
        """Members go at once; an administrator may send static ones away by instance id."""
        out = Effects()
        if self.state is GroupState.DEAD:
            out.reply(waiter, {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "members": []})
            return out
        results = []
        size_before = len(self.members)
        for one in leaving:
            results.append(
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.instance_id,
                    "error_code": self._leave(one, out),
                }
            )
        if len(self.members) < size_before:
            self._after_removal(out, now)
        else:
            self._maybe_complete_join(out, now)  # somebody who was waited for may not come
        response = {"error_code": ErrorCode.NONE, "members": results}
        if out.writes:
            out.writes[-1].waiter, out.writes[-1].response = waiter, response
        else:
            out.reply(waiter, response)
        return out

    def mark_dead(self) -> None:
        """Its tombstone is on the way: nobody joins or commits any more."""
        self._transition(GroupState.DEAD)

    def revive(self) -> None:
        """The tombstone could not be written."""
        self._transition(GroupState.EMPTY)

    # Time and log

    def on_time(self, now: Moment) -> Effects:
        """Act on every deadline that has passed, and say when to come back (`wake_at_ms`)."""
        out = Effects()
        time_ms = now.monotonic_ms
        overdue = [one for one, until in self._pending_joins.items() if until <= time_ms]
        for member_id in overdue:
            del self._pending_joins[member_id]
        expired = [one for one in self.members if self._has_expired(one, time_ms)]
        for member in expired:
            self._remove(member.member_id, out)
        if expired:
            self._after_removal(out, now)
        elif overdue:
            self._maybe_complete_join(out, now)
        if self._join_deadline_ms <= time_ms:
            self._on_join_deadline(out, now)
        if self._sync_deadline_ms <= time_ms:
            self._on_sync_deadline(out, now)
        self.wake_at_ms = min(
            self._join_deadline_ms,
            self._sync_deadline_ms,
            min(self._pending_joins.values(), default=NEVER_MS),
            min(
                (one.session_deadline_ms for one in self.members if _is_timed(one)),
                default=NEVER_MS,
            ),
        )
        return out

    def replay(self, metadata: GroupMetadata | None) -> None:
        """The log has committed this; the only place where `recorded` changes."""
        self.recorded = metadata

    def on_written(self, write: GroupWrite, now: Moment) -> Effects:
        """The log has what this group asked for, and has replayed it."""
        out = Effects()
        if write.waiter is not None and write.response is not None:
            out.reply(write.waiter, write.response)
        metadata = write.metadata
        if metadata.generation != self.generation:
            return out  # the group has moved on meanwhile
        if write.purpose is Purpose.ASSIGNMENT and self.state is GroupState.COMPLETING_REBALANCE:
            self._become_stable(metadata, out, now)
        elif write.replacement is not None and self.state is GroupState.STABLE:
            self._answer_static_member(write.replacement, out, now)
        return out

    def on_write_failed(self, write: GroupWrite, code: ErrorCode, now: Moment) -> Effects:
        """The log did not take it, or not in time."""
        out = Effects()
        if write.waiter is not None:
            out.reply(write.waiter, {"error_code": code, "members": []})
        if write.metadata.generation != self.generation:
            return out
        if write.purpose is Purpose.ASSIGNMENT and self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(code, out, now)
            self._prepare_rebalance(out, now)
        elif write.purpose is Purpose.STATIC_MEMBER and self.state is GroupState.STABLE:
            # The log may know the old id or the new one; the next generation settles it.
            for member in self.members:
                self._answer_join(member, join_error(code, NO_MEMBER_ID), out)
                self._keep_alive(member, now)
            self._prepare_rebalance(out, now)
        return out

    def on_loaded(self, now: Moment) -> None:
        """Become what the log says: stable with its members, who have a session to show up."""
        recorded = self.recorded
        if recorded is None:
            return
        self.generation = recorded.generation
        self.protocol_type = recorded.protocol_type or None
        self.state_timestamp_ms = recorded.state_timestamp_ms
        for one in recorded.members:
            protocols = (
                () if recorded.protocol is None else ((recorded.protocol, one.subscription),)
            )
            member = Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                one.session_timeout_ms,
                one.rebalance_timeout_ms,
                protocols,
                one.assignment,
            )
            self.members.add(member)
            self._keep_alive(member, now)
        if recorded.members:
            self.state = GroupState.STABLE
            self.protocol = recorded.protocol
            if recorded.leader is not None and recorded.leader in self.members:
                self.members.leader = recorded.leader
        self._compute_subscribed_topics()
        if len(self.members) > self.limits.size_max:
            # The limit was lowered. All rejoin, and may commit first. Nobody waits to be told yet.
            self._prepare_rebalance(Effects(), now)

    def start_rebalance(self, now: Moment) -> Effects:
        """Have everybody rejoin: the group was a consumer group until now."""
        out = Effects()
        if self.state is GroupState.STABLE:
            self._prepare_rebalance(out, now)
        return out

    def abandon(self, code: ErrorCode) -> Effects:
        """Answer everybody who waits: this broker no longer coordinates the group."""
        out = Effects()
        for member in self.members:
            self._answer_join(member, join_error(code, member.member_id), out)
            self._answer_sync(member, sync_error(code), out)
        return out

    # Joining

    def _accepts(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # The size may be above a limit that was lowered; those who rejoin last have to go.
            awaiting = sum(one.awaiting_join is not None for one in self.members)
            is_awaiting = member is not None and member.awaiting_join is not None
            return is_awaiting or awaiting < self.limits.size_max
        return member is not None or len(self.members) < self.limits.size_max

    def _supports(self, request: JoinRequest) -> bool:
        names = [name for name, _ in request.protocols]
        if not self.members:
            return bool(request.protocol_type and names)
        return request.protocol_type == self.protocol_type and (
            self.members.can_all_speak_one_of(names)
        )

    def _join_new(self, request: JoinRequest, waiter: Waiter, out: Effects, now: Moment) -> None:
        new_id = request.new_member_id
        if request.instance_id is not None:
            existing_id = self.members.static_ids.get(request.instance_id)
            if existing_id is None:
                self._add_member(request, new_id, waiter, out, now)
            else:
                self._replace_static(request, existing_id, waiter, out, now)
        elif request.requires_known_member_id:
            while len(self._pending_joins) >= PENDING_MEMBERS_MAX:
                del self._pending_joins[next(iter(self._pending_joins))]
            until = now.monotonic_ms + request.session_timeout_ms
            self._pending_joins[new_id] = until
            self._wake_by(until)
            out.reply(waiter, join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        else:
            self._add_member(request, new_id, waiter, out, now)

    def _add_member(
        self, request: JoinRequest, member_id: str, waiter: Waiter, out: Effects, now: Moment
    ) -> None:
        self._pending_joins.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            awaiting_join=waiter,
            is_new=True,
        )
        self.members.add(member)
        member.session_deadline_ms = now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._wake_by(member.session_deadline_ms)
        if self._is_initial_join:
            self._has_newcomer = True
        self._rebalance_or_complete(out, now)

    def _rejoin(self, request: JoinRequest, waiter: Waiter, out: Effects, now: Moment) -> None:
        member = self.members.validated(request.member_id, request.instance_id)
        is_unchanged = member.protocols == request.protocols
        if self.state is GroupState.PREPARING_REBALANCE:
            self._update(member, request, waiter, out)
            self._maybe_complete_join(out, now)
        elif is_unchanged and (
            self.state is GroupState.COMPLETING_REBALANCE or member.member_id != self.members.leader
        ):
            # It may have missed the answer to its last join. It is told the same again.
            self._keep_alive(member, now)
            out.reply(waiter, self._join_response(member))
        else:
            # A leader that rejoins asks for a rebalance; so does whoever changed its mind.
            self._update(member, request, waiter, out)
            self._prepare_rebalance(out, now)

    def _replace_static(
        self, request: JoinRequest, existing_id: str, waiter: Waiter, out: Effects, now: Moment
    ) -> None:
        """A static member came back, as a new process or twice: the old one is fenced (KIP-345)."""
        old_leader = self.members.leader
        member = self.members.validated(existing_id, request.instance_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(member, join_error(fenced, existing_id), out)
        self._answer_sync(member, sync_error(fenced), out)
        self._pending_syncs.discard(existing_id)
        self.members.replace_id(existing_id, request.new_member_id)
        self._update(member, request, waiter, out)
        self._keep_alive(member, now)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id already.
            self._prepare_rebalance(out, now)
        elif self.state is GroupState.STABLE:
            if self.members.select_protocol() != self.protocol:
                self._prepare_rebalance(out, now)
                return
            out.writes.append(
                GroupWrite(
                    Purpose.STATIC_MEMBER,
                    self._metadata((one, one.assignment) for one in self.members),
                    replacement=Replacement(
                        member.member_id, old_leader, request.can_skip_assignment
                    ),
                )
            )
        else:
            self._maybe_complete_join(out, now)

    def _answer_static_member(self, replacement: Replacement, out: Effects, now: Moment) -> None:
        member = self.members.get(replacement.member_id)
        if member is None:
            return  # replaced again, or gone
        response = dict(self._join_response(member))
        if replacement.can_skip_assignment:
            response["skip_assignment"] = self._is_leader(member)
        elif self._is_leader(member):
            # Told that it leads, it would assign; so it is told that somebody else does.
            response.update(leader=replacement.previous_leader or NO_MEMBER_ID, members=[])
        self._answer_join(member, response, out)
        self._keep_alive(member, now)

    def _update(self, member: Member, request: JoinRequest, waiter: Waiter, out: Effects) -> None:
        if member.awaiting_join is not None:
            # A retry on another connection; the first attempt must not hang.
            self._answer_join(
                member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), out
            )
        self.members.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.awaiting_join = waiter

    # Rebalancing

    def _rebalance_or_complete(self, out: Effects, now: Moment) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(out, now)
        else:
            self._prepare_rebalance(out, now)

    def _after_removal(self, out: Effects, now: Moment) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(out, now)
        else:
            self._maybe_complete_join(out, now)

    def _prepare_rebalance(self, out: Effects, now: Moment) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, out, now)
        self._pending_syncs.clear()
        self._sync_deadline_ms = NEVER_MS
        is_initial = self.state is GroupState.EMPTY
        self._transition(GroupState.PREPARING_REBALANCE, now)
        if is_initial:
            # More members are likely to come soon; one rebalance for all is cheaper.
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._is_initial_join = True
            self._has_newcomer = False
            self._initial_delay_left_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
            self._set_join_deadline(now.monotonic_ms + delay_ms)
            if delay_ms <= 0:
                self._on_join_deadline(out, now)
        elif not self.members or self._have_all_joined():
            self._complete_join(out, now)
        else:
            self._set_join_deadline(now.monotonic_ms + self.members.rebalance_timeout_ms())

    def _on_join_deadline(self, out: Effects, now: Moment) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._join_deadline_ms = NEVER_MS
        elif self._is_initial_join and self._has_newcomer and self._initial_delay_left_ms > 0:
            delay_ms = min(self.limits.initial_rebalance_delay_ms, self._initial_delay_left_ms)
            self._initial_delay_left_ms -= delay_ms
            self._has_newcomer = False
            self._set_join_deadline(now.monotonic_ms + delay_ms)
        else:
            self._complete_join(out, now)

    def _maybe_complete_join(self, out: Effects, now: Moment) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if not self.members or (not self._is_initial_join and self._have_all_joined()):
            self._complete_join(out, now)

    def _have_all_joined(self) -> bool:
        return not self._pending_joins and all(
            one.awaiting_join is not None for one in self.members
        )

    def _complete_join(self, out: Effects, now: Moment) -> None:
        """End the join phase: those who are here make up the next generation."""
        absent = [one for one in self.members if one.awaiting_join is None]
        for member in absent:
            if member.instance_id is None:
                self._remove(member.member_id, out)
        if self.members and not self.members.elect_awaiting_leader():
            # Only static members are left, all away; their sessions decide.
            self._set_join_deadline(now.monotonic_ms + self.members.rebalance_timeout_ms())
            return
        self._join_deadline_ms = NEVER_MS
        self._is_initial_join = False
        self.generation += 1
        self._pending_syncs.clear()
        if not self.members:
            self.protocol = None
            self._transition(GroupState.EMPTY, now)
            self._compute_subscribed_topics()
            out.writes.append(GroupWrite(Purpose.EMPTIED, self._metadata(())))
            return
        self.protocol = self.members.select_protocol()
        self._transition(GroupState.COMPLETING_REBALANCE, now)
        self._compute_subscribed_topics()
        for member in self.members:
            self._answer_join(member, self._join_response(member), out)
            member.is_new = False
            self._keep_alive(member, now)
            self._pending_syncs.add(member.member_id)
        self._sync_deadline_ms = now.monotonic_ms + self.members.rebalance_timeout_ms()
        self._wake_by(self._sync_deadline_ms)

    def _on_sync_deadline(self, out: Effects, now: Moment) -> None:
        """Whoever joined and never asked for its share holds up the group and goes."""
        self._sync_deadline_ms = NEVER_MS
        late = [one for one in self._pending_syncs if one in self.members]
        if late and self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            for member_id in sorted(late):
                self._remove(member_id, out)
            self._prepare_rebalance(out, now)

    def _become_stable(self, metadata: GroupMetadata, out: Effects, now: Moment) -> None:
        assignments = {one.member_id: one.assignment for one in metadata.members}
        self._transition(GroupState.STABLE)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
            if member.awaiting_sync is not None:
                self._answer_sync(member, self._sync_response(member), out)
                self._keep_alive(member, now)

    # Leaving

    def _leave(self, leaving: LeavingMember, out: Effects) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER_ID:
            found = self.members.static_ids.get(leaving.instance_id or "")
            if leaving.instance_id is None or found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif self._pending_joins.pop(member_id, None) is not None:
            return ErrorCode.NONE
        else:
            try:
                self.members.validated(member_id, leaving.instance_id)
            except KafkaError as error:
                return error.code
        self._remove(member_id, out)
        return ErrorCode.NONE

    def _remove(self, member_id: str, out: Effects) -> None:
        member = self.members.remove(member_id)
        self._pending_joins.pop(member_id, None)
        self._pending_syncs.discard(member_id)
        if member is not None:
            # Whoever still waits is told to start over.
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            self._answer_join(member, join_error(unknown, NO_MEMBER_ID), out)
            self._answer_sync(member, sync_error(unknown), out)

    # Syncing

    def _check_sync(self, request: SyncRequest) -> Member:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.members.validated(request.member_id, request.instance_id)
        if request.generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        if request.protocol_type not in (None, self.protocol_type) or (
            request.protocol not in (None, self.protocol)
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return member

    def _answer_syncs(self, code: ErrorCode, out: Effects, now: Moment) -> None:
        for member in self.members:
            member.assignment = NO_ASSIGNMENT
            if member.awaiting_sync is not None:
                self._answer_sync(member, sync_error(code), out)
                self._keep_alive(member, now)  # it could not send heartbeats while it waited

    # Small steps

    def _transition(self, state: GroupState, now: Moment | None = None) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantError(f"{self.group_id} cannot go from {self.state} to {state}")
        self.previous_state, self.state = self.state, state
        if now is not None:
            self.state_timestamp_ms = now.wall_ms

    def _keep_alive(self, member: Member, now: Moment) -> None:
        member.session_deadline_ms = now.monotonic_ms + member.session_timeout_ms
        self._wake_by(member.session_deadline_ms)

    def _has_expired(self, member: Member, time_ms: int) -> bool:
        return member.session_deadline_ms <= time_ms and _is_timed(member)

    def _wake_by(self, deadline_ms: int) -> None:
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    def _set_join_deadline(self, deadline_ms: int) -> None:
        self._join_deadline_ms = deadline_ms
        self._wake_by(deadline_ms)

    def _is_leader(self, member: Member) -> bool:
        return member.member_id == self.members.leader

    def _answer_join(self, member: Member, response: Fields, out: Effects) -> None:
        if member.awaiting_join is not None:
            out.reply(member.awaiting_join, response)
            member.awaiting_join = None

    def _answer_sync(self, member: Member, response: Fields, out: Effects) -> None:
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, response)
            member.awaiting_sync = None

    def _join_response(self, member: Member) -> Fields:
        """What a member is told about its generation; only the leader hears of the others."""
        return {
            "error_code": ErrorCode.NONE,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.members.leader or NO_MEMBER_ID,
            "skip_assignment": False,
            "member_id": member.member_id,
            "members": [
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.instance_id,
                    "metadata": one.metadata(self.protocol),
                }
                for one in self.members
            ]
            if self._is_leader(member)
            else [],
        }

    def _sync_response(self, member: Member) -> Fields:
        return {
            "error_code": ErrorCode.NONE,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    def _metadata(self, assigned: Iterable[tuple[Member, bytes]]) -> GroupMetadata:
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            self.state_timestamp_ms,
            tuple(member.as_metadata(self.protocol, given) for member, given in assigned),
        )

    def _compute_subscribed_topics(self) -> None:
        if not self.is_consumer_group:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        else:
            self.subscribed_topics = subscribed_topics(
                one.metadata(self.protocol) for one in self.members
            )


def _is_timed(member: Member) -> bool:
    """Whether its session runs: while it waits for an answer it cannot send heartbeats.

    A new member has no id to send them with, and may be gone; its session always runs.
    """
    return member.is_new or (member.awaiting_join is None and member.awaiting_sync is None)
