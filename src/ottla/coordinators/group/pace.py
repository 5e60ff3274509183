"""Members that join by the hundred do not hold up those who are in.

A join writes to the log and may cost a new target; a heartbeat of a member that is in costs next to
nothing, but may be what the others wait for: that a partition was given back. When all clients of a
service start at once, a heartbeat would wait behind every join that came before it. So a few joins
are decided in each turn of the loop, and whatever else has come is served in between.

Owned by the event loop's thread. Invariants: joins are decided in the order in which they came;
each once, and none in the turn of another that waits.
"""

import asyncio
from collections import deque

from ottla.coordinators.group.turns import Operation

# About a millisecond of work, unless a target is computed.
JOINS_PER_TURN_MAX = 16


class Pace:
    def __init__(self) -> None:
        self._waiting: deque[Operation] = deque()
        self._taken = 0  # in this turn of the loop
        self._is_watching = False

    def take(self, operation: Operation) -> None:
        """Run now, or in a turn of the loop that has room for it."""
        if not self._is_watching:
            self._watch()
        if self._waiting or self._taken >= JOINS_PER_TURN_MAX:
            self._waiting.append(operation)
        else:
            self._taken += 1
            operation()

    def _watch(self) -> None:
        self._is_watching = True
        asyncio.get_running_loop().call_soon(self._move_on)

    def _move_on(self) -> None:
        """A new turn of the loop."""
        self._taken = 0
        self._is_watching = False
        if self._waiting:
            self._watch()  # before anything can fail: those behind must not hang
        while self._waiting and self._taken < JOINS_PER_TURN_MAX:
            self._taken += 1
            self._waiting.popleft()()
