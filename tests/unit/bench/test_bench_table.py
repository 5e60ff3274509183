"""The table of ratios: medians, goals and their verdicts, and how it is written."""

from statistics import median

import pytest
from bench.table import (
    KAFKA,
    OTTLA,
    Figure,
    Goal,
    Row,
    as_markdown,
    as_text,
    at_least,
    at_most,
    collect,
    number,
    turns,
    value_at_most,
)
from hypothesis import given
from hypothesis import strategies as st


def row(goal: Goal | None, ottla: list[float], kafka: list[float]) -> Row:
    return Row("a load", Figure("x", "req/s", goal), {OTTLA: ottla, KAFKA: kafka})


positive = st.floats(0.001, 1e9)


@given(st.lists(positive, min_size=1), st.lists(positive, min_size=1))
def test_ratio_is_that_of_the_medians(ottla: list[float], kafka: list[float]) -> None:
    assert row(None, ottla, kafka).ratio == median(ottla) / median(kafka)


def test_one_slow_sample_does_not_move_the_ratio() -> None:
    assert row(None, [200.0, 210.0, 1.0], [100.0, 100.0, 100.0]).ratio == 2.0


@pytest.mark.parametrize(
    ("goal", "ottla", "kafka", "met"),
    [
        (at_least(1.5), 150.0, 100.0, True),
        (at_least(1.5), 149.0, 100.0, False),
        (at_most(0.5), 50.0, 100.0, True),
        (at_most(0.5), 51.0, 100.0, False),
        (value_at_most(64), 64.0, 1.0, True),
        (value_at_most(64), 65.0, 1000.0, False),
        (None, 1.0, 1.0, None),
    ],
)
def test_goal_is_met_up_to_and_including_its_limit(
    goal: Goal | None, ottla: float, kafka: float, met: bool | None
) -> None:
    assert row(goal, [ottla], [kafka]).is_met is met


def test_a_missing_broker_leaves_ratio_and_verdict_open() -> None:
    alone = row(at_least(1.5), [100.0], [])
    assert alone.ratio is None
    assert alone.is_met is None
    alone.notes[KAFKA] = "java is not installed"
    assert alone.cells() == ("a load", "req/s", "100", "java is not installed", "", "≥ 1.5x", "")


def test_an_absolute_goal_needs_no_peer() -> None:
    assert row(value_at_most(200), [150.0], []).is_met is True


def test_zero_of_the_peer_gives_no_ratio() -> None:
    assert row(at_most(0.5), [1.0], [0.0]).ratio is None


def test_collect_adds_only_figures_that_the_sample_has() -> None:
    rows = [Row("l", Figure("p50", "us")), Row("l", Figure("p99", "us"))]
    collect(rows, OTTLA, {"p50": 7.0, "other": 1.0})
    assert [r.samples for r in rows] == [{OTTLA: [7.0]}, {}]


@given(st.integers(0, 9))
def test_turns_are_fair_and_nobody_always_goes_first(rounds: int) -> None:
    order = turns(["a", "b"], rounds)
    assert order.count("a") == order.count("b") == rounds
    assert order[:4] == ["a", "b", "b", "a"][: 2 * rounds]


@pytest.mark.parametrize(
    ("value", "text"), [(0.234, "0.23"), (12.34, "12.3"), (123.4, "123"), (73456.7, "73,457")]
)
def test_numbers_keep_about_three_figures(value: float, text: str) -> None:
    assert number(value) == text


def test_tables_name_a_load_once_and_have_as_many_cells_in_each_line() -> None:
    rows = [row(at_least(1.5), [3.0], [1.0]), row(None, [1.0], [2.0])]
    text, markdown = as_text(rows), as_markdown(rows)
    assert text.count("a load") == markdown.count("a load") == 1
    assert {line.count("|") for line in markdown.splitlines()} == {8}
    assert "3.00x" in text
    assert "met" in text
