"""Offsets in transactions: the latest commit counts, whichever way it came."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.group.offsets import OffsetStore
from ottla.coordinators.group.records import CommittedOffset, OffsetKey
from ottla.protocol.uuids import ZERO

KEY = OffsetKey("g", "t", 0)
PLACE = ("t", 0)
NOBODY = -1

Step = tuple[str, int]  # what happens, and by which producer


class Oracle:
    """Every commit with its place in the log; an answer is worked out by scanning them."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, int, int | None]] = []  # place, offset, producer still open

    def commit(self, at: int, producer: int) -> None:
        self.writes.append((at, at, None if producer == NOBODY else producer))

    def end(self, producer: int, *, is_commit: bool) -> None:
        kept = []
        for place, offset, owner in self.writes:
            if owner != producer:
                kept.append((place, offset, owner))
            elif is_commit:
                kept.append((place, offset, None))
        self.writes = kept

    def offset(self) -> int:
        return max((one for one in self.writes if one[2] is None), default=(0, -1, None))[1]

    def is_unstable(self) -> bool:
        return any(owner is not None for _, _, owner in self.writes)


@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "commit", "abort"]), st.integers(NOBODY, 2)),
        max_size=30,
    )
)
def test_the_commit_that_lies_last_in_the_log_counts(steps: list[Step]) -> None:
    store, oracle = OffsetStore(), Oracle()
    for at, (step, producer) in enumerate(steps):
        if step == "write":
            store.replay(producer, KEY, CommittedOffset(at))
            oracle.commit(at, producer)
        elif producer != NOBODY:
            store.replay_marker(producer, is_commit=step == "commit")
            oracle.end(producer, is_commit=step == "commit")
        found = store.fetch("g", PLACE, topic_id=ZERO, require_stable=False)
        assert found.offset == oracle.offset()
        stable = store.fetch("g", PLACE, topic_id=ZERO, require_stable=True)
        assert stable.is_unstable == oracle.is_unstable()
        assert store.has_open_transaction("g") == oracle.is_unstable()


def test_a_transaction_that_wrote_earlier_and_ends_later_does_not_move_an_offset_back() -> None:
    store = OffsetStore()
    store.replay(1, KEY, CommittedOffset(10))
    store.replay(2, KEY, CommittedOffset(20))
    assert store.replay_marker(2, is_commit=True) == ["g"]
    store.replay_marker(1, is_commit=True)
    assert store.of("g")[PLACE].offset == 20
    assert not store.has_open_transaction("g")


def test_a_tombstone_forgets_what_is_pending() -> None:
    store = OffsetStore()
    store.replay(1, KEY, CommittedOffset(10))
    store.replay(NOBODY, KEY, None)
    assert store.replay_marker(1, is_commit=True) == []
    assert store == OffsetStore()
