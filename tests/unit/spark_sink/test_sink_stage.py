"""Staged output: what a task leaves is what the driver reads, and nothing half-written is read."""

import os
import threading
from pathlib import Path

import pytest

from ottla.protocol.codecs import Codec
from ottla.spark.encode import EncodedBatch, Target, write_batch_header
from ottla.spark.sink_errors import SinkError
from ottla.spark.stage import (
    ABANDONED_AFTER_S,
    INLINE_BYTES_MAX,
    TOKEN_NAME,
    StagedOutput,
    StageWriter,
    check_token,
    driver_token,
    read_staged,
    remove_abandoned,
    remove_batch,
    remove_outputs,
    remove_unnamed,
)


def batch(size: int, partition: int = 0) -> EncodedBatch:
    view = memoryview(bytearray(size))
    write_batch_header(view, codec=Codec.NONE, records=1, timestamp_ms=1)
    return EncodedBatch(Target("t", partition), view, 1)


@pytest.mark.parametrize("sizes", [[100], [100, 200], [INLINE_BYTES_MAX, 80, 5000], [90, 200_000]])
def test_batches_come_back_as_they_were_left(tmp_path: Path, sizes: list[int]) -> None:
    writer = StageWriter(tmp_path / "q" / "0", "task")
    left = [batch(size, number) for number, size in enumerate(sizes)]
    for one in left:
        writer.add(one)
    output = writer.finish()
    assert (output.path is None) == (sum(sizes) <= INLINE_BYTES_MAX)
    assert output.records == len(sizes)
    found = list(read_staged(output))
    assert [bytes(one.data) for one in found] == [bytes(one.data) for one in left]
    assert [one.partition.partition for one in found] == list(range(len(sizes)))
    found[0].data[0] = 7  # memory of its own: the file stays as it was
    assert bytes(next(iter(read_staged(output))).data) == bytes(left[0].data)


def test_a_task_without_rows_leaves_nothing(tmp_path: Path) -> None:
    output = StageWriter(tmp_path / "q", "task").finish()
    assert list(read_staged(output)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = StageWriter(tmp_path, "task")
    writer.add(batch(100_000))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_the_driver_cannot_see_names_both_hosts(tmp_path: Path) -> None:
    writer = StageWriter(tmp_path, "task")
    writer.add(batch(100_000))
    output = writer.finish()
    Path(output.path or "").unlink()
    with pytest.raises(SinkError, match=f"on {output.host} wrote.*share"):
        list(read_staged(output))


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    writer = StageWriter(tmp_path, "task")
    writer.add(batch(100_000))
    output = writer.finish()
    Path(output.path or "").write_bytes(b"short")
    with pytest.raises(SinkError, match="5 bytes where 100000"):
        list(read_staged(output))


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = StageWriter(tmp_path / "file" / "q", "task")
    with pytest.raises(SinkError, match="stageDirectory"):
        writer.add(batch(100_000))


def test_a_task_knows_whether_the_directory_is_the_drivers(tmp_path: Path) -> None:
    token = driver_token(tmp_path)
    assert driver_token(tmp_path) == token
    check_token(tmp_path, token)
    with pytest.raises(SinkError, match="share"):
        check_token(tmp_path, "another")
    with pytest.raises(SinkError, match="share"):
        check_token(tmp_path / "elsewhere", token)


def test_what_is_done_is_removed_with_what_came_before(tmp_path: Path) -> None:
    for number in (3, 4, 5):
        (tmp_path / "q" / str(number)).mkdir(parents=True)
    remove_batch(tmp_path, "q", 4)
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["5"]
    remove_batch(tmp_path, "unknown", 4)


def staged(tmp_path: Path, batch_id: int, task: str, owner: str = "q") -> StagedOutput:
    writer = StageWriter(tmp_path / owner / str(batch_id), task)
    writer.add(batch(100_000))
    return writer.finish()


def files_of(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())


def test_what_failed_attempts_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for batch_id in (3, 4, 5):
        staged(tmp_path, batch_id, "earlier")
    (tmp_path / "q" / "4" / "half.tmp").write_text("")
    (tmp_path / "other" / "3").mkdir(parents=True)
    (tmp_path / "other" / "3" / "0.batches").write_text("")
    kept = staged(tmp_path, 4, "now")
    remove_unnamed(tmp_path, "q", 4, [kept])
    assert files_of(tmp_path) == ["other/3/0.batches", "q/4/now.batches"]
    remove_outputs([kept, kept])
    assert files_of(tmp_path) == ["other/3/0.batches"]
    remove_unnamed(tmp_path, "unknown", 4, [])


QUERY_ID = "2d129684-03bc-4508-97a5-78727a79302a"


@pytest.mark.parametrize("owner", [QUERY_ID, f"{QUERY_ID}-totals", "write-0123456789abcdef"])
def test_what_nobody_came_back_for_is_removed_long_after(tmp_path: Path, owner: str) -> None:
    token = driver_token(tmp_path)
    output = staged(tmp_path, 0, "task", owner)
    written_s = Path(output.path or "").stat().st_mtime
    for path in (tmp_path / owner, tmp_path / owner / "0"):
        os.utime(path, (0, 0))
    remove_abandoned(tmp_path, written_s + ABANDONED_AFTER_S - 1)
    assert files_of(tmp_path) == [TOKEN_NAME, f"{owner}/0/task.batches"]
    remove_abandoned(tmp_path, written_s + ABANDONED_AFTER_S + 1)
    assert files_of(tmp_path) == [TOKEN_NAME]
    assert driver_token(tmp_path) == token
    remove_abandoned(tmp_path / "none", 0)


def test_what_a_stage_directory_holds_besides_is_not_the_sinks_to_remove(tmp_path: Path) -> None:
    """Somebody may name a directory where other things are, and those may be old."""
    kept = ["letters/0/a.batches", "write-it/notes.txt", f"{QUERY_ID}/0/photo.jpg", "0/0/a.tmp"]
    for name in kept:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "write-linked").symlink_to(tmp_path / "letters")
    driver_token(tmp_path)
    remove_abandoned(tmp_path, 1e12)
    assert set(files_of(tmp_path)) == {TOKEN_NAME, *kept}


def test_drivers_that_begin_together_have_one_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=30)
    exists = Path.exists

    def together(path: Path) -> bool:
        found = exists(path)
        both.wait()
        return found

    monkeypatch.setattr(Path, "exists", together)
    tokens: list[str] = []
    drivers = [
        threading.Thread(target=lambda: tokens.append(driver_token(tmp_path))) for _ in range(2)
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(30)
    assert len(tokens) == 2
    assert set(tokens) == {(tmp_path / TOKEN_NAME).read_text()}
    assert files_of(tmp_path) == [TOKEN_NAME]


def test_a_file_system_without_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    assert driver_token(tmp_path) == driver_token(tmp_path) != ""
    assert files_of(tmp_path) == [TOKEN_NAME]


def test_a_private_directory_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    driver_token(made, is_private=True)
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    driver_token(made, is_private=True)
    assert made.stat().st_mode & 0o777 == 0o700
    (tmp_path / "linked").symlink_to(made)
    with pytest.raises(SinkError, match="belongs to another user"):
        driver_token(tmp_path / "linked", is_private=True)
    monkeypatch.setattr(os, "geteuid", lambda: made.stat().st_uid + 1)
    with pytest.raises(SinkError, match="stageDirectory"):
        driver_token(made, is_private=True)
