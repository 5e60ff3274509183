"""A simulated node's clock, chance and threads."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from ottla.runtime.kafka_uuid import is_usable_uuid
from ottla.runtime.simulated.incarnation import Incarnation, NodeDown

T = TypeVar("T")

# The wall clock of every node when a simulation starts: 2025-01-01T00:00:00Z.
WALL_START_MS = 1_735_689_600_000
# How long a function handed to the offload may take before it runs.
OFFLOAD_SECONDS_MAX = 0.005


class SimulatedClock:
    """Monotonic time is the loop's; the wall clock may be set wrong, per machine."""

    __slots__ = ("_now", "_start", "offset_ms")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = now()
        self.offset_ms = 0

    def wall_ms(self) -> int:
        return WALL_START_MS + self.offset_ms + int((self._now() - self._start) * 1000)

    def monotonic(self) -> float:
        return self._now()

    def jump(self, milliseconds: int) -> None:
        """Set this node's wall clock forward, or back."""
        self.offset_ms += milliseconds


class SimulatedRandom:
    __slots__ = ("_generator",)

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator

    def random(self) -> float:
        return self._generator.random()

    def randint(self, low: int, high: int) -> int:
        return self._generator.randint(low, high)

    def uuid4(self) -> UUID:
        while True:
            drawn = UUID(bytes=self._generator.randbytes(16), version=4)
            if is_usable_uuid(drawn):
                return drawn


class SimulatedOffload:
    """Functions run inline, later, in any order, as threads would finish in any order."""

    __slots__ = ("_generator", "_incarnation", "_is_closed", "_pending")

    def __init__(self, generator: random.Random, incarnation: Incarnation) -> None:
        self._generator = generator
        self._incarnation = incarnation
        self._is_closed = False
        self._pending: dict[asyncio.Future[Any], Callable[[], Any]] = {}

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        self._incarnation.check()
        if self._is_closed:
            raise RuntimeError("the offload is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._pending[future] = lambda: function(*args)
        timer = loop.call_later(
            self._generator.random() * OFFLOAD_SECONDS_MAX, self._finish, future
        )
        try:
            return await future
        except asyncio.CancelledError:
            # A thread that has begun goes on; one that has not never begins.
            if future in self._pending and self._generator.random() < 0.5:
                timer.cancel()
                del self._pending[future]
            raise

    def _finish(self, future: "asyncio.Future[Any]") -> None:
        function = self._pending.pop(future, None)
        if function is None:
            return
        try:
            result = function()
        except (Exception, NodeDown) as error:  # noqa: BLE001  (handed to whoever awaits it)
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def resize(self, threads_max: int) -> None:
        """There are no threads; everything may be under way at once."""

    def close(self) -> None:
        self._is_closed = True
        for future in list(self._pending):
            self._finish(future)
