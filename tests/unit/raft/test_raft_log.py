"""The metadata log's directory: appends, crashes, snapshots and what they replace."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.protocol.ids import Epoch, Offset
from ottla.raft.batches import data_batch
from ottla.raft.log import DIRECTORY_NAME, MetadataLog
from ottla.raft.node import Quorum
from ottla.raft.snapshots import SnapshotId, parse_snapshot_name, snapshot_batches
from ottla.raft.wire_records import CorruptRecordError
from ottla.runtime.interfaces import Runtime
from ottla.runtime.real import real_runtime


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    real = real_runtime()
    yield real
    real.offload.close()


def opened(runtime: Runtime, directory: Path) -> MetadataLog:
    log = MetadataLog(runtime, f"{directory}/{DIRECTORY_NAME}")
    log.open()
    return log


def append(log: MetadataLog, values: Sequence[bytes], epoch: int = 1) -> None:
    batch = data_batch(values, base_offset=log.log_end_offset, epoch=Epoch(epoch), timestamp_ms=1)
    log.append([batch])
    job = log.begin_flush()
    assert job is not None
    job.run()
    job.release()
    assert log.finish_flush(job) == log.log_end_offset


def write_snapshot(log: MetadataLog, end_offset: int, values: Sequence[bytes] = ()) -> SnapshotId:
    snapshot = SnapshotId(Offset(end_offset), Epoch(1))
    batches = snapshot_batches(
        values, epoch=snapshot.epoch, quorum=None, last_contained_timestamp_ms=5, now_ms=6
    )
    log.write_snapshot(snapshot, batches)
    return snapshot


def values_from(log: MetadataLog, offset: int) -> list[bytes]:
    return [value for batch in log.read_from(Offset(offset)) for value in batch.values]


def test_what_was_appended_is_read_after_a_restart(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    append(log, [b"a", b"b"])
    append(log, [b"c"], epoch=2)
    log.close()
    again = opened(runtime, tmp_path)
    assert (again.log_end_offset, again.last_epoch) == (3, 2)
    assert values_from(again, 0) == [b"a", b"b", b"c"]
    assert values_from(again, 2) == [b"c"]
    assert [batch.epoch for batch in again.read_from(Offset(0))] == [1, 2]
    again.close()


def test_a_batch_cut_short_by_a_crash_is_dropped(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    append(log, [b"a"])
    append(log, [b"b"])
    log.close()
    segment = tmp_path / DIRECTORY_NAME / f"{0:020d}.log"
    whole = segment.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2 + 1):
        segment.write_bytes(whole[:size])
        torn = opened(runtime, tmp_path)
        assert values_from(torn, 0) == [b"a"]
        assert torn.log_end_offset == 1
        torn.close()


def test_an_unfinished_snapshot_does_not_exist(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    append(log, [b"a"])
    snapshot = write_snapshot(log, 1)
    log.close()
    path = tmp_path / DIRECTORY_NAME / snapshot.file_name
    path.rename(path.with_suffix(".checkpoint.part"))
    again = opened(runtime, tmp_path)
    assert again.newest_snapshot() is None
    assert not list((tmp_path / DIRECTORY_NAME).glob("*.part"))
    again.close()


def test_a_log_that_ends_before_its_snapshot_is_replaced(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    append(log, [b"a", b"b"])
    write_snapshot(log, 5)
    log.close()
    again = opened(runtime, tmp_path)
    assert (again.log_start_offset, again.log_end_offset, again.last_epoch) == (5, 5, 1)
    append(again, [b"c"])
    assert values_from(again, 5) == [b"c"]
    again.close()


def test_trimming_keeps_the_newest_snapshot_and_what_follows_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    log = opened(runtime, tmp_path)
    append(log, [b"a"])
    write_snapshot(log, 1)
    log.trim(retention_bytes=0, oldest_ms=0)
    append(log, [b"b"])
    newest = write_snapshot(log, 2)
    append(log, [b"c"])
    log.trim(retention_bytes=0, oldest_ms=0)
    assert log.snapshots() == [newest]
    assert values_from(log, newest.end_offset) == [b"c"]
    log.close()
    names = sorted(path.name for path in (tmp_path / DIRECTORY_NAME).glob("*.log"))
    assert names[0] == f"{1:020d}.log"  # the segment that holds offset 2
    again = opened(runtime, tmp_path)
    assert values_from(again, newest.end_offset) == [b"c"]
    again.close()


def test_trimming_leaves_what_the_retention_allows(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    append(log, [b"a"])
    write_snapshot(log, 1)
    write_snapshot(log, 0)
    log.trim(retention_bytes=10**9, oldest_ms=0)
    assert len(log.snapshots()) == 2
    assert values_from(log, 0) == [b"a"]
    log.close()


def test_a_snapshot_comes_back_with_its_voters(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    quorum = Quorum(1, ())
    snapshot = SnapshotId(Offset(0), Epoch(0))
    values = [bytes((n % 256,)) * 3 for n in range(2500)]
    batches = snapshot_batches(
        values, epoch=Epoch(0), quorum=quorum, last_contained_timestamp_ms=5, now_ms=6
    )
    log.write_snapshot(snapshot, batches)
    read = log.read_snapshot(snapshot)
    assert list(read.values) == values
    assert (read.quorum, read.last_contained_timestamp_ms) == (quorum, 5)
    log.close()


def test_a_snapshot_without_a_footer_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    log = opened(runtime, tmp_path)
    snapshot = SnapshotId(Offset(0), Epoch(0))
    batches = list(
        snapshot_batches(
            [b"x"], epoch=Epoch(0), quorum=None, last_contained_timestamp_ms=5, now_ms=6
        )
    )
    log.write_snapshot(snapshot, batches[:-1])
    with pytest.raises(CorruptRecordError, match="footer"):
        log.read_snapshot(snapshot)
    log.close()


def test_snapshot_names_are_kafkas() -> None:
    snapshot = SnapshotId(Offset(107), Epoch(2))
    assert snapshot.file_name == "00000000000000000107-0000000002.checkpoint"
    assert parse_snapshot_name(snapshot.file_name) == snapshot
    assert parse_snapshot_name("bootstrap.checkpoint") is None
