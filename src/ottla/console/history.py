"""The recent past of many numbers, in bounded memory. Pure.

A chart needs minutes of samples of every topic's rate and every group's lag; a dict of lists would
grow for as long as the console runs. A `Ring` keeps the newest samples in one flat array, and
`History` keeps one ring per name and forgets names that no longer exist.

Invariant: a ring's samples go by time; every ring of a `History` has the same times, with NaN where
a name had no sample yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from typing import TypeVar

K = TypeVar("K")

# Ten minutes of samples two seconds apart. 2,500 names take 6 MB.
SAMPLES_MAX = 300


class Ring:
    """The newest samples of one number."""

    __slots__ = ("_next", "_samples")

    def __init__(self, size: int = SAMPLES_MAX) -> None:
        self._samples = array("d", [nan]) * size
        self._next = 0

    def append(self, value: float) -> None:
        self._samples[self._next] = value
        self._next = (self._next + 1) % len(self._samples)

    def values(self) -> array[float]:
        """Oldest first; NaN for what was never sampled."""
        return self._samples[self._next :] + self._samples[: self._next]

    def newest(self) -> float:
        return self._samples[self._next - 1]


class History:
    """Rings by name, all sampled at the same times."""

    def __init__(self, size: int = SAMPLES_MAX) -> None:
        self._size = size
        self._times = Ring(size)
        self._rings: dict[str, Ring] = {}

    def sample(self, at: float, values: Mapping[str, float]) -> None:
        """Add one sample of every name; names that are not in `values` are forgotten."""
        self._times.append(at)
        for name in [name for name in self._rings if name not in values]:
            del self._rings[name]
        for name, value in values.items():
            ring = self._rings.get(name)
            if ring is None:
                ring = self._rings[name] = Ring(self._size)
            ring.append(value)

    def newest(self, name: str) -> float | None:
        ring = self._rings.get(name)
        if ring is None or isnan(value := ring.newest()):
            return None
        return value

    def series(self, names: Iterable[str]) -> tuple[list[float], list[list[float | None]]]:
        """Times, and for each name its values at those times."""
        times = self._times.values()
        first = next((i for i, at in enumerate(times) if not isnan(at)), len(times))
        columns: list[list[float | None]] = []
        for name in names:
            ring = self._rings.get(name)
            if ring is None:
                columns.append([None] * (len(times) - first))
            else:
                columns.append([None if isnan(v) else v for v in ring.values()[first:]])
        return list(times[first:]), columns

    def recent(self, name: str, count: int) -> list[float]:
        """The newest values of one name, without gaps: for a sparkline."""
        ring = self._rings.get(name)
        if ring is None:
            return []
        return [value for value in ring.values()[-count:] if not isnan(value)]


def rate(before: Mapping[K, int], after: Mapping[K, int], seconds: float) -> float:
    """How fast a sum grew; what shrank (a log that was truncated) or is new counts as still."""
    if seconds <= 0:
        return 0.0
    grown = sum(
        max(0, value - earlier)
        for key, value in after.items()
        if (earlier := before.get(key)) is not None
    )
    return grown / seconds


def sparkline(values: Sequence[float], *, width: int = 72, height: int = 18) -> str:
    """The points of an SVG polyline; empty if there is nothing to draw."""
    if len(values) < 2:
        return ""
    top = max(values) or 1.0
    step = width / (len(values) - 1)
    floor = height - 1.5
    return " ".join(
        f"{position * step:.1f},{floor - value / top * (height - 3):.1f}"
        for position, value in enumerate(values)
    )
