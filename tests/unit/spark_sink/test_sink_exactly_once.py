"""The protocol against a pretended broker, with a fault at every step and two drivers at once.

The pretended broker keeps what a transaction coordinator keeps: an epoch per transactional id, one
open transaction, a log of committed output and a marker. A fault strikes a step before it reaches
the broker, or after it took effect, so that the driver does not know.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.exactly_once import MarkerMismatch, MismatchPolicy, Outcome, Publisher, decide

STEPS = (
    "take_over",
    "read_marker",
    "add_partitions",
    "write",
    "add_marker",
    "set_marker",
    "commit",
)


class Crash(Exception):
    pass


class Fenced(Exception):
    pass


class Broker:
    def __init__(self) -> None:
        self.epoch = 0
        self.committed: list[str] = []
        self.marker: int | None = None
        self.open_output: list[str] = []
        self.open_marker: int | None = None
        self.is_marker_added = False
        self.is_open = False

    def end(self, *, is_commit: bool) -> None:
        if is_commit:
            self.committed += self.open_output
            self.marker = self.marker if self.open_marker is None else self.open_marker
        self.open_output, self.open_marker = [], None
        self.is_open = self.is_marker_added = False


class Store:
    """What a driver sees of the broker; `fault` is asked before and after every step."""

    def __init__(self, broker: Broker, fault: Callable[[str, str], None]) -> None:
        self.broker = broker
        self.fault = fault
        self.epoch = -1

    def _step(self, name: str, effect: Callable[[], None]) -> None:
        self.fault(name, "before")
        if name not in ("take_over", "read_marker") and self.epoch != self.broker.epoch:
            raise Fenced
        effect()
        self.fault(name, "after")

    def take_over(self) -> None:
        def effect() -> None:
            self.broker.end(is_commit=False)
            self.broker.epoch += 1
            self.epoch = self.broker.epoch

        self._step("take_over", effect)

    def read_marker(self) -> int | None:
        self._step("read_marker", lambda: None)
        if self.broker.open_marker is not None:
            raise Crash  # require_stable: the answer waits for the transaction, here for ever
        return self.broker.marker

    def add_partitions(self, staged: list[str]) -> None:
        self._step("add_partitions", lambda: setattr(self.broker, "is_open", True))

    def write(self, staged: list[str]) -> None:
        assert self.broker.is_open or self.epoch != self.broker.epoch
        self._step("write", lambda: self.broker.open_output.extend(staged))

    def add_marker(self) -> None:
        self._step("add_marker", lambda: setattr(self.broker, "is_marker_added", True))

    def set_marker(self, marker: int, staged: list[str] | None) -> None:
        def effect() -> None:
            assert self.broker.is_marker_added
            self.broker.open_marker = marker

        self._step("set_marker", effect)

    def commit(self) -> None:
        self._step("commit", lambda: self.broker.end(is_commit=True))


def output_of(batch_id: int) -> list[str]:
    return [f"{batch_id}-{n}" for n in range(batch_id % 3)]  # micro-batch 0 is empty


EXPECTED = [row for batch_id in range(5) for row in output_of(batch_id)]


def drive(broker: Broker, fault: Callable[[str, str], None], logged: list[int]) -> None:
    """One life of a driver: from the first micro-batch that Spark did not log, to the fifth."""
    store, publisher = Store(broker, fault), Publisher()
    while len(logged) < 5:
        batch_id = len(logged)
        publisher.publish(store, batch_id, lambda batch_id=batch_id: output_of(batch_id))
        fault("log", "before")
        if len(logged) == batch_id:
            logged.append(batch_id)
        fault("log", "after")


class Plan:
    """Faults by the number of the moment at which they strike, counted over all lives."""

    def __init__(self, moments: list[int]) -> None:
        self.moments = sorted(moments)
        self.now = 0

    def __call__(self, step: str, side: str) -> None:
        self.now += 1
        if self.moments and self.now >= self.moments[0]:
            self.moments.pop(0)
            raise Crash


def live_until_done(broker: Broker, fault: Callable[[str, str], None], logged: list[int]) -> None:
    while True:
        try:
            drive(broker, fault, logged)
        except (Crash, Fenced):
            continue
        return


def test_a_crash_at_any_moment_loses_and_repeats_nothing() -> None:
    for moment in range(1, 90):
        broker, logged = Broker(), []
        live_until_done(broker, Plan([moment]), logged)
        assert broker.committed == EXPECTED, moment
        assert broker.marker == 5


@settings(max_examples=400, deadline=None)
@given(st.lists(st.integers(1, 120), max_size=12))
def test_any_series_of_crashes_loses_and_repeats_nothing(moments: list[int]) -> None:
    broker, logged = Broker(), []
    live_until_done(broker, Plan(moments), logged)
    assert broker.committed == EXPECTED
    assert broker.marker == 5


@pytest.mark.parametrize(("step", "side"), list(product((*STEPS, "log"), ("before", "after"))))
def test_a_driver_that_wakes_while_another_took_over_adds_nothing(step: str, side: str) -> None:
    broker, logged = Broker(), [0]
    broker.marker = 1
    has_slept: list[bool] = []

    def sleep(name: str, moment: str) -> None:
        if (name, moment) != (step, side) or has_slept:
            return
        has_slept.append(True)
        live_until_done(broker, Plan([]), logged)

    with suppress(Fenced, MarkerMismatch):
        drive(broker, sleep, logged)
    live_until_done(broker, Plan([]), logged)
    assert has_slept
    assert broker.committed == EXPECTED


def test_reading_the_marker_before_taking_over_would_write_twice() -> None:
    """The mistake that the order of steps prevents, so that the test above is known to see it."""

    class Backwards(Publisher):
        def publish(self, store, batch_id, read_staged):  # type: ignore[no-untyped-def]
            marker = store.read_marker()
            store.fault("gap", "between")
            store.take_over()
            if decide(marker, batch_id, MismatchPolicy.FAIL) is Outcome.PUBLISHED:
                store.add_partitions(read_staged())
                store.write(read_staged())
                store.add_marker()
                store.set_marker(batch_id + 1, read_staged())
                store.commit()
            return Outcome.PUBLISHED

    broker = Broker()

    def other_driver(name: str, moment: str) -> None:
        if name == "gap":
            Publisher().publish(Store(broker, lambda name, moment: None), 0, lambda: ["x"])

    Backwards().publish(Store(broker, other_driver), 0, lambda: ["x"])
    assert broker.committed == ["x", "x"]


@pytest.mark.parametrize(
    ("marker", "batch_id", "expected"),
    [
        (None, 0, Outcome.PUBLISHED),
        (0, 0, Outcome.PUBLISHED),
        (1, 0, Outcome.ALREADY_PUBLISHED),
        (7, 7, Outcome.PUBLISHED),
        (8, 7, Outcome.ALREADY_PUBLISHED),
    ],
)
def test_a_marker_that_fits_decides(marker: int | None, batch_id: int, expected: Outcome) -> None:
    for policy in MismatchPolicy:
        assert decide(marker, batch_id, policy) is expected


@pytest.mark.parametrize(("marker", "batch_id"), [(None, 3), (2, 3), (5, 3)])
def test_a_marker_that_does_not_fit_fails_unless_the_operator_decides(
    marker: int | None, batch_id: int
) -> None:
    with pytest.raises(MarkerMismatch):
        decide(marker, batch_id, MismatchPolicy.FAIL)
    assert decide(marker, batch_id, MismatchPolicy.PUBLISH) is Outcome.PUBLISHED
    assert decide(marker, batch_id, MismatchPolicy.SKIP) is Outcome.SKIPPED


@pytest.mark.parametrize(("policy", "expected"), [("publish", ["x"]), ("skip", [])])
def test_what_the_operator_decides_sets_the_marker_for_the_next_driver(
    policy: str, expected: list[str]
) -> None:
    broker = Broker()
    store = Store(broker, lambda name, moment: None)
    Publisher(MismatchPolicy(policy)).publish(store, 7, lambda: ["x"])
    assert (broker.committed, broker.marker) == (expected, 8)
    assert Publisher().publish(store, 8, lambda: ["y"]) is Outcome.PUBLISHED


def test_staged_output_of_a_published_micro_batch_is_not_read() -> None:
    broker = Broker()
    broker.marker = 4

    def unreadable() -> list[str]:
        raise AssertionError("the files may be gone")

    outcome = Publisher().publish(Store(broker, lambda name, moment: None), 3, unreadable)
    assert outcome is Outcome.ALREADY_PUBLISHED
