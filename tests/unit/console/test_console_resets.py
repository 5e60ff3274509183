"""Resets never leave what a partition holds, and are committed as they were shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.errors import BadRequestError
from ottla.console.resets import STRATEGIES, format_move, parse_moves, plan

KEY = ("t", 0)


@given(
    st.sampled_from(STRATEGIES),
    st.integers(-100, 200),
    st.integers(0, 50),
    st.integers(0, 50),
    st.none() | st.integers(0, 120),
    st.integers(-1, 120),
)
def test_every_new_offset_lies_within_the_partition(
    strategy: str, amount: int, start: int, length: int, before: int | None, at_time: int
) -> None:
    moves = plan(
        strategy,
        amount,
        [KEY, KEY],
        committed={} if before is None else {KEY: before},
        starts={KEY: start},
        ends={KEY: start + length},
        at_time={KEY: at_time},
    )
    if strategy == "shift" and before is None:
        assert moves == []
        return
    (move,) = moves
    assert start <= move.after <= start + length == move.end_offset
    assert parse_moves([format_move(move)]) == {KEY: move.after}


@pytest.mark.parametrize(
    ("strategy", "amount", "after"),
    [
        ("earliest", 0, 10),
        ("latest", 0, 90),
        ("offset", 42, 42),
        ("shift", -5, 45),
        ("time", 0, 77),
    ],
)
def test_strategies(strategy: str, amount: int, after: int) -> None:
    (move,) = plan(
        strategy, amount, [KEY], committed={KEY: 50}, starts={KEY: 10}, ends={KEY: 90},
        at_time={KEY: 77},
    )  # fmt: skip
    assert (move.before, move.after, move.difference, move.lag) == (
        50,
        after,
        after - 50,
        90 - after,
    )


def test_a_time_newer_than_every_record_is_the_end() -> None:
    (move,) = plan(
        "time", 0, [KEY], committed={}, starts={KEY: 0}, ends={KEY: 9}, at_time={KEY: -1}
    )
    assert (move.after, move.difference) == (9, None)


@pytest.mark.parametrize(
    "texts", [[], [""], ["1 2"], ["-1 0 t"], ["1 x t"], ["1  t"], ["9" * 5000 + " 0 t"]]
)
def test_a_plan_that_was_tampered_with_is_refused(texts: list[str]) -> None:
    with pytest.raises(BadRequestError):
        parse_moves(texts)
