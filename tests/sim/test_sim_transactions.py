"""Transactions on a broker that dies, over a network that repeats and delays what was sent.

OTTLA_SEEDS says how many seeds (200 in `make test`); a failing seed replays identically:
OTTLA_SEED=n OTTLA_SEEDS=1.
"""

import os

import pytest

from support.transaction_world import World, simulate

FIRST_SEED = int(os.environ.get("OTTLA_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("OTTLA_SEEDS", "200")))
# One test holds several seeds, so that 5,000 of them are not as many lines.
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_no_aborted_read_no_torn_transaction_nothing_lost_nothing_twice(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_TEST, SEEDS.stop)):
        world = World(seed)
        simulate(world)
        problems = world.history.check()
        assert not problems, f"seed {seed}: {problems}"


def test_a_seed_replays_identically() -> None:
    assert simulate(World(FIRST_SEED)) == simulate(World(FIRST_SEED))
