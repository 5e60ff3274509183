"""What was begun and has to end, even if whoever asked for it is gone.

A duty of the broker is cancelled when the broker stops, and a request when its client is gone;
a thread that writes to the disk for them cannot be. Work that passes through here goes on, and
`settle` waits for all of it, so that nothing is written any more once the logs are closed.

Owned by the event loop.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class UnderWay:
    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `work`. Await it through `asyncio.shield`, or others lose it with you."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work`, which goes on if nobody waits for that any more."""
        return await asyncio.shield(self.begin(work))

    async def settle(self) -> None:
        """Return once nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)
