"""What every Disk owes, on a real file system and on the simulated one."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.runtime.interfaces import Disk
from ottla.runtime.real_disk import IOV_MAX, RealDisk, RealFile
from ottla.runtime.simulated import Simulation


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = Simulation(seed=3).runtime("a").disk
    disk.mkdir("/data")
    return disk, "/data"


def test_written_bytes_are_read_back_at_their_offsets(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/f", create=True)
    file.pwrite(b"hello", 0)
    file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"ef")], 3)
    assert file.pread(100, 0) == b"helabcdef"
    assert file.pread(3, 2) == b"lab"
    assert file.pread(5, 100) == b""
    assert file.size() == disk.size(f"{directory}/f") == 9
    assert file.path == f"{directory}/f"
    file.close()


def test_a_gap_before_a_write_reads_as_zeros(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/f", create=True)
    file.pwrite(b"x", 5)
    assert file.pread(10, 0) == b"\0\0\0\0\0x"
    file.truncate(8)
    assert file.pread(10, 0) == b"\0\0\0\0\0x\0\0"
    file.truncate(2)
    assert file.size() == 2
    file.close()


def test_more_buffers_than_one_call_takes_are_all_written(place: tuple[Disk, str]) -> None:
    disk, directory = place
    buffers = [bytes([n % 251]) * (n % 3) for n in range(2 * IOV_MAX + 7)]
    file = disk.open(f"{directory}/f", create=True)
    file.pwritev(buffers, 10)
    assert file.pread(1 << 20, 10) == b"".join(buffers)
    file.close()


def test_resident_ranges_and_syncs_answer(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/f", create=True)
    file.pwrite(b"x" * 10_000, 0)
    assert file.is_resident(0, 10_000)
    assert file.is_resident(0, 0)
    file.sync()
    disk.sync_dir(directory)
    file.close()


def test_a_closed_file_refuses_and_closes_again_quietly(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/f", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_a_file_opened_for_reading_refuses_writes(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.write_atomic(f"{directory}/f", b"abc")
    file = disk.open(f"{directory}/f", writable=False)
    assert file.pread(3, 0) == b"abc"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)
    file.close()


def test_write_atomic_replaces_and_leaves_no_temporary(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.write_atomic(f"{directory}/checkpoint", b"a longer first content")
    disk.write_atomic(f"{directory}/checkpoint", b"second")
    assert disk.read_bytes(f"{directory}/checkpoint") == b"second"
    disk.write_atomic(f"{directory}/checkpoint", b"")
    assert disk.read_bytes(f"{directory}/checkpoint") == b""
    assert disk.listdir(directory) == ["checkpoint"]


def test_directories_are_made_listed_and_removed(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.mkdir(f"{directory}/b/c")
    disk.mkdir(f"{directory}/b/c")
    disk.write_atomic(f"{directory}/b/c/f", b"1")
    disk.write_atomic(f"{directory}/a", b"1")
    assert disk.listdir(directory) == ["a", "b"]
    assert disk.is_dir(f"{directory}/b")
    assert not disk.is_dir(f"{directory}/a")
    assert not disk.is_dir(f"{directory}/nothing")
    disk.rmtree(f"{directory}/b")
    assert not disk.exists(f"{directory}/b")
    assert disk.listdir(directory) == ["a"]


def test_rename_replaces_the_target_and_open_files_stay_whole(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.write_atomic(f"{directory}/old", b"old")
    disk.write_atomic(f"{directory}/new", b"new")
    held = disk.open(f"{directory}/old")
    disk.rename(f"{directory}/new", f"{directory}/old")
    assert held.pread(3, 0) == b"old"
    assert disk.read_bytes(f"{directory}/old") == b"new"
    assert disk.listdir(directory) == ["old"]
    held.close()


def test_a_renamed_directory_keeps_its_files(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.mkdir(f"{directory}/t-0")
    disk.write_atomic(f"{directory}/t-0/f", b"1")
    held = disk.open(f"{directory}/t-0/f")
    disk.rename(f"{directory}/t-0", f"{directory}/t-0.abc-delete")
    held.pwrite(b"2", 0)
    assert disk.read_bytes(f"{directory}/t-0.abc-delete/f") == b"2"
    assert not disk.exists(f"{directory}/t-0")
    held.close()


def test_a_removed_file_lives_on_for_those_who_hold_it(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.write_atomic(f"{directory}/f", b"abc")
    held = disk.open(f"{directory}/f")
    disk.remove(f"{directory}/f")
    assert not disk.exists(f"{directory}/f")
    assert held.pread(3, 0) == b"abc"
    held.close()


def test_what_cannot_be_done_has_the_usual_errno(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.mkdir(f"{directory}/full/x")
    disk.mkdir(f"{directory}/dir")
    disk.write_atomic(f"{directory}/file", b"1")
    missing, folder, file = (f"{directory}/{name}" for name in ("missing", "dir", "file"))
    attempts = [
        (errno.ENOENT, lambda: disk.open(missing)),
        (errno.ENOENT, lambda: disk.open(f"{missing}/f", create=True)),
        (errno.ENOENT, lambda: disk.read_bytes(missing)),
        (errno.ENOENT, lambda: disk.size(missing)),
        (errno.ENOENT, lambda: disk.mtime_ms(missing)),
        (errno.ENOENT, lambda: disk.listdir(missing)),
        (errno.ENOENT, lambda: disk.remove(missing)),
        (errno.ENOENT, lambda: disk.rmtree(missing)),
        (errno.ENOENT, lambda: disk.rename(missing, file)),
        (errno.ENOENT, lambda: disk.sync_dir(missing)),
        (errno.ENOENT, lambda: disk.free_bytes(missing)),
        (errno.EISDIR, lambda: disk.open(folder)),
        (errno.EISDIR, lambda: disk.read_bytes(folder)),
        (errno.EISDIR, lambda: disk.remove(folder)),
        (errno.EISDIR, lambda: disk.rename(file, folder)),
        (errno.ENOTDIR, lambda: disk.rename(folder, file)),
        (errno.ENOTEMPTY, lambda: disk.rename(folder, f"{directory}/full")),
        (errno.ENOTDIR, lambda: disk.listdir(file)),
        (errno.ENOTDIR, lambda: disk.sync_dir(file)),
        (errno.EEXIST, lambda: disk.mkdir(file)),
    ]
    for expected, attempt in attempts:
        with pytest.raises(OSError) as caught:  # noqa: PT011  (the errno is compared below)
            attempt()
        assert caught.value.errno == expected, caught.value
    assert disk.listdir(directory) == ["dir", "file", "full"]


def test_a_lock_is_held_once_until_released(place: tuple[Disk, str]) -> None:
    disk, directory = place
    lock = disk.lock(f"{directory}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{directory}/.lock")
    lock.release()
    lock.release()
    again = disk.lock(f"{directory}/.lock")
    again.release()


def test_free_space_and_modification_time_are_plausible(place: tuple[Disk, str]) -> None:
    disk, directory = place
    total, usable = disk.free_bytes(directory)
    assert 0 < usable <= total
    disk.write_atomic(f"{directory}/f", b"1")
    assert disk.mtime_ms(f"{directory}/f") > 1_700_000_000_000


NAMES = st.sampled_from(["a", "b", "d/a", "d/b"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.integers(0, 40), st.binary(min_size=1, max_size=20)),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 40), st.just(b"")),
    st.tuples(st.just("rename"), NAMES, NAMES, st.just(b"")),
    st.tuples(st.just("remove"), NAMES, st.just(0), st.just(b"")),
    st.tuples(st.just("atomic"), NAMES, st.just(0), st.binary(max_size=20)),
)


def _perform(disk: Disk, root: str, operation: tuple[str, str, int | str, bytes]) -> int | None:
    kind, name, number, data = operation
    path = f"{root}/{name}"
    try:
        if kind == "write":
            file = disk.open(path, create=True)
            file.pwrite(data, int(number))
            file.close()
        elif kind == "truncate":
            file = disk.open(path)
            file.truncate(int(number))
            file.close()
        elif kind == "rename":
            disk.rename(path, f"{root}/{number}")
        elif kind == "remove":
            disk.remove(path)
        else:
            disk.write_atomic(path, data)
    except OSError as error:
        return error.errno
    return None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(OPERATIONS, max_size=25))
def test_both_disks_show_the_same_after_any_operations(
    tmp_path: Path, operations: list[tuple[str, str, int | str, bytes]]
) -> None:
    disks: list[tuple[Disk, str]] = [
        (RealDisk(), f"{tmp_path}/root"),
        (Simulation(1).runtime("a").disk, "/root"),
    ]
    if disks[0][0].exists(disks[0][1]):
        disks[0][0].rmtree(disks[0][1])
    seen = []
    for disk, root in disks:
        disk.mkdir(f"{root}/d")
        outcomes = [_perform(disk, root, operation) for operation in operations]
        files = {
            name: disk.read_bytes(f"{root}/{name}")
            for name in ("a", "b", "d/a", "d/b")
            if disk.exists(f"{root}/{name}")
        }
        seen.append((outcomes, files, disk.listdir(root), disk.listdir(f"{root}/d")))
    assert seen[0] == seen[1]


def test_short_reads_and_writes_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread, pwrite, pwritev = os.pread, os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [b"".join(parts)[:5]], at))
    file = RealFile("f", os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT))
    file.pwrite(b"0123456789", 0)
    file.pwritev([b"ab", b"", b"cdefghi", b"jklm"], 10)
    assert file.pread(100, 0) == b"0123456789abcdefghijklm"
    file.close()
