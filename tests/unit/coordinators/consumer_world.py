"""Members of both protocols, topics, a log and a clock around one group, watched by slow oracles.

Clients behave as real ones do: they read what they were told, give back before they say so, retry
when an answer is lost, and go on reading when they were paused and thought dead. The world checks
after every step what each of them reads, what the log would be replayed into, and which commits
counted. A crash is a new shard that replays what was committed.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer import classic_members, decisions, loading, timers
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.group import (
    ConsumerGroup,
    ConsumerGroupState,
    all_subscribed_topics,
)
from ottla.coordinators.group.consumer.member import MemberState, held_partitions
from ottla.coordinators.group.consumer.migration import group_tombstones
from ottla.coordinators.group.consumer.requests import HeartbeatRequest, check_heartbeat
from ottla.coordinators.group.consumer.rest import Rest, rest_of
from ottla.coordinators.group.consumer.settings import ConsumerGroupSettings, Context
from ottla.coordinators.group.consumer.topics import metadata_hash
from ottla.coordinators.group.consumer_protocol import encode_assignment, parse_assignment
from ottla.coordinators.group.effects import Effects, Fields, GroupWrite, Moment
from ottla.coordinators.group.records import CoordinatorRecord, group_record
from ottla.coordinators.group.requests import GroupLimits, JoinRequest, LeavingMember, SyncRequest
from ottla.coordinators.group.shard import CommitRequest, GroupShard, WantedOffset
from ottla.coordinators.group.states import GroupState
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import legacy_string

GROUP = "group"
SESSION_MS = 1000
REBALANCE_MS = 3000
DELAY_MS = 100
REGEX_MS = 700
SIZE_MAX = 5
TOPICS = ("a", "b", "other")
EAGER, COOPERATIVE = "range", "cooperative-sticky"
SETTLING_ROUNDS_MAX = 40
CHECKS_PER_REPLAY = 16  # replaying the whole log is what takes the time

START_OVER = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)

Place = tuple[str, int]


@dataclass(eq=False)
class Client:
    """One process, and what it reads."""

    name: str
    is_classic: bool
    topics: frozenset[str]
    instance_id: str | None = None
    regex: str | None = None
    assignor: str | None = None
    member_id: str = ""
    epoch: int = 0  # or generation
    reads: set[Place] = field(default_factory=set)
    told: set[Place] | None = None  # an assignment that it has not applied yet
    said: set[Place] | None = None  # what it last said that it owns
    is_alive: bool = True
    is_joined: bool = False
    leads: list[tuple[str, bytes]] | None = None  # the members for whom it must assign
    needs_sync: bool = False
    heartbeat_at_ms: int = 0
    is_stuck: bool = False  # its program never gives anything back
    is_asking: bool = False  # a heartbeat is under way; what it said must stay true till then
    needs_full: bool = False  # an answer was lost: it says and wants to hear everything


@dataclass(frozen=True)
class Ticket:
    """What a client once was; processes that were thought dead go on using theirs."""

    member_id: str
    instance_id: str | None
    epoch: int
    is_classic: bool


@dataclass
class Write:
    records: list[CoordinatorRecord]
    on_done: object


def topic(name: str, size: int, salt: int) -> TopicImage:
    partition = PartitionImage((1,), (UUID(int=0),), (1,), (), (), (), (), 1, 0, 0, 0)
    topic_id = UUID(int=(salt << 64) + sum(name.encode()) + 1)
    return TopicImage(name, topic_id, dict.fromkeys(range(size), partition))


class World:
    def __init__(self, protocol: str = COOPERATIVE, assignment_interval_ms: int = 0) -> None:
        self.protocol = protocol
        self.now = Moment(0, 1_000_000)
        self.settings = ConsumerGroupSettings(
            size_max=SIZE_MAX,
            classic_size_max=SIZE_MAX,
            session_timeout_ms=SESSION_MS,
            assignment_interval_ms=assignment_interval_ms,
            regex_refresh_interval_ms=REGEX_MS,
        )
        self.image = MetadataImage()
        self.salt = 0
        self.set_topics({"a": 3, "b": 2})
        self.shard = self.empty_shard()
        self.committed: list[CoordinatorRecord] = []
        self.pending: Write | None = None  # a decision about the group that has not landed yet
        self.is_slow = False  # whether decisions land later, as with replicas
        self.clients: list[Client] = []
        self.tickets: list[Ticket] = []
        self.offsets: dict[Place, int] = {}
        self.handed_out = 0
        self.last_epoch = -1
        self.last_group: object = None
        self.waiting: dict[Client, str] = {}  # classic clients whose join or sync is under way
        self.rests: dict[str, tuple[Rest, HeartbeatRequest, Fields]] = {}  # by member id
        self.kinds: Counter[str] = Counter()
        self.checks = 0

    # The cluster

    def set_topics(self, sizes: dict[str, int]) -> None:
        old = self.image.topics
        topics = {}
        for name, size in sizes.items():
            known = old.get(name)
            self.salt += 1
            if known is not None and len(known.partitions) <= size:
                partitions = dict(topic(name, size, 0).partitions)
                topics[name] = TopicImage(name, known.topic_id, partitions)
            else:
                topics[name] = topic(name, size, self.salt)
        self.image = MetadataImage(
            offset=self.salt,  # type: ignore[arg-type]  # any number that grows
            topics=topics,
            topics_by_raw_id={one.topic_id.bytes: one for one in topics.values()},
        )
        for client in getattr(self, "clients", []):
            client.reads = {one for one in client.reads if one[0] in topics}
            if client.is_classic and client not in self.waiting and not client.needs_sync:
                client.is_joined = False  # a leader that sees it asks for a rebalance
        group = self.group if hasattr(self, "shard") else None
        if isinstance(group, ConsumerGroup):
            group.is_metadata_stale = True

    @property
    def sizes(self) -> dict[str, int]:
        return {name: len(one.partitions) for name, one in self.image.topics.items()}

    # The shard and its log

    def empty_shard(self) -> GroupShard:
        return GroupShard(lambda: GroupLimits(DELAY_MS, SIZE_MAX), lambda: 100)

    def replayed(self, records: list[CoordinatorRecord]) -> GroupShard:
        shard = self.empty_shard()
        for record in records:
            shard.replay(-1, record.key, record.value)
        return shard

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        return self.shard.groups.get(GROUP)

    @property
    def context(self) -> Context:
        return Context(self.now, self.image, self.settings)

    def write(self, records: list[CoordinatorRecord], on_done: object) -> None:
        if not records:
            on_done(True)  # type: ignore[operator]  # a plain callable
            return
        write = Write(records, on_done)
        if self.is_slow:
            assert self.pending is None, "two decisions about one group under way"
            self.pending = write
        else:
            self._land(write)

    def land(self) -> None:
        write, self.pending = self.pending, None
        if write is not None:
            self._land(write)

    def lose(self) -> None:
        """The log refuses what was decided."""
        write, self.pending = self.pending, None
        if write is not None:
            write.on_done(False)  # type: ignore[operator]  # a plain callable

    def _land(self, write: Write) -> None:
        for record in write.records:
            self.committed.append(record)
            self.shard.replay_decided(-1, record)
        write.on_done(True)  # type: ignore[operator]  # a plain callable

    def crash(self, is_landed: bool) -> None:
        """The broker restarts: what was appended may have been committed, nobody was told."""
        write, self.pending = self.pending, None
        if write is not None and is_landed:
            self.committed.extend(write.records)
        for client in self.waiting:
            client.is_joined = False
            client.needs_sync = False
        self.waiting.clear()
        self.shard = self.replayed(self.committed)
        self.shard.on_loaded(self.now)
        group = self.group
        if isinstance(group, ConsumerGroup):
            for change in loading.missing_timers(group, self.context):
                group.timers.apply(change)
        for client in self.clients:
            client.heartbeat_at_ms = self.now.monotonic_ms
            client.needs_full |= client.is_asking
            client.is_asking = False

    # Decisions, as the shell performs them

    def decide(self, decide: object, deliver: object) -> None:
        context, decision, previous = self.context, Decision(), self.group
        try:
            decide(context, decision)  # type: ignore[operator]  # a plain callable
        except KafkaError as error:
            deliver(error.code, {})  # type: ignore[operator]  # a plain callable
            return

        def on_done(is_written: bool) -> None:
            self.settle(previous, context, decision if is_written else None)
            if not is_written:
                deliver(ErrorCode.COORDINATOR_NOT_AVAILABLE, {})  # type: ignore[operator]
            elif decision.response is not None:
                deliver(ErrorCode.NONE, decision.response)  # type: ignore[operator]

        self.write(decision.records, on_done)

    def settle(self, previous: object, context: Context, decision: Decision | None) -> None:
        group = self.group
        if isinstance(previous, ClassicGroup) and group is not previous:
            self.perform(previous, previous.abandon(ErrorCode.REBALANCE_IN_PROGRESS))
        if isinstance(group, ConsumerGroup):
            if decision is not None:
                for member_id in decision.removed:
                    group.timers.forget(member_id)
                for change in decision.timers:
                    group.timers.apply(change)
                if decision.handed_out is not None:
                    group.hand_out(decision.handed_out)
                if decision.is_metadata_fresh and context.image is self.image:
                    group.is_metadata_stale = False
            if decision is None or group is not previous:
                for change in loading.missing_timers(group, context):
                    group.timers.apply(change)
        elif isinstance(group, ClassicGroup) and group is not previous:
            group.on_loaded(self.now)
            if decision is None or decision.needs_rebalance:
                self.perform(group, group.start_rebalance(self.now))

    # Consumer clients

    def arrive(self, client: Client) -> None:
        self.clients.append(client)
        self.join(client)

    def join(self, client: Client) -> None:
        client.reads.clear()
        client.said = None
        client.is_joined = False
        client.epoch = 0
        client.told = None
        if client.is_classic:
            self.classic_join(client)
        else:
            if not client.member_id:
                self.handed_out += 1
                client.member_id = f"{client.name}.{self.handed_out}"
            self.heartbeat(client)

    def heartbeat(self, client: Client, *, is_lost: bool = False) -> None:
        """One ConsumerGroupHeartbeat; `is_lost`: the answer never arrives."""
        if self.pending is not None:
            return
        is_full = client.epoch == 0 or client.needs_full
        sent_at_ms = self.now.monotonic_ms
        owned = self.by_id(client.reads) if is_full or client.reads != client.said else None
        request = HeartbeatRequest(
            GROUP,
            client.member_id,
            client.epoch,
            client.instance_id,
            None,
            REBALANCE_MS if is_full else -1,
            client.topics if is_full else None,
            client.regex if is_full else None,
            client.assignor if is_full else None,
            owned,
            client.name,
            "/host",
        )
        said = set(client.reads)
        check_heartbeat(request, self.settings)

        client.is_asking = True

        def deliver(code: ErrorCode, response: Fields) -> None:
            client.is_asking = False
            if is_lost or code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                client.needs_full = True
                return
            if is_full and request.topics == client.topics:
                client.needs_full = False
            if code is ErrorCode.NONE:
                client.heartbeat_at_ms = max(client.heartbeat_at_ms, sent_at_ms)
                assert response["member_epoch"] >= client.epoch or client.epoch == 0
                client.epoch = response["member_epoch"]
                client.is_joined = True
                client.said = said
                if response["assignment"] is not None:
                    client.told = self.by_name(response["assignment"])
                self.remember(client)
                self.remember_rest(request, response)
            elif code in START_OVER:
                self.be_fenced(client)
            elif code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.is_alive = False
                client.reads.clear()

        def decide(context: Context, out: Decision) -> None:
            group = loading.base_group(self.group, request, context, out)
            decisions.decide_heartbeat(group, request, context, out)

        self.decide(decide, deliver)

    def remember_rest(self, request: HeartbeatRequest, response: Fields) -> None:
        """As a connection does whose member may send the same again."""
        self.rests.pop(request.member_id, None)
        group = self.group
        if isinstance(group, ConsumerGroup):
            rest = rest_of(group, request, response, self.settings)
            if rest is not None:
                self.rests[request.member_id] = (rest, request, response)

    def apply(self, client: Client) -> None:
        """Give back what it was not told to read, then take what is new."""
        if client.told is not None and not client.is_asking:
            if client.is_stuck and not client.reads <= client.told:
                return
            client.reads = {one for one in client.told if one[0] in self.image.topics}
            client.told = None

    def be_fenced(self, client: Client) -> None:
        client.reads.clear()
        client.is_stuck = False
        client.epoch, client.said, client.told, client.is_joined = 0, None, None, False
        client.member_id = "" if client.is_classic else client.member_id

    def leave(self, client: Client, *, is_static: bool = False) -> None:
        if self.pending is not None or client in self.waiting:
            return
        client.reads.clear()
        client.is_alive = False
        client.is_joined = False
        if client.is_classic:
            self.classic_leave(client)
            return
        epoch = -2 if is_static and client.instance_id is not None else -1
        request = HeartbeatRequest(GROUP, client.member_id, epoch, client.instance_id)

        def decide(context: Context, out: Decision) -> None:
            group = loading.base_group(self.group, request, context, out)
            decisions.decide_leave(group, request, context, out)

        self.decide(decide, lambda code, response: None)

    def restart_static(self, client: Client) -> None:
        """A static member goes and is back at once under another id; it keeps what it had."""
        group = self.group
        if self.pending is not None or not isinstance(group, ConsumerGroup):
            return
        before = group.members.get(client.member_id)
        if before is None or before.epoch != client.epoch or client.instance_id is None:
            return
        was_settled = before.is_reconciled_to(group.epoch) and not group.is_metadata_stale
        epoch = group.epoch
        self.leave(client, is_static=True)
        if self.pending is not None:
            return
        again = Client(
            client.name, False, client.topics, client.instance_id, client.regex, client.assignor
        )
        self.arrive(again)
        if was_settled and self.pending is None and before.classic is None:
            assert again.is_joined
            assert isinstance(self.group, ConsumerGroup)
            assert self.group.epoch == epoch, "a restart of a static member made a rebalance"
            held = {self.place(one) for one in held_partitions(before)}
            assert again.told == held, "a static member lost its partitions by a restart"

    def intrude(self, client: Client) -> None:
        """A second process with the name of one that is running gets nothing (KIP-345)."""
        group = self.group
        if self.pending is not None or not isinstance(group, ConsumerGroup):
            return
        member = group.members.get(client.member_id)
        if member is None or client.instance_id is None or member.classic or member.has_left:
            return
        self.handed_out += 1
        intruder = Client("intruder", False, client.topics, client.instance_id)
        intruder.member_id = f"intruder.{self.handed_out}"
        self.heartbeat(intruder)
        assert not intruder.is_joined, "a running static member was replaced"

    def use_old_ticket(self, ticket: Ticket) -> None:
        """A process that was replaced or thrown out is told so."""
        group = self.group
        if self.pending is not None or not isinstance(group, ConsumerGroup) or ticket.is_classic:
            return
        member = group.members.get(ticket.member_id)
        if member is not None and ticket.epoch >= member.previous_epoch:
            return  # not so old
        request = HeartbeatRequest(GROUP, ticket.member_id, ticket.epoch, ticket.instance_id)
        codes = []

        def decide(context: Context, out: Decision) -> None:
            decisions.decide_heartbeat(group, request, context, out)

        self.decide(decide, lambda code, response: codes.append(code))
        assert codes, "a process that is not a member any more was served"
        assert codes[0] is not ErrorCode.NONE, "a process that is not a member was served"

    # Classic clients

    def subscription(self, client: Client) -> bytes:
        body = b"".join(legacy_string(one) for one in sorted(client.topics))
        data = b"\0\1" + len(client.topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"
        owned: dict[str, list[int]] = {}
        if self.protocol == COOPERATIVE:
            for name, index in sorted(client.reads):
                owned.setdefault(name, []).append(index)
        data += len(owned).to_bytes(4, "big")
        for name, indexes in owned.items():
            data += legacy_string(name) + len(indexes).to_bytes(4, "big")
            data += b"".join(index.to_bytes(4, "big") for index in indexes)
        return data

    def classic_join(self, client: Client) -> None:
        if self.pending is not None or client in self.waiting:
            return
        if self.protocol == EAGER:
            client.reads.clear()
        self.handed_out += 1
        client.needs_sync = False
        request = JoinRequest(
            client.member_id,
            client.instance_id,
            client.name,
            "/host",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            ((self.protocol, self.subscription(client)),),
            f"{client.instance_id or client.name}.{self.handed_out}",
            True,
            True,
        )
        group = self.group
        if isinstance(group, ConsumerGroup) and group.members:

            def decide(context: Context, out: Decision) -> None:
                classic_members.decide_join(group, request, context, out)

            sent_at_ms = self.now.monotonic_ms

            def deliver(code: ErrorCode, answer: Fields) -> None:
                self.deliver_join(client, code, answer)
                client.heartbeat_at_ms = min(client.heartbeat_at_ms, sent_at_ms)

            self.decide(decide, deliver)
            return
        if isinstance(group, ConsumerGroup):
            if client.member_id:
                self.be_fenced(client)
                return

            def on_done(is_written: bool) -> None:
                if is_written:
                    self.join_classic_group(client, request)

            self.write(group_tombstones(group), on_done)
            return
        self.join_classic_group(client, request)

    def join_classic_group(self, client: Client, request: JoinRequest) -> None:
        if client.member_id and self.group is None:
            self.be_fenced(client)
            return
        group = self.shard.classic_or_new(GROUP, self.now)
        self.waiting[client] = "join"
        self.perform(group, group.decide_join(request, client, self.now))

    def deliver_join(self, client: Client, code: ErrorCode, response: Fields) -> None:
        code = response.get("error_code", code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response["member_id"]
            return
        if code is not ErrorCode.NONE:
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.be_fenced(client)
            elif code is ErrorCode.FENCED_INSTANCE_ID:
                client.is_alive = False
                client.reads.clear()
            client.is_joined = False
            return
        client.heartbeat_at_ms = self.now.monotonic_ms
        client.member_id = response["member_id"]
        client.epoch = response["generation_id"]
        client.needs_sync = True
        client.is_joined = True
        is_leader = response["leader"] == client.member_id and not response["skip_assignment"]
        client.leads = (
            [(one["member_id"], one["metadata"]) for one in response["members"]]
            if is_leader
            else None
        )

    def sync(self, client: Client) -> None:
        if self.pending is not None or client in self.waiting or not client.needs_sync:
            return
        given = [] if client.leads is None else self.lead(client.leads)
        request = SyncRequest(client.member_id, client.instance_id, client.epoch, None, None, given)
        group = self.group
        if isinstance(group, ConsumerGroup):

            def decide(context: Context, out: Decision) -> None:
                classic_members.decide_sync(group, request, context, out)

            self.decide(decide, lambda code, answer: self.deliver_sync(client, code, answer))
        elif group is None:
            self.be_fenced(client)
        else:
            self.waiting[client] = "sync"
            self.perform(group, group.decide_sync(request, client, self.now))

    def lead(self, members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """A leader assigns: what others still own goes to nobody for now (KIP-429)."""
        by_id = {one.member_id: one for one in self.clients if one.is_classic}
        owners = {
            place: member_id
            for member_id, _ in members
            for place in (by_id[member_id].reads if member_id in by_id else ())
        }
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id, _ in members}
        for name, size in self.sizes.items():
            able = [one for one, _ in members if one in by_id and name in by_id[one].topics]
            for index in range(size if able else 0):
                heir = able[index % len(able)]
                if owners.get((name, index), heir) == heir:
                    given[heir].setdefault(name, []).append(index)
        return [
            (one, encode_assignment({n: tuple(i) for n, i in mine.items()}, 1))
            for one, mine in given.items()
        ]

    def deliver_sync(self, client: Client, code: ErrorCode, response: Fields) -> None:
        code = response.get("error_code", code)
        client.needs_sync = False
        if code is not ErrorCode.NONE:
            client.is_joined = False
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.be_fenced(client)
            elif code is ErrorCode.FENCED_INSTANCE_ID:
                client.is_alive = False
                client.reads.clear()
            return
        client.heartbeat_at_ms = self.now.monotonic_ms
        given = parse_assignment(response["assignment"])
        reads = {(name, index) for name, indexes in given.items() for index in indexes}
        has_revoked = bool(client.reads - reads)
        client.reads = {one for one in reads if one[0] in self.image.topics}
        self.remember(client)
        if has_revoked and self.protocol == COOPERATIVE:
            client.is_joined = False  # it rejoins at once, so that others get what it gave back

    def classic_heartbeat(self, client: Client) -> None:
        if self.pending is not None or client in self.waiting or client.needs_sync:
            return
        group = self.group

        def deliver(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                client.heartbeat_at_ms = self.now.monotonic_ms
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                client.heartbeat_at_ms = self.now.monotonic_ms
                client.is_joined = False
            elif code is ErrorCode.FENCED_INSTANCE_ID:
                client.is_alive = False
                client.reads.clear()
            else:
                self.be_fenced(client)

        if group is None:
            deliver(ErrorCode.UNKNOWN_MEMBER_ID)
        elif isinstance(group, ConsumerGroup):

            def decide(context: Context, out: Decision) -> None:
                code = classic_members.decide_classic_heartbeat(
                    group, client.member_id, client.instance_id, client.epoch, context, out
                )
                out.response = {"code": code}

            self.decide(decide, lambda code, answer: deliver(answer.get("code", code)))
        else:
            deliver(
                group.decide_heartbeat(client.member_id, client.instance_id, client.epoch, self.now)
            )

    def classic_leave(self, client: Client) -> None:
        group = self.group
        leaving = [LeavingMember(client.member_id, client.instance_id)]
        if isinstance(group, ConsumerGroup):

            def decide(context: Context, out: Decision) -> None:
                classic_members.decide_classic_leave(group, leaving, context, out)

            self.decide(decide, lambda code, answer: None)
        elif group is not None:
            self.perform(group, group.decide_leave(leaving, object(), self.now))

    def perform(self, group: ClassicGroup, effects: Effects) -> None:
        for waiter, response in effects.replies:
            if isinstance(waiter, Client) and waiter in self.waiting:
                kind = self.waiting.pop(waiter)
                deliver = self.deliver_join if kind == "join" else self.deliver_sync
                deliver(waiter, response["error_code"], response)
        for write in effects.writes:
            self.write_generation(group, write)

    def write_generation(self, group: ClassicGroup, write: GroupWrite) -> None:
        """Generations land at once: how they run ahead of the log is another world's matter."""
        record = group_record(GROUP, write.metadata)
        self.committed.append(record)
        self.shard.replay(-1, record.key, record.value)
        self.perform(group, group.on_written(write, self.now))

    # Commits

    def remember(self, client: Client) -> None:
        ticket = Ticket(client.member_id, client.instance_id, client.epoch, client.is_classic)
        if ticket not in self.tickets:
            self.tickets.append(ticket)

    def commit(self, ticket: Ticket, place: Place, offset: int) -> None:
        if place[0] not in self.image.topics:
            return
        request = CommitRequest(GROUP, ticket.member_id, ticket.instance_id, ticket.epoch, -1, 9)
        topic_id = self.image.topics[place[0]].topic_id
        wanted = [WantedOffset(place[0], topic_id, place[1], offset, 0, "m")]
        try:
            records, codes = self.shard.decide_commit(request, wanted, self.now)
        except KafkaError:
            return
        assert codes == [ErrorCode.NONE]
        self.check_commit_was_due(ticket, place)
        for record in records:
            self.committed.append(record)
            self.shard.replay(-1, record.key, record.value)
        self.offsets[place] = offset

    def check_commit_was_due(self, ticket: Ticket, place: Place) -> None:
        group = self.group
        if isinstance(group, ConsumerGroup):
            member = group.members.get(ticket.member_id)
            assert member is not None, "a stranger committed for a live group"
            if ticket.epoch != member.epoch:
                held = {self.place(one) for one in held_partitions(member)}
                assert place in held, "a fenced epoch could commit what it no longer has"
        elif group is not None and group.members:
            assert ticket.member_id in group.members
            assert ticket.epoch == group.generation, "a stale generation could commit"

    # Time

    def pass_time(self, elapsed_ms: int) -> None:
        self.now = Moment(self.now.monotonic_ms + elapsed_ms, self.now.wall_ms + elapsed_ms)
        group = self.group
        if group is None or self.pending is not None:
            return
        if group.wake_at_ms > self.now.monotonic_ms:
            return
        if isinstance(group, ClassicGroup):
            self.perform(group, group.on_time(self.now))
            self.shard.forget_if_unused(GROUP)
            return
        expired = group.timers.expired(self.now.monotonic_ms)
        self.check_expiry(group, expired)

        def decide(context: Context, out: Decision) -> None:
            decisions.decide_expired(group, expired, context, out)

        def deliver(code: ErrorCode, response: Fields) -> None:
            if code is not ErrorCode.NONE:
                for one in expired:
                    change = timers.TimerChange(
                        one.kind, one.member_id, self.now.monotonic_ms + 1, one.member_epoch
                    )
                    group.timers.apply(change)

        self.decide(decide, deliver)

    def check_expiry(self, group: ConsumerGroup, expired: list[timers.Expired]) -> None:
        """Nobody who sent a heartbeat in time loses its session."""
        lost = {one.member_id for one in expired if one.kind is timers.TimerKind.SESSION}
        for client in self.clients:
            if client.member_id in lost and client.is_alive and client.is_joined:
                silent_ms = self.now.monotonic_ms - client.heartbeat_at_ms
                assert silent_ms >= SESSION_MS, "a member that sent heartbeats was thrown out"

    # Names

    def place(self, one: tuple[bytes, int]) -> Place:
        found = self.image.topics_by_raw_id.get(one[0])
        return ("?" if found is None else found.name, one[1])

    def by_id(self, places: set[Place]) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for name, index in sorted(places):
            found.setdefault(self.image.topics[name].topic_id.bytes, []).append(index)
        return found

    def by_name(self, assignment: Fields) -> set[Place]:
        return {
            place
            for one in assignment["topic_partitions"]
            for index in one["partitions"]
            if (place := self.place((one["topic_id"].bytes, index)))[0] != "?"
        }

    # What must be so

    def members(self) -> list[Client]:
        """Clients that live and that the group knows under the id they use."""
        group = self.group
        if group is None:
            return []
        return [one for one in self.clients if one.is_alive and one.member_id in group.members]

    def check(self) -> None:
        self.check_readers()
        self.checks += 1
        if self.checks % CHECKS_PER_REPLAY == 0:
            self.check_replay()
        group = self.group
        self.kinds[type(group).__name__] += 1
        if isinstance(group, ConsumerGroup):
            self.check_held(group)
            self.check_derived(group)
            self.check_rests(group)
            if group is self.last_group:
                assert group.epoch >= self.last_epoch, "the group's epoch went back"
            self.last_epoch = group.epoch
        self.last_group = group

    def check_readers(self) -> None:
        readers: dict[Place, str] = {}
        for client in self.members():
            for place in client.reads:
                other = readers.setdefault(place, client.name)
                assert other == client.name, f"{place} is read by {other} and {client.name}"

    def check_held(self, group: ConsumerGroup) -> None:
        """No partition has two owners, and members read only what they were given."""
        holders: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for one in held_partitions(member):
                assert one not in holders, f"{one} is with {holders[one]} and {member.member_id}"
                holders[one] = member.member_id
            assert member.epoch <= group.epoch
        assert holders == group.owners
        for client in self.members():
            member = group.members[client.member_id]
            held = {self.place(one) for one in held_partitions(member)}
            assert client.reads <= held, f"{client.name} reads {client.reads - held}"

    def check_derived(self, group: ConsumerGroup) -> None:
        members = group.members.values()
        assert group.topic_counts == Counter(name for one in members for name in one.topics)
        assert group.classic_count == sum(one.classic is not None for one in members)
        assert group.static_ids == {
            one.instance_id: one.member_id for one in members if one.instance_id is not None
        }
        assert set(group.regexes) >= {one.regex for one in members if one.regex}
        if not group.is_metadata_stale:
            topics = all_subscribed_topics(group)
            assert group.metadata_hash == metadata_hash(topics, self.image)
        if self.pending is None:
            self.check_sessions(group)
        state = group.state
        self.check_state(group, state)

    def check_sessions(self, group: ConsumerGroup) -> None:
        deadlines = [
            group.timers.deadline_ms(timers.TimerKind.SESSION, one) for one in group.members
        ]
        assert None not in deadlines, "a member has no session"

    def check_rests(self, group: ConsumerGroup) -> None:
        """Where a heartbeat is taken for one that changes nothing, none is decided otherwise."""
        for member_id, (rest, request, response) in self.rests.items():
            if rest.group is not group or not rest.lasts:
                continue
            decision = Decision()
            decisions.decide_heartbeat(group, request, self.context, decision)
            assert decision.records == [], "a member at rest has something to do"
            assert decision.response == response, "a member at rest is told something else"
            deadline_ms = self.now.monotonic_ms + SESSION_MS
            session = timers.TimerChange(timers.TimerKind.SESSION, member_id, deadline_ms)
            assert decision.timers == [session]
            self.kinds["rest"] += 1

    def check_state(self, group: ConsumerGroup, state: ConsumerGroupState) -> None:
        members = group.members.values()
        if not group.members:
            assert state is ConsumerGroupState.EMPTY
        elif group.epoch > group.target_epoch.epoch:
            assert state is ConsumerGroupState.ASSIGNING
        else:
            is_stable = all(
                one.epoch == group.epoch and one.state is MemberState.STABLE for one in members
            )
            assert (state is ConsumerGroupState.STABLE) == is_stable

    def check_replay(self) -> None:
        """Live state is what the log says, whole or compacted; nothing acknowledged is missing."""
        latest: dict[bytes, CoordinatorRecord] = {}
        for record in self.committed:
            latest.pop(record.key, None)
            latest[record.key] = record
        for shard in (self.replayed(self.committed), self.replayed(list(latest.values()))):
            assert shard.offsets == self.shard.offsets
            assert hard_state(shard) == hard_state(self.shard)
        stored = self.shard.offsets.of(GROUP)
        assert {place: one.offset for place, one in stored.items()} == self.offsets

    # How it ends

    def settle_down(self) -> None:
        """Let everybody who lives do its duty for a while; then all is shared out."""
        self.is_slow = False
        self.land()
        for _ in range(SETTLING_ROUNDS_MAX):
            for client in list(self.clients):
                self.do_duty(client)
                self.check()
            self.pass_time(SESSION_MS // 4)
            self.check()
        self.check_settled()

    def do_duty(self, client: Client) -> None:
        if not client.is_alive or client in self.waiting:
            return
        if not client.is_classic:
            self.apply(client)
            self.heartbeat(client)
            self.apply(client)
        elif client.needs_sync:
            self.sync(client)
        elif client.is_joined:
            self.classic_heartbeat(client)
        else:
            self.classic_join(client)

    def check_settled(self) -> None:
        self.check_replay()
        group = self.group
        alive = [one for one in self.clients if one.is_alive]
        if group is None or not alive:
            return
        members = self.members()
        names = {one.name for one in members}
        if len(alive) <= SIZE_MAX:
            assert names == {one.name for one in alive}, (names, alive)
        if isinstance(group, ConsumerGroup):
            assert group.state is ConsumerGroupState.STABLE, group.state
            assert len(group.members) == len(members)
            assert any(not one.is_classic for one in members), "it should be classic again"
        else:
            assert group.state is GroupState.STABLE
            assert all(one.is_classic for one in members), "it should be a consumer group"
        wanted = {
            (name, index)
            for client in members
            for name in self.wishes(client)
            for index in range(self.sizes.get(name, 0))
        }
        read = [place for client in members for place in client.reads]
        assert sorted(read) == sorted(wanted), "partitions have no reader, or two"
        for client in members:
            assert {name for name, _ in client.reads} <= self.wishes(client)

    def wishes(self, client: Client) -> frozenset[str]:
        matched = {name for name in self.sizes if client.regex and name in "ab"}
        return client.topics | matched


def hard_state(shard: GroupShard) -> dict[str, object]:
    return {
        name: one.hard_state() if isinstance(one, ConsumerGroup) else one.recorded
        for name, one in shard.groups.items()
        if isinstance(one, ConsumerGroup) or one.recorded is not None
    }


WALK_STEPS = 80
CLIENTS_MAX = 8


def walk(seed: int) -> World:
    """A life of a group, from one number, with trouble now and then; it settles at the end."""
    chance = random.Random(seed)
    world = World(chance.choice([EAGER, COOPERATIVE]), chance.choice([0, 0, 300]))
    for _ in range(WALK_STEPS):
        world.is_slow = chance.random() < 0.3
        step(world, chance)
        world.check()
    world.settle_down()
    return world


def new_client(world: World, chance: random.Random) -> Client:
    is_classic = chance.random() < 0.4
    topics = frozenset(chance.choice([("a",), ("b",), ("a", "b"), ("a", "b"), ("a", "b")]))
    regex = "[ab]" if not is_classic and chance.random() < 0.15 else None
    return Client(
        f"c{len(world.clients)}",
        is_classic,
        frozenset() if regex else topics,
        chance.choice([None, None, None, "i1", "i2"]),
        regex,
        chance.choice([None, None, "range", "uniform"]) if not is_classic else None,
    )


def step(world: World, chance: random.Random) -> None:
    roll = chance.random()
    alive = [one for one in world.clients if one.is_alive]
    free = [one for one in alive if one not in world.waiting]
    if roll < 0.5 and free:
        world.do_duty(chance.choice(free))
    elif roll < 0.6 and len(alive) < 4 and len(world.clients) < CLIENTS_MAX:
        if world.pending is None:
            client = new_client(world, chance)
            if not any(client.instance_id == one.instance_id and one.instance_id for one in alive):
                world.arrive(client)
    elif roll < 0.66 and free:
        trouble(world, chance.choice(free), chance)
    elif roll < 0.72 and world.tickets:
        places = [(name, index) for name, size in world.sizes.items() for index in range(size)]
        if places:
            world.commit(chance.choice(world.tickets), chance.choice(places), chance.randint(0, 99))
        world.use_old_ticket(chance.choice(world.tickets))
        for client in alive:
            world.intrude(client)
    elif roll < 0.84:
        world.pass_time(chance.choice([1, 50, DELAY_MS, DELAY_MS, 400, SESSION_MS]))
    elif roll < 0.93:
        world.land()
    elif roll < 0.95:
        world.lose()
    elif roll < 0.97:
        world.crash(chance.random() < 0.5)
    else:
        change_topics(world, chance)


def trouble(world: World, client: Client, chance: random.Random) -> None:
    roll = chance.random()
    if roll < 0.2:
        client.is_alive = False  # killed; nobody is told
        client.reads.clear()
    elif roll < 0.4:
        world.leave(client)
    elif roll < 0.45 and not client.is_classic:
        client.is_stuck = True
    elif roll < 0.65 and client.instance_id is not None and not client.is_classic:
        world.restart_static(client)
    elif roll < 0.8 and not client.is_classic:
        world.heartbeat(client, is_lost=True)
    elif not client.is_classic and not client.regex and client.is_joined:
        client.topics = frozenset(chance.choice([("a",), ("b",), ("a", "b")]))
        client.needs_full = True
        world.heartbeat(client)


def change_topics(world: World, chance: random.Random) -> None:
    if world.pending is not None:
        return
    sizes = dict(world.sizes)
    name = chance.choice(TOPICS)
    if name in sizes and sizes[name] < 5 and chance.random() < 0.7:
        sizes[name] += 1
    elif name in sizes:
        del sizes[name]
        for place in [one for one in world.offsets if one[0] == name]:
            del world.offsets[place]
        for record in world.shard.decide_forget_topics(frozenset((name,))):
            world.committed.append(record)
            world.shard.replay(-1, record.key, record.value)
    else:
        sizes[name] = chance.randint(1, 3)
    world.set_topics(sizes)
