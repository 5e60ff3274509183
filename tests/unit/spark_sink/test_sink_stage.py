"""Staged output: what a task leaves is what the driver reads, and nothing half-written is read."""

from pathlib import Path

import pytest

from ottla.protocol.codecs import Codec
from ottla.spark.encode import EncodedBatch, Target, write_batch_header
from ottla.spark.sink_errors import SinkError
from ottla.spark.stage import (
    INLINE_BYTES_MAX,
    StageWriter,
    check_token,
    driver_token,
    read_staged,
    remove_batch,
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
