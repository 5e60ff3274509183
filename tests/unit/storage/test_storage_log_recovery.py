"""What damage on disk becomes when a log is opened."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.runtime.real import real_runtime
from ottla.storage import producer_replay
from ottla.storage.file_pool import FilePool
from ottla.storage.index_cache import IndexCache
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import OpenOptions, open_log
from support.log_lookups import find_timestamp

CONFIG = TopicConfig(segment_bytes=1_000, index_interval_bytes=100, retention_ms=-1)
COMPACTED = TopicConfig(
    segment_bytes=1_000, index_interval_bytes=100, cleanup_policy=frozenset({"compact"})
)

BATCH_BYTES = 170
PER_SEGMENT = 5


class Place:
    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory

    def open(
        self, *, clean: bool, recovery_point: int = 0, config: TopicConfig = CONFIG
    ) -> PartitionLog:
        return open_log(
            self.runtime,
            FilePool(self.runtime.disk),
            TopicPartition("t", 0),
            UUID(int=5),
            str(self.directory),
            OpenOptions(config, clean, recovery_point, producer_expiration_ms=1 << 60),
        )

    def fill(self, count: int) -> None:
        log = self.open(clean=True)
        for n in range(count):
            batch = _batch(n)
            assert len(batch) == BATCH_BYTES
            log.append_as_leader(batch, leader_epoch=n // 4)
        log.close()

    def path(self, offset: int, suffix: str) -> Path:
        return self.directory / f"{offset:020d}{suffix}"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    runtime = real_runtime()
    directory = tmp_path / "t-0"
    directory.mkdir()
    yield Place(runtime, directory)
    runtime.offload.close()


def _batch(n: int) -> bytearray:
    return build_batch(
        [Record(0, 1_000 + n, None, bytes([n]) * 100)],
        producer_id=4,
        producer_epoch=0,
        base_sequence=n,
    )


def _values(log: PartitionLog) -> list[int]:
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        part = log.read(offset, 1, end_offset=log.log_end_offset, at_least_one=True)
        found.append(part.read()[-2])
        part.release()
    return found


def test_a_torn_tail_is_cut_off_and_the_next_batch_follows_it(place: Place) -> None:
    place.fill(3)
    whole = place.path(0, ".log").read_bytes()
    for torn in (1, 60, 61, 100, BATCH_BYTES - 1):
        place.path(0, ".log").write_bytes(whole[: 2 * BATCH_BYTES + torn])
        log = place.open(clean=False)
        assert log.log_end_offset == 2
        assert place.path(0, ".log").stat().st_size == 2 * BATCH_BYTES
        assert [one.last_sequence for one in log.active_producers()] == [1]


@pytest.mark.parametrize("byte", [0, 8, 11, 16, 17, 25, 43, 61, 100, BATCH_BYTES - 1])
def test_a_flipped_bit_ends_the_log_before_its_batch(place: Place, byte: int) -> None:
    place.fill(12)
    path = place.path(5, ".log")
    data = bytearray(path.read_bytes())
    data[BATCH_BYTES + byte] ^= 0x81
    path.write_bytes(data)
    log = place.open(clean=False)
    assert _values(log) == list(range(6))
    assert log.segment_base_offsets == [0, 5]
    assert log.latest_epoch == 1
    assert not place.path(10, ".log").exists()


def test_zeros_behind_the_last_batch_are_cut_off(place: Place) -> None:
    place.fill(3)
    with place.path(0, ".log").open("ab") as file:
        file.write(bytes(500))
    assert place.open(clean=False).log_end_offset == 3


def test_segments_below_the_recovery_point_are_not_read(place: Place) -> None:
    place.fill(12)
    path = place.path(0, ".log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert place.open(clean=False, recovery_point=7).log_end_offset == 12
    assert place.open(clean=False, recovery_point=3).log_end_offset == 0


def test_a_lost_end_of_a_segment_takes_the_later_segments_with_it(place: Place) -> None:
    place.fill(12)
    path = place.path(5, ".log")
    path.write_bytes(path.read_bytes()[:-BATCH_BYTES])
    assert _values(place.open(clean=False)) == list(range(9))


def test_compaction_may_leave_holes_between_segments(place: Place) -> None:
    place.fill(12)
    path = place.path(5, ".log")
    path.write_bytes(path.read_bytes()[:-BATCH_BYTES])
    log = place.open(clean=False, config=COMPACTED)
    assert log.log_end_offset == 12


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "garbage", "short", "zeros", "beyond"])
def test_damaged_indexes_are_built_anew(place: Place, suffix: str, damage: str) -> None:
    place.fill(12)
    path = place.path(5, suffix)
    good = path.read_bytes()
    assert good
    if damage == "missing":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(b"\xff" * len(good))
    elif damage == "short":
        path.write_bytes(good[:-3])
    elif damage == "zeros":
        path.write_bytes(good + bytes(2_400))
    else:
        path.write_bytes(good + (b"\0\0\0\4\x7f\0\0\0" if suffix == ".index" else b""))
    log = place.open(clean=True)
    assert _values(log) == list(range(12))
    for n in range(12):
        found = find_timestamp(log, 1_000 + n)
        assert found is not None
        assert found.offset == n
    log.append_as_leader(build_batch([Record(0, 5_000, None, b"")]), leader_epoch=9)
    log.close()


def test_recovery_builds_the_indexes_that_appending_had_built(place: Place) -> None:
    place.fill(12)
    names = sorted(path.name for path in place.directory.iterdir())
    before = {name: (place.directory / name).read_bytes() for name in names}
    for suffix in (".index", ".timeindex", ".snapshot"):
        for path in place.directory.glob(f"*{suffix}"):
            path.unlink()
    log = place.open(clean=False)
    log.close()
    assert {path.name: path.read_bytes() for path in place.directory.iterdir()} == before


def test_a_missing_or_torn_snapshot_is_made_good_from_the_log(place: Place) -> None:
    place.fill(12)
    newest = place.path(12, ".snapshot")
    newest.write_bytes(newest.read_bytes()[:-1])
    place.path(10, ".snapshot").unlink()
    log = place.open(clean=True)
    assert [one.last_sequence for one in log.active_producers()] == [11]
    log.close()
    assert newest.stat().st_size > 40


@pytest.mark.parametrize("count", [10, 12])
@pytest.mark.parametrize("clean", [True, False])
def test_a_batch_that_is_sent_again_after_a_start_is_known(
    place: Place, clean: bool, count: int
) -> None:
    """Any of the last five: to call one lost that is stored would be a lie."""
    place.fill(count)
    if not clean and count > 2 * PER_SEGMENT:
        place.path(count, ".snapshot").unlink()
    log = place.open(clean=clean, recovery_point=2 * PER_SEGMENT)
    for n in range(count - 5, count):
        again = log.append_as_leader(_batch(n), leader_epoch=9)
        assert (again.base_offset, again.is_duplicate) == (n, True)
    assert log.log_end_offset == count
    log.close()


def test_batches_of_many_producers_are_told_apart_after_a_start(place: Place) -> None:
    """Each with its own pace; the last of some lie segments behind."""
    log = place.open(clean=True)
    written: dict[int, list[bytearray]] = {}
    for n in range(40):
        producer_id = n % 7 if n < 20 else n % 3
        sent = written.setdefault(producer_id, [])
        batch = build_batch(
            [Record(0, 1_000 + n, None, b"x" * 100)],
            producer_id=producer_id,
            producer_epoch=1,
            base_sequence=len(sent),
        )
        sent.append(bytearray(batch))
        log.append_as_leader(batch, leader_epoch=0)
    log.close()
    log = place.open(clean=True)
    for sent in written.values():
        for batch in sent[-5:]:
            assert log.append_as_leader(bytearray(batch), leader_epoch=0).is_duplicate
        for batch in sent[:-5]:
            with pytest.raises(KafkaError, match="Out of order"):
                log.append_as_leader(bytearray(batch), leader_epoch=0)
    assert log.log_end_offset == 40
    log.close()


def test_batches_of_a_producer_far_behind_the_end_are_known_after_a_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others went on writing after its last ones: those are not searched from the end."""
    monkeypatch.setattr(producer_replay, "RECALL_NEARBY_MAX", 8)
    log = place.open(clean=True)
    for n in range(5):
        log.append_as_leader(_batch(n), leader_epoch=0)
    for n in range(100):
        other = build_batch(
            [Record(0, 1_000, None, b"x" * 100)],
            producer_id=100 + n % 3,
            producer_epoch=0,
            base_sequence=n // 3,
        )
        log.append_as_leader(other, leader_epoch=0)
    log.close()
    log = place.open(clean=True)
    for n in range(5):
        assert log.append_as_leader(_batch(n), leader_epoch=0).is_duplicate
    log.close()


def test_leftovers_of_interrupted_work_are_settled(place: Place) -> None:
    place.fill(12)
    place.path(0, ".log").rename(place.path(0, ".log.deleted"))
    place.path(0, ".index").rename(place.path(0, ".index.deleted"))
    place.path(0, ".timeindex").rename(place.path(0, ".timeindex.deleted"))
    place.path(10, ".log.cleaned").write_bytes(b"half")
    for suffix in (".log", ".index", ".timeindex"):
        data = place.path(5, suffix).read_bytes()
        place.path(5, f"{suffix}.swap").write_bytes(data)
    log = place.open(clean=True)
    assert log.log_start_offset == 5
    assert _values(log) == list(range(5, 12))
    log.close()
    assert {path.suffix for path in place.directory.iterdir()} <= {
        ".log",
        ".index",
        ".timeindex",
        ".snapshot",
        "",
    }


def test_a_swap_takes_the_place_of_every_segment_in_its_range(place: Place) -> None:
    place.fill(12)
    merged = place.path(0, ".log").read_bytes() + place.path(5, ".log").read_bytes()
    place.path(0, ".log.swap").write_bytes(merged)
    log = place.open(clean=True)
    assert log.segment_base_offsets == [0, 10]
    assert _values(log) == list(range(12))


def test_a_swap_that_was_still_being_made_is_dropped(place: Place) -> None:
    place.fill(12)
    place.path(5, ".log.swap").write_bytes(b"")
    place.path(0, ".log.cleaned").write_bytes(b"")
    log = place.open(clean=True)
    assert log.segment_base_offsets == [0, 5, 10]
    assert _values(log) == list(range(12))


def test_a_log_whose_files_were_lost_starts_where_it_was_deleted_to(place: Place) -> None:
    place.fill(3)
    log = open_log(
        place.runtime,
        FilePool(place.runtime.disk),
        TopicPartition("t", 0),
        None,
        str(place.directory),
        OpenOptions(CONFIG, True, log_start_offset=40),
    )
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert log.latest_epoch is None
    assert log.append_as_leader(build_batch([Record(0, 1, None, b"")]), leader_epoch=0) == (
        40,
        40,
        -1,
        40,
        False,
    )


def test_indexes_of_closed_segments_stay_in_memory_only_while_there_is_room(place: Place) -> None:
    pool = FilePool(place.runtime.disk)
    pool.indexes = IndexCache(bytes_max=300)
    log = open_log(
        place.runtime,
        pool,
        TopicPartition("t", 0),
        UUID(int=5),
        str(place.directory),
        OpenOptions(CONFIG, True),
    )

    def loaded_bytes() -> int:
        return sum(segment.index_bytes() for segment in log.segments[:-1])

    for n in range(300):
        batch = build_batch([Record(0, 1_000 + n, None, bytes(100))])
        log.append_as_leader(batch, leader_epoch=0)
    assert len(log.segments) > 30
    assert 0 < loaded_bytes() <= 300
    assert _values(log) == [0] * 300
    assert loaded_bytes() <= 300
    log.close()
    log = place.open(clean=False)
    assert loaded_bytes() == 0
    assert log.log_end_offset == 300
    assert log.segments[0].max_timestamp.timestamp_ms > 0
