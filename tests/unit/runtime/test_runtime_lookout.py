"""Polling before sleeping: only while small requests follow each other closely."""

import asyncio

import pytest

from ottla.runtime.lookout import LOOK_S, Lookout


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Turns:
    """A lookout on a loop that is turned by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.lookout = Lookout(self.clock)

    def answer_after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.lookout.stay()

    async def pass_by(self, seconds: float) -> bool:
        """Let time pass and the loop turn; whether it would turn again rather than sleep."""
        self.clock.now += seconds
        await asyncio.sleep(0)
        return self.lookout.is_looking


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_one_answer_lets_the_loop_sleep(turns: Turns) -> None:
    async def scenario() -> None:
        turns.answer_after(0)
        assert not turns.lookout.is_looking
        turns.answer_after(2 * LOOK_S)
        assert not turns.lookout.is_looking

    asyncio.run(scenario())


def test_two_answers_close_together_keep_it_awake_until_no_third_comes(turns: Turns) -> None:
    async def scenario() -> None:
        turns.answer_after(0)
        turns.answer_after(LOOK_S / 2)
        assert await turns.pass_by(LOOK_S / 2)
        assert not await turns.pass_by(LOOK_S)
        turns.answer_after(LOOK_S)
        assert not turns.lookout.is_looking, "the next pause is not known to be short"

    asyncio.run(scenario())


def test_it_stays_awake_while_answers_follow_each_other(turns: Turns) -> None:
    async def scenario() -> None:
        turns.answer_after(0)
        turns.answer_after(LOOK_S / 2)
        for _ in range(100):
            turns.answer_after(LOOK_S * 0.9)
            assert await turns.pass_by(0)
        assert await turns.pass_by(LOOK_S * 0.9)
        assert not await turns.pass_by(LOOK_S * 0.2)

    asyncio.run(scenario())
