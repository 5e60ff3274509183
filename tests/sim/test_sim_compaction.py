"""The power fails at every disk operation of a cleaning, and the log is opened again.

Whatever the disk kept, the log must say what it said before: the last committed value of each
key, records where they were, no tombstone gone before its time, no aborted record back.
"""

from collections.abc import Callable

import pytest

from ottla.protocol.codecs import Codec
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import PowerCut
from ottla.runtime.simulated.inodes import Survival
from ottla.storage.cleaner import CleanerSettings
from ottla.storage.core.compaction_map import ENTRY_BYTES
from support.compaction_world import (
    DELETE_RETENTION_MS,
    TOPIC_PARTITION,
    CompactionWorld,
)

Scenario = Callable[[CompactionWorld], None]


def cleaning_keys_and_tombstones(world: CompactionWorld) -> None:
    for n in range(16):
        value = None if n % 5 == 4 else b"%d" % n * 40
        world.append([(b"a%d" % (n % 4), value), (b"b%d" % (n % 3), b"x" * 90)])
        if n % 6 == 5:
            world.roll()
    world.roll()
    world.clean()
    world.append([(b"a1", b"again")], codec=Codec.ZSTD)
    world.roll()
    world.clean(delay_ms=DELETE_RETENTION_MS)


def cleaning_transactions(world: CompactionWorld) -> None:
    for n in range(8):
        world.append([(b"a%d" % (n % 3), b"v" * 100)], producer_id=101, transactional=True)
        world.append([(b"a%d" % (n % 2), b"w" * 100)], producer_id=1)
        world.append([(b"b", b"u" * 50)], producer_id=102, transactional=True)
        world.end_transaction(101, commit=n % 2 == 0)
        if n % 3 == 2:
            world.end_transaction(102, commit=False)
            world.roll()
    world.end_transaction(102, commit=True)
    world.roll()
    world.clean()
    world.append([(b"a0", b"again")], producer_id=1)
    world.roll()
    world.clean(delay_ms=DELETE_RETENTION_MS)


ROOMY = CleanerSettings()
# So few keys fit that a log is cleaned in several rounds.
CRAMPED = CleanerSettings(dedupe_buffer_bytes=4 * ENTRY_BYTES, load_factor=1)


def operations_of_cleanings(scenario: Scenario, settings: CleanerSettings) -> list[int]:
    """The numbers of the disk operations that belong to a cleaning."""
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation, settings=settings)
        found: list[int] = []
        clean = world.clean

        def counting(*, delay_ms: int = 0) -> bool:
            first = simulation.disk("a").operations
            is_cleaned = clean(delay_ms=delay_ms)
            found.extend(range(first, simulation.disk("a").operations))
            return is_cleaned

        world.clean = counting  # type: ignore[method-assign]  # to see when it begins and ends
        scenario(world)
        assert len(found) > 30
        return found


def cut_during(scenario: Scenario, settings: CleanerSettings, cut: int) -> CompactionWorld:
    simulation = Simulation(seed=cut)
    world = CompactionWorld(simulation, settings=settings)
    simulation.disk("a").cut_power_after(cut - simulation.disk("a").operations)
    with pytest.raises(PowerCut):
        scenario(world)
    return world


def check_recovered(world: CompactionWorld, context: str) -> None:
    assert TOPIC_PARTITION in world.manager, context
    # What was written after the last flush may be lost.
    end = world.log.log_end_offset
    world.written = [one for one in world.written if one.record.offset < end]
    bases = world.log.segment_base_offsets
    assert bases == sorted(set(bases)), context
    world.check(was_cut_off=True)
    world.roll()
    for _ in range(100):
        if not world.clean():
            break
    world.check()
    world.manager.close()
    names = world.runtime.disk.listdir("/logs/t-0")
    assert not [name for name in names if name.endswith((".swap", ".cleaned"))], context


@pytest.mark.parametrize(
    ("scenario", "settings", "survival"),
    [
        (cleaning_keys_and_tombstones, ROOMY, Survival.SUBSET),
        (cleaning_keys_and_tombstones, ROOMY, None),
        (cleaning_keys_and_tombstones, CRAMPED, None),
        (cleaning_transactions, ROOMY, Survival.SUBSET),
    ],
)
def test_a_log_survives_a_power_cut_at_every_operation_of_its_cleaning(
    scenario: Scenario, settings: CleanerSettings, survival: Survival | None
) -> None:
    for cut in operations_of_cleanings(scenario, settings):
        world = cut_during(scenario, settings, cut)
        with world.simulation as simulation:
            simulation.power_loss("a", survival)
            world.start()
            check_recovered(world, f"cut at {cut}")


@pytest.mark.parametrize("scenario", [cleaning_keys_and_tombstones, cleaning_transactions])
def test_a_recovery_that_is_cut_off_as_well_can_be_repeated(scenario: Scenario) -> None:
    for cut in operations_of_cleanings(scenario, ROOMY)[::5]:
        for second in (2, 5, 9):
            world = cut_during(scenario, ROOMY, cut)
            with world.simulation as simulation:
                simulation.power_loss("a")
                simulation.disk("a").cut_power_after(second)
                try:
                    world.start()
                    assert world.log.segments
                except PowerCut:
                    pass
                simulation.power_loss("a", Survival.SUBSET)
                world.start()
                check_recovered(world, f"cut at {cut}, then at {second}")
