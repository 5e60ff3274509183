"""When does the loop look for more to do instead of falling asleep?

A client that sends one small request at a time leaves the broker idle for less time than it takes
a processor to fall asleep and be woken: on virtual machines tens of microseconds, more than the
request itself costs. So after such an answer the loop goes on polling for a moment, as Seastar's
reactor and the kernel's own halt polling do, and finds the next request without being woken.

It does so only where it pays. Polling starts when two such answers follow each other within
`LOOK_S`, and ends when nothing was asked for that long. A client that thinks for longer in
between, or a machine so busy that round trips take longer, never starts it; a stream of large
requests does not either, since nobody calls `stay`.

Owned by the task of the running loop.
"""

import asyncio
import time
from collections.abc import Callable

# Twice the round trip of a small request between two processes of one machine.
LOOK_S = 100e-6


class Lookout:
    __slots__ = ("_clock", "_stayed", "_until", "is_looking")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.is_looking = False
        self._stayed = False  # since the last turn
        self._until = 0.0

    def stay(self) -> None:
        """A small answer went out: its like may be asked for at once."""
        if self.is_looking:
            self._stayed = True
            return
        now = self._clock()
        if now < self._until:
            self.is_looking = True
            asyncio.get_running_loop().call_soon(self._look)
        self._until = now + LOOK_S

    def _look(self) -> None:
        """Scheduled for the next turn, this keeps the loop from sleeping in between."""
        now = self._clock()
        if self._stayed:
            self._stayed = False
            self._until = now + LOOK_S
        elif now >= self._until:
            self.is_looking = False
            return
        asyncio.get_running_loop().call_soon(self._look)
