"""Logs that are cleaned again and again, against a list of all that was ever written."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol.codecs import Codec
from ottla.runtime.simulated import Simulation
from ottla.storage.cleaner import CleanerSettings
from ottla.storage.core.compaction_map import ENTRY_BYTES
from support.compaction_world import CONFIG, DELETE_RETENTION_MS, CompactionWorld

KEYS = st.integers(0, 5).map(
    lambda n: (b"k%d" % n) * (1 if n % 2 else 20)  # short ones and digests
)
VALUES = st.one_of(st.none(), st.binary(min_size=1, max_size=80))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), PAIRS, st.sampled_from((-1, 1, 2, 101, 102)), st.sampled_from(Codec)
        ),
        st.tuples(st.just("append"), PAIRS, st.sampled_from((-1, 101)), st.just(Codec.NONE)),
        st.tuples(st.just("end"), st.sampled_from((101, 102)), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean"), st.sampled_from((0, 100, DELETE_RETENTION_MS))),
    ),
    max_size=25,
)
# Room for everything, or for so few keys that a round must end early.
MAP_ENTRIES = st.sampled_from((1_000, 3, 1))


def perform(world: CompactionWorld, step: tuple) -> bool:  # type: ignore[type-arg]  # mixed
    if step[0] == "append":
        _, pairs, producer_id, codec = step
        world.append(pairs, producer_id=producer_id, transactional=producer_id > 100, codec=codec)
    elif step[0] == "end":
        world.end_transaction(step[1], commit=step[2])
    elif step[0] == "roll":
        world.roll()
    else:
        return world.clean(delay_ms=step[1])
    return False


def cleaner_settings(entries: int) -> CleanerSettings:
    return CleanerSettings(dedupe_buffer_bytes=entries * ENTRY_BYTES, load_factor=1.0)


def tombstones(*keys: bytes) -> list[tuple[bytes, None]]:
    return [(key, None) for key in keys]


@settings(max_examples=60)
@given(STEPS, MAP_ENTRIES)
# The map ends before an aborted transaction that the same segment holds.
@example(
    [
        ("append", tombstones(b"k1"), -1, Codec.NONE),
        ("append", tombstones(b"k0"), 101, Codec.NONE),
        ("end", 101, False),
        ("append", tombstones(b"k0"), -1, Codec.NONE),
        ("roll",),
        ("clean", 0),
    ],
    1,
)
# The map ends inside a batch of tombstones.
@example(
    [
        ("append", tombstones(b"k1"), -1, Codec.NONE),
        ("append", tombstones(b"k0", b"k2", b"k3"), -1, Codec.NONE),
        ("roll",),
        ("clean", 0),
        ("clean", DELETE_RETENTION_MS),
    ],
    3,
)
def test_a_cleaned_log_says_what_the_whole_one_would(steps: list, entries: int) -> None:  # type: ignore[type-arg]  # mixed
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation, settings=cleaner_settings(entries))
        for step in steps:
            if perform(world, step):
                world.check()
        for producer_id in (101, 102):
            world.end_transaction(producer_id, commit=False)
        world.roll()
        rounds = 0
        while world.clean():
            rounds += 1
            assert rounds < 500, "no progress"
        world.check()
        if world.written:
            assert world.log.clean_offset == world.log.segments[-1].base_offset


@settings(max_examples=40)
@given(STEPS)
def test_cleaning_again_changes_nothing(steps: list) -> None:  # type: ignore[type-arg]  # mixed
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for step in steps:
            perform(world, step)
        world.roll()
        world.clean()
        images = []
        for _ in range(3):
            # A marker is marked for removal once its records are gone, one cleaning later.
            world.log.clean_offset = 0
            world.clean()
            images.append([batch for _, batch in world.batches()])
        assert images[1] == images[2]
        assert len(images[0]) == len(images[1])


@settings(max_examples=40)
@given(STEPS)
def test_producers_are_found_again_in_what_is_left(steps: list) -> None:  # type: ignore[type-arg]  # mixed
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for step in steps:
            perform(world, step)
        world.roll()
        world.clean()
        world.clean(delay_ms=DELETE_RETENTION_MS)
        before, records = world.producers(), world.records()
        world.restart_without_snapshots()
        assert world.producers() == before
        assert world.records() == records


def test_many_small_segments_become_few() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for n in range(60):
            world.append([(b"k%d" % (n % 7), b"v" * 100)])
            world.roll()
        assert world.log.segment_count == 61
        assert world.clean()
        sizes = [segment.size for segment in world.log.segments]
        assert all(size <= CONFIG.segment_bytes for size in sizes)
        assert world.clean() is False
        world.log.clean_offset = 0
        world.clean()
        assert world.log.segment_count == 2
        world.check()
