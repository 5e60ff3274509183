"""Clients, a log and a clock around one shard, driven at random and watched by a model.

The model is slow and obvious: it remembers who assigned what in which generation, who was told
what, and which offsets were acknowledged. A crash is a new shard that replays the committed log.
"""

from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinators.group.classic_group import (
    ClassicGroup,
    GroupLimits,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from ottla.coordinators.group.effects import Effects, Fields, GroupWrite, Moment
from ottla.coordinators.group.records import (
    CoordinatorRecord,
    GroupMetadata,
    group_record,
)
from ottla.coordinators.group.shard import CommitRequest, GroupShard, WantedOffset
from ottla.coordinators.group.states import GroupState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition

GROUP = "group"
SESSION_MS = 1000
REBALANCE_MS = 3000
DELAY_MS = 200
PROTOCOLS = {
    "range": (("range", b"r"),),
    "sticky": (("sticky", b"s"), ("range", b"r")),
    "alien": (("alien", b"a"),),
}
TOPIC_ID = UUID(int=7)


@dataclass(eq=False)
class Client:
    """One consumer: what it was told, and what it waits for."""

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


@dataclass(eq=False)
class Ask:
    """A request under way. Hashed by identity, as futures are."""

    client: Client
    kind: str
    generation: int
    answers: int = 0


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = Moment(0, 1_000_000)
        self.committed: list[CoordinatorRecord] = []
        self.writes: deque[tuple[list[CoordinatorRecord], GroupWrite | None, object]] = deque()
        self.clients: list[Client] = []
        self.asks: list[Ask] = []
        self.handed_out = 0
        self.assigned: dict[int, list[dict[str, bytes]]] = {}
        self.offsets: dict[TopicPartition, int] = {}  # acknowledged and not overwritten since

    @initialize()
    def start(self) -> None:
        self.shard = self.empty_shard()

    def empty_shard(self) -> GroupShard:
        return GroupShard(lambda: GroupLimits(DELAY_MS, 4), lambda: 100)

    def loaded_shard(self) -> GroupShard:
        shard = self.empty_shard()
        for record in self.committed:
            shard.replay(-1, record.key, record.value)
        return shard

    # The shell

    def perform(self, group: ClassicGroup, effects: Effects) -> None:
        for waiter, response in effects.replies:
            assert isinstance(waiter, Ask)
            waiter.answers += 1
            assert waiter.answers == 1, f"{waiter} was answered twice"
            if waiter in self.asks:
                self.asks.remove(waiter)
                self.deliver(group, waiter, response)
        for write in effects.writes:
            self.writes.append(([group_record(GROUP, write.metadata)], write, group))

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
        assert response["generation_id"] == group.generation
        names = [name for name, _ in PROTOCOLS[client.protocol]]
        assert response["protocol_name"] in names, "a member got a protocol that it cannot do"
        client.member_id = response["member_id"]
        client.generation = response["generation_id"]
        client.leads = response["leader"] == client.member_id
        client.skips = response["skip_assignment"]
        client.members = [one["member_id"] for one in response["members"]]
        client.assignment = None
        assert client.leads or not client.members
        if client.leads:
            assert client.member_id in client.members

    def deliver_assignment(self, group: ClassicGroup, ask: Ask, response: Fields) -> None:
        client = ask.client
        assert ask.generation == group.generation, "an assignment went to a stale generation"
        assert group.recorded is not None
        assert group.recorded.generation == ask.generation, "an assignment ran ahead of the log"
        stored = {one.member_id: one.assignment for one in group.recorded.members}
        assert stored[client.member_id] == response["assignment"]
        assert response["assignment"] in self.possible_assignments(ask.generation, client)
        client.assignment = response["assignment"]

    def possible_assignments(self, generation: int, client: Client) -> set[bytes]:
        """What leaders of the generation gave to it, or to the one whose place it took."""
        found = {b""}
        for given in self.assigned.get(generation, []):
            found.update(
                assignment
                for member_id, assignment in given.items()
                if member_id == client.member_id
                or (client.instance_id and member_id.startswith(f"{client.instance_id}-"))
            )
        return found

    def free_clients(self) -> list[Client]:
        busy = {ask.client for ask in self.asks}
        return [client for client in self.clients if client not in busy]

    def group(self) -> ClassicGroup | None:
        return self.shard.groups.get(GROUP)

    # What clients do

    @rule(
        instance_id=st.sampled_from([None, None, "i1", "i2"]),
        protocol=st.sampled_from(["range", "range", "range", "sticky", "alien"]),
        is_old=st.booleans(),
    )
    def arrive(self, instance_id: str | None, protocol: str, is_old: bool) -> None:
        assume(len(self.clients) < 8)
        client = Client(f"c{len(self.clients)}", instance_id, protocol, is_old)
        self.clients.append(client)
        self.join(client)

    @rule(data=st.data(), changes_mind=st.booleans())
    def join_again(self, data: st.DataObject, changes_mind: bool) -> None:
        client = data.draw(st.sampled_from(self.free_clients() or [None]))
        assume(client is not None)
        if changes_mind:
            client.protocol = data.draw(st.sampled_from(sorted(PROTOCOLS)))
        self.join(client)

    def join(self, client: Client) -> None:
        group = self.group()
        if client.member_id and group is None:
            client.member_id = ""  # the shell says UNKNOWN_MEMBER_ID
        group = self.shard.group_or_new(GROUP, self.now)
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
        ask = Ask(client, "join", client.generation)
        self.asks.append(ask)
        self.perform(group, group.decide_join(request, ask, self.now))

    @rule(data=st.data(), is_forgetful=st.booleans())
    def sync(self, data: st.DataObject, is_forgetful: bool) -> None:
        able = [one for one in self.free_clients() if one.generation >= 0]
        client = data.draw(st.sampled_from(able or [None]))
        assume(client is not None and self.group() is not None)
        self.sync_one(client, is_forgetful=is_forgetful)

    def sync_one(self, client: Client, *, is_forgetful: bool) -> None:
        group = self.group()
        if group is None:
            return
        given: dict[str, bytes] = {}
        if client.leads and not client.skips:
            given = {one: f"{client.generation}:{one}".encode() for one in client.members}
            if is_forgetful and given:
                del given[client.members[-1]]
        ask = Ask(client, "sync", client.generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.assigned.setdefault(client.generation, []).append(given)
        self.asks.append(ask)
        request = SyncRequest(
            client.member_id, client.instance_id, client.generation, None, None, list(given.items())
        )
        self.perform(group, group.decide_sync(request, ask, self.now))

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        able = [one for one in self.clients if one.generation >= 0]
        client = data.draw(st.sampled_from(able or [None]))
        group = self.group()
        assume(client is not None and group is not None)
        code = group.decide_heartbeat(
            client.member_id, client.instance_id, client.generation, self.now
        )
        if code is ErrorCode.NONE:
            assert client.member_id in group.members
            assert client.generation == group.generation

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.free_clients() or [None]))
        group = self.group()
        assume(client is not None and group is not None)
        ask = Ask(client, "leave", client.generation)
        self.asks.append(ask)
        leaving = [LeavingMember(client.member_id, client.instance_id)]
        self.perform(group, group.decide_leave(leaving, ask, self.now))
        self.shard.forget_if_unused(GROUP)

    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        """A connection breaks while its request waits; the client will ask again."""
        ask = data.draw(st.sampled_from(self.asks or [None]))
        assume(ask is not None)
        self.asks.remove(ask)
        ask.client.generation = -1

    @rule(data=st.data(), partition=st.integers(0, 2), offset=st.integers(0, 9))
    def commit(self, data: st.DataObject, partition: int, offset: int) -> None:
        client = data.draw(st.sampled_from(self.clients or [None]))
        assume(client is not None)
        request = CommitRequest(
            GROUP, client.member_id, client.instance_id, client.generation, -1, 8
        )
        wanted = [WantedOffset("topic", TOPIC_ID, partition, offset, 0, "m")]
        group = self.group()
        try:
            records, codes = self.shard.decide_commit(request, wanted, self.now)
        except KafkaError:
            return
        assert codes == [ErrorCode.NONE]
        if client.generation >= 0:
            assert group is not None
            assert client.generation == group.generation, "a stale generation could commit"
        self.writes.append((records, None, (TopicPartition("topic", partition), offset)))

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """What chance alone rarely does: everybody joins, syncs and the log keeps up."""
        for _ in range(2):  # an id first, then a generation
            for client in self.free_clients():
                if client.generation < 0 and client.protocol != "alien":
                    self.join(client)
        self.pass_time(DELAY_MS)
        able = [one for one in self.free_clients() if one.generation >= 0]
        for client in data.draw(st.permutations(able)):
            self.sync_one(client, is_forgetful=False)
        for _ in range(data.draw(st.integers(0, len(self.writes)))):
            self.land_a_write()

    # What the world does

    @rule(elapsed_ms=st.sampled_from([1, 100, DELAY_MS, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, elapsed_ms: int) -> None:
        self.now = Moment(self.now.monotonic_ms + elapsed_ms, self.now.wall_ms + elapsed_ms)
        self.fire()

    def fire(self) -> None:
        group = self.group()
        if group is not None and group.wake_at_ms <= self.now.monotonic_ms:
            self.perform(group, group.on_time(self.now))
            self.shard.forget_if_unused(GROUP)

    @precondition(lambda self: self.writes)
    @rule()
    def land_a_write(self) -> None:
        records, write, about = self.writes.popleft()
        for record in records:
            self.committed.append(record)
            self.shard.replay(-1, record.key, record.value)
        if write is None:
            assert isinstance(about, tuple)
            self.offsets[about[0]] = about[1]
        else:
            assert isinstance(about, ClassicGroup)
            self.perform(about, about.on_written(write, self.now))

    @precondition(lambda self: self.writes)
    @rule(is_lost=st.booleans())
    def fail_a_write(self, is_lost: bool) -> None:
        """It timed out. Sometimes the log has it all the same, and replays it."""
        records, write, about = self.writes.popleft()
        if not is_lost:
            for record in records:
                self.committed.append(record)
                self.shard.replay(-1, record.key, record.value)
            if write is None:
                assert isinstance(about, tuple)
                self.offsets[about[0]] = about[1]
        if write is not None:
            assert isinstance(about, ClassicGroup)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.perform(about, about.on_write_failed(write, code, self.now))

    @rule(uncommitted=st.integers(0, 3))
    def crash(self, uncommitted: int) -> None:
        """Some of what was appended and not acknowledged survives; nobody's request does."""
        for records, write, about in list(self.writes)[:uncommitted]:
            self.committed.extend(records)
            if write is None:
                assert isinstance(about, tuple)
                self.offsets[about[0]] = about[1]
        self.writes.clear()
        for ask in self.asks:
            ask.client.generation = -1
        self.asks.clear()
        self.shard = self.loaded_shard()
        self.shard.on_loaded(self.now)

    # What must be so

    @invariant()
    def replaying_the_log_gives_what_is_live(self) -> None:
        replayed = self.loaded_shard()
        assert replayed.offsets == self.shard.offsets
        recorded: dict[str, GroupMetadata] = {
            name: one.recorded for name, one in self.shard.groups.items() if one.recorded
        }
        assert recorded == {
            name: one.recorded for name, one in replayed.groups.items() if one.recorded
        }

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        stored = self.shard.offsets.of(GROUP)
        assert {TopicPartition(*place): one.offset for place, one in stored.items()} == self.offsets

    @invariant()
    def a_stable_group_is_what_the_log_says(self) -> None:
        group = self.group()
        if group is None or group.state is not GroupState.STABLE or self.writes:
            return
        recorded = group.recorded
        assert recorded is not None
        if any(one.awaiting_join is not None for one in group.members):
            return  # a static member whose new id is being written
        assert recorded.generation == group.generation
        assert recorded.protocol == group.protocol
        assert recorded.leader == group.members.leader
        live = [(one.member_id, one.assignment) for one in group.members]
        assert live == [(one.member_id, one.assignment) for one in recorded.members]

    @invariant()
    def no_deadline_is_missed(self) -> None:
        group = self.group()
        if group is None:
            return
        woken = group.wake_at_ms
        before = len(self.asks)
        group.on_time(Moment(-1, self.now.wall_ms))  # nothing is due; it only looks again
        assert len(self.asks) == before
        assert woken <= group.wake_at_ms, "a deadline lies before the time to wake"
        group.wake_at_ms = woken

    @invariant()
    def members_wait_only_where_they_can(self) -> None:
        group = self.group()
        if group is None:
            return
        assert len(group.members) <= 4 or group.state is GroupState.PREPARING_REBALANCE
        for member in group.members:
            if member.awaiting_sync is not None:
                assert group.state is GroupState.COMPLETING_REBALANCE
        assert (group.state is GroupState.EMPTY) == (not group.members)

    def teardown(self) -> None:
        """With time enough everybody is answered, and a group that nobody renews is empty."""
        if not hasattr(self, "shard"):
            return
        for _ in range(400):  # a joiner without an id is given up after five minutes
            while self.writes:
                self.land_a_write()
            group = self.group()
            if not self.asks and (group is None or group.state is GroupState.EMPTY):
                break
            self.pass_time(REBALANCE_MS)
        assert not self.asks
        group = self.group()
        assert group is None or group.state is GroupState.EMPTY


GroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_group_keeps_its_promises = GroupMachine.TestCase
