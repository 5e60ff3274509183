"""How offsets become tasks: rate limits, delays and the splitting of partitions. Pure.

The arithmetic is that of Spark's connector: the same options give the same batches and tasks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor

from ottla.client import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: [start_offset, end_offset) of one partition."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """One range per partition, unless there should be more tasks or fewer records in each."""
    found = [item for item in ranges if item.size > 0]
    if max_records_per_partition is not None:
        found = [
            piece
            for item in found
            for piece in _divide(item, ceil(item.size / max_records_per_partition))
        ]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(item.size for item in found)
    whole = [item for item in found if _parts(item.size, total, min_partitions) == 1]
    split = [item for item in found if _parts(item.size, total, min_partitions) != 1]
    split_total = sum(item.size for item in split)
    split_min = max(min_partitions - len(whole), 1)
    pieces = [
        piece
        for item in split
        for piece in _divide(item, _parts(item.size, split_total, split_min))
    ]
    return sorted((*pieces, *whole), key=lambda item: (item.topic_partition, item.start_offset))


def _parts(size: int, total: int, min_partitions: int) -> int:
    """How many of the wanted tasks a partition gets for its share of the records."""
    return max(floor(size / total * min_partitions + 0.5), 1)


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Even pieces; the last ones take what does not divide."""
    pieces: list[OffsetRange] = []
    start, left = whole.start_offset, whole.size
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        if size:
            pieces.append(OffsetRange(whole.topic_partition, start, start + size))
        start += size
    return pieces


def rate_limited(limit: int, start: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
    """The end of a batch of about `limit` records, shared out by what each partition has.

    `start` must hold every partition of `end`. A small share is rounded up to one record, so that
    no partition starves: a batch may therefore exceed the limit by the number of partitions.
    """
    sizes = {
        topic_partition: offset - start[topic_partition]
        for topic_partition, offset in end.items()
        if offset > start[topic_partition]
    }
    total = sum(sizes.values())
    limited = dict(end)
    for topic_partition, size in sizes.items():
        share = limit * (size / total)
        records = ceil(share) if share < 1 else floor(share)
        limited[topic_partition] = min(end[topic_partition], start[topic_partition] + records)
    return limited


def count_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between; a partition unknown at the start counts from 0, as in Spark."""
    return sum(offset - start.get(topic_partition, 0) for topic_partition, offset in end.items())


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Spark's own form: {"topic": {"0": 17}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }
