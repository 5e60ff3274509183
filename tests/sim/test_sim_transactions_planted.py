"""Bugs planted into a broker's transactions, one at a time: the simulation notices each.

A checker that never failed proves nothing. Each bug here is one that such systems have had, put
into the real code; the seeds of the simulation are tried until one shows it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinators.group.offsets import OffsetStore
from ottla.coordinators.runtime import EndMarker
from ottla.coordinators.transaction import records as transaction_records
from ottla.coordinators.transaction import shard as transaction_shard
from ottla.coordinators.transaction.coordinator import TransactionCoordinator
from ottla.coordinators.transaction.markers import MarkerQueue
from ottla.coordinators.transaction.metadata import TransactionMetadata
from ottla.coordinators.transaction.states import PREPARED
from ottla.coordinators.transaction.transaction import Transaction
from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.runtime.simulated.loop import SimulationOverdue
from ottla.storage import log as storage_log
from ottla.storage.core.producer_state import ProducerState
from ottla.storage.core.transaction_index import AbortedTransactions, TransactionIndex
from ottla.storage.log_state import LogState
from support.transaction_world import World, simulate

SEEDS_MAX = 60
# A broker that never answers the right thing keeps its producers busy for ever.
VIRTUAL_SECONDS_MAX = 100.0

Patch = pytest.MonkeyPatch
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    BUGS[plant.__name__] = plant
    return plant


@bug
def no_duplicate_is_recognised(patch: Patch) -> None:
    def check(self: ProducerState, *args: Any, **kwargs: Any) -> None:
        return None

    patch.setattr(ProducerState, "check", check)


@bug
def the_last_stable_offset_is_one_too_high(patch: Patch) -> None:
    def first_unstable_offset(self: LogState) -> int | None:
        unstable = self._producers.first_unstable_offset
        return None if unstable is None else unstable + 1

    patch.setattr(LogState, "first_unstable_offset", property(first_unstable_offset))


@bug
def open_transactions_do_not_hold_the_last_stable_offset(patch: Patch) -> None:
    patch.setattr(LogState, "first_unstable_offset", property(lambda self: None))


@bug
def a_stale_marker_is_accepted(patch: Patch) -> None:
    patch.setattr(ProducerState, "check_marker", lambda self, *args, **kwargs: None)


@bug
def a_marker_of_the_same_epoch_is_accepted(patch: Patch) -> None:
    check_marker = ProducerState.check_marker

    def check(self: ProducerState, *args: Any, **kwargs: Any) -> None:
        check_marker(self, *args, **{**kwargs, "transaction_version": 0})

    patch.setattr(ProducerState, "check_marker", check)


@bug
def the_coordinator_fences_nobody(patch: Patch) -> None:
    patch.setattr(Transaction, "_check_producer", lambda self, producer: None)


@bug
def offsets_of_open_transactions_are_shown(patch: Patch) -> None:
    replay = OffsetStore.replay
    patch.setattr(
        OffsetStore, "replay", lambda self, producer_id, key, value: replay(self, -1, key, value)
    )


@bug
def offsets_of_aborted_transactions_count(patch: Patch) -> None:
    replay_marker = OffsetStore.replay_marker
    patch.setattr(
        OffsetStore,
        "replay_marker",
        lambda self, producer_id, *, is_commit: replay_marker(self, producer_id, is_commit=True),
    )


@bug
def the_aborted_list_is_not_of_the_range_that_is_read(patch: Patch) -> None:
    def collect(self: TransactionIndex, fetch_offset: int, end_offset: int) -> AbortedTransactions:
        found = [one for one in self.transactions if one.first_offset < end_offset]
        return AbortedTransactions(found, is_complete=False)

    patch.setattr(TransactionIndex, "collect", collect)


@bug
def aborted_transactions_are_not_indexed(patch: Patch) -> None:
    patch.setattr(storage_log, "note_completed", lambda segment, completed: None)


@bug
def markers_are_not_sent_again_after_a_restart(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "_on_loaded", lambda self, led: None)
    patch.setattr(TransactionCoordinator, "_resume_prepared", lambda self: None)


@bug
def a_marker_that_is_refused_is_forgotten(patch: Patch) -> None:
    def on_refused(self: MarkerQueue, *sent: Any) -> None:
        self.on_written(*sent)

    patch.setattr(MarkerQueue, "on_refused", on_refused)


@bug
def replay_drops_a_partition(patch: Patch) -> None:
    def decode_value(value: bytes) -> TransactionMetadata:
        found = transaction_records.decode_value(value)
        return found._replace(partitions=frozenset(sorted(found.partitions)[1:]))

    patch.setattr(transaction_shard, "decode_value", decode_value)


@bug
def the_epoch_is_not_bumped_with_each_transaction(patch: Patch) -> None:
    prepared = Transaction._prepared

    def without_bump(self: Transaction, *args: Any) -> TransactionMetadata:
        return prepared(self, *args)._replace(producer_epoch=self.current.producer_epoch)

    patch.setattr(Transaction, "_prepared", without_bump)


@bug
def timeouts_never_fire(patch: Patch) -> None:
    patch.setattr(Transaction, "is_timed_out", lambda self, now_ms: False)


@bug
def a_produce_does_not_ask_the_coordinator(patch: Patch) -> None:
    patch.setattr(Partition, "begin_verification", lambda self, *args, **kwargs: 0)
    patch.setattr(ProducerState, "_is_verified", lambda self, *args: True)


@bug
def the_end_is_told_to_partitions_before_it_is_decided(patch: Patch) -> None:
    write = TransactionCoordinator._write

    def in_memory_only(self: Any, led: Any, transaction: Any, decided: Any, on_done: Any) -> None:
        if decided.state in PREPARED:
            transaction.current = decided
            on_done(ErrorCode.NONE)
        else:
            write(self, led, transaction, decided, on_done)

    patch.setattr(TransactionCoordinator, "_write", in_memory_only)


@bug
def aborts_are_written_as_commits(patch: Patch) -> None:
    batch = EndMarker.batch
    patch.setattr(
        EndMarker, "batch", lambda self, now_ms: batch(self._replace(is_commit=True), now_ms)
    )


def problems_of(seed: int) -> list[str]:
    world = World(seed)
    try:
        simulate(world, seconds_max=VIRTUAL_SECONDS_MAX)
    except SimulationOverdue:
        return ["somebody waits for ever"]
    except BaseExceptionGroup as group:
        return [repr(group)]
    return world.history.check()


@pytest.mark.parametrize("name", list(BUGS))
def test_a_planted_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    for seed in range(1, SEEDS_MAX + 1):
        problems = problems_of(seed)
        if problems:
            print(f"seed {seed}: {problems[0]}")
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not notice that {name.replace('_', ' ')}")


def test_fifteen_bugs_are_planted() -> None:
    assert len(BUGS) >= 15
