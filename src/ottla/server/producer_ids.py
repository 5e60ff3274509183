"""Hands out producer ids, each once in the life of the cluster.

The controller gives blocks of a thousand, so that most requests cost no write to the metadata
log. What is left of a block when the broker stops is never given out.

Owned by the event loop's thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._lock = asyncio.Lock()
        self._next = 0
        self._end = 0

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                block = await self._allocate()
                self._next, self._end = block.first, block.first + block.size
            producer_id = self._next
            self._next += 1
            return producer_id
