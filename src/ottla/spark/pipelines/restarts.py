"""When a pipeline that failed is started again. Pure: the time is given.

Pauses double, so that a broker that is away is not hammered, and begin anew after a run that went
well for a while, so that one failure a day never adds up to a long pause.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
HEALTHY_AFTER_MS = 60_000


@dataclass(slots=True)
class Restarts:
    """Counts failures and says how long to wait."""

    first_pause_ms: int = FIRST_PAUSE_MS
    longest_pause_ms: int = LONGEST_PAUSE_MS
    count: int = 0
    _in_a_row: int = 0

    def pause_ms_after(self, ran_ms: int) -> int:
        """The pause after a run of `ran_ms` that failed."""
        if ran_ms >= HEALTHY_AFTER_MS:
            self._in_a_row = 0
        pause_ms = min(self.longest_pause_ms, self.first_pause_ms << min(self._in_a_row, 20))
        self._in_a_row += 1
        self.count += 1
        return pause_ms
