"""A classic group under any sequence of requests, losses and crashes; see group_world.py."""

import random

from group_world import (
    DELAY_MS,
    PROTOCOLS,
    REBALANCE_MS,
    SESSION_MS,
    Ticket,
    World,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

CLIENTS_MAX = 8
WALK_STEPS = 150


class GroupMachine(RuleBasedStateMachine):
    """Short histories, which shrink to a readable one when something is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(
        instance_id=st.sampled_from([None, None, "i1", "i2"]),
        protocol=st.sampled_from(["range", "range", *PROTOCOLS]),
        is_old=st.booleans(),
    )
    def arrive(self, instance_id: str | None, protocol: str, is_old: bool) -> None:
        assume(len(self.world.clients) < CLIENTS_MAX)
        self.world.arrive(instance_id, protocol, is_old)

    @precondition(lambda self: self.world.free())
    @rule(data=st.data())
    def join_again(self, data: st.DataObject) -> None:
        self.world.join(data.draw(st.sampled_from(self.world.free())))

    @precondition(lambda self: self.world.in_generation())
    @rule(data=st.data(), is_forgetful=st.booleans())
    def sync(self, data: st.DataObject, is_forgetful: bool) -> None:
        client = data.draw(st.sampled_from(self.world.in_generation()))
        self.world.sync(client, is_forgetful=is_forgetful)

    @precondition(lambda self: self.world.free())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.world.leave(data.draw(st.sampled_from(self.world.free())))

    @precondition(lambda self: self.world.tickets)
    @rule(data=st.data(), offset=st.integers(0, 9))
    def use_a_ticket(self, data: st.DataObject, offset: int) -> None:
        ticket = data.draw(st.sampled_from(self.world.tickets))
        self.world.heartbeat(ticket)
        self.world.commit(ticket, 0, offset)
        self.world.zombie_sync(ticket)

    @precondition(lambda self: self.world.asks)
    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        self.world.hang_up(data.draw(st.sampled_from(self.world.asks)))

    @rule(elapsed_ms=st.sampled_from([1, DELAY_MS, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, elapsed_ms: int) -> None:
        self.world.pass_time(elapsed_ms)

    @precondition(lambda self: self.world.writes)
    @rule(is_late=st.booleans())
    def land_a_write(self, is_late: bool) -> None:
        self.world.land_a_write(is_late=is_late)

    @precondition(lambda self: self.world.writes)
    @rule()
    def lose_a_write(self) -> None:
        self.world.lose_a_write()

    @precondition(lambda self: self.world.committed)
    @rule(survivors=st.integers(0, 2))
    def crash(self, survivors: int) -> None:
        self.world.crash(survivors)

    @invariant()
    def all_is_well(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.check_end()


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_group_keeps_its_promises = GroupMachine.TestCase


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_group_keeps_its_promises_through_long_lives(seed: int) -> None:
    """Mostly groups that work, for many generations, with trouble now and then."""
    chance = random.Random(seed)
    world = World()
    for _ in range(WALK_STEPS):
        _step(world, chance)
        world.check()
    world.check_end()


def _step(world: World, chance: random.Random) -> None:
    roll = chance.random()
    if roll < 0.55:
        _make_progress(world, chance)
    elif roll < 0.62 and len(world.clients) < CLIENTS_MAX:
        world.arrive(
            chance.choice([None, None, "i1", "i2"]),
            chance.choice(["range", "sticky", "sticky", *PROTOCOLS]),
            chance.random() < 0.4,
        )
    elif roll < 0.66 and world.free():
        world.leave(chance.choice(world.free()))
    elif roll < 0.71 and world.free():
        client = chance.choice(world.free())
        client.protocol = chance.choice(list(PROTOCOLS))
        world.join(client)
    elif roll < 0.74 and world.free():
        client = chance.choice(world.free())  # a new process in its place
        client.member_id, client.generation, client.assignment = "", -1, None
        world.join(client)
    elif roll < 0.82 and world.tickets:
        _use(world, chance.choice(world.tickets), chance)
    elif roll < 0.85 and world.asks:
        world.hang_up(chance.choice(world.asks))
    elif roll < 0.93:
        world.pass_time(chance.choice([1, 50, DELAY_MS, DELAY_MS, SESSION_MS, REBALANCE_MS]))
    elif roll < 0.96 and world.writes:
        world.lose_a_write() if chance.random() < 0.5 else world.land_a_write(is_late=True)
    elif roll < 0.98:
        world.crash(chance.randint(0, 2))
    else:
        world.commit(Ticket("", None, -1), chance.randint(0, 2), chance.randint(0, 99))


def _make_progress(world: World, chance: random.Random) -> None:
    """One thing that a healthy client or log would do next."""
    able = world.in_generation()
    for client in able:
        world.heartbeat(Ticket(client.member_id, client.instance_id, client.generation))
    homeless = [one for one in world.free() if one.generation < 0 and one.protocol != "alien"]
    unsynced = [one for one in able if one.assignment is None]
    choices = ["land"] * bool(world.writes) + ["join"] * bool(homeless) + ["sync"] * bool(unsynced)
    choice = chance.choice(choices or ["idle"])
    if choice == "land":
        world.land_a_write()
    elif choice == "join":
        world.join(chance.choice(homeless))
    elif choice == "sync":
        world.sync(chance.choice(unsynced), is_forgetful=chance.random() < 0.1)
    else:
        _rejoin_after_rebalance(world, chance)


def _rejoin_after_rebalance(world: World, chance: random.Random) -> None:
    for client in world.in_generation():
        if world.group is None or world.group.generation != client.generation:
            client.generation = -1
        elif world.group.state.value == "PreparingRebalance":
            world.join(client)
    world.pass_time(chance.choice([10, DELAY_MS]))


def _use(world: World, ticket: Ticket, chance: random.Random) -> None:
    world.heartbeat(ticket)
    world.commit(ticket, chance.randint(0, 2), chance.randint(0, 99))
    world.zombie_sync(ticket)
