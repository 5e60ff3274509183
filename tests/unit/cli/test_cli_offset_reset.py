"""How a reset is read and computed, against slow readings of the same text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.offset_reset import (
    Bounds,
    NewOffset,
    ResetInputError,
    TopicChoice,
    format_plan,
    parse_duration_ms,
    parse_plan,
    parse_topic_choice,
    shifted,
    within_log,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=12)
PLACES = st.tuples(NAMES, st.integers(0, 99))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**63 - 1), max_size=8)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 59_999))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, ms: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{ms // 1000}.{ms % 1000:03d}S"
    expected = ((days * 24 + hours) * 60 + minutes) * 60_000 + ms
    assert parse_duration_ms(text) == expected
    assert parse_duration_ms(f"-{text.lower()}") == -expected


# From java.time.Duration.parse(text).toMillis() of Java 17.
@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P7D", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("PT0.5S", 500),
        ("PT-6H3M", -21_420_000),
        ("-PT6H", -21_600_000),
        ("pt15m", 900_000),
        ("PT-0.5S", -500),
    ],
)
def test_durations_mean_what_they_mean_in_java(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text", ["", "1h", "P", "PT", "P1DT", "P1H", "PT1D", "P1W", "PT1.S", "T1H"]
)
def test_what_java_refuses_as_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ResetInputError):
        parse_duration_ms(text)


def test_a_topic_may_name_its_partitions() -> None:
    assert parse_topic_choice("orders") == TopicChoice("orders")
    assert parse_topic_choice("orders:2,0,2") == TopicChoice("orders", (0, 2))
    for bad in ("", ":1", "orders:", "orders:a", "orders:1,", "orders:-1", "orders:1:2"):
        with pytest.raises(ResetInputError):
            parse_topic_choice(bad)


@given(st.dictionaries(NAMES, OFFSETS.filter(bool), min_size=1, max_size=3))
def test_a_plan_is_read_as_it_was_written(plan: dict[str, dict[tuple[str, int], int]]) -> None:
    assert parse_plan(format_plan(plan, is_single_group=False), list(plan)) == plan
    for group, offsets in plan.items():
        text = format_plan({group: offsets}, is_single_group=True)
        assert parse_plan(text, [group]) == {group: offsets}


@pytest.mark.parametrize(
    "line", ["t,0", "t,x,1", "t,0,-1", "t,0,1,2,3", "t,0,99999999999999999999"]
)
def test_a_bad_line_of_a_plan_is_named(line: str) -> None:
    with pytest.raises(ResetInputError, match="line 2"):
        parse_plan(f"t,0,1\n{line}\n", ["g"])


def test_a_line_without_a_group_is_refused_for_several_groups() -> None:
    with pytest.raises(ResetInputError, match="group,topic,partition,offset"):
        parse_plan("t,0,1\n", ["g", "h"])


@given(st.integers(0, 30), st.integers(0, 30), st.integers(-5, 40))
def test_an_offset_moves_to_the_nearest_one_that_the_log_has(a: int, b: int, wanted: int) -> None:
    first, end = min(a, b), max(a, b)
    there = range(first, end + 1)
    nearest = min(there, key=lambda offset: abs(offset - wanted))
    (found,) = within_log({("t", 0): wanted}, {("t", 0): Bounds(first, end)}).values()
    assert found == NewOffset(nearest, None if wanted in there else wanted)


def test_shifting_names_what_has_no_offset() -> None:
    places = [("t", 0), ("t", 1)]
    assert shifted(places, {("t", 0): 10}, -3) == ({("t", 0): 7}, [("t", 1)])
