"""Reads pages of a topic, in threads.

The pager decides what is read next; here it is read, within a budget of records, bytes and time, so
that a filter that matches nothing ends in a page which says how far it came. A log can only be read
onwards: going back, it is read in slices from its end, small at first, so that one is always done
before the time is up. A few readers are kept with their connections. Shell.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

from ottla.client import ClientConfig
from ottla.console.kafka.reader import Fetched, Reader
from ottla.console.paging import Block, Page, Pager, Range
from ottla.console.records import Position, Predicate, Record
from ottla.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

# Readers at once: people wait for each other beyond this rather than the broker for all of them.
READERS_MAX = 4
# What one page may read before it says how far it came.
SCANNED_RECORDS_MAX = 100_000
SCAN_S_MAX = 2.5
# Records of one partition that one step reads at most, and that the first step of a search reads.
_STEP_RECORDS_MAX = 20_000
_SEARCH_RECORDS_FIRST = 100
_SPARE_RECORDS = 4
_PAGE_BYTES = 128 * 1024
_SEARCH_BYTES = 1024 * 1024
# A partition whose next batch did not fit beside others is asked alone, for this much.
_ALONE_BYTES = 1024 * 1024
# What slices of all partitions may hold at once: records of megabytes are read a few at a time.
_HELD_BYTES_MAX = 64 * 1024 * 1024


class Query(NamedTuple):
    topic: str
    ranges: dict[int, Range]  # what there is of each partition that is looked at
    position: Position
    is_backward: bool
    page_size: int
    predicate: Predicate | None = None
    is_committed: bool = False
    troubles: Mapping[int, str] = {}  # partitions that were asked for and cannot be read now


class Readers:
    """A bounded number of readers, each used by one thread at a time."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._idle: list[Reader] = []
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="console-reader")

    async def page(self, query: Query) -> Page:
        """One page of records."""
        return await self._with_reader(lambda reader: read_page(reader, query))

    async def record(self, topic: str, partition: int, offset: int) -> Record | None:
        """One record, or None if there is none at that offset."""

        def read(reader: Reader) -> Record | None:
            return read_record(reader, topic, partition, offset)

        return await self._with_reader(read)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop().close()

    async def _with_reader(self, read: Callable[[Reader], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, read)

    def _run(self, read: Callable[[Reader], T]) -> T:
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = Reader(self._config)
        try:
            result = read(reader)
        except BaseException:
            reader.close()
            raise
        self._idle.append(reader)
        return result


class Fetches(Protocol):
    """The part of a `Reader` that a page needs."""

    def fetch(
        self,
        topic: str,
        position: Position,
        *,
        partition_bytes: int,
        records_max: int | None = None,
        is_committed: bool = False,
    ) -> Fetched: ...


def read_record(reader: Fetches, topic: str, partition: int, offset: int) -> Record | None:
    """One record, or None if there is none at that offset; KafkaError if nobody can tell."""

    def fetch() -> Fetched:
        return reader.fetch(topic, {partition: offset}, partition_bytes=_PAGE_BYTES, records_max=1)

    fetched = fetch()
    if fetched.troubles:
        # A reader that was idle while its broker started again has lost its connection.
        fetched = fetch()
    if fetched.troubles:
        raise fetched.troubles[partition]
    records = fetched.chunks[partition].records
    found = records[0] if records else None
    return found if found is not None and found.offset == offset else None


def read_page(
    reader: Fetches, query: Query, *, clock: Callable[[], float] = time.monotonic
) -> Page:
    """Read until the page is full, everything was read, or the budget is spent.

    A partition that cannot be read is named in the page; KafkaError if none of them can.
    """
    return _PageRead(reader, query, clock).read()


class _PageRead:
    """One page while it is being read."""

    def __init__(self, reader: Fetches, query: Query, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._query = query
        self._clock = clock
        self._deadline = clock() + SCAN_S_MAX
        self._pager = Pager(
            query.ranges,
            query.position,
            is_backward=query.is_backward,
            count=query.page_size,
            predicate=query.predicate,
        )
        self._is_search = query.predicate is not None
        self._lanes = max(1, len(query.position))
        self._sizes: dict[int, int] = {}  # going back: how many offsets the next slice has
        self._errors: dict[int, KafkaError] = {}

    def read(self) -> Page:
        pager, query = self._pager, self._query
        step = self._read_back if query.is_backward else self._read_on
        while wanted := pager.wanted():
            if pager.scanned >= SCANNED_RECORDS_MAX or self._is_late():
                break
            for partition, block in step(wanted).items():
                pager.add(partition, block)
            for partition, error in self._errors.items():
                pager.give_up(partition, str(error))
            pager.merge()
        page = pager.finish()
        readable = query.position.keys() & query.ranges.keys()
        if readable and self._errors.keys() >= readable and not pager.scanned:
            raise next(iter(self._errors.values()))
        return _with_unread(page, query)

    def _is_late(self) -> bool:
        return self._clock() >= self._deadline

    def _first_size(self) -> int:
        """How many records a step reads at first: little for a page, more for a search."""
        if self._is_search:
            return _SEARCH_RECORDS_FIRST
        return self._query.page_size // self._lanes + _SPARE_RECORDS

    def _size_max(self) -> int:
        left = (SCANNED_RECORDS_MAX - self._pager.scanned) // self._lanes
        return max(self._first_size(), min(left, _STEP_RECORDS_MAX))

    def _read_on(self, wanted: Mapping[int, tuple[int, int]]) -> dict[int, Block]:
        reads = max(count for _, count in wanted.values())
        size = min(self._first_size() << min(reads, 8), self._size_max())
        position = {partition: offset for partition, (offset, _) in wanted.items()}
        blocks = {}
        for partition, chunk in self._fetch(position, size).chunks.items():
            if chunk.is_starved:
                continue
            end = self._query.ranges[partition].end
            records = [record for record in chunk.records if record.offset < end]
            position_after = chunk.next_offset
            if chunk.is_at_end or len(records) < len(chunk.records):
                position_after = max(position_after, end)
            blocks[partition] = Block(records, len(records), position_after)
        return blocks

    def _read_back(self, wanted: Mapping[int, tuple[int, int]]) -> dict[int, Block]:
        """The next slice of each partition; none of one that was not done when time was up."""
        slices: dict[int, _Slice] = {}
        for partition, (offset, _) in wanted.items():
            size = min(self._sizes.get(partition, self._first_size()), self._size_max())
            start = max(self._query.ranges[partition].start, offset - size)
            slices[partition] = _Slice(Range(start, offset), _HELD_BYTES_MAX // self._lanes)
        position = {partition: one.bounds.start for partition, one in slices.items()}
        while position:
            if self._is_late():
                # The first slice of a partition is always read whole: the next page goes further.
                position = {p: o for p, o in position.items() if wanted[p][1] == 0}
                if not position:
                    break
            fetched = self._fetch(position, None)
            still: Position = {}
            for partition, chunk in fetched.chunks.items():
                if chunk.is_starved:
                    still[partition] = position[partition]
                    continue
                one = slices[partition]
                one.add(chunk.records)
                if chunk.next_offset < one.bounds.end and not chunk.is_at_end:
                    still[partition] = chunk.next_offset
                else:
                    one.is_done = True
            position = still
        blocks = {}
        for partition, one in slices.items():
            if one.is_done:
                blocks[partition] = one.block()
                self._resize(partition, one)
        return blocks

    def _resize(self, partition: int, done: _Slice) -> None:
        """Slices of about one answer each: small records by the thousand, large ones by few."""
        size = done.bounds.end - done.bounds.start
        if done.seen_bytes < self._bytes() // 2:
            size = max(size, self._first_size()) * 2
        elif done.seen_bytes > self._bytes() * 2:
            size = max(1, size // 2)
        self._sizes[partition] = min(size, _STEP_RECORDS_MAX)

    def _bytes(self) -> int:
        return _SEARCH_BYTES if self._is_search else _PAGE_BYTES

    def _fetch(self, position: Position, records_max: int | None) -> Fetched:
        """What each partition has; those that did not fit beside others are asked alone."""
        chunks, troubles = self._ask(position, self._bytes(), records_max)
        if troubles:
            # A leader that moved is found by asking anew; once, as a page must end.
            moved = {partition: position[partition] for partition in troubles}
            again, troubles = self._ask(moved, self._bytes(), records_max)
            chunks = {**chunks, **again}
        starved = [partition for partition, chunk in chunks.items() if chunk.is_starved]
        for number, partition in enumerate(starved):
            if number and self._is_late():
                break
            alone = {partition: position[partition]}
            found, failed = self._ask(alone, _ALONE_BYTES, records_max)
            chunks.update(found)
            troubles.update(failed)
            if partition in found and found[partition].is_starved:
                troubles[partition] = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "It has more, but its leader gives nothing."
                )
        for partition in troubles:
            chunks.pop(partition, None)
        self._errors.update(troubles)
        return Fetched(chunks, troubles)

    def _ask(self, position: Position, partition_bytes: int, records_max: int | None) -> Fetched:
        return self._reader.fetch(
            self._query.topic,
            position,
            partition_bytes=partition_bytes,
            records_max=records_max,
            is_committed=self._query.is_committed,
        )


class _Slice:
    """A part of one partition while it is being read onwards."""

    def __init__(self, bounds: Range, bytes_max: int) -> None:
        self.bounds = bounds
        self.seen_bytes = 0
        self.is_done = False
        self._bytes_max = bytes_max
        self._held_bytes = 0
        self._held: deque[Record] = deque()
        self._start = bounds.start

    def add(self, records: list[Record]) -> None:
        for record in records:
            if record.offset >= self.bounds.end:
                break
            self._held.append(record)
            self._held_bytes += record.size
            self.seen_bytes += record.size
            # What is too much to hold is left to the next slice, from its older end on.
            while self._held_bytes > self._bytes_max and len(self._held) > 1:
                self._held_bytes -= self._held.popleft().size
                self._start = self._held[0].offset

    def block(self) -> Block:
        return Block(list(reversed(self._held)), len(self._held), self._start)


def _with_unread(page: Page, query: Query) -> Page:
    """The page, with the partitions that could not even be begun; they keep their place."""
    if not query.troubles:
        return page
    kept = {p: offset for p, offset in query.position.items() if p not in query.ranges}
    return page._replace(
        position={**kept, **page.position},
        troubles={**query.troubles, **page.troubles},
        is_complete=False,
    )
