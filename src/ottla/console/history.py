"""The recent past of many numbers, in bounded memory. Pure.

A chart needs minutes of samples of every topic's rate and every group's lag; a dict of lists would
grow for as long as the console runs. A `Ring` keeps the newest samples in one flat array, and
`History` keeps one ring per name and forgets names that have been absent for a while. `Ends`
remembers when partitions reached which end, which tells how old an offset is.

Invariant: a ring's samples go by time; every ring of a `History` has the same times, with NaN where
a name had no sample.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Generic, TypeVar

K = TypeVar("K")

# Ten minutes of samples two seconds apart. 2,500 names take 6 MB.
SAMPLES_MAX = 300
# A name that is absent for longer is forgotten; a coordinator that loads is back before that.
ABSENT_SAMPLES_MAX = 30
# Ten minutes of ends ten seconds apart.
ENDS_MAX = 60
ENDS_EVERY_S = 10.0


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
        self._absent: dict[str, int] = {}

    def sample(self, at: float, values: Mapping[str, float]) -> None:
        """Add one sample of every name; a gap in those that are not in `values`."""
        self._times.append(at)
        for name in [name for name in self._rings if name not in values]:
            absent = self._absent[name] = self._absent.get(name, 0) + 1
            if absent > ABSENT_SAMPLES_MAX:
                del self._rings[name], self._absent[name]
            else:
                self._rings[name].append(nan)
        for name, value in values.items():
            self._absent.pop(name, None)
            ring = self._rings.get(name)
            if ring is None:
                ring = self._rings[name] = Ring(self._size)
            ring.append(value)

    def gap(self, at: float) -> None:
        """Nothing could be sampled: a gap in every name, none of which is forgotten for it."""
        self._times.append(at)
        for ring in self._rings.values():
            ring.append(nan)

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


class Ends(Generic[K]):
    """When each partition was first seen to end where; says how old an offset is."""

    def __init__(self) -> None:
        self._seen: dict[K, tuple[array[float], array[int]]] = {}
        self._at = -ENDS_EVERY_S

    def note(self, at: float, ends: Mapping[K, int], wanted: Collection[K]) -> None:
        """Remember the ends of the partitions that somebody reads."""
        if at - self._at < ENDS_EVERY_S:
            return
        self._at = at
        for key in [key for key in self._seen if key not in wanted]:
            del self._seen[key]
        for key in wanted:
            end = ends.get(key)
            if end is None:
                continue
            times, offsets = self._seen.setdefault(key, (array("d"), array("q")))
            if offsets and end < offsets[-1]:
                del times[:], offsets[:]  # truncated or created anew: what was known is not so
            if not offsets or end > offsets[-1]:
                times.append(at)
                offsets.append(end)
                del times[:-ENDS_MAX], offsets[:-ENDS_MAX]

    def age_s(self, key: K, offset: int, *, end: int, now: float) -> float:
        """For how long there has been a record at `offset`; at least so long if it is older."""
        if key not in self._seen or offset >= end:
            return 0.0
        times, offsets = self._seen[key]
        first = bisect_right(offsets, offset)
        if first == len(offsets):
            return 0.0  # written since the newest note
        age_s = now - times[first]
        if first > 0:
            return age_s
        # It was there when the first note was made; how long before, the rate since may tell.
        seconds, grown = now - times[0], end - offsets[0]
        estimate = (end - offset) / (grown / seconds) if grown > 0 and seconds > 0 else 0.0
        return max(age_s, estimate)


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
