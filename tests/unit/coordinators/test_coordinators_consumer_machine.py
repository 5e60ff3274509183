"""Consumer groups, classic groups and the ways between them, against clients that tell all."""

import random

from consumer_world import CLIENTS_MAX, COOPERATIVE, EAGER, World, change_topics, new_client, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

EXAMPLES = 30
WALKS = 60


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(protocol=st.sampled_from([EAGER, COOPERATIVE]), interval=st.sampled_from([0, 300]))
    def start(self, protocol: str, interval: int) -> None:
        self.world = World(protocol, interval)

    @precondition(lambda self: len(self.world.clients) < CLIENTS_MAX)
    @rule(seed=st.integers(0, 99))
    def arrive(self, seed: int) -> None:
        client = new_client(self.world, random.Random(seed))
        taken = {one.instance_id for one in self.world.clients if one.is_alive}
        if self.world.pending is None and (
            client.instance_id is None or client.instance_id not in taken
        ):
            self.world.arrive(client)

    @precondition(lambda self: any(one.is_alive for one in self.world.clients))
    @rule(data=st.data(), times=st.integers(1, 3))
    def do_duty(self, data: st.DataObject, times: int) -> None:
        client = data.draw(st.sampled_from([one for one in self.world.clients if one.is_alive]))
        for _ in range(times):
            self.world.do_duty(client)

    @precondition(lambda self: any(one.is_alive for one in self.world.clients))
    @rule(data=st.data())
    def everybody_does_its_duty(self, data: st.DataObject) -> None:
        for client in list(self.world.clients):
            self.world.do_duty(client)

    @precondition(lambda self: any(one.is_alive for one in self.world.clients))
    @rule(
        data=st.data(),
        how=st.sampled_from(["leave", "kill", "restart", "lose an answer", "be stuck", "intrude"]),
    )
    def get_into_trouble(self, data: st.DataObject, how: str) -> None:
        client = data.draw(st.sampled_from([one for one in self.world.clients if one.is_alive]))
        if client in self.world.waiting:
            return
        if how == "leave":
            self.world.leave(client)
        elif how == "kill":
            client.is_alive = False
            client.reads.clear()
        elif client.is_classic:
            return
        elif how == "restart" and client.instance_id is not None:
            self.world.restart_static(client)
        elif how == "intrude":
            self.world.intrude(client)
        elif how == "be stuck":
            client.is_stuck = True
        else:
            self.world.heartbeat(client, is_lost=True)

    @precondition(lambda self: self.world.tickets and self.world.sizes)
    @rule(data=st.data(), offset=st.integers(0, 9))
    def use_a_ticket(self, data: st.DataObject, offset: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.sizes)))
        ticket = data.draw(st.sampled_from(self.world.tickets))
        self.world.commit(ticket, (name, 0), offset)
        self.world.use_old_ticket(ticket)

    @rule(elapsed_ms=st.sampled_from([1, 100, 400, 1000]))
    def pass_time(self, elapsed_ms: int) -> None:
        self.world.pass_time(elapsed_ms)

    @rule(seed=st.integers(0, 99))
    def change_topics(self, seed: int) -> None:
        change_topics(self.world, random.Random(seed))

    @rule(is_slow=st.booleans())
    def change_pace(self, is_slow: bool) -> None:
        self.world.is_slow = is_slow

    @rule(is_kept=st.booleans())
    def let_the_log_decide(self, is_kept: bool) -> None:
        self.world.land() if is_kept else self.world.lose()

    @rule(is_landed=st.booleans())
    def crash(self, is_landed: bool) -> None:
        self.world.crash(is_landed)

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle_down()


ConsumerGroupMachine.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None
)
test_consumer_group_keeps_its_promises = ConsumerGroupMachine.TestCase


@settings(max_examples=WALKS, deadline=None)
@given(st.integers(0, 2**32))
def test_consumer_group_keeps_its_promises_through_long_lives(seed: int) -> None:
    """Mostly groups that work, of either kind and turning, with trouble now and then."""
    walk(seed)
