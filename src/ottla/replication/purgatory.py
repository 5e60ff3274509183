"""Requests that cannot be answered yet: a produce that waits for followers, a fetch for records.

Each waits on the partitions that it concerns and is tried again when one of them makes
progress, or answered as it stands when its time is up. Tries are put off to the next turn of
the loop, so that a burst of appends wakes a waiting fetch once, not once per append.

Owned by the event loop's thread. Invariant: an operation ends exactly once (completed, expired
or cancelled) and is then registered nowhere.
"""

import asyncio
from collections.abc import Callable, Iterable


class Watchable:
    """Something that operations wait on; partitions are."""

    __slots__ = ("watchers",)

    def __init__(self) -> None:
        self.watchers: dict[DelayedOperation, None] = {}

    def wake_watchers(self) -> None:
        for operation in self.watchers:
            operation.on_progress()


class DelayedOperation:
    """`try_complete(expired)` answers the request and returns True, or returns False to wait on.

    With `expired` set it must answer.
    """

    __slots__ = ("_ended", "_is_scheduled", "_loop", "_timer", "_try_complete", "_watched")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        watched: Iterable[Watchable],
        timeout_seconds: float,
        try_complete: Callable[[bool], bool],
    ) -> None:
        self._loop = loop
        self._try_complete = try_complete
        self._watched = tuple(watched)
        self._is_scheduled = False
        self._ended = False
        for item in self._watched:
            item.watchers[self] = None
        self._timer = loop.call_later(timeout_seconds, self._on_timeout)

    def on_progress(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._try)

    def cancel(self) -> None:
        """Forget the request, as when its connection is gone."""
        if not self._ended:
            self._ended = True
            self._timer.cancel()
            for item in self._watched:
                item.watchers.pop(self, None)

    def _try(self) -> None:
        self._is_scheduled = False
        if not self._ended and self._try_complete(False):
            self.cancel()

    def _on_timeout(self) -> None:
        if not self._ended:
            self.cancel()
            self._try_complete(True)
