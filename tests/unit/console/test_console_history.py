"""History stays bounded and says what was sampled, in order."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.history import ABSENT_SAMPLES_MAX, Ends, History, rate, sparkline


@given(
    st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e9)), max_size=30)
)
def test_series_are_the_newest_samples_and_gaps_where_there_was_none(
    samples: list[dict[str, float] | None],
) -> None:
    size = 8
    history = History(size)
    kept: dict[str, deque[float | None]] = {}
    for at, values in enumerate(samples):
        if values is None:
            history.gap(float(at))
        else:
            history.sample(float(at), values)
            for name in values:
                kept.setdefault(name, deque([None] * at, size))
        for name, column in kept.items():
            column.append((values or {}).get(name))
    times, columns = history.series(sorted(kept))
    assert times == [float(at) for at in range(len(samples))][-size:]
    for name, column in zip(sorted(kept), columns, strict=True):
        assert column == list(kept[name])
        assert history.newest(name) == column[-1]
        assert history.recent(name, 3) == [value for value in column[-3:] if value is not None]


def test_a_name_is_forgotten_once_it_has_been_absent_for_long() -> None:
    history = History(200)
    history.sample(0.0, {"a": 1.0, "b": 1.0})
    for at in range(1, ABSENT_SAMPLES_MAX + 1):
        history.sample(float(at), {"b": 1.0})
    assert history.recent("a", 200) == [1.0]
    history.sample(99.0, {"b": 1.0})
    assert history.recent("a", 200) == []


def aged(ends: list[tuple[float, int]], offset: int, *, now: float) -> float:
    seen: Ends[str] = Ends()
    for at, end in ends:
        seen.note(at, {"p": end}, {"p"})
    return seen.age_s("p", offset, end=ends[-1][1], now=now)


def test_the_age_of_an_offset_is_since_the_end_passed_it() -> None:
    ends = [(0.0, 100), (10.0, 200), (20.0, 300)]
    assert aged(ends, 250, now=25.0) == 5.0
    assert aged(ends, 200, now=25.0) == 5.0
    assert aged(ends, 150, now=25.0) == 15.0
    assert aged(ends, 300, now=25.0) == 0.0


def test_a_topic_at_rest_ages_what_nobody_has_read() -> None:
    assert aged([(float(at), 10_000_000) for at in range(0, 400, 10)], 0, now=390.0) == 390.0


def test_what_is_older_than_the_first_note_is_judged_by_the_rate_since() -> None:
    ends = [(0.0, 1000), (10.0, 1010), (20.0, 1020)]
    assert aged(ends, 20, now=20.0) == pytest.approx(1000.0)


def test_ends_are_noted_seldom_bounded_and_begun_anew_after_a_truncation() -> None:
    seen: Ends[str] = Ends()
    for at in range(5_000):
        seen.note(float(at), {"p": at}, {"p"})
    assert seen.age_s("p", 0, end=5_000, now=5_000.0) >= 600
    seen.note(6_000.0, {"p": 10}, {"p"})
    assert seen.age_s("p", 5, end=10, now=6_007.0) == 7.0
    seen.note(7_000.0, {}, set())
    assert seen.age_s("p", 5, end=10, now=7_000.0) == 0.0


def test_a_name_that_never_was_has_gaps_only() -> None:
    history = History(4)
    history.sample(1.0, {"a": 2.0})
    assert history.series(["b"]) == ([1.0], [[None]])
    assert history.newest("b") is None


def test_rate_counts_growth_and_not_truncation_or_what_is_new() -> None:
    assert rate({"a": 10, "b": 50}, {"a": 30, "b": 5, "c": 1000}, 2.0) == 10.0
    assert rate({"a": 1}, {"a": 2}, 0.0) == 0.0


@given(st.lists(st.floats(0, 1e12), max_size=50))
def test_a_sparkline_stays_within_its_box(values: list[float]) -> None:
    points = [tuple(map(float, point.split(","))) for point in sparkline(values).split()]
    assert len(points) in (0, len(values))
    assert all(0 <= x <= 72 and 0 <= y <= 18 for x, y in points)
