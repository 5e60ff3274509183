"""Duties that come round: retention, flushes, checkpoints.

One task per duty, so that a slow round of one delays none of the others, and a round never
overlaps the one before. A duty that raises is logged and tried again at its next turn.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

# Kafka writes "never" as the largest number of its type; timers cannot count that far.
SECONDS_MAX = 365 * 24 * 3600.0


class Ticker:
    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(
        self, interval_ms: int, duty: Callable[[], Awaitable[None]], *, initial_delay_ms: int = 0
    ) -> None:
        """Run `duty` after each interval from now on."""
        seconds = min(interval_ms / 1000, SECONDS_MAX)
        first = min((initial_delay_ms or interval_ms) / 1000, SECONDS_MAX)
        self._tasks.append(asyncio.create_task(self._run(first, seconds, duty)))

    def once(self, duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `duty`, which may have no end, from now on."""
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(_run_once(duty)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _run(self, first: float, seconds: float, duty: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(first)
        while True:
            try:
                await duty()
            except Exception:  # whatever it is, the next round must come
                log.exception("a background duty failed")
            await asyncio.sleep(seconds)


async def _run_once(duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await duty()
    except Exception:  # whatever it is, the broker serves on
        log.exception("a background duty has ended")
