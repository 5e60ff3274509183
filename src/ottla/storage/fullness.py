"""Whether a log directory is full, and whom that has been told. Pure: the caller gives the time.

A full disk refuses writes and serves reads, so nothing breaks and nobody might notice. The first
refusal is told, then one in a while; it is over when none has come for some time and the disk
says that it has room.
"""

from ottla.storage.failures import DiskFull

# A producer that is refused tries again many times a second.
TOLD_AGAIN_SECONDS = 60.0
OVER_SECONDS = 30.0


class Fullness:
    __slots__ = ("_last_refusal", "_last_told", "cause", "refusals_total")

    def __init__(self) -> None:
        self.cause: DiskFull | None = None  # None while there is room
        self.refusals_total = 0
        self._last_refusal = self._last_told = 0.0

    def note(self, refusal: DiskFull, now: float) -> bool:
        """A write was refused; whether to tell of it."""
        is_news = self.cause is None or now - self._last_told >= TOLD_AGAIN_SECONDS
        self.refusals_total += 1
        self.cause = refusal
        self._last_refusal = now
        if is_news:
            self._last_told = now
        return is_news

    def maybe_end(self, now: float, *, has_room: bool) -> bool:
        """Whether it is over now."""
        if self.cause is None or not has_room or now - self._last_refusal < OVER_SECONDS:
            return False
        self.cause = None
        return True
