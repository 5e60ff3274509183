"""The checker finds each anomaly where there is one, and none where there is none."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactly_once import cycles, history
from exactly_once.checker import Anomaly, check
from exactly_once.history import Assign, Operation, Outcome, Pair, Poll, Send, Step, Subscribe

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


class Story:
    """Operations one after another, each a tick long unless told otherwise."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._now = 0

    def add(
        self,
        process: int,
        *steps: Step,
        outcome: Outcome = OK,
        begins: int | None = None,
        ends: int | None = None,
    ) -> "Story":
        begin = self._now + 1 if begins is None else begins
        end = begin + 1 if ends is None else ends
        self._now = max(self._now, end)
        one = Operation(process, steps, outcome, begin, end, is_transaction=len(steps) > 1)
        self.operations.append(one)
        return self

    def bad(self) -> set[Anomaly]:
        return {finding.anomaly for finding in check(self.operations).bad}

    def found(self) -> set[Anomaly]:
        return set(check(self.operations).counts())


def poll(*pairs: Pair, key: int = 0) -> Poll:
    return Poll({key: pairs})


def both(first: Sequence[Pair], second: Sequence[Pair]) -> Poll:
    """A poll of partitions 0 and 1."""
    return Poll({0: tuple(first), 1: tuple(second)})


def test_nothing_is_found_where_all_went_well() -> None:
    story = Story()
    story.add(1, Assign((0, 1)))
    story.add(1, Send(0, 10, 0))
    story.add(2, Send(0, 11, 1), Send(1, 12, 0))
    story.add(1, poll((0, 10)), Send(0, 13, 3))
    story.add(1, poll((1, 11)), poll((3, 13)))
    story.add(3, both([(0, 10), (1, 11), (3, 13)], [(0, 12)]))
    assert story.found() == set()


def test_nothing_is_found_in_an_unknown_transaction_that_did_not_happen() -> None:
    story = Story()
    story.add(1, Send(0, 10, 0), Send(1, 11, 0), outcome=INFO)
    story.add(2, Send(0, 12, 3))
    story.add(2, poll((3, 12)))
    assert story.found() == set()


def test_nothing_is_found_in_a_failed_send_that_nobody_reads() -> None:
    story = Story().add(1, Send(0, 10, 0), outcome=FAIL).add(2, Send(0, 11, 2))
    assert story.add(2, poll((2, 11))).found() == set()


def test_lost_write_is_acknowledged_and_passed_over() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, Send(0, 11, 1)).add(3, poll((1, 11)))
    assert story.bad() == {Anomaly.LOST_WRITE, Anomaly.UNSEEN}


def test_lost_write_is_also_the_other_half_of_an_unknown_transaction() -> None:
    story = Story().add(1, Send(0, 10, 0), Send(1, 11, 0), outcome=INFO)
    story.add(2, Send(0, 12, 2)).add(3, both([(2, 12)], [(0, 11)]))
    assert story.bad() == {Anomaly.LOST_WRITE, Anomaly.UNSEEN}


def test_write_behind_the_last_that_was_read_is_unseen_and_not_lost() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, Send(0, 11, 1)).add(3, poll((0, 10)))
    assert story.bad() == {Anomaly.UNSEEN}


def test_write_that_was_acknowledged_without_an_offset_is_unseen_too() -> None:
    assert Story().add(1, Send(0, 10)).bad() == {Anomaly.UNSEEN}


def test_half_of_an_unknown_transaction_is_unseen_when_the_other_was_read() -> None:
    story = Story().add(1, Send(0, 10, 0), Send(1, 11), outcome=INFO).add(2, poll((0, 10)))
    assert story.bad() == {Anomaly.UNSEEN}


def test_duplicate_is_one_value_at_two_offsets() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, poll((0, 10), (2, 10)))
    assert Anomaly.DUPLICATE in story.bad()


def test_duplicate_proves_only_that_its_first_place_was_read() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, Send(0, 11, 5))
    assert story.add(3, poll((0, 10)), poll((9, 10))).bad() >= {Anomaly.DUPLICATE, Anomaly.UNSEEN}
    assert Anomaly.LOST_WRITE not in story.bad()


def test_duplicate_may_show_between_acknowledgement_and_read() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, poll((2, 10)))
    assert story.bad() == {Anomaly.DUPLICATE}


def test_offsets_are_inconsistent_when_readers_disagree() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, Send(0, 11, 1))
    story.add(3, poll((0, 10), (1, 11))).add(4, poll((0, 11)))
    assert Anomaly.INCONSISTENT_OFFSETS in story.bad()


def test_offsets_are_inconsistent_when_two_sends_got_one() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, Send(0, 11, 0)).add(3, poll((0, 10)))
    assert Anomaly.INCONSISTENT_OFFSETS in story.bad()


@pytest.mark.parametrize("reader", Outcome)
def test_aborted_read_is_found_whatever_became_of_the_reader(reader: Outcome) -> None:
    story = Story().add(1, Send(0, 10, 0), outcome=FAIL).add(2, poll((0, 10)), outcome=reader)
    assert story.bad() == {Anomaly.G1A}


def test_phantom_is_a_value_that_was_sent_to_another_partition() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, poll((0, 10))).add(2, poll((0, 10), key=1))
    assert story.bad() == {Anomaly.PHANTOM}


def test_precommitted_read_is_of_the_own_transaction() -> None:
    story = Story().add(1, Send(0, 10, 0), poll((0, 10)))
    assert story.bad() == {Anomaly.PRECOMMITTED_READ}


def test_skip_inside_an_operation() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(1, Send(0, 11, 1)).add(1, Send(0, 12, 2))
    story.add(2, poll((0, 10), (1, 11), (2, 12)))
    assert story.bad() == set()
    story.add(3, poll((0, 10)), poll((2, 12)))
    assert story.bad() == {Anomaly.INT_POLL_SKIP}


def test_gap_that_nobody_knows_a_value_of_is_no_skip() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(1, Send(0, 12, 7))
    assert story.add(2, poll((0, 10), (7, 12))).bad() == set()


def test_reversal_inside_an_operation() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(1, Send(0, 11, 1))
    story.add(2, poll((1, 11)), poll((0, 10)))
    assert story.bad() == {Anomaly.INT_NONMONOTONIC_POLL}


def test_repetition_inside_an_operation_is_a_reversal() -> None:
    story = Story().add(1, Send(0, 10, 0)).add(2, poll((0, 10)), poll((0, 10)))
    assert story.bad() == {Anomaly.INT_NONMONOTONIC_POLL}


def test_sends_of_one_transaction_that_change_places() -> None:
    story = Story().add(1, Send(0, 10, 1), Send(0, 11, 0)).add(2, poll((0, 11), (1, 10)))
    assert story.bad() == {Anomaly.INT_NONMONOTONIC_SEND}


def test_sends_of_two_transactions_may_interleave() -> None:
    story = Story().add(1, Send(0, 10, 0), Send(0, 12, 2), begins=1, ends=9)
    story.add(2, Send(0, 11, 1), begins=2, ends=3)
    story.add(3, poll((0, 10), (1, 11), (2, 12)), begins=10)
    assert story.found() == {Anomaly.INT_SEND_SKIP}
    assert story.bad() == set()


@pytest.mark.parametrize("outcome", [OK, INFO])
def test_sends_of_a_process_that_go_backwards(outcome: Outcome) -> None:
    story = Story().add(1, Send(0, 10, 5)).add(1, Send(0, 11, 2), outcome=outcome)
    assert story.add(2, poll((2, 11), (5, 10))).bad() == {Anomaly.NONMONOTONIC_SEND}


def test_every_send_of_a_process_is_compared_with_the_one_before() -> None:
    story = Story().add(1, Send(0, 10, 2)).add(1, Send(0, 11, 5)).add(1, Send(0, 12, 3))
    assert story.add(2, poll((2, 10), (3, 12), (5, 11))).bad() == {Anomaly.NONMONOTONIC_SEND}


def test_sends_of_two_processes_may_lie_in_any_order() -> None:
    story = Story().add(1, Send(0, 10, 5), begins=1, ends=9).add(2, Send(0, 11, 2), begins=1)
    assert story.add(3, poll((2, 11), (5, 10)), begins=10).bad() == set()


def three_sends() -> Story:
    story = Story().add(1, Send(0, 10, 0)).add(1, Send(0, 11, 1)).add(1, Send(0, 12, 2))
    return story.add(2, poll((0, 10), (1, 11), (2, 12)))


def test_skip_between_polls_of_a_process() -> None:
    story = three_sends().add(3, poll((0, 10))).add(3, poll((2, 12)))
    assert story.bad() == {Anomaly.POLL_SKIP}


def test_reversal_between_polls_of_a_process() -> None:
    story = three_sends().add(3, poll((0, 10), (1, 11))).add(3, poll((1, 11), (2, 12)))
    assert story.bad() == {Anomaly.NONMONOTONIC_POLL}


def test_a_process_that_subscribes_may_be_moved_between_its_polls_and_no_other() -> None:
    story = three_sends().add(3, Subscribe())
    story.add(3, poll((0, 10))).add(3, poll((2, 12))).add(3, poll((1, 11), (2, 12)))
    assert story.bad() == set()
    story.add(4, poll((0, 10))).add(4, poll((2, 12)))
    assert story.bad() == {Anomaly.POLL_SKIP}


def test_within_one_operation_a_process_that_subscribes_is_not_moved() -> None:
    story = three_sends().add(3, Subscribe())
    story.add(3, poll((0, 10)), poll((2, 12)))
    assert story.bad() == {Anomaly.INT_POLL_SKIP}


@pytest.mark.parametrize("outcome", [FAIL, INFO])
def test_poll_of_an_operation_that_did_not_succeed_is_repeated(outcome: Outcome) -> None:
    story = three_sends().add(3, poll((0, 10)))
    story.add(3, poll((1, 11)), Send(1, 20, 0), outcome=outcome)
    assert story.add(3, poll((1, 11), (2, 12))).bad() == set()


def test_poll_of_an_operation_that_did_not_succeed_is_compared_all_the_same() -> None:
    story = three_sends().add(3, poll((0, 10))).add(3, poll((2, 12)), outcome=FAIL)
    assert story.bad() == {Anomaly.POLL_SKIP}


def test_polls_may_start_anew_after_an_assignment_without_the_partition() -> None:
    story = three_sends().add(3, poll((0, 10), (1, 11)))
    story.add(3, Assign((1,))).add(3, Assign((0, 1)))
    assert story.add(3, poll((0, 10))).bad() == set()


def test_polls_go_on_after_an_assignment_that_keeps_the_partition() -> None:
    story = three_sends().add(3, poll((0, 10), (1, 11))).add(3, Assign((0, 1)))
    assert story.add(3, poll((0, 10))).bad() == {Anomaly.NONMONOTONIC_POLL}


def test_polls_of_two_processes_are_not_compared() -> None:
    assert three_sends().add(3, poll((0, 10))).add(4, poll((2, 12))).bad() == set()


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    story = Story()
    story.add(1, Send(0, 10, 0), poll((0, 11), key=1), begins=1, ends=9)
    story.add(2, Send(1, 11, 0), poll((0, 10)), begins=2, ends=8)
    assert story.bad() == {Anomaly.G1C}


def test_two_transactions_of_which_one_reads_the_other_are_none() -> None:
    story = Story()
    story.add(1, Send(0, 10, 0), poll((0, 11), key=1), begins=1, ends=9)
    story.add(2, Send(1, 11, 0), begins=2, ends=8)
    story.add(3, poll((0, 10)), begins=10)
    assert story.bad() == set()


def test_cycle_through_the_order_of_a_process() -> None:
    """Process 1 reads 11, whose transaction read 10, which process 1 sends only later."""
    story = Story()
    story.add(1, poll((0, 11), key=1), begins=1, ends=2)
    story.add(2, poll((0, 10)), Send(1, 11, 0), begins=1, ends=20)
    story.add(1, Send(0, 10, 0), begins=2, ends=19)
    assert story.bad() == {Anomaly.G1C_PROCESS}


def test_unknown_operation_precedes_nothing_in_its_process() -> None:
    story = Story()
    story.add(1, poll((0, 11), key=1), outcome=INFO, begins=1, ends=2)
    story.add(2, poll((0, 10)), Send(1, 11, 0), begins=1, ends=20)
    story.add(1, Send(0, 10, 0), begins=2, ends=19)
    assert story.bad() == set()


def test_cycle_through_real_time() -> None:
    story = Story()
    story.add(1, poll((0, 11), key=1), begins=1, ends=2)
    story.add(2, poll((0, 10)), Send(1, 11, 0), begins=1, ends=20)
    story.add(3, Send(0, 10, 0), begins=5, ends=19)
    assert story.bad() == {Anomaly.G1C_REALTIME}


def test_end_of_an_unknown_operation_says_nothing_of_real_time() -> None:
    story = Story()
    story.add(1, poll((0, 11), key=1), Send(0, 9), outcome=INFO, begins=1, ends=2)
    story.add(2, poll((0, 10)), Send(1, 11, 0), begins=1, ends=20)
    story.add(3, Send(0, 10, 0), begins=5, ends=19)
    assert story.bad() == set()


def test_read_of_what_is_sent_later_is_a_cycle_even_if_the_send_is_unknown() -> None:
    story = Story().add(1, poll((0, 10))).add(2, Send(0, 10), outcome=INFO)
    assert story.bad() == {Anomaly.G1C_REALTIME}


@given(st.integers(0, 2**32), st.integers(2, 12))
def test_components_agree_with_reachability(seed: int, count: int) -> None:
    chance = random.Random(seed)
    graph: cycles.Graph = [
        {target for target in range(count) if target != vertex and chance.random() < 1.5 / count}
        for vertex in range(count)
    ]
    reach = [set(edges) for edges in graph]
    for _ in range(count):
        for vertex in range(count):
            reach[vertex] |= {far for near in reach[vertex] for far in reach[near]}
    found = {frozenset(component) for component in cycles.components(graph)}
    expected = {
        frozenset(w for w in range(count) if w in reach[v] and v in reach[w])
        for v in range(count)
        if v in reach[v]
    }
    assert found == expected
    for component in found:
        start = min(component)
        loop = cycles.shortest_cycle(graph, component, start=start)
        assert loop[0] == start
        for vertex, target in zip(loop, [*loop[1:], start], strict=True):
            assert target in graph[vertex]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.booleans()), max_size=12))
def test_realtime_vertices_stand_for_all_pairs(spans: list[tuple[int, int, bool]]) -> None:
    begins = [begin for begin, _, _ in spans]
    ends = [begin + length if ended else None for begin, length, ended in spans]
    graph, count = cycles.with_realtime([set() for _ in spans], begins, ends)
    for vertex in range(count):
        reached: set[int] = set()
        todo = [vertex]
        while todo:
            for target in graph[todo.pop()] - reached:
                reached.add(target)
                todo.append(target)
        end = ends[vertex]
        expected = {w for w in range(count) if end is not None and end < begins[w]}
        assert {one for one in reached if one < count} == expected


class PerfectBroker:
    """Partitions, open transactions and the last stable offset, done right, step by step."""

    def __init__(self, keys: int) -> None:
        self.logs: list[list[tuple[int, object]]] = [[] for _ in range(keys)]
        self.state: dict[object, str] = {}

    def append(self, key: int, value: int, owner: object) -> int:
        self.logs[key].append((value, owner))
        self.state.setdefault(owner, "open")
        return len(self.logs[key]) - 1

    def end(self, owner: object, *, commit: bool) -> None:
        self.state[owner] = "committed" if commit else "aborted"
        for log in self.logs:
            if any(of == owner for _, of in log):
                log.append((-1, None))

    def read(self, key: int, position: int, count: int) -> tuple[list[Pair], int]:
        """Committed pairs from `position`, and the position after them."""
        pairs: list[Pair] = []
        log = self.logs[key]
        while position < len(log) and len(pairs) < count:
            value, owner = log[position]
            if owner is not None:
                if self.state[owner] == "open":
                    break
                if self.state[owner] == "committed":
                    pairs.append((position, value))
            position += 1
        return pairs, position


class PerfectClient:
    """One worker: performs one step of its current operation whenever it is its turn."""

    def __init__(self, broker: PerfectBroker, chance: random.Random, process: int) -> None:
        self.broker, self.chance, self.process = broker, chance, process
        self.positions = dict.fromkeys(range(len(broker.logs)), 0)
        self.done: list[Operation] = []
        self.numbers = iter(range(process * 10_000, 10**9))
        self.todo: list[str] = []
        self.began = 0
        self.steps: list[Step] = []
        self.owner: object = None
        self.rewind = dict(self.positions)

    def turn(self, now: int) -> None:
        if not self.todo:
            self.todo = [self.chance.choice(("send", "poll")) for _ in range(1 + now % 4)]
            self.began, self.steps, self.owner = now, [], object()
            self.rewind = dict(self.positions)
            self.broker.state[self.owner] = "open"
            return
        key = self.chance.randrange(len(self.broker.logs))
        if self.todo.pop() == "send":
            value = next(self.numbers)
            offset = self.broker.append(key, value, self.owner)
            self.steps.append(Send(key, value, offset if self.chance.random() < 0.9 else None))
        else:
            pairs, after = self.broker.read(key, self.positions[key], self.chance.randint(1, 4))
            self.positions[key] = after
            self.steps.append(Poll({key: tuple(pairs)}))
        if not self.todo:
            self._end(now)

    def _end(self, now: int) -> None:
        commit = self.chance.random() < 0.7
        outcome = OK if commit else FAIL
        if self.chance.random() < 0.2:
            outcome = INFO
        self.broker.end(self.owner, commit=commit)
        steps = tuple(self.steps)
        self.done.append(Operation(self.process, steps, outcome, self.began, now))
        if outcome is not OK:
            self.positions = self.rewind
        if outcome is INFO:
            self.process += 100


def perfect_history(seed: int, *, turns: int = 300) -> list[Operation]:
    chance = random.Random(seed)
    broker = PerfectBroker(3)
    clients = [PerfectClient(broker, chance, number) for number in range(1, 5)]
    for now in range(turns):
        chance.choice(clients).turn(now)
    operations = [one for client in clients for one in client.done]
    for client in clients:
        if client.owner is not None and broker.state[client.owner] == "open":
            broker.end(client.owner, commit=False)
    everything: Mapping[int, tuple[Pair, ...]] = {
        key: tuple(broker.read(key, 0, turns)[0]) for key in range(3)
    }
    return [*operations, Operation(999, (Poll(everything),), OK, turns + 1, turns + 2)]


@given(st.integers(0, 2**32))
def test_nothing_bad_is_found_in_what_a_perfect_broker_does(seed: int) -> None:
    verdict = check(perfect_history(seed))
    assert not verdict.bad, str(verdict)


@given(st.integers(0, 2**32))
def test_record_that_the_last_reading_lacks_is_missed(seed: int) -> None:
    """Whatever is taken from the only complete reading, and was read by nobody else, is missed."""
    operations = perfect_history(seed)
    *before, last = operations
    known = {
        (send.key, send.value)
        for one in before
        if one.outcome is OK
        for sends in one.sends().values()
        for send in sends
    }
    seen = {(k, v) for one in before for k, pairs in one.reads().items() for _, v in pairs}
    only = sorted(known - seen)
    if not only:
        return
    key, value = random.Random(seed).choice(only)
    (poll_all,) = last.steps
    assert isinstance(poll_all, Poll)
    pairs = {
        k: tuple(p for p in got if (k, p[1]) != (key, value)) for k, got in poll_all.pairs.items()
    }
    verdict = check([*before, replace(last, steps=(Poll(pairs),))])
    assert Anomaly.UNSEEN in {finding.anomaly for finding in verdict.bad}


def test_history_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    operations = [*perfect_history(1), Operation(1, (Assign((1, 2)),), INFO, 5, 6, "why")]
    path = tmp_path / "history.jsonl"
    history.save(path, operations)
    assert [str(one) for one in history.load(path)] == [str(one) for one in operations]


def test_verdict_says_what_is_wrong_in_words() -> None:
    story = Story().add(1, Send(0, 10, 0), outcome=FAIL).add(2, poll((0, 10)))
    text = str(check(story.operations))
    assert "G1a 1" in text
    assert "10 of partition 0 was read and its send had failed" in text
