"""Bugs planted into a broker's transactions, one at a time: the simulation notices each.

A checker that never failed proves nothing. Each bug here is one that such systems have had, put
into the real code; the seeds of the simulation are tried until one shows it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.offsets import OffsetStore
from ottla.coordinators.runtime import EndMarker
from ottla.coordinators.transaction import records as transaction_records
from ottla.coordinators.transaction import shard as transaction_shard
from ottla.coordinators.transaction.coordinator import TransactionCoordinator
from ottla.coordinators.transaction.markers import MarkerQueue
from ottla.coordinators.transaction.metadata import ProducerIdentity, TransactionMetadata
from ottla.coordinators.transaction.states import PREPARED
from ottla.coordinators.transaction.transaction import Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.runtime.simulated.loop import SimulationOverdue
from ottla.storage import log as storage_log
from ottla.storage import producer_replay
from ottla.storage.core import producer_state
from ottla.storage.core.producer_state import ProducerEntry, ProducerState
from ottla.storage.core.transaction_index import AbortedTransactions, TransactionIndex
from ottla.storage.log_state import LogState
from support.transaction_world import World, simulate

SEEDS_MAX = 150
# A broker that never answers the right thing keeps its producers busy for ever.
VIRTUAL_SECONDS_MAX = 100.0

Patch = pytest.MonkeyPatch
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    BUGS[plant.__name__] = plant
    return plant


@bug
def a_batch_that_comes_again_is_not_recognised(patch: Patch) -> None:
    patch.setattr(ProducerEntry, "duplicate_of", lambda self, *sequences: None)


@bug
def only_the_last_batch_is_remembered(patch: Patch) -> None:
    patch.setattr(producer_state, "BATCHES_KEPT_MAX", 1)


@bug
def only_the_last_batch_survives_a_restart(patch: Patch) -> None:
    patch.setattr(producer_replay, "_recall_batches", lambda *args: None)  # as in Apache Kafka


@bug
def sequences_are_not_checked(patch: Patch) -> None:
    patch.setattr(ProducerState, "check", lambda self, *args, **kwargs: None)


@bug
def any_batch_may_be_the_first_of_its_transaction(patch: Patch) -> None:
    honest = ProducerState._check_sequence

    def check_sequence(self: ProducerState, *args: Any) -> None:
        verifications, self._verifications = self._verifications, {}
        try:
            honest(self, *args)
        finally:
            self._verifications = verifications

    patch.setattr(ProducerState, "_check_sequence", check_sequence)


@bug
def a_marker_leaves_the_guards_as_they_are(patch: Patch) -> None:
    honest = ProducerState.apply_marker

    def apply_marker(self: ProducerState, *args: Any, **kwargs: Any) -> Any:
        verifications, self._verifications = self._verifications, {}
        try:
            return honest(self, *args, **kwargs)
        finally:
            self._verifications = verifications

    patch.setattr(ProducerState, "apply_marker", apply_marker)


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
def a_marker_of_an_old_coordinator_is_accepted(patch: Patch) -> None:
    honest = ProducerState.check_marker

    def check_marker(
        self: ProducerState, producer_id: Any, epoch: int, coordinator_epoch: int, **kwargs: Any
    ) -> None:
        honest(self, producer_id, epoch, 2**31 - 1, **kwargs)

    patch.setattr(ProducerState, "check_marker", check_marker)


@bug
def a_producer_that_was_replaced_may_go_on(patch: Patch) -> None:
    honest = Transaction.decide_init

    def decide_init(self: Transaction, **asked: Any) -> TransactionMetadata:
        if asked["expected"] is not None:
            asked["expected"] = self.current.client
        return honest(self, **asked)

    patch.setattr(Transaction, "decide_init", decide_init)
    patch.setattr(Transaction, "_check_expected", lambda self, expected: None)


@bug
def offsets_are_taken_from_who_is_no_member_any_more(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_transactional_commit", lambda self, *args: None)


@bug
def to_verify_a_partition_adds_it(patch: Patch) -> None:
    def verify(
        self: TransactionCoordinator,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
    ) -> Any:
        code = add(self, transactional_id, producer, partitions, client_version=2)
        return dict.fromkeys(partitions, code)

    add = TransactionCoordinator.add_partitions

    patch.setattr(TransactionCoordinator, "verify", verify)


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
        if world.simulation.loop.unhandled:
            raise BaseExceptionGroup("it fails", world.simulation.loop.unhandled) from None
        return ["somebody waits for ever"]
    return world.history.check()


def first_problem(caplog: pytest.LogCaptureFixture) -> str | None:
    """What the first seed that notices anything notices."""
    for seed in range(1, SEEDS_MAX + 1):
        problems = problems_of(seed)
        crashes = [one.getMessage() for one in caplog.records if one.exc_info]
        assert not crashes, f"seed {seed}: it does not lie, it fails: {crashes[0]}"
        if problems:
            return f"seed {seed}: {problems[0]}"
    return None


@pytest.mark.parametrize("name", list(BUGS))
def test_a_planted_bug_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    BUGS[name](monkeypatch)
    found = first_problem(caplog)
    assert found, f"{SEEDS_MAX} seeds did not notice that {name.replace('_', ' ')}"
    print(found)


def test_a_bug_that_merely_crashes_does_not_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(MarkerQueue, "add")
    with pytest.raises((AssertionError, BaseExceptionGroup), match="fail"):
        first_problem(caplog)


def test_fifteen_bugs_are_planted() -> None:
    assert len(BUGS) >= 15
