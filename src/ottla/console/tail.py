"""Follows the end of a topic and shows at most what a person can watch.

A browser that is sent fifty thousand rows a second stops answering, and a console that decodes them
takes a core. So a tail sends at most a thousand records a second, in five steps, keeps the newest
and counts what it passed over; far behind, it jumps near the end without reading what lies between.

Each tail owns a reader and a thread until it is closed; fetching, filtering and drawing happen
there, so that one tail's records hold up nobody's page. The number of tails is bounded.
`Follower` is one step after another for that thread; `Tails` hands the steps to the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from ottla.client import ClientConfig
from ottla.console.kafka.reader import Chunk, Fetched, Reader
from ottla.console.records import Position, Predicate, Record, tell_troubles
from ottla.protocol.errors import KafkaError

SHOWN_PER_SECOND_MAX = 1_000
STEPS_PER_SECOND = 5
# What a late step may catch up on: a busy machine must not make a slow topic look fast.
ALLOWANCE_MAX = SHOWN_PER_SECOND_MAX
# How near the end a tail jumps.
NEAR_RECORDS = 100
# Further behind the end than this, the records between are passed over unread.
BEHIND_RECORDS_MAX = 5_000
# What all partitions together give in a second: a thousand records of sixteen kilobytes.
BYTES_PER_SECOND_MAX = 16 * 1024 * 1024
# Records of one partition that a step decodes: all that may be shown, more if a filter looks.
READ_RECORDS_MAX = 1_000
FILTERED_RECORDS_MAX = 5_000
# Each tail holds a thread and a connection per broker.
TAILS_MAX = 16
_WAIT_MS = 250
_RETRY_S = 1.0


class TooManyTailsError(Exception):
    """Every tail that the console affords is taken."""


class Tailed(NamedTuple):
    """What is followed, and how it is shown."""

    topic: str
    position: Position  # where it was stopped; partitions that are not in it begin at their end
    partitions: Callable[[], Sequence[int]]  # those that there are now
    draw: Callable[[list[Record]], str]
    predicate: Predicate | None = None
    is_committed: bool = False


class Step(NamedTuple):
    drawn: str  # the records that are shown
    shown: int
    passed: int  # how many were seen, shown or not
    skipped: int  # how many of them were not shown though they matched, or were not read
    position: Position
    trouble: str | None


class Taken(NamedTuple):
    records: list[Record]  # in the order of time
    passed: int
    skipped: int


class Reads(Protocol):
    """The part of a `Reader` that a tail needs."""

    def fetch(
        self,
        topic: str,
        position: Position,
        *,
        partition_bytes: int,
        answer_bytes: int,
        wait_ms: int,
        records_max: int | None,
        is_committed: bool,
    ) -> Fetched: ...

    def ends(self, topic: str, partitions: Sequence[int], *, is_committed: bool) -> Position: ...


class Follower:
    """One tail, step by step, in its own thread."""

    def __init__(
        self, reader: Reads, tailed: Tailed, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = reader
        self._tailed = tailed
        self._clock = clock
        self._position = dict(tailed.position)
        self._known: set[int] | None = None  # the partitions that there were at the first step
        self._looked_at: float | None = None
        self._allowance = float(ALLOWANCE_MAX)
        self._counted_at = clock()

    def step(self) -> Step:
        """What came since the last step; waits a moment for it."""
        tailed = self._tailed
        try:
            missing = self._find_missing(tailed.partitions())
        except KafkaError as error:
            return Step("", 0, 0, 0, dict(self._position), str(error))
        troubles = dict.fromkeys(missing, "Nobody leads it now.")
        if not self._position:
            return Step("", 0, 0, 0, {}, tell_troubles(troubles))
        step_bytes = BYTES_PER_SECOND_MAX // STEPS_PER_SECOND
        fetched = self._reader.fetch(
            tailed.topic,
            self._position,
            partition_bytes=step_bytes,
            answer_bytes=step_bytes,
            wait_ms=_WAIT_MS,
            records_max=READ_RECORDS_MAX if tailed.predicate is None else FILTERED_RECORDS_MAX,
            is_committed=tailed.is_committed,
        )
        troubles.update({partition: str(why) for partition, why in fetched.troubles.items()})
        taken = take(fetched.chunks, self._position, tailed.predicate, self._earn())
        self._allowance -= len(taken.records)
        self._position = in_turn(self._position, fetched.chunks)
        return Step(
            tailed.draw(taken.records),
            len(taken.records),
            taken.passed,
            taken.skipped,
            dict(self._position),
            tell_troubles(troubles) if troubles else None,
        )

    def _earn(self) -> int:
        now = self._clock()
        earned = (now - self._counted_at) * SHOWN_PER_SECOND_MAX
        self._allowance = min(self._allowance + earned, ALLOWANCE_MAX)
        self._counted_at = now
        return int(self._allowance)

    def _find_missing(self, partitions: Sequence[int]) -> list[int]:
        """Place partitions that have no place yet; return those that could not be placed."""
        if self._known is None:
            self._known = set(partitions)
        missing = [partition for partition in partitions if partition not in self._position]
        for partition in missing:
            if partition not in self._known:
                self._position[partition] = 0  # it was added since: everything in it is new
        missing = [partition for partition in missing if partition in self._known]
        is_due = self._looked_at is None or self._clock() - self._looked_at >= _RETRY_S
        if missing and is_due:
            self._looked_at = self._clock()
            self._position.update(
                self._reader.ends(
                    self._tailed.topic, missing, is_committed=self._tailed.is_committed
                )
            )
        return [partition for partition in missing if partition not in self._position]


class Tails:
    """The tails of one console."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._open = 0

    async def follow(self, tailed: Tailed) -> AsyncIterator[Step]:
        """Steps for as long as the caller iterates."""
        if self._open >= TAILS_MAX:
            raise TooManyTailsError(f"{TAILS_MAX} live tails are open already; close one.")
        self._open += 1
        thread = ThreadPoolExecutor(1, thread_name_prefix="console-tail")
        reader = Reader(self._config)
        follower = Follower(reader, tailed)
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = time.monotonic()
                step = await loop.run_in_executor(thread, follower.step)
                yield step
                is_stuck = step.trouble is not None and not step.passed
                pause_s = _RETRY_S if is_stuck else 1 / STEPS_PER_SECOND
                await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - began)))
        finally:
            self._open -= 1
            thread.submit(reader.close)
            thread.shutdown(wait=False)


def take(
    chunks: dict[int, Chunk], position: Position, predicate: Predicate | None, shown_max: int
) -> Taken:
    """What to show of what came; moves `position` on."""
    matching: list[Record] = []
    passed = skipped = 0
    for partition, chunk in chunks.items():
        passed += len(chunk.records)
        matching += chunk.records if predicate is None else filter(predicate, chunk.records)
        position[partition] = chunk.next_offset
        behind = chunk.end_offset - chunk.next_offset
        if behind > BEHIND_RECORDS_MAX:
            jump = behind - NEAR_RECORDS
            position[partition] += jump
            passed += jump
            skipped += jump
    matching.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    surplus = max(0, len(matching) - shown_max)
    return Taken(matching[surplus:], passed, skipped + surplus)


def in_turn(position: Position, chunks: dict[int, Chunk]) -> Position:
    """The order of the next question: who came away empty-handed first, who was served last."""
    return dict(sorted(position.items(), key=lambda entry: _turn(chunks.get(entry[0]))))


def _turn(chunk: Chunk | None) -> int:
    if chunk is None:
        return 1
    if chunk.is_starved:
        return 0
    return 2 if chunk.records else 1
