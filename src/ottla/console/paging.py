"""One page of records out of many partitions, in the order of time. Pure.

Reading the same number of records from each partition shows old records of a quiet partition beside
new ones of a busy one, and skips others. Here partitions are merged: the next record is always the
earliest (or, going back, the latest) of those at hand, and a partition whose records ran out is
read further before the merge goes on. Records that a filter does not want are read and dropped; a
budget bounds how many, and the page says where to go on.

The caller reads; this module says what. Invariants: no record is shown twice or passed over between
a page and its next one; the records of one partition keep their order; a page that calls itself
complete leaves out nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ottla.console.records import Position, Predicate, Record


class Range(NamedTuple):
    start: int
    end: int  # exclusive


class Block(NamedTuple):
    """What a read of one partition gave, in the direction of the page."""

    records: list[Record]
    scanned: int
    position: int  # forward: the next offset to read; backward: everything from here on was read


class Page(NamedTuple):
    records: list[Record]
    scanned: int
    position: Position  # where the next page begins, for partitions that have more
    is_complete: bool  # whether the page is full or everything was read, not just out of budget
    troubles: Mapping[int, str]  # partitions that could not be read, and why


class _Lane:
    """One partition of the page."""

    __slots__ = ("is_exhausted", "kept", "position", "reads", "time_ms", "trouble")

    def __init__(self, position: int, is_exhausted: bool) -> None:
        self.kept: deque[Record] = deque()
        self.position = position
        self.is_exhausted = is_exhausted
        self.reads = 0
        self.time_ms: int | None = None
        self.trouble: str | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether it must be read before it is known which record comes next."""
        return not self.kept and not self.is_exhausted and self.trouble is None


class Pager:
    """The state of one page while it is being read."""

    def __init__(
        self,
        ranges: Mapping[int, Range],
        position: Position,
        *,
        is_backward: bool,
        count: int,
        predicate: Predicate | None,
    ) -> None:
        """`position` holds only the partitions that are still to be read."""
        self._ranges = ranges
        self._is_backward = is_backward
        self._count = count
        self._predicate = predicate
        self._lanes = {
            partition: _Lane(offset, self._is_done(partition, offset))
            for partition, offset in position.items()
            if partition in ranges
        }
        self.records: list[Record] = []
        self.scanned = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) >= self._count

    def wanted(self) -> dict[int, tuple[int, int]]:
        """The partitions to read next: where, and how often they were read before."""
        if self.is_full:
            return {}
        return {
            partition: (lane.position, lane.reads)
            for partition, lane in self._lanes.items()
            if lane.is_awaited
        }

    def add(self, partition: int, block: Block) -> None:
        """Take what was read of one partition."""
        lane = self._lanes[partition]
        lane.reads += 1
        lane.position = block.position
        lane.is_exhausted = self._is_done(partition, block.position)
        self.scanned += block.scanned
        predicate = self._predicate
        lane.kept.extend(block.records if predicate is None else filter(predicate, block.records))

    def give_up(self, partition: int, why: str) -> None:
        """Go on without a partition that cannot be read; it keeps its place for the next page."""
        self._lanes[partition].trouble = why

    def merge(self) -> None:
        """Move records to the page for as long as it is certain which comes next."""
        while not self.is_full:
            open_lanes = [lane for lane in self._lanes.values() if lane.kept]
            if not open_lanes or any(lane.is_awaited for lane in self._lanes.values()):
                return
            self._take_next(open_lanes)

    def finish(self) -> Page:
        """The page, with what is at hand when the budget ran out."""
        troubles = {
            partition: lane.trouble
            for partition, lane in self._lanes.items()
            if lane.trouble is not None
        }
        is_complete = not troubles and (
            self.is_full or not any(lane.is_awaited for lane in self._lanes.values())
        )
        while not self.is_full and (lanes := [x for x in self._lanes.values() if x.kept]):
            self._take_next(lanes)
        position: Position = {}
        for partition, lane in self._lanes.items():
            if lane.kept:
                head = lane.kept[0].offset
                position[partition] = head + 1 if self._is_backward else head
            elif not lane.is_exhausted:
                position[partition] = lane.position
        return Page(self.records, self.scanned, position, is_complete, troubles)

    def _take_next(self, lanes: list[_Lane]) -> None:
        choose = max if self._is_backward else min
        lane = choose(lanes, key=self._order)
        record = lane.kept.popleft()
        lane.time_ms = self._time(lane, record)
        self.records.append(record)

    def _order(self, lane: _Lane) -> tuple[int, int]:
        record = lane.kept[0]
        return self._time(lane, record), -record.partition

    def _time(self, lane: _Lane, record: Record) -> int:
        """A record's time, never against the direction: a clock may have gone back."""
        if lane.time_ms is None:
            return record.timestamp_ms
        choose = min if self._is_backward else max
        return choose(lane.time_ms, record.timestamp_ms)

    def _is_done(self, partition: int, offset: int) -> bool:
        start, end = self._ranges[partition]
        return offset <= start if self._is_backward else offset >= end
