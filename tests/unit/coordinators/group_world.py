"""Clients, a log and a clock around one shard, watched by a model that is slow and obvious.

It remembers who assigned what in which generation, who was told what, and which offsets were
acknowledged. A crash is a new shard that replays the committed log.
"""

from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.effects import Effects, Fields, GroupWrite, Moment
from ottla.coordinators.group.records import CoordinatorRecord, group_record
from ottla.coordinators.group.requests import GroupLimits, JoinRequest, LeavingMember, SyncRequest
from ottla.coordinators.group.shard import CommitRequest, GroupShard, WantedOffset
from ottla.coordinators.group.states import GroupState
from ottla.protocol.errors import ErrorCode, KafkaError

GROUP = "group"
SIZE_MAX = 4
SESSION_MS = 1000
REBALANCE_MS = 3000
DELAY_MS = 200
PROTOCOLS = {
    "range": (("range", b"r"),),
    "sticky": (("sticky", b"s"), ("range", b"r")),
    "only sticky": (("sticky", b"s"),),
    "alien": (("alien", b"a"),),
}
TOPIC_ID = UUID(int=7)


@dataclass(eq=False)
class Client:
    """One consumer and what it was told."""

    name: str
    instance_id: str | None
    protocol: str
    is_old: bool  # joins without asking for an id first
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    skips: bool = False
    members: list[str] = field(default_factory=list)
    assignment: bytes | None = None


@dataclass(frozen=True)
class Ticket:
    """What a client once was; processes that were thought dead go on using theirs."""

    member_id: str
    instance_id: str | None
    generation: int


@dataclass(eq=False)
class Ask:
    """A request under way."""

    client: Client
    kind: str
    ticket: Ticket
    answers: int = 0


@dataclass
class Write:
    records: list[CoordinatorRecord]
    group: ClassicGroup | None = None  # of a generation
    group_write: GroupWrite | None = None
    place: tuple[str, int] = ("", 0)  # of an offset
    offset: int = -1


class World:
    def __init__(self) -> None:
        self.now = Moment(0, 1_000_000)
        self.shard = self.empty_shard()
        self.committed: list[CoordinatorRecord] = []
        self.writes: deque[Write] = deque()
        self.clients: list[Client] = []
        self.asks: list[Ask] = []
        self.tickets: list[Ticket] = []
        self.handed_out = 0
        self.assigned: dict[int, list[dict[str, bytes]]] = {}
        self.leaders: dict[int, set[str]] = {}
        self.offsets: dict[tuple[str, int], int] = {}

    def empty_shard(self) -> GroupShard:
        return GroupShard(lambda: GroupLimits(DELAY_MS, SIZE_MAX), lambda: 100)

    def loaded_shard(self) -> GroupShard:
        shard = self.empty_shard()
        for record in self.committed:
            shard.replay(-1, record.key, record.value)
        return shard

    @property
    def group(self) -> ClassicGroup | None:
        return self.shard.groups.get(GROUP)

    def free(self) -> list[Client]:
        """Clients that do not wait for an answer."""
        busy = {ask.client for ask in self.asks}
        return [client for client in self.clients if client not in busy]

    def in_generation(self) -> list[Client]:
        return [client for client in self.free() if client.generation >= 0]

    # What clients do

    def arrive(self, instance_id: str | None, protocol: str, is_old: bool) -> None:
        client = Client(f"c{len(self.clients)}", instance_id, protocol, is_old)
        self.clients.append(client)
        self.join(client)

    def join(self, client: Client) -> None:
        if client.member_id and self.group is None:
            client.member_id = ""  # the shell says UNKNOWN_MEMBER_ID
        group = self.shard.classic_or_new(GROUP, self.now)
        self.handed_out += 1
        request = JoinRequest(
            client.member_id,
            client.instance_id,
            client.name,
            "/host",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            PROTOCOLS[client.protocol],
            f"{client.instance_id or client.name}-{self.handed_out}",
            not client.is_old,
            not client.is_old,
        )
        self.perform(group, group.decide_join(request, self.ask(client, "join"), self.now))
        self.forget_if_unused()

    def sync(self, client: Client, *, is_forgetful: bool = False) -> None:
        group = self.group
        if group is None:
            return
        given: dict[str, bytes] = {}
        if client.leads and not client.skips:
            given = {one: f"{client.generation}:{one}".encode() for one in client.members}
            if is_forgetful and given:
                del given[client.members[-1]]
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.assigned.setdefault(client.generation, []).append(given)
        ask = self.ask(client, "sync")
        request = SyncRequest(
            client.member_id, client.instance_id, client.generation, None, None, list(given.items())
        )
        self.perform(group, group.decide_sync(request, ask, self.now))

    def heartbeat(self, ticket: Ticket) -> None:
        group = self.group
        if group is None:
            return
        code = group.decide_heartbeat(
            ticket.member_id, ticket.instance_id, ticket.generation, self.now
        )
        if code is ErrorCode.NONE:
            assert ticket.member_id in group.members
            assert ticket.generation == group.generation

    def leave(self, client: Client) -> None:
        group = self.group
        if group is None:
            return
        leaving = [LeavingMember(client.member_id, client.instance_id)]
        self.perform(group, group.decide_leave(leaving, self.ask(client, "leave"), self.now))
        self.forget_if_unused()

    def hang_up(self, ask: Ask) -> None:
        """A connection breaks while its request waits; the client will ask again."""
        self.asks.remove(ask)
        ask.client.generation = -1

    def commit(self, ticket: Ticket, partition: int, offset: int) -> None:
        request = CommitRequest(
            GROUP, ticket.member_id, ticket.instance_id, ticket.generation, -1, 8
        )
        wanted = [WantedOffset("topic", TOPIC_ID, partition, offset, 0, "m")]
        group = self.group
        try:
            records, codes = self.shard.decide_commit(request, wanted, self.now)
        except KafkaError:
            return
        assert codes == [ErrorCode.NONE]
        if ticket.generation >= 0:
            assert group is not None
            assert ticket.member_id in group.members
            assert ticket.generation == group.generation, "a stale generation could commit"
        else:
            assert group is None or not group.members, "a stranger committed for a live group"
        self.writes.append(Write(records, place=("topic", partition), offset=offset))

    def zombie_sync(self, ticket: Ticket) -> None:
        """A process that was paused comes back and asks for its share of long ago."""
        group = self.group
        if group is None or any(ask.ticket.member_id == ticket.member_id for ask in self.asks):
            return
        member = group.members.get(ticket.member_id)
        if member is not None and ticket.generation == group.generation:
            return  # not a zombie
        zombie = Client("zombie", ticket.instance_id, "range", is_old=False)
        zombie.member_id, zombie.generation = ticket.member_id, ticket.generation
        ask = self.ask(zombie, "sync")
        request = SyncRequest(
            ticket.member_id,
            ticket.instance_id,
            ticket.generation,
            None,
            None,
            [(ticket.member_id, b"stale")],
        )
        self.perform(group, group.decide_sync(request, ask, self.now))
        assert ask.answers == 1
        assert zombie.assignment is None

    # What the world does

    def pass_time(self, elapsed_ms: int) -> None:
        self.now = Moment(self.now.monotonic_ms + elapsed_ms, self.now.wall_ms + elapsed_ms)
        group = self.group
        if group is not None and group.wake_at_ms <= self.now.monotonic_ms:
            self.perform(group, group.on_time(self.now))
            self.forget_if_unused()

    def land_a_write(self, *, is_late: bool = False) -> None:
        """The log has committed the oldest write; `is_late`: after its time was up."""
        write = self.writes.popleft()
        for record in write.records:
            self.committed.append(record)
            self.shard.replay(-1, record.key, record.value)
        if write.group is None or write.group_write is None:
            self.offsets[write.place] = write.offset
        elif is_late:
            self.fail(write)
        else:
            self.perform(write.group, write.group.on_written(write.group_write, self.now))

    def lose_a_write(self) -> None:
        self.fail(self.writes.popleft())

    def fail(self, write: Write) -> None:
        if write.group is not None and write.group_write is not None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            effects = write.group.on_write_failed(write.group_write, code, self.now)
            self.perform(write.group, effects)

    def crash(self, survivors: int) -> None:
        """Some of what was appended and not acknowledged survives; nobody's request does."""
        for write in list(self.writes)[:survivors]:
            self.committed.extend(write.records)
            if write.group is None:
                self.offsets[write.place] = write.offset
        self.writes.clear()
        for ask in self.asks:
            ask.client.generation = -1
        self.asks.clear()
        self.shard = self.loaded_shard()
        self.shard.on_loaded(self.now)
        self.forget_unwritten_generations()

    def forget_if_unused(self) -> None:
        self.shard.forget_if_unused(GROUP)
        self.forget_unwritten_generations()

    def forget_unwritten_generations(self) -> None:
        """A generation that was never written is counted anew after the group was forgotten."""
        known = -1 if self.group is None else self.group.generation
        self.assigned = {one: given for one, given in self.assigned.items() if one <= known}
        self.leaders = {one: who for one, who in self.leaders.items() if one <= known}

    # Answers

    def ask(self, client: Client, kind: str) -> Ask:
        ticket = Ticket(client.member_id, client.instance_id, client.generation)
        ask = Ask(client, kind, ticket)
        self.asks.append(ask)
        return ask

    def perform(self, group: ClassicGroup, effects: Effects) -> None:
        for write in effects.writes:
            record = group_record(GROUP, write.metadata)
            self.writes.append(Write([record], group, write))
        for waiter, response in effects.replies:
            assert isinstance(waiter, Ask)
            waiter.answers += 1
            assert waiter.answers == 1, f"{waiter} was answered twice"
            if waiter in self.asks:
                self.asks.remove(waiter)
                self.deliver(group, waiter, response)

    def deliver(self, group: ClassicGroup, ask: Ask, response: Fields) -> None:
        client, code = ask.client, response["error_code"]
        if ask.kind == "leave":
            client.member_id, client.generation, client.assignment = "", -1, None
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response["member_id"]
        elif code is not ErrorCode.NONE:
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""
            client.generation = -1
        elif ask.kind == "join":
            self.deliver_join(group, client, response)
        else:
            self.deliver_assignment(group, ask, response)

    def deliver_join(self, group: ClassicGroup, client: Client, response: Fields) -> None:
        generation = response["generation_id"]
        assert generation == group.generation
        names = [name for name, _ in PROTOCOLS[client.protocol]]
        assert response["protocol_name"] in names, "a member got a protocol that it cannot do"
        client.member_id = response["member_id"]
        client.generation = generation
        client.leads = response["leader"] == client.member_id
        client.skips = response["skip_assignment"]
        client.members = [one["member_id"] for one in response["members"]]
        client.assignment = None
        assert client.leads == bool(client.members)
        if client.leads:
            assert client.members == [one.member_id for one in group.members]
            place = client.instance_id or client.member_id
            self.leaders.setdefault(generation, set()).add(place)
            assert len(self.leaders[generation]) == 1, "two members lead one generation"
        self.tickets.append(Ticket(client.member_id, client.instance_id, generation))

    def deliver_assignment(self, group: ClassicGroup, ask: Ask, response: Fields) -> None:
        client, generation = ask.client, ask.ticket.generation
        assert generation == group.generation, "an assignment went to a stale generation"
        assert group.recorded is not None
        assert group.recorded.generation == generation, "an assignment ran ahead of the log"
        stored = {one.member_id: one.assignment for one in group.recorded.members}
        assert stored[client.member_id] == response["assignment"]
        assert response["assignment"] in self.possible_assignments(generation, client)
        client.assignment = response["assignment"]

    def possible_assignments(self, generation: int, client: Client) -> set[bytes]:
        """What the leader of the generation gave to it, or to the one whose place it took."""
        prefix = f"{client.instance_id}-" if client.instance_id else client.member_id
        found = set()
        for given in self.assigned.get(generation, []):
            mine = {data for member_id, data in given.items() if member_id.startswith(prefix)}
            found |= mine or {b""}
        return found

    # What must be so

    def check(self) -> None:
        self.check_replay()
        group = self.group
        if group is not None:
            self.check_members(group)
            self.check_stable(group)
            self.check_wake(group)

    def check_replay(self) -> None:
        """Live state is what the committed log says, and nothing acknowledged is missing."""
        replayed = self.loaded_shard()
        assert replayed.offsets == self.shard.offsets
        recorded = {name: one.recorded for name, one in self.shard.groups.items() if one.recorded}
        assert recorded == {
            name: one.recorded for name, one in replayed.groups.items() if one.recorded
        }
        stored = self.shard.offsets.of(GROUP)
        assert {place: one.offset for place, one in stored.items()} == self.offsets

    def check_members(self, group: ClassicGroup) -> None:
        for member in group.members:
            if member.awaiting_sync is not None:
                assert group.state is GroupState.COMPLETING_REBALANCE
        assert (group.state is GroupState.EMPTY) == (not group.members)
        assert (group.members.leader is None) == (not group.members)
        assert group.members.leader is None or group.members.leader in group.members
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert len(group.members) <= SIZE_MAX

    def check_stable(self, group: ClassicGroup) -> None:
        if group.state is not GroupState.STABLE or self.writes:
            return
        recorded = group.recorded
        assert recorded is not None
        assert recorded.generation == group.generation
        assert recorded.protocol == group.protocol
        assert recorded.leader == group.members.leader
        live = [(one.member_id, one.assignment) for one in group.members]
        assert live == [(one.member_id, one.assignment) for one in recorded.members]
        for client in self.clients:
            member = group.members.get(client.member_id)
            if client.assignment is not None and client.generation == group.generation and member:
                assert member.assignment == client.assignment

    def check_wake(self, group: ClassicGroup) -> None:
        woken = group.wake_at_ms
        group.on_time(Moment(-1, self.now.wall_ms))  # nothing is due; it only looks again
        assert woken <= group.wake_at_ms, "a deadline lies before the time to wake"
        group.wake_at_ms = woken

    def check_end(self) -> None:
        """With time enough everybody is answered, and a group that nobody renews is empty."""
        for _ in range(400):  # a joiner without an id is given up after five minutes
            while self.writes:
                self.land_a_write()
            if not self.asks and (self.group is None or self.group.state is GroupState.EMPTY):
                return
            self.pass_time(REBALANCE_MS)
            self.check()
        raise AssertionError(f"{self.asks} are never answered")
