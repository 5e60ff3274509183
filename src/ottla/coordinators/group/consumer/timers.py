"""The deadlines of the members of one consumer group. Pure.

A heartbeat moves a deadline back; that costs one assignment. Whoever waits for the next deadline is
woken too early rather than told each time: `wake_at_ms` is never later than the earliest one, and
`expired` looks at all of them and sets it right.
"""

from enum import Enum, auto
from typing import NamedTuple

NEVER_MS = 2**62
NO_EPOCH = -1


class TimerKind(Enum):
    SESSION = auto()  # no heartbeat for too long
    REBALANCE = auto()  # did not give back what it was told to
    JOIN = auto()  # a classic member that was told to rejoin and did not
    SYNC = auto()  # a classic member that joined and never asked for its share


class TimerChange(NamedTuple):
    """Set or clear a deadline once the records of a decision are committed."""

    kind: TimerKind
    member_id: str
    deadline_ms: int | None  # None clears it
    member_epoch: int = NO_EPOCH  # a rebalance timeout counts only while it stays in this epoch
    only_if_absent: bool = False


class Expired(NamedTuple):
    kind: TimerKind
    member_id: str
    member_epoch: int


class GroupTimers:
    __slots__ = ("_deadlines", "wake_at_ms")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKind, dict[str, tuple[int, int]]] = {
            kind: {} for kind in TimerKind
        }
        self.wake_at_ms = NEVER_MS

    def apply(self, change: TimerChange) -> None:
        deadlines = self._deadlines[change.kind]
        if change.deadline_ms is None:
            deadlines.pop(change.member_id, None)
        elif not (change.only_if_absent and change.member_id in deadlines):
            deadlines[change.member_id] = (change.deadline_ms, change.member_epoch)
            if change.deadline_ms < self.wake_at_ms:
                self.wake_at_ms = change.deadline_ms

    def set_session(self, member_id: str, deadline_ms: int) -> None:
        """What a heartbeat does, without a `TimerChange`."""
        self._deadlines[TimerKind.SESSION][member_id] = (deadline_ms, NO_EPOCH)
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    def forget(self, member_id: str) -> None:
        for deadlines in self._deadlines.values():
            deadlines.pop(member_id, None)

    def deadline_ms(self, kind: TimerKind, member_id: str) -> int | None:
        found = self._deadlines[kind].get(member_id)
        return None if found is None else found[0]

    def expired(self, time_ms: int) -> list[Expired]:
        """Take out every deadline that has passed."""
        found = []
        wake_at_ms = NEVER_MS
        for kind, deadlines in self._deadlines.items():
            passed = [one for one, (deadline_ms, _) in deadlines.items() if deadline_ms <= time_ms]
            for member_id in passed:
                found.append(Expired(kind, member_id, deadlines.pop(member_id)[1]))
            for deadline_ms, _ in deadlines.values():
                wake_at_ms = min(wake_at_ms, deadline_ms)
        self.wake_at_ms = wake_at_ms
        return found
