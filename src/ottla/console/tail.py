"""Follows the end of a topic and shows at most what a person can watch.

A browser that is sent fifty thousand rows a second stops answering, and a console that decodes them
takes a core. So a tail sends at most a thousand records a second, in five steps, keeps the newest
and counts what it passed over; far behind, it jumps near the end without reading what lies between.

Shell: each tail owns a reader and a thread until it is closed. The number of tails is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ottla.client import ClientConfig
from ottla.console.kafka.reader import Chunk, Reader
from ottla.console.paging import Predicate
from ottla.console.records import Position, Record
from ottla.protocol.errors import KafkaError

SHOWN_PER_SECOND_MAX = 1_000
STEPS_PER_SECOND = 5
# What a late step may catch up on: a busy machine must not make a slow topic look fast.
ALLOWANCE_MAX = SHOWN_PER_SECOND_MAX
# How near the end a tail jumps.
NEAR_RECORDS = 100
# Further behind the end than this, the records between are passed over unread.
BEHIND_RECORDS_MAX = 5_000
# Each tail holds a thread and a connection per broker.
TAILS_MAX = 16
_PARTITION_BYTES = 256 * 1024
_WAIT_MS = 250
_RETRY_S = 1.0


class TooManyTailsError(Exception):
    """Every tail that the console affords is taken."""


class Step(NamedTuple):
    records: list[Record]  # in the order of time
    passed: int  # how many were seen, shown or not
    skipped: int  # how many of them were not shown though they matched, or were not read
    position: Position
    trouble: str | None


class Tails:
    """The tails of one console."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._open = 0

    async def follow(
        self,
        topic: str,
        position: Position,
        *,
        predicate: Predicate | None = None,
        is_committed: bool = False,
    ) -> AsyncIterator[Step]:
        """Steps for as long as the caller iterates."""
        if self._open >= TAILS_MAX:
            raise TooManyTailsError(f"{TAILS_MAX} live tails are open already; close one.")
        self._open += 1
        thread = ThreadPoolExecutor(1, thread_name_prefix="console-tail")
        reader = Reader(self._config)
        loop = asyncio.get_running_loop()
        position = dict(position)
        allowance = float(ALLOWANCE_MAX)
        counted_at = time.monotonic()
        try:
            while True:
                began = time.monotonic()
                try:
                    chunks = await loop.run_in_executor(
                        thread, _fetch, reader, topic, position, is_committed
                    )
                except KafkaError as error:
                    yield Step([], 0, 0, position, str(error))
                    await asyncio.sleep(_RETRY_S)
                    continue
                now = time.monotonic()
                earned = (now - counted_at) * SHOWN_PER_SECOND_MAX
                allowance, counted_at = min(allowance + earned, ALLOWANCE_MAX), now
                step = take_step(chunks, position, predicate, int(allowance))
                allowance -= len(step.records)
                yield step
                spent_s = time.monotonic() - began
                await asyncio.sleep(max(0.0, 1 / STEPS_PER_SECOND - spent_s))
        finally:
            self._open -= 1
            thread.submit(reader.close)
            thread.shutdown(wait=False)


def _fetch(reader: Reader, topic: str, position: Position, is_committed: bool) -> dict[int, Chunk]:
    try:
        return reader.fetch(
            topic,
            position,
            partition_bytes=_PARTITION_BYTES,
            wait_ms=_WAIT_MS,
            is_committed=is_committed,
        )
    except KafkaError:
        reader.forget(topic)
        raise


def take_step(
    chunks: dict[int, Chunk], position: Position, predicate: Predicate | None, shown_max: int
) -> Step:
    """What to show of what came; moves `position` on."""
    matching: list[Record] = []
    passed = skipped = 0
    for partition, chunk in chunks.items():
        passed += len(chunk.records)
        matching += chunk.records if predicate is None else filter(predicate, chunk.records)
        position[partition] = chunk.next_offset
        behind = chunk.high_watermark - chunk.next_offset
        if behind > BEHIND_RECORDS_MAX:
            jump = behind - NEAR_RECORDS
            position[partition] += jump
            passed += jump
            skipped += jump
    matching.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    surplus = max(0, len(matching) - shown_max)
    return Step(matching[surplus:], passed, skipped + surplus, dict(position), None)
