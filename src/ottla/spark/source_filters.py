"""Filters of a batch query that need not read what they would drop. Pure but for one lookup.

Comparisons of `topic`, `partition` and `offset` are answered exactly by choosing ranges. A lower
bound of `timestamp` becomes an offset: the broker knows the first record at or after a time, and
everything before it is older. Times are not in order within a partition, so Spark filters what is
left, and an upper bound of them says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottla.client.offsets import NO_OFFSET
from ottla.spark.source_ranges import OffsetRange

if TYPE_CHECKING:
    from ottla.spark.source_offsets import OffsetReader

_OFFSET_MAX = (1 << 63) - 1


class Bounds:
    """What the filters taken so far leave of the ranges; all of them must hold."""

    def __init__(self) -> None:
        self._topics: set[str] | None = None
        self._partitions: set[int] | None = None
        self._offset_low = 0
        self._offset_end = _OFFSET_MAX
        self._timestamp_ms_low: int | None = None

    def take(self, item: Any) -> bool:
        """Note a filter; whether it is fully answered here, so that Spark need not ask again."""
        column = getattr(item, "attribute", None)
        if column == ("topic",):
            self._topics, is_taken = _narrowed(self._topics, item, str)
            return is_taken
        if column == ("partition",):
            self._partitions, is_taken = _narrowed(self._partitions, item, int)
            return is_taken
        if column == ("offset",):
            return self._take_offset(item)
        if column == ("timestamp",):
            self._take_timestamp(item)
        return False

    def narrowed(self, ranges: list[OffsetRange], reader: OffsetReader) -> list[OffsetRange]:
        """The parts of the ranges that can hold wanted records."""
        kept = [
            OffsetRange(
                item.topic_partition,
                max(item.start_offset, self._offset_low),
                min(item.end_offset, self._offset_end),
            )
            for item in ranges
            if (self._topics is None or item.topic_partition.topic in self._topics)
            and (self._partitions is None or item.topic_partition.partition in self._partitions)
        ]
        kept = [item for item in kept if item.size > 0]
        if self._timestamp_ms_low is None or not kept:
            return kept
        times = dict.fromkeys((item.topic_partition for item in kept), self._timestamp_ms_low)
        first = reader.first_at_or_after(times)
        return [
            OffsetRange(
                item.topic_partition,
                max(item.start_offset, first[item.topic_partition]),
                item.end_offset,
            )
            for item in kept
            if first[item.topic_partition] != NO_OFFSET
        ]

    def _take_offset(self, item: Any) -> bool:
        value = getattr(item, "value", None)
        if isinstance(item, In) or not isinstance(value, int):
            return False
        if isinstance(item, EqualTo):
            self._offset_low = max(self._offset_low, value)
            self._offset_end = min(self._offset_end, value + 1)
        elif isinstance(item, GreaterThan):
            self._offset_low = max(self._offset_low, value + 1)
        elif isinstance(item, GreaterThanOrEqual):
            self._offset_low = max(self._offset_low, value)
        elif isinstance(item, LessThan):
            self._offset_end = min(self._offset_end, value)
        elif isinstance(item, LessThanOrEqual):
            self._offset_end = min(self._offset_end, value + 1)
        else:
            return False
        return True

    def _take_timestamp(self, item: Any) -> None:
        value = getattr(item, "value", None)
        if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual) and isinstance(
            value, datetime
        ):
            # Rounded down: a record of the same millisecond may still be wanted.
            time_ms = int(value.timestamp() * 1000 // 1)
            self._timestamp_ms_low = max(self._timestamp_ms_low or 0, time_ms, 0)


def _narrowed(
    known: set[Any] | None, item: Any, kind: Callable[[Any], Any]
) -> tuple[set[Any] | None, bool]:
    if isinstance(item, EqualTo):
        values = {item.value}
    elif isinstance(item, In):
        values = set(item.value)
    else:
        return known, False
    wanted = {kind(value) for value in values if value is not None}
    return (wanted if known is None else known & wanted), True
