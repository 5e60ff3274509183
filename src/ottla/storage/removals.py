"""Files and directories that are out of use, to be removed when their delay is over.

Readers may still hold what was deleted, and an operator may want it back for a minute
(`file.delete.delay.ms`), so it is renamed first and removed later. Removing a gigabyte takes a
file system a tenth of a second: a thread does it. What cannot be removed is told of and left to
the next start, which knows it by its name.

Owned by the event loop.
"""

import asyncio
import logging
from collections.abc import Sequence
from heapq import heappop, heappush

from ottla.runtime.interfaces import Disk, Runtime
from ottla.storage.under_way import UnderWay

log = logging.getLogger(__name__)

# Kafka writes "never" as the largest number of its type; timers cannot count that far.
_SECONDS_MAX = 365 * 24 * 3600.0


class Removals:
    __slots__ = ("_clock", "_disk", "_offload", "_planned", "_wake")

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._offload = runtime.offload
        # By the monotonic clock: a wall clock that is set must not remove anything early.
        self._planned: list[tuple[float, str]] = []
        self._wake: asyncio.Event | None = None  # while `run` waits

    def __len__(self) -> int:
        return len(self._planned)

    def add(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove `paths` after the delay."""
        due = self._clock.monotonic() + delay_ms / 1000
        for path in paths:
            heappush(self._planned, (due, path))
        if self._wake is not None:
            self._wake.set()

    async def run(self, under_way: UnderWay) -> None:
        """Remove what is due, as it becomes due, until cancelled."""
        self._wake = asyncio.Event()
        try:
            while True:
                self._wake.clear()
                await self.remove_due(under_way)
                try:
                    await asyncio.wait_for(self._wake.wait(), self._seconds_left())
                except TimeoutError:
                    continue
        finally:
            self._wake = None

    async def remove_due(self, under_way: UnderWay) -> None:
        """Remove what is due by now, in a thread."""
        while self._planned and self._planned[0][0] <= self._clock.monotonic():
            _, path = heappop(self._planned)
            await under_way.run(self._offload.run(_remove, self._disk, path))

    def remove_all(self) -> None:
        """Remove everything now: nobody reads it any more."""
        planned, self._planned = self._planned, []
        for _, path in planned:
            _remove(self._disk, path)

    def _seconds_left(self) -> float | None:
        if not self._planned:
            return None
        return min(max(self._planned[0][0] - self._clock.monotonic(), 0.0), _SECONDS_MAX)


def _remove(disk: Disk, path: str) -> None:
    try:
        if disk.is_dir(path):
            disk.rmtree(path)
        elif disk.exists(path):
            disk.remove(path)
    except FileNotFoundError:
        return  # it went with its directory
    except OSError as error:
        log.warning("%s is left to the next start: %s", path, error)
