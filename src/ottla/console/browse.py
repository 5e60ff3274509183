"""Reads pages of a topic and follows its end, in threads.

The pager decides what is read next; here it is read, within a budget of records and time, so that
a filter that matches nothing ends in a page which says how far it came. A few readers are kept with
their connections. Shell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from ottla.client import ClientConfig
from ottla.console.kafka.reader import Chunk, Reader
from ottla.console.paging import Block, Page, Pager, Predicate, Range
from ottla.console.records import Position, Record
from ottla.protocol.errors import KafkaError

T = TypeVar("T")

# Readers at once: people wait for each other beyond this rather than the broker for all of them.
READERS_MAX = 4
# What one page may read before it says how far it came.
SCANNED_RECORDS_MAX = 100_000
SCAN_S_MAX = 2.5
_WINDOW_RECORDS_MAX = 20_000
_SCAN_WINDOW_RECORDS = 2_000
_SPARE_RECORDS = 4
_PAGE_BYTES = 128 * 1024
_SCAN_BYTES = 1024 * 1024


class Query(NamedTuple):
    topic: str
    ranges: dict[int, Range]  # what there is of each partition that is looked at
    position: Position
    is_backward: bool
    page_size: int
    predicate: Predicate | None = None
    is_committed: bool = False


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
            chunk = reader.fetch(
                topic, {partition: offset}, partition_bytes=_PAGE_BYTES, records_max=1
            )[partition]
            found = chunk.records[0] if chunk.records else None
            return found if found is not None and found.offset == offset else None

        return await self._with_reader(read)

    def new_reader(self) -> Reader:
        """A reader of one's own, for a tail that keeps it."""
        return Reader(self._config)

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


def read_page(reader: Reader, query: Query) -> Page:
    """Read until the page is full, everything was read, or the budget is spent."""
    pager = Pager(
        query.ranges,
        query.position,
        is_backward=query.is_backward,
        count=query.page_size,
        predicate=query.predicate,
    )
    deadline = time.monotonic() + SCAN_S_MAX
    read = _read_back if query.is_backward else _read_on
    while wanted := pager.wanted():
        for partition, block in read(reader, query, wanted).items():
            pager.add(partition, block)
        pager.merge()
        if pager.scanned >= SCANNED_RECORDS_MAX or time.monotonic() >= deadline:
            break
    pager.merge()
    return pager.finish()


def _window(query: Query, partitions: int, reads: int) -> int:
    """How many records to read of a partition: little for a page, much for a search."""
    if query.predicate is not None:
        return min(_SCAN_WINDOW_RECORDS << min(reads, 4), _WINDOW_RECORDS_MAX)
    first = query.page_size // max(partitions, 1) + _SPARE_RECORDS
    return min(first << min(reads, 8), _WINDOW_RECORDS_MAX)


def _bytes(query: Query) -> int:
    return _PAGE_BYTES if query.predicate is None else _SCAN_BYTES


def _read_on(reader: Reader, query: Query, wanted: dict[int, tuple[int, int]]) -> dict[int, Block]:
    reads = max(count for _, count in wanted.values())
    chunks = _fetch(
        reader,
        query,
        {partition: offset for partition, (offset, _) in wanted.items()},
        _window(query, len(query.position), reads),
    )
    blocks = {}
    for partition, (offset, _) in wanted.items():
        end = query.ranges[partition].end
        chunk = chunks.get(partition)
        if chunk is None:
            blocks[partition] = Block([], 0, end)
            continue
        records = [record for record in chunk.records if record.offset < end]
        position = chunk.next_offset
        if chunk.is_at_end or len(records) < len(chunk.records):
            position = max(position, end)
        elif position <= offset and not records:
            position = end  # nothing came though more is there: a leader that changes; give up
        blocks[partition] = Block(records, len(records), position)
    return blocks


def _read_back(
    reader: Reader, query: Query, wanted: dict[int, tuple[int, int]]
) -> dict[int, Block]:
    windows: dict[int, Range] = {}
    for partition, (offset, reads) in wanted.items():
        size = _window(query, len(query.position), reads)
        windows[partition] = Range(max(query.ranges[partition].start, offset - size), offset)
    found: dict[int, list[Record]] = {partition: [] for partition in windows}
    position = {partition: window.start for partition, window in windows.items()}
    while position:
        chunks = _fetch(reader, query, position, None)
        still: Position = {}
        for partition in position:
            end = windows[partition].end
            chunk = chunks.get(partition)
            if chunk is None:
                continue
            found[partition] += [record for record in chunk.records if record.offset < end]
            is_moving = chunk.next_offset > position[partition]
            if chunk.next_offset < end and is_moving and not chunk.is_at_end:
                still[partition] = chunk.next_offset
        position = still
    return {
        partition: Block(records[::-1], len(records), windows[partition].start)
        for partition, records in found.items()
    }


def _fetch(
    reader: Reader, query: Query, position: Position, records_max: int | None
) -> dict[int, Chunk]:
    try:
        return reader.fetch(
            query.topic,
            position,
            partition_bytes=_bytes(query),
            records_max=records_max,
            is_committed=query.is_committed,
        )
    except KafkaError:
        # A leader that moved is found by asking anew; once, as a page must end.
        reader.forget(query.topic)
        return reader.fetch(
            query.topic,
            position,
            partition_bytes=_bytes(query),
            records_max=records_max,
            is_committed=query.is_committed,
        )
