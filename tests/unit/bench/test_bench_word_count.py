"""What the table of the long word count says of the samples of memory."""

from collections.abc import Callable

import pytest
from bench.table import OTTLA, Row
from bench.word_count import BROKER, HEAP, JVM, PYTHON, Memory, rows_of

HEAPS = {"third": [100.0, 90.0, 110.0], "end": [105.0, 99.0, 300.0]}


def table(broker_mb: Callable[[float], float]) -> dict[tuple[str, str], Row]:
    """Of a run from 100 s to 200 s, watched from long before to long after."""
    memory = [
        Memory(at, {JVM: at, PYTHON: 500.0, BROKER: broker_mb(at)})
        for at in (float(second) for second in range(300))
    ]
    rows = rows_of(10_000_000, 100.0, 200.0, HEAPS, memory)
    return {(row.load.rpartition(": ")[2], row.figure.unit): row for row in rows}


def test_memory_is_that_around_a_third_and_at_the_end() -> None:
    rows = table(lambda at: at)
    assert rows[BROKER, "MB after a third"].middle(OTTLA) == pytest.approx(133, abs=1)
    assert rows[BROKER, "MB at the end"].middle(OTTLA) == pytest.approx(195, abs=1)
    assert rows[HEAP, "end / a third"].middle(OTTLA) == pytest.approx(1.05)
    assert rows["word count of 10 M records", "M records/s"].middle(OTTLA) == pytest.approx(0.1)


def test_growth_misses_the_goal_and_a_jvm_that_takes_its_heap_does_not() -> None:
    rows = table(lambda at: at)
    assert rows[BROKER, "end / a third"].is_met is False
    assert rows[PYTHON, "end / a third"].is_met is True
    assert rows[JVM, "end / a third"].is_met is None


def test_what_comes_before_and_after_the_run_does_not_count() -> None:
    rows = table(lambda at: 40.0 if 100 <= at <= 200 else 9000.0)
    assert rows[BROKER, "end / a third"].is_met is True
    assert rows[BROKER, "MB at the end"].middle(OTTLA) == 40.0
