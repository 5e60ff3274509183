"""Requests that wait: tried when something moves, answered once, and then forgotten."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.replication.purgatory import DelayedOperation, Watchable
from ottla.runtime.simulated import Simulation


class Waiting:
    """An operation that completes once `is_ready`, and notes how it was tried."""

    def __init__(self, watched: list[Watchable], seconds: float) -> None:
        self.is_ready = False
        self.tries: list[bool] = []
        self.operation = DelayedOperation(
            asyncio.get_running_loop(), watched, seconds, self._try_complete
        )

    def _try_complete(self, expired: bool) -> bool:
        self.tries.append(expired)
        return self.is_ready or expired


def simulate(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with Simulation(seed=1) as simulation:
        simulation.run(story())


def test_a_burst_of_progress_is_one_try_and_success_ends_the_wait() -> None:
    async def story() -> None:
        one, two = Watchable(), Watchable()
        waiting = Waiting([one, two], 10)
        for _ in range(5):
            one.wake_watchers()
            two.wake_watchers()
        assert waiting.tries == []  # not in the middle of an append
        await asyncio.sleep(0.1)
        assert waiting.tries == [False]
        waiting.is_ready = True
        two.wake_watchers()
        await asyncio.sleep(0.1)
        assert waiting.tries == [False, False]
        assert not one.watchers
        assert not two.watchers
        one.wake_watchers()
        await asyncio.sleep(20)
        assert waiting.tries == [False, False]

    simulate(story)


def test_when_its_time_is_up_it_is_answered_as_it_stands() -> None:
    async def story() -> None:
        watched = Watchable()
        waiting = Waiting([watched], 10)
        await asyncio.sleep(9.9)
        assert waiting.tries == []
        await asyncio.sleep(0.2)
        assert waiting.tries == [True]
        assert not watched.watchers
        watched.wake_watchers()
        await asyncio.sleep(1)
        assert waiting.tries == [True]

    simulate(story)


def test_one_that_is_cancelled_is_never_tried_again() -> None:
    async def story() -> None:
        watched = Watchable()
        waiting = Waiting([watched], 10)
        watched.wake_watchers()
        waiting.operation.cancel()
        waiting.operation.cancel()
        await asyncio.sleep(20)
        assert waiting.tries == []
        assert not watched.watchers

    simulate(story)
