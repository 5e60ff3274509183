"""LeaderEpochs against an oracle that stores the epoch of every single record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.ids import Epoch, Offset
from ottla.storage.core.leader_epochs import Durability, EpochEnd, EpochEntry, LeaderEpochs

Step = tuple[str, int]


class RecordOracle:
    """Slow and obvious: one (offset, epoch) pair per record, answers by scanning."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self.log_end = 0

    def end_of(self, epoch: int) -> EpochEnd | None:
        newer = [offset for offset, e in self.records if e > epoch]
        known = [e for _, e in self.records if e <= epoch]
        if newer:
            return EpochEnd(Epoch(max(known, default=epoch)), Offset(newer[0]))
        if known and known[-1] == epoch:
            return EpochEnd(Epoch(epoch), Offset(self.log_end))
        return None

    def entries(self) -> list[EpochEntry]:
        firsts: dict[int, int] = {}
        for offset, epoch in self.records:
            firsts.setdefault(epoch, offset)
        return [EpochEntry(Epoch(e), Offset(o)) for e, o in firsts.items()]

    def epoch_for_offset(self, offset: int) -> int | None:
        return max((e for o, e in self.records if o <= offset), default=None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "append", "tail", "head"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_every_lookup_agrees_with_the_oracle_after_every_step(steps: list[Step]) -> None:
    cache, oracle = LeaderEpochs(), RecordOracle()
    for action, n in steps:
        epoch = oracle.records[-1][1] if oracle.records else 0
        if action == "append":
            epoch += max(0, n - 6)  # mostly the same leader, sometimes a gap in epochs
            cache.assign(Epoch(epoch), Offset(oracle.log_end))
            oracle.records.append((oracle.log_end, epoch))
            oracle.log_end += 1
        elif action == "tail":
            start = oracle.records[0][0] if oracle.records else oracle.log_end
            oracle.log_end = max(start, oracle.log_end - n)
            cache.truncate_tail(Offset(oracle.log_end))
            oracle.records = [r for r in oracle.records if r[0] < oracle.log_end]
        elif oracle.records:
            start = min(oracle.records[0][0] + n, oracle.log_end - 1)
            cache.truncate_head(Offset(start))
            oracle.records = [r for r in oracle.records if r[0] >= start]
        entries = oracle.entries()
        assert list(cache.entries) == entries
        assert cache.latest == (entries[-1] if entries else None)
        assert cache.earliest == (entries[0] if entries else None)
        for asked in range(epoch + 2):
            got = cache.end_of(Epoch(asked), log_end_offset=Offset(oracle.log_end))
            assert got == oracle.end_of(asked), (asked, cache.entries)
            older = [e for e in entries if e.epoch < asked]
            newer = [e for e in entries if e.epoch > asked]
            same = [e for e in entries if e.epoch == asked]
            assert cache.previous(Epoch(asked)) == (older[-1] if older else None)
            assert cache.next(Epoch(asked)) == (newer[0] if newer else None)
            assert cache.entry_of(Epoch(asked)) == (same[0] if same else None)
        for offset in range(oracle.log_end + 1):
            assert cache.epoch_for_offset(Offset(offset)) == oracle.epoch_for_offset(offset)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_any_assignments_leave_both_columns_strictly_increasing(
    pairs: list[tuple[int, int]],
) -> None:
    cache = LeaderEpochs(EpochEntry(Epoch(e), Offset(o)) for e, o in pairs)
    for column in zip(*cache.entries, strict=True):
        assert list(column) == sorted(set(column))


def entries_of(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(Epoch(e), Offset(o)) for e, o in pairs)


def test_assign_repeated_for_each_batch_costs_no_write() -> None:
    cache = LeaderEpochs()
    assert cache.assign(Epoch(3), Offset(8)) is Durability.BEFORE_ACK
    assert cache.assign(Epoch(3), Offset(8)) is Durability.UNCHANGED
    assert cache.assign(Epoch(3), Offset(9)) is Durability.UNCHANGED


def test_truncations_tell_whether_the_file_is_behind() -> None:
    cache = LeaderEpochs(entries_of((1, 0), (2, 10), (4, 20)))
    assert cache.truncate_tail(Offset(21)) is Durability.UNCHANGED
    assert cache.truncate_head(Offset(0)) is Durability.UNCHANGED
    assert cache.truncate_tail(Offset(20)) is Durability.LAZY
    assert cache.truncate_head(Offset(5)) is Durability.LAZY
    assert cache.entries == entries_of((1, 5), (2, 10))
    assert cache.truncate_head(Offset(10)) is Durability.LAZY
    assert cache.truncate_head(Offset(10)) is Durability.UNCHANGED
    assert cache.entries == entries_of((2, 10))
    assert cache.clear() is Durability.BEFORE_ACK
    assert cache.clear() is Durability.UNCHANGED


def test_head_truncated_to_the_log_end_keeps_the_latest_epoch() -> None:
    cache = LeaderEpochs(entries_of((1, 0), (2, 10)))
    cache.truncate_head(Offset(30))
    assert cache.entries == entries_of((2, 30))


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="must be >= 0"):
        LeaderEpochs().assign(Epoch(epoch), Offset(offset))


def test_no_epoch_has_no_end() -> None:
    cache = LeaderEpochs(entries_of((1, 5)))
    assert cache.end_of(Epoch(-1), log_end_offset=Offset(9)) is None
    assert cache.end_of(Epoch(0), log_end_offset=Offset(9)) == EpochEnd(Epoch(0), Offset(5))
