"""How samples become a table of ratios, and whether a goal is met.

Two brokers on one busy machine: a single sample says little, and the mean follows the worst
moment. So every load runs several times in turns, A B A B, and the medians are compared.

Pure: numbers in, text out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

OTTLA, KAFKA = "ottla", "kafka"
HEADINGS = ("load", "figure", "Ottla", "Apache Kafka", "ratio", "goal", "")
NUMERIC_COLUMNS = (2, 3, 4, 5)


class Bound(Enum):
    RATIO_AT_LEAST = "≥ {:g}x"
    RATIO_AT_MOST = "≤ {:g}x"
    VALUE_AT_MOST = "≤ {:g}"
    VALUE_AT_LEAST = "≥ {:g}"


_LOWER = (Bound.RATIO_AT_LEAST, Bound.VALUE_AT_LEAST)
_OF_VALUES = (Bound.VALUE_AT_MOST, Bound.VALUE_AT_LEAST)


@dataclass(frozen=True)
class Goal:
    bound: Bound
    limit: float

    def __str__(self) -> str:
        return self.bound.value.format(self.limit)


def at_least(ratio: float) -> Goal:
    return Goal(Bound.RATIO_AT_LEAST, ratio)


def at_most(ratio: float) -> Goal:
    return Goal(Bound.RATIO_AT_MOST, ratio)


def value_at_most(value: float) -> Goal:
    return Goal(Bound.VALUE_AT_MOST, value)


def value_at_least(value: float) -> Goal:
    return Goal(Bound.VALUE_AT_LEAST, value)


@dataclass(frozen=True)
class Figure:
    """One column of what a load measures: its key in the samples, its unit, its goal."""

    key: str
    unit: str
    goal: Goal | None = None


@dataclass
class Row:
    """All samples of one figure under one load; `notes` says why a broker has none."""

    load: str
    figure: Figure
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def middle(self, broker: str) -> float | None:
        found = self.samples.get(broker)
        return median(found) if found else None

    @property
    def ratio(self) -> float | None:
        """Ottla's median over Apache Kafka's; None where either is missing or Kafka's is 0."""
        ottla, kafka = self.middle(OTTLA), self.middle(KAFKA)
        if ottla is None or not kafka:
            return None
        return ottla / kafka

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None where there is no goal or nothing to compare."""
        goal = self.figure.goal
        if goal is None:
            return None
        measured = self.middle(OTTLA) if goal.bound in _OF_VALUES else self.ratio
        if measured is None:
            return None
        measured = round(measured, 2)  # as it is shown: two that wait for one timer tie
        return measured >= goal.limit if goal.bound in _LOWER else measured <= goal.limit

    def cells(self) -> tuple[str, ...]:
        ratio = self.ratio
        verdict = {None: "", True: "met", False: "missed"}[self.is_met]
        return (
            self.load,
            self.figure.unit,
            self._cell(OTTLA),
            self._cell(KAFKA),
            "" if ratio is None else f"{ratio:.2f}x",
            "" if self.figure.goal is None else str(self.figure.goal),
            verdict,
        )

    def _cell(self, broker: str) -> str:
        value = self.middle(broker)
        return self.notes.get(broker, "-") if value is None else number(value)


def number(value: float) -> str:
    """Three figures or so: what a person compares."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def collect(rows: Iterable[Row], broker: str, sample: dict[str, float]) -> None:
    """Add one run of a load to its rows."""
    for row in rows:
        if row.figure.key in sample:
            row.samples.setdefault(broker, []).append(sample[row.figure.key])


def turns(brokers: Sequence[str], rounds: int) -> list[str]:
    """Who measures when: rounds start with another one each, so that none always goes first."""
    order: list[str] = []
    for index in range(rounds):
        order += brokers if index % 2 == 0 else list(reversed(brokers))
    return order


def as_text(rows: Sequence[Row]) -> str:
    """The table for a terminal: aligned columns, a load's name only in its first row."""
    body = _without_repeated_loads(rows)
    widths = [max(len(line[i]) for line in (HEADINGS, *body)) for i in range(len(HEADINGS))]
    lines = []
    for line in (HEADINGS, *body):
        cells = [
            cell.rjust(width) if column in NUMERIC_COLUMNS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def as_markdown(rows: Sequence[Row]) -> str:
    marks = ["---:" if column in NUMERIC_COLUMNS else "---" for column in range(len(HEADINGS))]
    lines = [HEADINGS, tuple(marks), *_without_repeated_loads(rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _without_repeated_loads(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    body: list[tuple[str, ...]] = []
    previous = None
    for row in rows:
        cells = row.cells()
        body.append(("", *cells[1:]) if row.load == previous else cells)
        previous = row.load
    return body
