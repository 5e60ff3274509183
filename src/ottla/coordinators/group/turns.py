"""Requests of a group wait while a decision about it is on its way to the log.

A shard decides from what the log has committed. Where that takes time (more than one replica), two
decisions in a row would both start from the state before the first, and could give one partition to
two members. So at most one decision about a group is under way, and what comes meanwhile waits in
line. On a single replica a write is committed in the call that makes it and nothing ever waits.

Owned by the event loop's thread. Invariants: operations of a group run in the order in which they
came; each runs once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ottla.coordinators.group.shard import GroupShard
from ottla.coordinators.runtime import Led, WriteKey

Operation: TypeAlias = Callable[[], None]
GroupLed: TypeAlias = Led[GroupShard]


def decision_key(group_id: str) -> WriteKey:
    """Under which decisions about a consumer group are counted."""
    return ("decision", group_id)


def group_key(group_id: str) -> WriteKey:
    """Under which all else is counted that is written for a group: offsets, generations."""
    return ("group", group_id)


class Turns:
    def __init__(self) -> None:
        self._lines: dict[tuple[GroupLed, str], deque[tuple[Operation, bool]]] = {}

    def is_free(self, led: GroupLed, group_id: str) -> bool:
        """Whether an operation that is taken now runs now."""
        return (led, group_id) not in self._lines and not _is_busy(led, group_id, is_alone=False)

    def take(
        self, led: GroupLed, group_id: str, operation: Operation, *, is_alone: bool = False
    ) -> None:
        """Run now, or when the group's decision has landed; `is_alone`: and its offsets too."""
        line = self._lines.get((led, group_id))
        if line is None and not _is_busy(led, group_id, is_alone=is_alone):
            operation()
            return
        if line is None:
            line = self._lines[led, group_id] = deque()
            self._watch(led, group_id)
        line.append((operation, is_alone))

    def _watch(self, led: GroupLed, group_id: str) -> None:
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        led.on_landed.append(landed)
        landed.add_done_callback(lambda _: self._move_on(led, group_id))

    def _move_on(self, led: GroupLed, group_id: str) -> None:
        line = self._lines[led, group_id]
        while line:
            operation, is_alone = line[0]
            if _is_busy(led, group_id, is_alone=is_alone):
                self._watch(led, group_id)
                return
            line.popleft()
            try:
                operation()
            except BaseException:
                # It is reported as the defect that it is; those behind it must not hang.
                asyncio.get_running_loop().call_soon(self._move_on, led, group_id)
                raise
        del self._lines[led, group_id]


def _is_busy(led: GroupLed, group_id: str, *, is_alone: bool) -> bool:
    in_flight = led.in_flight
    if not in_flight:
        return False
    return bool(in_flight[decision_key(group_id)] or (is_alone and in_flight[group_key(group_id)]))
