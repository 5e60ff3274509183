"""What a simulated power cut takes and leaves, and the disk's other faults."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.interfaces import Disk
from ottla.runtime.simulated import NodeCrashed, PowerCut, Simulation
from ottla.runtime.simulated.inodes import SECTOR_BYTES, Survival

SEEDS = range(60)


def _prepared(seed: int) -> tuple[Simulation, Disk]:
    simulation = Simulation(seed)
    disk = simulation.runtime("a").disk
    disk.mkdir("/d")
    disk.sync_dir("/")
    return simulation, disk


def _outcomes(act: Callable[[Disk], None]) -> set[bytes | None]:
    """What file /d/f holds after a power cut, over many seeds; None where it is gone."""
    seen: set[bytes | None] = set()
    for seed in SEEDS:
        simulation, disk = _prepared(seed)
        act(disk)
        simulation.power_loss("a")
        disk = simulation.runtime("a").disk
        seen.add(disk.read_bytes("/d/f") if disk.exists("/d/f") else None)
    return seen


def test_a_killed_process_loses_nothing_it_wrote() -> None:
    simulation, disk = _prepared(1)
    file = disk.open("/d/f", create=True)
    file.pwrite(b"abc", 0)
    simulation.crash("a")
    with pytest.raises(NodeCrashed):
        file.size()
    assert simulation.runtime("a").disk.read_bytes("/d/f") == b"abc"


def test_synced_bytes_under_a_synced_name_always_survive() -> None:
    def act(disk: Disk) -> None:
        file = disk.open("/d/f", create=True)
        file.pwrite(b"x" * 3000, 0)
        file.truncate(2000)
        file.sync()
        disk.sync_dir("/d")

    assert _outcomes(act) == {b"x" * 2000}


def test_unsynced_bytes_may_survive_or_not() -> None:
    def act(disk: Disk) -> None:
        file = disk.open("/d/f", create=True)
        file.pwrite(b"old", 0)
        file.sync()
        disk.sync_dir("/d")
        file.pwrite(b"new", 0)

    assert _outcomes(act) == {b"old", b"new"}


def test_syncing_a_file_does_not_save_its_name() -> None:
    def act(disk: Disk) -> None:
        file = disk.open("/d/f", create=True)
        file.pwrite(b"abc", 0)
        file.sync()

    assert _outcomes(act) == {None, b"abc"}


def test_saving_a_name_does_not_save_the_bytes() -> None:
    def act(disk: Disk) -> None:
        disk.open("/d/f", create=True).pwrite(b"abc", 0)
        disk.sync_dir("/d")

    assert _outcomes(act) == {b"", b"abc"}


def test_a_rename_is_never_half_done_and_may_be_undone() -> None:
    for seed in SEEDS:
        simulation, disk = _prepared(seed)
        disk.write_atomic("/d/f", b"old")
        disk.write_atomic("/d/g", b"new")
        disk.rename("/d/g", "/d/f")
        simulation.power_loss("a")
        disk = simulation.runtime("a").disk
        state = {name: disk.read_bytes(f"/d/{name}") for name in disk.listdir("/d")}
        assert state in ({"f": b"old", "g": b"new"}, {"f": b"new"})


def test_a_removed_name_may_come_back_until_the_directory_is_synced() -> None:
    def remove(disk: Disk) -> None:
        disk.write_atomic("/d/f", b"1")
        disk.remove("/d/f")

    def remove_durably(disk: Disk) -> None:
        remove(disk)
        disk.sync_dir("/d")

    assert _outcomes(remove) == {b"1", None}
    assert _outcomes(remove_durably) == {None}


def test_changes_of_names_may_reach_the_platter_out_of_order() -> None:
    seen = set()
    for seed in SEEDS:
        simulation, disk = _prepared(seed)
        for name in "ab":
            disk.open(f"/d/{name}", create=True)
        simulation.power_loss("a")
        seen.add("".join(simulation.runtime("a").disk.listdir("/d")))
    assert seen == {"", "a", "b", "ab"}


def test_a_large_write_may_be_torn_at_sectors_only() -> None:
    lengths = set()
    for seed in SEEDS:
        simulation, disk = _prepared(seed)
        file = disk.open("/d/f", create=True)
        file.pwrite(b"a" * 4096, 0)
        file.sync()
        disk.sync_dir("/d")
        file.pwrite(b"b" * 3000, 100)
        simulation.power_loss("a")
        content = simulation.runtime("a").disk.read_bytes("/d/f")
        assert len(content) == 4096
        lengths.add(content.count(b"b"))
        changes = [n for n in range(1, 4096) if content[n] != content[n - 1]]
        assert all(n in (100, 3100) or n % SECTOR_BYTES == 0 for n in changes)
    assert {0, 3000} < lengths


def test_a_tail_whose_data_never_came_holds_zeros_or_garbage() -> None:
    gaps = set()
    for seed in range(300):
        simulation, disk = _prepared(seed)
        file = disk.open("/d/f", create=True)
        disk.sync_dir("/d")
        file.pwrite(b"a" * SECTOR_BYTES, 0)
        file.pwrite(b"b" * SECTOR_BYTES, SECTOR_BYTES)
        simulation.power_loss("a")
        content = simulation.runtime("a").disk.read_bytes("/d/f")
        if content.endswith(b"b") and not content.startswith(b"a"):
            gaps.add("zeros" if content.startswith(b"\0" * SECTOR_BYTES) else "garbage")
    assert gaps == {"zeros", "garbage"}


def test_survival_can_be_chosen() -> None:
    for survival, expected in ((Survival.NOTHING, b""), (Survival.EVERYTHING, b"abc")):
        simulation, disk = _prepared(1)
        file = disk.open("/d/f", create=True)
        disk.sync_dir("/d")
        file.pwrite(b"abc", 0)
        simulation.power_loss("a", survival)
        assert simulation.runtime("a").disk.read_bytes("/d/f") == expected


def test_an_atomic_write_is_old_or_new_whenever_the_power_fails() -> None:
    seen = set()
    for seed in range(10):
        for operations in range(20):
            simulation, disk = _prepared(seed)
            disk.write_atomic("/d/f", b"old" * 500)
            simulation.disk("a").cut_power_after(operations)
            try:
                disk.write_atomic("/d/f", b"new" * 700)
            except PowerCut:
                with pytest.raises(PowerCut):
                    disk.exists("/d/f")
                is_done = False
            else:
                is_done = True
            simulation.power_loss("a")
            content = simulation.runtime("a").disk.read_bytes("/d/f")
            assert content in (b"old" * 500, b"new" * 700)
            assert content == b"new" * 700 or not is_done
            seen.add((content[:3], is_done))
    assert seen == {(b"old", False), (b"new", False), (b"new", True)}


def test_every_operation_is_counted_and_shown() -> None:
    simulation, disk = _prepared(1)
    kinds: list[str] = []
    before = simulation.disk("a").operations
    simulation.disk("a").on_operation(lambda kind, path: kinds.append(f"{kind} {path}"))
    disk.write_atomic("/d/f", b"1")
    disk.read_bytes("/d/f")
    disk.remove("/d/f")
    assert kinds == [
        "create /d/f.tmp",
        "write /d/f.tmp",
        "sync /d/f.tmp",
        "rename /d/f.tmp",
        "sync_dir /d",
        "remove /d/f",
    ]
    assert simulation.disk("a").operations == before + 6


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    simulation, disk = _prepared(1)
    file = disk.open("/d/f", create=True)
    simulation.disk("a").limit_space(10)
    assert disk.free_bytes("/d")[1] == 10
    file.pwrite(b"x" * 8, 0)
    with pytest.raises(OSError, match="No space left") as caught:
        file.pwrite(b"y" * 8, 8)
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"x" * 8 + b"y" * 2
    file.pwrite(b"z" * 10, 0)
    simulation.disk("a").heal()
    file.pwrite(b"y" * 8, 8)


def test_a_failing_path_fails_alone() -> None:
    simulation, disk = _prepared(1)
    disk.write_atomic("/d/f", b"1")
    disk.mkdir("/e")
    simulation.disk("a").fail_io("/d", reads=False)
    assert disk.read_bytes("/d/f") == b"1"
    with pytest.raises(OSError, match="Input/output error"):
        disk.write_atomic("/d/f", b"2")
    disk.write_atomic("/e/f", b"2")
    simulation.disk("a").fail_io("/d")
    with pytest.raises(OSError, match="Input/output error"):
        disk.read_bytes("/d/f")


def test_a_sync_that_succeeds_after_one_that_failed_saves_nothing_of_the_first() -> None:
    seen = set()
    for seed in SEEDS:
        simulation, disk = _prepared(seed)
        file = disk.open("/d/f", create=True)
        disk.sync_dir("/d")
        file.pwrite(b"a" * 10, 0)
        simulation.disk("a").fail_sync("/d/f")
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        file.sync()
        assert file.pread(10, 0) == b"a" * 10
        simulation.power_loss("a")
        seen.add(simulation.runtime("a").disk.read_bytes("/d/f"))
    assert seen == {b"", b"a" * 10}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 2000)),
        st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(CHANGES, st.integers(0, 1000))
def test_what_no_change_touched_since_the_last_sync_is_never_altered(
    changes: list[tuple[str, int, int]], seed: int
) -> None:
    simulation, disk = _prepared(seed)
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    saved, lowest = b"", None
    for number, (kind, at, size) in enumerate(changes):
        if kind == "write":
            file.pwrite(bytes([number + 1]) * size, at)
        elif kind == "truncate":
            file.truncate(at)
        else:
            file.sync()
            saved, lowest = file.pread(1 << 20, 0), None
            continue
        lowest = at if lowest is None else min(lowest, at)
    simulation.power_loss("a")
    content = simulation.runtime("a").disk.read_bytes("/d/f")
    if lowest is None:
        assert content == saved
    else:
        assert content[: min(lowest, len(saved))] == saved[:lowest]
