"""Joins are decided a few in each turn of the loop, and others are served in between."""

import asyncio
from functools import partial

import pytest

from ottla.coordinators.group.pace import JOINS_PER_TURN_MAX, Pace


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_few_joins_are_decided_at_once() -> None:
    async def main() -> None:
        pace, done = Pace(), []
        for number in range(JOINS_PER_TURN_MAX):
            pace.take(partial(done.append, number))
        assert done == list(range(JOINS_PER_TURN_MAX))
        await turns(1)
        pace.take(partial(done.append, -1))
        assert done[-1] == -1  # the turn is over, and with it what was taken in it

    asyncio.run(main())


@pytest.mark.parametrize("late", [0, 3, 2 * JOINS_PER_TURN_MAX])
def test_many_joins_are_decided_in_order_and_each_turn_takes_a_few(late: int) -> None:
    async def main() -> None:
        pace, done = Pace(), []
        count = 5 * JOINS_PER_TURN_MAX + 1
        for number in range(count):
            pace.take(partial(done.append, number))
        before = 0
        for number in range(late):  # they come while others wait
            pace.take(partial(done.append, count + number))
        while len(done) > before:
            assert len(done) - before <= JOINS_PER_TURN_MAX
            before = len(done)
            await turns(1)
        assert done == list(range(count + late))

    asyncio.run(main())


def test_who_comes_while_joins_wait_is_served_before_the_last_of_them() -> None:
    async def main() -> None:
        pace, done = Pace(), []
        for number in range(10 * JOINS_PER_TURN_MAX):
            pace.take(partial(done.append, number))
        asyncio.get_running_loop().call_soon(done.append, -1)
        await turns(30)
        assert done.index(-1) <= 2 * JOINS_PER_TURN_MAX
        assert len(done) == 10 * JOINS_PER_TURN_MAX + 1

    asyncio.run(main())


def test_a_join_that_fails_does_not_hold_up_those_behind_it() -> None:
    async def main() -> None:
        reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
        pace, done = Pace(), []

        def fail() -> None:
            pace.take(partial(done.append, -1))  # whoever comes now comes last
            raise RuntimeError("a defect")

        for number in range(3 * JOINS_PER_TURN_MAX):
            pace.take(fail if number == JOINS_PER_TURN_MAX else partial(done.append, number))
        await turns(10)
        others = [one for one in range(3 * JOINS_PER_TURN_MAX) if one != JOINS_PER_TURN_MAX]
        assert done == [*others, -1]
        assert [type(one) for one in reported] == [RuntimeError]

    asyncio.run(main())
