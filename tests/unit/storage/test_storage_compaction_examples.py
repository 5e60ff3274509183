"""Compaction piece by piece: what is chosen, what a batch becomes, what happens meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.batches import (
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    Record,
    build_batch,
    check_batch,
    iter_records,
)
from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import Offset, TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.storage.cleaner import CleanerSettings
from ottla.storage.core.compaction import (
    CleanableLog,
    CompactionBounds,
    CompactionSegment,
    decide_cleanable,
    group_segments,
)
from ottla.storage.core.compaction_map import (
    DIGEST_BYTES,
    ENTRY_BYTES,
    OffsetMap,
    compact_key,
    walk_records,
)
from support.compaction_world import (
    CONFIG,
    DELETE_RETENTION_MS,
    TOPIC_ID,
    TOPIC_PARTITION,
    CompactionWorld,
)

SEGMENTS = [CompactionSegment(Offset(base), 100) for base in (0, 10, 20, 30)]
NEVER_MS = (1 << 63) - 1


def bounds(**changes: int | float | None) -> CompactionBounds:
    usual = CompactionBounds(None, Offset(0), Offset(35), Offset(35), Offset(35), 0, NEVER_MS)
    return usual._replace(**changes)  # type: ignore[arg-type]  # any field


def decide(chosen: CompactionBounds, *, now_ms: int = 100_000) -> CleanableLog:
    return decide_cleanable(
        SEGMENTS,
        chosen,
        now_ms=now_ms,
        largest_timestamp_ms=lambda at: 1_000 * (at + 1),
        first_timestamp_ms=lambda at: 1_000 * at + 1,
    )


@pytest.mark.parametrize(
    ("changes", "first_dirty", "end"),
    [
        ({}, 0, 30),
        ({"checkpoint": 10}, 10, 30),
        ({"checkpoint": 99}, 0, 30),  # the log was truncated below it
        ({"checkpoint": 5, "log_start_offset": 10}, 10, 30),
        ({"last_stable_offset": 20}, 0, 20),
        ({"last_stable_offset": 19}, 0, 10),
        ({"synced_end_offset": 25}, 0, 20),
        ({"min_lag_ms": 98_500}, 0, 10),
        ({"min_lag_ms": 98_000}, 0, 20),
        ({"checkpoint": 30}, 30, 30),
        ({"checkpoint": 20, "last_stable_offset": 15}, 20, 20),
    ],
)
def test_what_may_be_cleaned_ends_where_it_must(
    changes: dict[str, int], first_dirty: int, end: int
) -> None:
    found = decide(bounds(**changes))
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (first_dirty, end)


def test_a_log_is_due_when_enough_of_it_is_dirty() -> None:
    assert decide(bounds(checkpoint=10)).dirty_ratio == pytest.approx(2 / 3)
    assert decide(bounds(checkpoint=10)).is_due(0.5)
    assert not decide(bounds(checkpoint=20)).is_due(0.5)
    assert not decide(bounds(checkpoint=30)).is_due(0.0)


def test_a_log_is_due_when_a_record_has_waited_too_long() -> None:
    waiting = decide(bounds(checkpoint=20, max_lag_ms=97_000))
    assert waiting.delay_ms == 100_000 - 97_000 - 2_001
    assert waiting.is_due(0.9)
    assert not decide(bounds(checkpoint=20, max_lag_ms=98_000)).is_due(0.9)


@given(st.lists(st.tuples(st.integers(1, 2**30), st.integers(0, 900)), min_size=1, max_size=30))
def test_groups_are_runs_that_fit_one_segment(steps: list[tuple[int, int]]) -> None:
    base, segments = 0, []
    for gap, size in steps:
        segments.append(CompactionSegment(Offset(base), size))
        base += gap
    groups = group_segments(
        segments,
        end_offset=Offset(base),
        segment_bytes=1_000,
        index_bytes_max=120,
        index_interval_bytes=99,
    )
    assert [segment for group in groups for segment in group] == segments
    for group in groups:
        assert len(group) == 1 or sum(segment.size_bytes for segment in group) <= 800
    for group, following in pairwise(groups):
        joined = sum(segment.size_bytes for segment in group) + following[0].size_bytes
        place = segments.index(following[0]) + 1
        end = segments[place].base_offset if place < len(segments) else base
        assert joined > 800 or end - 1 - group[0].base_offset >= 2**31


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_two_keys_are_never_taken_for_one(one: bytes, other: bytes) -> None:
    assert (compact_key(one) == compact_key(other)) == (one == other)
    assert len(compact_key(one)) <= DIGEST_BYTES


def test_a_full_map_takes_known_keys_only() -> None:
    offset_map = OffsetMap(bytes_max=2 * ENTRY_BYTES)
    assert offset_map.put(b"a", 1)
    assert offset_map.put(b"b", 2)
    assert offset_map.put(b"a", 3)
    assert not offset_map.put(b"c", 4)
    assert offset_map.is_full
    assert offset_map.latest_offset == 3
    assert offset_map.is_superseded(b"a", 1)
    assert not offset_map.is_superseded(b"a", 3)


OPTIONAL_BYTES = st.one_of(st.none(), st.binary(max_size=300))
RECORDS = st.lists(
    st.tuples(OPTIONAL_BYTES, OPTIONAL_BYTES, st.integers(-(10**12), 10**12), st.integers(0, 400)),
    max_size=8,
)


@given(RECORDS)
def test_walking_finds_what_opening_finds(fields: list[tuple[bytes, bytes, int, int]]) -> None:
    offset, records = 0, []
    for key, value, timestamp_ms, gap in fields:
        records.append(Record(offset, timestamp_ms, key, value, ((b"h", None),)))
        offset += gap + 1
    data = bytes(build_batch(records)[HEADER_BYTES:])
    walked = list(walk_records(data, len(records)))
    assert [record[2:] for record in walked] == [
        (record.offset, record.key, record.value is not None) for record in records
    ]
    assert [record[:2] for record in walked] == [
        (start, end)
        for start, end in zip(
            [0, *(record[1] for record in walked)], [r[1] for r in walked], strict=False
        )
    ]


@given(st.binary(max_size=40), st.integers(0, 5))
def test_bytes_that_are_no_records_are_refused(data: bytes, count: int) -> None:
    try:
        for start, end, _, _, _ in walk_records(data, count):
            assert 0 <= start < end <= len(data)
    except KafkaError:
        return


def test_a_tombstone_bears_the_time_at_which_it_may_go() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        world.append([(b"a", b"1"), (b"b", b"2"), (b"a", None)])
        world.roll()
        written = world.records()
        world.clean()
        header, batch = world.batches()[0]
        assert header.attributes & DELETE_HORIZON_MASK
        assert header.base_timestamp == header.delete_horizon_ms
        assert 0 <= world.now_ms + DELETE_RETENTION_MS - header.base_timestamp < 1_000
        assert list(iter_records(batch)) == written[1:]
        assert header.last_offset == 2
        world.append([(b"c", b"3")])
        world.roll()
        world.clean(delay_ms=DELETE_RETENTION_MS // 2)
        assert [record.offset for record in world.records()] == [1, 2, 3]
        world.append([(b"d", b"4")])
        world.roll()
        world.clean(delay_ms=DELETE_RETENTION_MS)
        assert [record.offset for record in world.records()] == [1, 3, 4]


def test_a_log_that_cannot_be_read_is_left_and_others_are_cleaned() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        broken = TopicPartition("broken", 0)
        world.manager.create(broken, TOPIC_ID)
        log = world.manager.get(broken)
        for _ in range(30):
            log.append_as_leader(build_batch([Record(0, 1, b"k", bytes(200))]), leader_epoch=0)
        log.flush()
        file = world.runtime.disk.open(f"{log.directory}/{0:020d}.log")
        file.pwrite(b"\xff", 100)
        file.close()
        for n in range(20):
            world.append([(b"k", b"%d" % n * 50)])
        world.roll()
        cleaner = world.cleaner
        cleaner._last_stable_offset_of = lambda topic_partition: 1_000
        outcomes = [simulation.run(cleaner.clean_dirtiest()) for _ in range(3)]
        assert outcomes == [True, True, False]
        assert cleaner.uncleanable == {"/logs": {broken}}
        assert cleaner.uncleanable_count(world.manager.directories[0]) == 1
        assert [record.offset for record in world.records()] == [19]
        names = world.runtime.disk.listdir(log.directory)
        assert not [name for name in names if name.endswith(".cleaned")]


def test_compact_and_delete_do_both() -> None:
    with Simulation(seed=1) as simulation:
        config = replace(
            CONFIG,
            cleanup_policy=frozenset(["compact", "delete"]),
            retention_bytes=1_000,
            retention_ms=-1,
        )
        world = CompactionWorld(simulation, config)
        for n in range(30):
            world.append([(b"k%d" % (n % 10), b"x" * 200)])
        world.roll()
        world.clean()
        assert len(world.records()) == 10
        world.log.delete_old_segments(world.log.log_end_offset)
        left = [record.offset for record in world.records()]
        assert 0 < len(left) < 10
        assert left == list(range(30 - len(left), 30))
        world.append([(b"k9", b"new")])
        world.roll()
        world.clean()
        assert world.records()[-1].value == b"new"


def test_logs_that_nobody_opened_are_cleaned_too() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for n in range(20):
            world.append([(b"k", b"%d" % n * 50)])
        world.roll()
        world.manager.close(high_watermarks={TOPIC_PARTITION: 20})
        world.start()
        world.cleaner._last_stable_offset_of = lambda topic_partition: None
        outcomes = [simulation.run(world.cleaner.clean_dirtiest()) for _ in range(3)]
        assert True in outcomes
        assert [record.offset for record in world.records()] == [19]


def test_a_topic_that_is_no_longer_compacted_survives_a_crash() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for n in range(60):
            world.append([(b"k%d" % (n % 20 // 7), b"%d" % n * 50)])
        world.roll()
        world.append([(b"z", b"last")])
        world.clean()
        records = world.records()
        assert len(world.log.segments) > 2
        world.with_config(cleanup_policy=frozenset(["delete"]))
        simulation.crash("a")
        world.start()
        assert world.records() == records


def test_the_disk_is_spared() -> None:
    with Simulation(seed=1) as simulation:
        settings = CleanerSettings(io_bytes_per_second_max=1_000.0, io_buffer_bytes=1)
        world = CompactionWorld(
            simulation, replace(CONFIG, segment_bytes=40_000), settings=settings
        )
        for n in range(100):
            world.append([(b"k", b"%d" % n * 300)])
        world.roll()
        size = world.log.size_bytes()
        began = simulation.loop.time()
        world.clean()
        assert simulation.loop.time() - began > 2 * size / 1_024


Disturbance = Callable[[CompactionWorld], None]


def truncate(world: CompactionWorld) -> None:
    world.log.truncate_to(11)


def start_anew(world: CompactionWorld) -> None:
    world.log.truncate_fully_and_start_at(50)


def delete(world: CompactionWorld) -> None:
    world.manager.delete(TOPIC_PARTITION)


def retain(world: CompactionWorld) -> None:
    world.with_config(
        cleanup_policy=frozenset(["compact", "delete"]), retention_bytes=900, retention_ms=-1
    )
    world.log.delete_old_segments(world.log.log_end_offset)


@pytest.mark.parametrize("disturb", [truncate, start_anew, delete, retain])
def test_a_log_may_change_at_any_moment_of_its_cleaning(disturb: Disturbance) -> None:
    for turns in range(0, 60, 2):
        with Simulation(seed=turns) as simulation:
            world = CompactionWorld(simulation)
            for n in range(25):
                world.append([(b"k%d" % (n % 4), b"%d" % n * 40)])
            world.roll()
            world.append([(b"last", b"value")])

            async def scenario(world: CompactionWorld, turns: int) -> None:
                cleaning = asyncio.create_task(world.cleaner.clean_dirtiest())
                for _ in range(turns):
                    await asyncio.sleep(0.0005)
                disturb(world)
                await cleaning

            simulation.run(scenario(world, turns))
            assert not world.cleaner.uncleanable
            assert world.manager.directories[0].failure is None
            if disturb is delete:
                continue
            end, records = world.log.log_end_offset, world.records()
            world.written = [one for one in world.written if one.record.offset < end]
            names = world.runtime.disk.listdir("/logs/t-0")
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            if disturb is truncate:
                assert end <= 11
                written = [one.record for one in world.written]
                assert all(record in written for record in records)
            simulation.crash("a")
            world.start()
            # Where nothing is left before the cut, no batch says where the log ended.
            assert world.log.log_end_offset in ((end, 0) if disturb is truncate else (end,))
            assert world.records() == records


def test_stopping_does_not_wait_for_a_long_cleaning() -> None:
    with Simulation(seed=1) as simulation:
        settings = CleanerSettings(io_bytes_per_second_max=1.0, io_buffer_bytes=1)
        world = CompactionWorld(
            simulation, replace(CONFIG, segment_bytes=90_000), settings=settings
        )
        for n in range(100):
            world.append([(b"k", b"%d" % n * 300)])
        world.roll()

        async def scenario() -> None:
            world.cleaner.start()
            await asyncio.sleep(1)
            await world.cleaner.stop()

        began = simulation.loop.time()
        simulation.run(scenario())
        assert simulation.loop.time() - began < 10
        names = world.runtime.disk.listdir("/logs/t-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        assert len(world.records()) == 100


def test_headers_of_emptied_batches_are_sound() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        world.append([(b"k", b"1"), (b"k", b"2")], producer_id=4)
        world.append([(b"k", b"3")])
        world.roll()
        world.clean()
        (emptied, batch), (kept, _) = world.batches()
        assert (emptied.records_count, emptied.base_offset, emptied.last_offset) == (0, 0, 1)
        assert (emptied.producer_id, emptied.last_sequence) == (4, 1)
        assert len(batch) == HEADER_BYTES
        with pytest.raises(KafkaError, match="claims 0 records"):
            check_batch(batch, 0, len(batch))  # its CRC is right, else it would say so
        assert kept.base_offset == 2


def test_a_full_disk_ends_a_cleaning_that_is_made_up_for() -> None:
    for room in (0, 100, 700, 1_500):
        with Simulation(seed=1) as simulation:
            world = CompactionWorld(simulation)
            for n in range(30):
                world.append([(b"k%d" % (n % 8), b"%d" % n * 60)])
            world.roll()
            world.append([(b"last", b"value")])
            simulation.disk("a").limit_space(room)
            simulation.run(world.cleaner.clean_dirtiest())
            assert not world.cleaner.uncleanable
            assert world.manager.directories[0].failure is None
            simulation.disk("a").limit_space(None)
            world.check(was_cut_off=True)
            world.clean()
            world.check()
            names = world.runtime.disk.listdir("/logs/t-0")
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_a_broken_disk_takes_the_directory_offline_and_the_cleaner_lives() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for n in range(30):
            world.append([(b"k", b"%d" % n * 60)])
        world.roll()
        simulation.disk("a").fail_io("/logs/t-0/")
        simulation.run(world.cleaner.clean_dirtiest())
        assert world.manager.directories[0].failure is not None
        assert simulation.run(world.cleaner.clean_dirtiest()) is False
        assert not world.cleaner.uncleanable


def test_readers_see_the_same_at_every_moment_of_a_cleaning() -> None:
    with Simulation(seed=3) as simulation:
        world = CompactionWorld(simulation)
        for n in range(25):
            world.append([(b"k%d" % (n % 4), b"%d" % n * 40)], producer_id=101, transactional=True)
            world.end_transaction(101, commit=n % 3 > 0)
        world.roll()
        expected = world.last_values(world.committed_records(), 0)
        sizes: list[int] = []

        async def scenario() -> None:
            cleaning = asyncio.create_task(world.cleaner.clean_dirtiest())
            while not cleaning.done():
                await asyncio.sleep(0.0003)
                assert world.last_values(world.committed_records(), 0) == expected
                sizes.append(world.log.size_bytes())

        simulation.run(scenario())
        assert len(set(sizes)) > 2  # it was watched between the groups, too


def test_a_follower_copies_a_cleaned_log_with_its_holes() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for n in range(40):
            producer_id = (-1, 1, 101)[n % 3]
            world.append(
                [(b"k%d" % (n % 5), b"%d" % n * 30), (b"x%d" % (n % 2), b"y")],
                producer_id=producer_id,
                transactional=producer_id > 100,
            )
            world.end_transaction(101, commit=n % 2 == 0)
        world.roll()
        world.clean()
        copy = TopicPartition("copy", 0)
        world.manager.create(copy, TOPIC_ID)
        follower = world.manager.get(copy)
        for _, batch in world.batches():
            follower.append_as_follower(batch)
        assert world.batches(follower) == world.batches()
        assert follower.log_end_offset == world.log.log_end_offset
        producers = sorted(
            (one.producer_id, one.producer_epoch, one.last_sequence)
            for one in follower.active_producers()
        )
        assert producers == world.producers()


def test_an_index_without_its_log_replaces_nothing() -> None:
    with Simulation(seed=1) as simulation:
        world = CompactionWorld(simulation)
        for n in range(20):
            world.append([(b"k%d" % n, b"x" * 90)])
        world.manager.close()
        disk = world.runtime.disk
        index = disk.read_bytes("/logs/t-0/00000000000000000000.index")
        disk.write_atomic("/logs/t-0/00000000000000000000.index.swap", bytes(range(80)))
        world.start()
        assert len(world.records()) == 20
        assert disk.read_bytes("/logs/t-0/00000000000000000000.index") == index
        assert not disk.exists("/logs/t-0/00000000000000000000.index.swap")
