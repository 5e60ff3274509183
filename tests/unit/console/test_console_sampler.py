"""A look at the cluster that was asked for begins after the question."""

import asyncio

from ottla.console.kafka.questions import Questions
from ottla.console.sampler import Sampler


class SlowCluster(Sampler):
    """Looks that end when the test says so."""

    def __init__(self) -> None:
        super().__init__(Questions(None), interval_s=3_600)  # type: ignore[arg-type]  # not asked
        self.ending = asyncio.Semaphore(0)
        self.began: asyncio.Queue[bool] = asyncio.Queue()

    async def _look(self, *, is_asked_for: bool) -> None:
        self.began.put_nowait(is_asked_for)
        await self.ending.acquire()


def test_a_look_under_way_is_too_old_for_who_asks_now() -> None:
    async def scenario() -> None:
        sampler = SlowCluster()
        sampler.start()
        assert await sampler.began.get() is False
        asked = asyncio.create_task(sampler.look_again())
        await asyncio.sleep(0)
        sampler.ending.release()
        assert await sampler.began.get() is True
        assert not asked.done()
        sampler.ending.release()
        await asked
        assert sampler.looks == 2
        await sampler.stop()

    asyncio.run(scenario())
