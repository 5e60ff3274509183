"""How the loop is told that an answer needs the disk, before it waits for it. Pure.

What is in memory or in the page cache is answered at once. Where it is not, whoever asked with
`may_wait=False` gets this instead: it lets threads `prepare` the answer, and asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ottla.runtime.interfaces import Offload

# How many threads one request may keep busy: more would be faster for it, and slower for others.
_THREADS_PER_REQUEST = 2

Prepare: TypeAlias = Callable[[Offload], Awaitable[object]]


class WouldWait(Exception):
    def __init__(self, prepare: Prepare) -> None:
        super().__init__("the disk would have to be waited for")
        self.prepare = prepare


async def prepare_all(
    prepares: Sequence[Prepare], offload: Offload
) -> list[BaseException | object]:
    """Do all of it, a few at a time; what came of each, an exception where it failed."""
    outcomes: list[BaseException | object] = []
    for start in range(0, len(prepares), _THREADS_PER_REQUEST):
        some = [prepare(offload) for prepare in prepares[start : start + _THREADS_PER_REQUEST]]
        outcomes += await asyncio.gather(*some, return_exceptions=True)
    return outcomes
