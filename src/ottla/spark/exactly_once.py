"""When the output of a micro-batch is published, and when it was already. Pure.

Spark repeats a micro-batch whose end it did not log: with the same id, after any crash. A sink that
just writes then writes twice. Here the output of micro-batch b and a marker that says "b + 1 is
next" are one transaction of the broker. Whoever starts anew first takes the transactional id, which
ends a transaction that was left open and fences the process that left it, and only then reads the
marker. Reading first would race the commit that such a process still has under way.

The decisions are here; `TransactionalStore` performs the steps. A crash between any two steps, a
lost request and a lost answer all lead to the same place: the next `publish` starts by asking the
broker what is true.

Invariants: the marker is the number of micro-batches published; the output of each counts exactly
once; after an exception nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol, TypeVar

Staged = TypeVar("Staged", contravariant=True)


class Outcome(Enum):
    PUBLISHED = auto()
    ALREADY_PUBLISHED = auto()
    SKIPPED = auto()  # by the operator's decision: only the marker is set


class MismatchPolicy(Enum):
    """What to do when marker and checkpoint contradict each other."""

    FAIL = "fail"
    PUBLISH = "publish"
    SKIP = "skip"


class MarkerMismatch(Exception):
    """The marker does not fit the checkpoint: `marker` is None if there is none."""

    def __init__(self, marker: int | None, batch_id: int) -> None:
        super().__init__(f"marker {marker}, micro-batch {batch_id}")
        self.marker = marker
        self.batch_id = batch_id


class TransactionalStore(Protocol[Staged]):
    """The steps of one transaction, in the order in which they must be taken."""

    def take_over(self) -> None:
        """End what was left open and fence its owner."""

    def read_marker(self) -> int | None:
        """The marker, once no transaction that could change it is open."""

    def add_partitions(self, staged: Staged) -> None:
        """Open a transaction on the partitions of the output."""

    def write(self, staged: Staged) -> None:
        """Write the output; return once it is safe on the brokers."""

    def add_marker(self) -> None:
        """Make the marker part of the transaction."""

    def set_marker(self, marker: int, staged: Staged | None) -> None:
        """Set the marker, to count with the output if there is some."""

    def commit(self) -> None:
        """End the transaction: output and marker count from now on."""


def decide(marker: int | None, batch_id: int, policy: MismatchPolicy) -> Outcome:
    """Whether micro-batch `batch_id` is to be published now (PUBLISHED), was before, or is not."""
    if marker == batch_id or (marker is None and batch_id == 0):
        return Outcome.PUBLISHED
    if marker == batch_id + 1:
        return Outcome.ALREADY_PUBLISHED
    if policy is MismatchPolicy.FAIL:
        raise MarkerMismatch(marker, batch_id)
    return Outcome.PUBLISHED if policy is MismatchPolicy.PUBLISH else Outcome.SKIPPED


class Publisher:
    """Publishes the micro-batches of one query, one after the other."""

    def __init__(self, policy: MismatchPolicy = MismatchPolicy.FAIL) -> None:
        self._policy = policy
        self._is_known = False
        self._marker: int | None = None

    @property
    def takes_over(self) -> bool:
        """Whether nothing is assumed, so that the next publication asks the broker first."""
        return not self._is_known

    def publish(
        self,
        store: TransactionalStore[Staged],
        batch_id: int,
        read_staged: Callable[[], Staged],
    ) -> Outcome:
        """Publish the output of a micro-batch unless it was; `read_staged` is called if needed."""
        is_known, self._is_known = self._is_known, False
        if not is_known:
            store.take_over()
            self._marker = store.read_marker()
        outcome = decide(self._marker, batch_id, self._policy)
        if outcome is not Outcome.ALREADY_PUBLISHED:
            staged = None
            if outcome is Outcome.PUBLISHED:
                staged = read_staged()
                store.add_partitions(staged)
                store.write(staged)
            store.add_marker()
            store.set_marker(batch_id + 1, staged)
            store.commit()
            self._marker = batch_id + 1
        self._is_known = True
        return outcome
