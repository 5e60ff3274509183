"""History stays bounded and says what was sampled, in order."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.history import History, rate, sparkline


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e9)), max_size=30))
def test_series_are_the_newest_samples(samples: list[dict[str, float]]) -> None:
    size = 8
    history = History(size)
    kept: dict[str, deque[float | None]] = {}
    for at, values in enumerate(samples):
        history.sample(float(at), values)
        kept = {name: kept.get(name, deque([None] * at, size)) for name in values}
        for name, value in values.items():
            kept[name].append(value)
    times, columns = history.series(sorted(kept))
    assert times == [float(at) for at in range(len(samples))][-size:]
    for name, column in zip(sorted(kept), columns, strict=True):
        assert column == list(kept[name])
        assert history.newest(name) == column[-1]
        assert history.recent(name, 3) == [value for value in column[-3:] if value is not None]


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
