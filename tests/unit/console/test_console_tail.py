"""A tail shows what can be watched and counts the rest."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.kafka.reader import Chunk
from ottla.console.records import Record
from ottla.console.tail import BEHIND_RECORDS_MAX, NEAR_RECORDS, take_step


def chunk(partition: int, count: int, behind: int = 0) -> Chunk:
    records = [Record(partition, n, 1000 + n, False, None, b"%d" % n, ()) for n in range(count)]
    return Chunk(records, count, count + behind, 0, behind == 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 150), st.sampled_from([0, 10, 9000])), min_size=1, max_size=4
    ),
    st.integers(0, 300),
)
def test_shown_and_skipped_add_up_to_what_passed(
    counts: list[tuple[int, int]], shown_max: int
) -> None:
    chunks = {p: chunk(p, count, behind) for p, (count, behind) in enumerate(counts)}
    position = dict.fromkeys(chunks, 0)
    step = take_step(chunks, position, None, shown_max)
    assert len(step.records) <= shown_max
    assert len(step.records) + step.skipped == step.passed == sum(position.values())
    times = [record.timestamp_ms for record in step.records]
    assert times == sorted(times)


def test_far_behind_it_jumps_near_the_end() -> None:
    position = {0: 0}
    step = take_step({0: chunk(0, 10, BEHIND_RECORDS_MAX + 500)}, position, None, 100)
    assert position == {0: 10 + BEHIND_RECORDS_MAX + 500 - NEAR_RECORDS}
    assert step.skipped == BEHIND_RECORDS_MAX + 500 - NEAR_RECORDS


def test_what_a_filter_does_not_want_is_not_skipped() -> None:
    step = take_step({0: chunk(0, 50)}, {0: 0}, lambda record: record.offset % 10 == 0, 100)
    assert (len(step.records), step.passed, step.skipped) == (5, 50, 0)
