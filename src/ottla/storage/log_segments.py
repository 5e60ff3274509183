"""The segments of one log in order of base offset. The last one is active.

Plain container, owned by the PartitionLog.

Invariant: base offsets strictly increase; `_bases[i]` is `_segments[i].base_offset`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from ottla.protocol.errors import InvariantError
from ottla.storage.segment import Segment


class LogSegments:
    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments: list[Segment] = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def last(self) -> Segment:
        return self._segments[-1]

    def add(self, segment: Segment) -> None:
        """Add a segment behind all others."""
        if self._bases and segment.base_offset <= self._bases[-1]:
            raise InvariantError(f"{segment} does not follow {self._segments[-1]}")
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def remove(self, segment: Segment) -> None:
        at = bisect_left(self._bases, segment.base_offset)
        if at == len(self._bases) or self._segments[at] is not segment:
            raise InvariantError(f"{segment} is not part of this log")
        del self._segments[at]
        del self._bases[at]

    def __contains__(self, segment: Segment) -> bool:
        at = bisect_left(self._bases, segment.base_offset)
        return at < len(self._bases) and self._segments[at] is segment

    def replace(self, replaced: list[Segment], replacement: Segment) -> None:
        """Put one segment in the place of several neighbours, the active one not among them."""
        at = bisect_left(self._bases, replacement.base_offset)
        end = at + len(replaced)
        if self._segments[at:end] != replaced or end >= len(self._segments):
            raise InvariantError(f"{replaced} are not closed segments of this log")
        self._segments[at:end] = [replacement]
        self._bases[at:end] = [replacement.base_offset]

    def floor_index(self, offset: int) -> int:
        """The place of the segment that holds `offset` if any does; -1 before the first."""
        return bisect_right(self._bases, offset) - 1

    def at(self, index: int) -> Segment | None:
        return self._segments[index] if 0 <= index < len(self._segments) else None

    def from_floor(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all after it."""
        return self._segments[max(self.floor_index(offset), 0) :]

    def end_offset_of(self, segment: Segment, log_end_offset: int) -> int:
        """Exclusive: the next segment's base offset, or the log's end."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else log_end_offset

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)
