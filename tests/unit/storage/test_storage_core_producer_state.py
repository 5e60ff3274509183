"""ProducerState against a model that keeps every batch and marker ever accepted."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import Offset, ProducerId
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.producer_snapshots import decode_snapshot, encode_snapshot
from ottla.storage.core.producer_state import (
    SEQUENCE_MAX,
    ActiveProducer,
    CompletedTransaction,
    Duplicate,
    ProducerState,
)

CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION
DAY_MS = 86_400_000
PRODUCERS = (ProducerId(0), ProducerId(1), ProducerId(2))


class Data(NamedTuple):
    producer_id: ProducerId
    epoch: int
    base_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int
    is_transactional: bool

    @property
    def sequences(self) -> tuple[int, int]:
        if self.base_sequence == -1:
            return -1, -1
        last = self.base_sequence
        for _ in range(self.last_offset - self.base_offset):
            last = 0 if last == SEQUENCE_MAX else last + 1
        return self.base_sequence, last


class Marker(NamedTuple):
    producer_id: ProducerId
    epoch: int
    coordinator_epoch: int
    base_offset: Offset
    timestamp_ms: int
    is_abort: bool

    @property
    def last_offset(self) -> Offset:
        return self.base_offset


Item = Data | Marker
Answer = Duplicate | ErrorCode | None


class History:
    """Slow and obvious: the log itself, read from its beginning for every question."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    @property
    def end_offset(self) -> Offset:
        return Offset(self.items[-1].last_offset + 1 if self.items else 0)

    def of(self, producer_id: ProducerId) -> list[Item]:
        return [item for item in self.items if item.producer_id == producer_id]

    def batches_of_epoch(self, producer_id: ProducerId) -> list[Data]:
        """Data since the producer's epoch last changed."""
        found: list[Data] = []
        own = self.of(producer_id)
        for item in reversed(own):
            if item.epoch != own[-1].epoch:
                break
            if isinstance(item, Data):
                found.insert(0, item)
        return found

    def open_transaction(self, producer_id: ProducerId) -> Offset | None:
        first = None
        for item in self.of(producer_id):
            if isinstance(item, Marker):
                first = None
            elif item.is_transactional and first is None:
                first = item.base_offset
        return first

    def check(self, new: Data, origin: AppendOrigin) -> Answer:
        own = self.of(new.producer_id)
        batches = self.batches_of_epoch(new.producer_id)
        epoch = own[-1].epoch if own else -1
        if origin is CLIENT and epoch == new.epoch:
            for batch in batches[-5:]:
                if batch.sequences == new.sequences:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp_ms)
        if origin is not REPLICATION and new.epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if origin is CLIENT and own:
            last = batches[-1].sequences[1] if batches and epoch == new.epoch else -1
            wanted = 0 if last in (-1, SEQUENCE_MAX) else last + 1
            if new.base_sequence != wanted:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_transaction(new.producer_id) is not None and not new.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def transactions(self) -> list[tuple[ProducerId, Offset, Offset | None]]:
        """(producer, first offset, marker's offset) of each that has records."""
        spans: list[tuple[ProducerId, Offset, Offset | None]] = []
        began: dict[ProducerId, Offset] = {}
        for item in self.items:
            if isinstance(item, Marker):
                if item.producer_id in began:
                    first = began.pop(item.producer_id)
                    spans.append((item.producer_id, first, item.base_offset))
            elif item.is_transactional:
                began.setdefault(item.producer_id, item.base_offset)
        return spans + [(producer_id, first, None) for producer_id, first in began.items()]

    def first_unstable_offset(self, high_watermark: int) -> Offset | None:
        return min(
            (
                first
                for _, first, marker in self.transactions()
                if marker is None or marker >= high_watermark
            ),
            default=None,
        )


def apply(state: ProducerState, item: Item) -> CompletedTransaction | None:
    completed = None
    if isinstance(item, Data):
        state.apply(
            item.producer_id,
            item.epoch,
            item.base_sequence,
            item.base_offset,
            item.last_offset,
            item.timestamp_ms,
            item.is_transactional,
        )
    else:
        completed = state.apply_marker(
            item.producer_id,
            item.epoch,
            item.coordinator_epoch,
            offset=item.base_offset,
            timestamp_ms=item.timestamp_ms,
            is_abort=item.is_abort,
        )
    state.end_offset = Offset(item.last_offset + 1)
    return completed


def new_state() -> ProducerState:
    return ProducerState(expiration_ms=DAY_MS)


def replayed(items: list[Item]) -> ProducerState:
    state = new_state()
    for item in items:
        apply(state, item)
    return state


def check(state: ProducerState, new: Data, origin: AppendOrigin) -> Answer:
    try:
        return state.check(
            new.producer_id,
            new.epoch,
            new.base_sequence,
            new.last_offset - new.base_offset,
            new.is_transactional,
            origin,
        )
    except KafkaError as error:
        return error.code


class Step(NamedTuple):
    producer_id: ProducerId
    is_marker: bool
    epoch_step: int
    sequence: int  # 0 is the next one, up to -7 repeats an older batch, more leaves a gap
    count: int
    is_transactional: bool
    origin: AppendOrigin
    replicated: int  # how far the high watermark moves, in offsets


steps_strategy = st.lists(
    st.builds(
        Step,
        st.sampled_from(PRODUCERS),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.sampled_from([0, 0, 0, 0, -1, -2, -5, -6, 1]),
        st.integers(1, 3),
        st.sampled_from([False, True, True]),
        st.sampled_from([CLIENT, CLIENT, CLIENT, CLIENT, COORDINATOR, REPLICATION]),
        st.sampled_from([0, 0, 1, 3, 9]),
    ),
    max_size=25,
)


def data_of(step: Step, history: History) -> Data:
    own = history.of(step.producer_id)
    batches = [item for item in own if isinstance(item, Data)]
    epoch = max(0, (own[-1].epoch if own else 0) + step.epoch_step)
    count = step.count
    if step.origin is COORDINATOR:
        base_sequence = -1
    elif step.sequence < 0 and len(batches) >= -step.sequence:
        old = batches[step.sequence]
        base_sequence, count = old.base_sequence, old.last_offset - old.base_offset + 1
    elif not own:
        base_sequence = 0 if step.count == 1 else SEQUENCE_MAX - 4
    elif step.epoch_step or not history.batches_of_epoch(step.producer_id):
        base_sequence = max(0, step.sequence)
    else:
        last = history.batches_of_epoch(step.producer_id)[-1].sequences[1]
        base_sequence = (last + 1 + max(0, step.sequence)) % (SEQUENCE_MAX + 1)
    base_offset = history.end_offset
    return Data(
        step.producer_id,
        epoch,
        base_sequence,
        base_offset,
        Offset(base_offset + count - 1),
        1000 + base_offset,
        step.is_transactional,
    )


@settings(max_examples=200)
@given(steps_strategy)
def test_every_answer_agrees_with_the_whole_history(steps: list[Step]) -> None:
    state, history, high_watermark = new_state(), History(), 0
    for step in steps:
        item: Item
        if step.is_marker:
            own = history.of(step.producer_id)
            epoch = max(0, (own[-1].epoch if own else 0) + max(0, step.epoch_step))
            offset = history.end_offset
            item = Marker(step.producer_id, epoch, 3, offset, offset, step.is_transactional)
            undecided = [
                first
                for producer_id, first, marker in history.transactions()
                if marker is None and producer_id != step.producer_id
            ]
            first = history.open_transaction(step.producer_id)
            completed = apply(state, item)
            history.items.append(item)
            if first is None:
                assert completed is None
            else:
                assert completed == CompletedTransaction(
                    step.producer_id,
                    first,
                    offset,
                    item.is_abort,
                    min(undecided, default=Offset(offset + 1)),
                )
        else:
            item = data_of(step, history)
            expected = history.check(item, step.origin)
            assert check(state, item, step.origin) == expected, (item, history.items)
            if expected is None:
                apply(state, item)
                history.items.append(item)
        high_watermark = min(high_watermark + step.replicated, history.end_offset)
        state.on_high_watermark_updated(Offset(high_watermark))
        assert state.first_unstable_offset == history.first_unstable_offset(high_watermark)
        assert state.end_offset == history.end_offset
    assert state.describe() == [
        ActiveProducer(
            producer_id,
            own[-1].epoch,
            batches[-1].sequences[1] if batches else -1,
            own[-1].timestamp_ms,
            3 if any(isinstance(item, Marker) for item in own) else -1,
            Offset(-1) if first is None else first,
        )
        for producer_id in dict.fromkeys(item.producer_id for item in history.items)
        for own in [history.of(producer_id)]
        for batches in [history.batches_of_epoch(producer_id)]
        for first in [history.open_transaction(producer_id)]
    ]


def accepted(steps: list[Step]) -> list[Item]:
    history = History()
    for step in steps:
        if step.is_marker:
            own = history.of(step.producer_id)
            epoch = (own[-1].epoch if own else 0) + max(0, step.epoch_step)
            offset = history.end_offset
            history.items.append(Marker(step.producer_id, epoch, 3, offset, offset, True))
        else:
            item = data_of(step, history)
            if history.check(item, step.origin) is None:
                history.items.append(item)
    return history.items


@given(steps_strategy, st.integers(0, 25))
def test_a_snapshot_and_the_log_after_it_are_the_state(steps: list[Step], cut: int) -> None:
    items = accepted(steps)
    live = replayed(items)
    at_cut = replayed(items[:cut])
    snapshot = encode_snapshot(at_cut.entries())
    assert encode_snapshot(decode_snapshot(snapshot)) == snapshot

    reloaded = replayed(items)  # what was there before must not shine through
    reloaded.reload(decode_snapshot(snapshot), at_cut.end_offset, now_ms=0)
    assert reloaded.end_offset == at_cut.end_offset
    for item in items[cut:]:
        apply(reloaded, item)
    assert reloaded.describe() == live.describe()
    assert reloaded.first_undecided_offset == live.first_undecided_offset
    assert encode_snapshot(reloaded.entries()) == encode_snapshot(live.entries())
    for producer_id in PRODUCERS:
        mine, theirs = reloaded.entry(producer_id), live.entry(producer_id)
        if mine is not None and theirs is not None:
            # A snapshot has one timestamp for a producer, so a marker's takes the batch's place.
            kept = [batch[:4] for batch in mine.batches]
            assert [batch[:4] for batch in theirs.batches[-len(kept) :]] == kept or not kept


@given(steps_strategy)
def test_the_state_rebuilt_from_the_log_is_the_live_state(steps: list[Step]) -> None:
    items = accepted(steps)
    live, rebuilt = new_state(), replayed(items)
    for item in items:
        if isinstance(item, Data) and item.base_sequence >= 0:
            check(live, item, CLIENT)
        apply(live, item)
    assert list(rebuilt.entries()) == list(live.entries())
    assert rebuilt.first_unstable_offset == live.first_unstable_offset


def data(
    sequence: int, offset: int, *, epoch: int = 0, count: int = 1, transactional: bool = False
) -> Data:
    return Data(
        ProducerId(7),
        epoch,
        sequence,
        Offset(offset),
        Offset(offset + count - 1),
        1000 + offset,
        transactional,
    )


def test_records_without_a_producer_id_leave_no_trace() -> None:
    state = new_state()
    assert state.check(ProducerId(-1), -1, -1, 0) is None
    state.apply(ProducerId(-1), -1, -1, Offset(0), Offset(0), 5)
    assert len(state) == 0


def test_a_duplicate_of_the_fifth_batch_back_is_known_and_the_sixth_is_not() -> None:
    state = replayed([data(n, n) for n in range(6)])
    assert check(state, data(1, 6), CLIENT) == Duplicate(Offset(1), Offset(1), 1001)
    assert check(state, data(0, 6), CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_is_known_behind_a_batch_that_broke_the_sequence() -> None:
    state = replayed([data(0, 0), data(-1, 1)])  # a coordinator's has no sequence
    assert check(state, data(0, 2), CLIENT) == Duplicate(Offset(0), Offset(0), 1000)
    state = replayed([data(0, 0), data(1, 1), data(0, 2)])  # a follower takes any
    assert check(state, data(1, 3), CLIENT) == Duplicate(Offset(1), Offset(1), 1001)


def test_half_of_a_duplicate_is_out_of_order() -> None:
    state = replayed([data(0, 0, count=4)])
    assert check(state, data(0, 4, count=2), CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert check(state, data(0, 4, count=4), CLIENT) == Duplicate(Offset(0), Offset(3), 1000)


def test_a_new_epoch_starts_at_sequence_zero_and_forgets_old_batches() -> None:
    state = replayed([data(0, 0)])
    assert check(state, data(1, 1, epoch=1), CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert check(state, data(0, 1, epoch=1), CLIENT) is None
    apply(state, data(0, 1, epoch=1))
    assert check(state, data(1, 2, epoch=0), CLIENT) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert check(state, data(1, 2, epoch=0), REPLICATION) is None


def test_sequences_wrap_to_zero_inside_and_between_batches() -> None:
    state = replayed([data(SEQUENCE_MAX - 1, 0, count=2)])
    assert check(state, data(0, 2), CLIENT) is None
    state = replayed([data(SEQUENCE_MAX, 0, count=3)])
    assert check(state, data(2, 3), CLIENT) is None
    assert check(state, data(SEQUENCE_MAX, 3, count=3), CLIENT) == Duplicate(
        Offset(0), Offset(2), 1000
    )


def marker_error(state: ProducerState, epoch: int, coordinator: int, version: int = 0) -> str:
    try:
        state.check_marker(
            ProducerId(7), epoch, coordinator, origin=COORDINATOR, transaction_version=version
        )
    except KafkaError as error:
        return error.code.name
    return "NONE"


def test_markers_of_zombies_are_fenced() -> None:
    state = new_state()
    assert marker_error(state, 0, 0) == "NONE"
    apply(state, data(0, 0, epoch=4, transactional=True))
    assert marker_error(state, 3, 0) == "INVALID_PRODUCER_EPOCH"
    assert marker_error(state, 4, 9) == "NONE"
    apply(state, Marker(ProducerId(7), 4, 9, Offset(1), 1, False))
    assert marker_error(state, 4, 8) == "TRANSACTION_COORDINATOR_FENCED"
    assert marker_error(state, 4, 9) == "NONE"
    state.check_marker(ProducerId(7), 0, 0, origin=REPLICATION)


def test_markers_of_transaction_version_two_bump_the_epoch() -> None:
    state = replayed([data(0, 0, epoch=4, transactional=True)])
    assert marker_error(state, 4, 0, version=2) == "INVALID_PRODUCER_EPOCH"
    assert marker_error(state, 5, 0, version=2) == "NONE"
    apply(state, Marker(ProducerId(7), 5, 0, Offset(1), 1, False))
    assert marker_error(state, 5, 0, version=2) == "NONE"  # the coordinator's retry
    assert marker_error(state, 4, 0, version=2) == "INVALID_PRODUCER_EPOCH"
    state = replayed([data(0, 0, epoch=32767, transactional=True)])
    assert marker_error(state, 32767, 0, version=2) == "NONE"  # no epoch is left to bump to


def test_expiry_forgets_the_idle_but_never_an_open_transaction() -> None:
    state = replayed([data(0, 0)])
    apply(state, data(0, 1)._replace(producer_id=ProducerId(8), is_transactional=True))
    assert state.expire(999 + DAY_MS) == 0
    assert state.expire(1000 + DAY_MS) == 1
    assert [p.producer_id for p in state.describe()] == [8]
    assert check(state, data(123, 2), CLIENT) is None  # forgotten, so any sequence will do


def test_a_loaded_snapshot_leaves_out_the_expired() -> None:
    snapshot = encode_snapshot(replayed([data(0, 0)]).entries())
    state = new_state()
    state.reload(decode_snapshot(snapshot), Offset(1), now_ms=1000 + DAY_MS)
    assert len(state) == 0
    state.reload(decode_snapshot(snapshot), Offset(1), now_ms=999 + DAY_MS)
    assert len(state) == 1


def test_the_log_start_offset_takes_unreplicated_transactions_with_it() -> None:
    state = replayed(
        [data(0, 0, transactional=True), Marker(ProducerId(7), 0, 0, Offset(1), 5, True)]
    )
    assert state.first_unstable_offset == 0
    state.on_log_start_offset_incremented(Offset(1))
    assert state.first_unstable_offset == 0
    state.on_log_start_offset_incremented(Offset(9))
    assert state.first_unstable_offset is None
    assert state.end_offset == 9
    assert len(state) == 1


def test_starting_afresh_forgets_everything() -> None:
    state = replayed([data(0, 0, transactional=True)])
    state.clear_and_start_at(Offset(50))
    assert (len(state), state.end_offset, state.first_unstable_offset) == (0, 50, None)


def test_a_transaction_is_late_after_its_timeout_and_grace() -> None:
    state = replayed([data(0, 0, transactional=True)])
    due_ms = 1000 + 60_000 + 300_000
    assert not state.has_late_transaction(due_ms, transaction_timeout_ms_max=60_000)
    assert state.has_late_transaction(due_ms + 1, transaction_timeout_ms_max=60_000)
    apply(state, Marker(ProducerId(7), 0, 0, Offset(1), 5, True))
    assert not state.has_late_transaction(due_ms + 1, transaction_timeout_ms_max=60_000)


class Verified:
    """A partition that asks the coordinator before a transaction may begin."""

    def __init__(self) -> None:
        self.state = ProducerState(expiration_ms=DAY_MS, is_verification_required=True)

    def start(self, *, epoch: int = 0, sequence: int = 0, bump: bool = False) -> int:
        return self.state.maybe_start_verification(
            ProducerId(7), epoch, sequence, 10, supports_epoch_bump=bump
        )

    def check(self, item: Data, guard: int) -> str:
        try:
            self.state.check(7, item.epoch, item.base_sequence, 0, True, CLIENT, guard)
        except KafkaError as error:
            return error.code.name
        return "NONE"


def test_a_transaction_begins_only_with_the_guard_of_its_verification() -> None:
    log = Verified()
    assert log.check(data(0, 0), 0) == "INVALID_TXN_STATE"
    guard = log.start()
    assert guard == log.start() != 0
    assert log.check(data(0, 0), guard + 1) == "INVALID_TXN_STATE"
    assert log.check(data(0, 0), guard) == "NONE"
    apply(log.state, data(0, 0, transactional=True))
    assert log.start() == 0  # open already
    assert log.check(data(1, 1), 0) == "NONE"
    log.state.maybe_start_verification(ProducerId(8), 0, 0, 10, supports_epoch_bump=False)
    assert log.check(data(1, 1), 0) == "NONE"
    assert log.check(data(0, 1, epoch=1), 0) == "INVALID_TXN_STATE"


def test_a_marker_takes_the_guard_of_a_pending_verification_away() -> None:
    log = Verified()
    guard = log.start()
    apply(log.state, Marker(ProducerId(7), 0, 0, Offset(0), 5, True))
    assert log.check(data(0, 1), guard) == "INVALID_TXN_STATE"
    assert log.start() != guard


def test_a_later_batch_of_an_unverified_transaction_waits_for_the_first() -> None:
    log = Verified()
    guard = log.start(sequence=3)
    assert log.check(data(4, 0), guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    log.start(sequence=2)
    log.start(sequence=9)
    assert log.check(data(3, 0), guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.check(data(2, 0), guard) == "NONE"
    log.start(epoch=1, sequence=5)
    log.start(epoch=0, sequence=1)
    assert log.check(data(5, 0, epoch=1), guard) == "NONE"


def test_a_late_copy_of_an_old_batch_holds_up_no_later_transaction() -> None:
    log = Verified()
    apply(log.state, data(0, 0, transactional=True))
    apply(log.state, Marker(ProducerId(7), 0, 0, Offset(1), 5, False))
    log.start(sequence=0)  # again, by another way; there is no transaction that it belongs to
    guard = log.start(sequence=1)
    assert log.check(data(2, 2), guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.check(data(1, 2), guard) == "NONE"


def test_a_producer_that_bumps_epochs_must_begin_at_zero() -> None:
    log = Verified()
    guard = log.start(sequence=3, bump=True)
    assert log.check(data(3, 0), guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.check(data(0, 0), guard) == "NONE"


def test_verification_of_a_stale_epoch_is_refused_and_old_ones_expire() -> None:
    log = Verified()
    guard = log.start()
    log.state.expire(10 + DAY_MS)
    assert log.start() != guard
    apply(log.state, data(0, 0, epoch=3))
    with pytest.raises(KafkaError, match="stale"):
        log.start(epoch=2)
    assert log.check(data(0, 1, epoch=2), guard) == "INVALID_PRODUCER_EPOCH"
