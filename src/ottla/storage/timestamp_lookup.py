"""Which offset a timestamp leads to (ListOffsets).

Producers' clocks disagree, so timestamps in a log are not in order; "the first record at or
after T" is the first in offset order. The time index says up to which offset nothing is as
late as T, the headers say which batch may hold it, and only that batch is opened.

All of it may have to come from the disk, index files of megabytes included. So the loop notes
what is in memory, a thread looks with files of its own, and the loop then asks whether what was
found still counts: segments may have been deleted, cleaned or cut meanwhile.

A lookup is owned by the loop before and after `run`. A batch is decompressed within a bound.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.protocol.batches import BatchHeader, Record, iter_records
from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import Offset
from ottla.runtime.interfaces import Disk
from ottla.storage.core.time_index import TimestampOffset
from ottla.storage.file_pool import FilePool
from ottla.storage.rewriting import DECOMPRESSED_BYTES_MAX
from ottla.storage.segment import Segment

# Ask for this timestamp to find the first record that has the largest one of the log.
MAX_TIMESTAMP = None


class TimestampAndOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class _Place(NamedTuple):
    """A segment as the loop knew it."""

    segment: Segment  # for the thread only to copy
    largest: TimestampOffset | None  # None if its file must be asked
    position: int | None  # where to begin, if the indexes are in memory


class TimestampLookup:
    __slots__ = (
        "_disk",
        "_places",
        "_start_offset",
        "_timestamp_ms",
        "_views",
        "found",
        "generation",
        "segment",
    )

    def __init__(
        self,
        disk: Disk,
        segments: Iterable[Segment],
        timestamp_ms: int | None,
        *,
        start_offset: int,
        generation: int,
    ) -> None:
        self._disk = disk
        self._timestamp_ms = timestamp_ms
        self._start_offset = start_offset
        self._places = [self._place(segment) for segment in segments if segment.size]
        self._views: dict[Segment, Segment] = {}
        self.generation = generation
        self.found: TimestampAndOffset | None = None
        self.segment: Segment | None = None  # where it was found

    def _place(self, segment: Segment) -> _Place:
        largest = segment.known_max_timestamp
        position = None
        if segment.has_indexes and largest is not None:
            position = self._start_position(segment, largest)
        return _Place(segment, largest, position)

    def _start_position(self, segment: Segment, largest: TimestampOffset) -> int:
        """The last indexed place before which no record can be the one."""
        if self._timestamp_ms is MAX_TIMESTAMP:
            offset = largest.offset
        else:
            indexed = segment.time_index.lookup(self._timestamp_ms)
            offset = Offset(max(indexed.offset, self._start_offset))
        return segment.offset_index.lookup(offset).position

    def run(self) -> None:
        """Look; the caller may be a thread. May raise anything if the files change meanwhile."""
        pool = FilePool(self._disk, 1)
        try:
            if self._timestamp_ms is MAX_TIMESTAMP:
                self._find_max(pool)
            else:
                self._find_first(pool, self._timestamp_ms)
        finally:
            pool.close_all()

    def _find_first(self, pool: FilePool, timestamp_ms: int) -> None:
        for place in self._places:
            if place.largest is not None and 0 <= place.largest.timestamp_ms < timestamp_ms:
                continue
            view = self._view(place, pool)
            if view.largest_timestamp_ms() < timestamp_ms:
                continue
            for at, header in view.headers(self._begin(place, view)):
                if header.max_timestamp < timestamp_ms or header.last_offset < self._start_offset:
                    continue
                for record in _records(view, at, header):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self._start_offset:
                        self._keep(place, record.timestamp_ms, record.offset, header)
                        return

    def _find_max(self, pool: FilePool) -> None:
        latest: tuple[_Place, Segment] | None = None
        for place in self._places:
            view = self._view(place, pool)
            if latest is None or view.max_timestamp[0] > latest[1].max_timestamp[0]:
                latest = place, view
        if latest is None or latest[1].max_timestamp.timestamp_ms < 0:
            return
        place, view = latest
        largest_ms = view.max_timestamp.timestamp_ms
        for at, header in view.headers(self._begin(place, view)):
            if header.max_timestamp != largest_ms:
                continue
            for record in _records(view, at, header):
                if record.timestamp_ms == largest_ms:
                    self._keep(place, record.timestamp_ms, record.offset, header)
                    return

    def _view(self, place: _Place, pool: FilePool) -> Segment:
        view = self._views[place.segment] = place.segment.copy_to(pool, place.largest)
        return view

    def _begin(self, place: _Place, view: Segment) -> int:
        if place.position is not None:
            return place.position
        return self._start_position(view, view.max_timestamp)

    def _keep(self, place: _Place, timestamp_ms: int, offset: int, header: BatchHeader) -> None:
        epoch = header.partition_leader_epoch
        self.found = TimestampAndOffset(timestamp_ms, offset, epoch if epoch >= 0 else None)
        self.segment = place.segment

    def share_learned(self) -> None:
        """Let the segments know what was read of their indexes; on the loop."""
        for segment, view in self._views.items():
            segment.learn_from(view)


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    """The records of a batch; of one that nobody can read, what its header says.

    A producer may compress nonsense, and searches in its topic must go on all the same.
    """
    batch = segment.batch_at(position, header)
    try:
        yield from iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except KafkaError:
        yield Record(header.last_offset, header.max_timestamp, None, None)
