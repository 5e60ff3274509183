"""What a leader takes, what it refuses, and what a refusing disk leaves behind."""

from dataclasses import replace
from struct import pack_into
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    LAST_OFFSET_DELTA_AT,
    RECORDS_COUNT_AT,
    ControlType,
    Record,
    TimestampType,
    build_batch,
    check_batch,
    control_batch,
    iter_batches,
    iter_records,
    set_max_timestamp,
    write_crc,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.inodes import Survival
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.batch_validation import RecordsRefusedError
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.file_pool import FilePool
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import OpenOptions, open_log
from ottla.storage.timestamp_lookup import MAX_TIMESTAMP
from support.log_lookups import find_timestamp

DIRECTORY = "/logs/t-0"


class Bench:
    """A log on a simulated disk."""

    def __init__(self, config: TopicConfig | None = None) -> None:
        self.simulation = Simulation(seed=2)
        self.disk = self.simulation.disk("a")
        self.failures: list[LogDirFailure] = []
        self.simulation.runtime("a").disk.mkdir(DIRECTORY)
        self.simulation.runtime("a").disk.sync_dir("/")
        self.now_ms = self.simulation.runtime("a").clock.wall_ms()
        self.log = self.open(config or TopicConfig())

    def open(self, config: TopicConfig, *, clean: bool = True) -> PartitionLog:
        runtime = self.simulation.runtime("a")
        return open_log(
            runtime,
            FilePool(runtime.disk),
            TopicPartition("t", 0),
            UUID(int=5),
            DIRECTORY,
            OpenOptions(config, clean, producer_expiration_ms=1 << 60),
            on_failure=self.failures.append,
        )

    def batch(self, count: int = 1, *, size: int = 10, **fields: object) -> bytearray:
        records = [Record(n, self.now_ms + n, b"k", bytes(size)) for n in range(count)]
        return build_batch(records, **fields)  # type: ignore[arg-type]  # named as in build_batch

    def content(self) -> bytes:
        part = self.log.read(
            self.log.log_start_offset,
            1 << 30,
            end_offset=self.log.log_end_offset,
            at_least_one=True,
        )
        try:
            return part.read()
        finally:
            part.release()


def _code(bench: Bench, batch: bytearray, **options: object) -> ErrorCode:
    before = (bench.log.log_end_offset, bench.content())
    with pytest.raises(KafkaError) as refused:
        bench.log.append_as_leader(batch, leader_epoch=0, **options)  # type: ignore[arg-type]  # as given
    assert (bench.log.log_end_offset, bench.content()) == before
    return refused.value.code


def test_a_batch_gets_its_offsets_and_epoch_in_place_and_lies_on_disk_as_it_came() -> None:
    bench = Bench()
    first, second = bench.batch(3), bench.batch(2)
    untouched = bytes(second[16:])
    assert bench.log.append_as_leader(first, leader_epoch=4).last_offset == 2
    result = bench.log.append_as_leader(memoryview(second), leader_epoch=5)
    assert (result.base_offset, result.last_offset, result.is_duplicate) == (3, 4, False)
    header = check_batch(second, 0, len(second))
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    assert bytes(second[16:]) == untouched
    assert bench.content() == bytes(first + second)
    assert bench.log.latest_epoch == 5
    assert bench.log.end_of_epoch(4) == (4, 3)


def test_batches_that_lie_are_refused_and_leave_nothing() -> None:
    bench = Bench()
    bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    bent = bench.batch()
    bent[-1] ^= 1
    assert _code(bench, bent) is ErrorCode.CORRUPT_MESSAGE
    assert _code(bench, bench.batch()[:-1]) is ErrorCode.INVALID_RECORD  # not one whole batch
    assert _code(bench, bench.batch()[:40]) is ErrorCode.INVALID_RECORD
    assert _code(bench, bytearray()) is ErrorCode.INVALID_RECORD
    miscounted = bench.batch(2)
    miscounted[57:61] = (3).to_bytes(4, "big")
    miscounted[23:27] = (2).to_bytes(4, "big")
    write_crc(miscounted, 0)
    assert _code(bench, miscounted) is ErrorCode.INVALID_RECORD
    assert _code(bench, bench.batch() + bench.batch()) is ErrorCode.INVALID_RECORD
    assert _code(bench, bench.batch(is_control=True)) is ErrorCode.INVALID_RECORD
    old = bench.batch()
    old[16] = 1
    assert _code(bench, old) is ErrorCode.INVALID_RECORD


def test_limits_of_the_topic_are_kept() -> None:
    bench = Bench(TopicConfig(max_message_bytes=200, segment_bytes=150))
    assert _code(bench, bench.batch(size=300)) is ErrorCode.MESSAGE_TOO_LARGE
    assert _code(bench, bench.batch(size=100)) is ErrorCode.RECORD_LIST_TOO_LARGE
    ahead = build_batch([Record(0, bench.now_ms + 3_700_000, None, b"")])
    assert _code(bench, ahead) is ErrorCode.INVALID_TIMESTAMP


def test_a_producer_cannot_claim_log_append_time() -> None:
    bench = Bench()
    stamped = bench.batch(timestamp_type=TimestampType.LOG_APPEND_TIME)
    bench.log.append_as_leader(stamped, leader_epoch=0)
    header = check_batch(stamped, 0, len(stamped))
    assert header.timestamp_type is TimestampType.CREATE_TIME


def test_a_largest_timestamp_that_no_record_has_is_corrected() -> None:
    bench = Bench()
    batch = bench.batch()
    truth = check_batch(batch, 0, len(batch)).max_timestamp
    set_max_timestamp(batch, 0, bench.now_ms + 3_700_000)
    bench.log.append_as_leader(batch, leader_epoch=0)
    assert check_batch(batch, 0, len(batch)).max_timestamp == truth


def test_log_append_time_is_stamped_and_told() -> None:
    bench = Bench(TopicConfig(message_timestamp_type="LogAppendTime"))
    bench.simulation.clock("a").jump(5_000)
    batch = build_batch([Record(0, 1, None, b"v"), Record(1, 2, None, b"w")])
    result = bench.log.append_as_leader(batch, leader_epoch=0)
    assert result.log_append_time_ms == bench.now_ms + 5_000
    stored = bench.content()
    check_batch(stored, 0, len(stored))
    assert {record.timestamp_ms for record in iter_records(stored)} == {bench.now_ms + 5_000}


def test_a_topic_with_its_own_codec_packs_batches_anew() -> None:
    bench = Bench(TopicConfig(compression_type="zstd"))
    batch = bench.batch(5, size=500, producer_id=3, producer_epoch=1, base_sequence=0)
    bench.log.append_as_leader(batch, leader_epoch=2)
    stored = bench.content()
    header = check_batch(stored, 0, len(stored))
    assert (header.codec, header.producer_id, header.partition_leader_epoch) == (Codec.ZSTD, 3, 2)
    assert list(iter_records(stored)) == list(iter_records(batch))
    kept = bench.batch(2, codec=Codec.ZSTD)
    bench.log.append_as_leader(kept, leader_epoch=2)
    assert bench.content().endswith(kept)


COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


@pytest.mark.parametrize(
    ("config", "codec"),
    [
        (TopicConfig(compression_type="zstd"), Codec.NONE),
        (TopicConfig(compression_type="zstd"), Codec.GZIP),
        (TopicConfig(compression_type="uncompressed"), Codec.GZIP),
        (COMPACTED, Codec.GZIP),
    ],
)
@pytest.mark.parametrize("claimed", [-5, 0, 7, 1 << 30])
def test_records_that_lie_about_their_offsets_do_not_move_the_log_end(
    config: TopicConfig, codec: Codec, claimed: int
) -> None:
    bench = Bench(config)
    bench.log.append_as_leader(bench.batch(4), leader_epoch=0)
    lie = build_batch(
        [Record(offset, bench.now_ms, b"k", b"%d" % offset) for offset in (0, 1, claimed)],
        codec=codec,
        last_offset_delta=2,
    )
    result = bench.log.append_as_leader(lie, leader_epoch=0)
    assert (result.base_offset, result.last_offset) == (4, 6)
    assert bench.log.log_end_offset == 7
    bench.log.append_as_leader(bench.batch(1), leader_epoch=0)
    stored = bench.content()
    assert [
        record.offset
        for at, header in iter_batches(stored)
        for record in iter_records(stored[at : at + header.size_bytes])
    ] == list(range(8))


def test_a_compacted_topic_wants_keys() -> None:
    bench = Bench(TopicConfig(cleanup_policy=frozenset({"compact"})))
    bench.log.append_as_leader(bench.batch(2), leader_epoch=0)
    keyless = build_batch(
        [Record(0, bench.now_ms, b"k", b""), Record(1, bench.now_ms, None, b"")], codec=Codec.GZIP
    )
    with pytest.raises(RecordsRefusedError) as refused:
        bench.log.append_as_leader(keyless, leader_epoch=0)
    assert [error.batch_index for error in refused.value.record_errors] == [1]


def test_a_repeated_batch_is_answered_with_its_first_offsets() -> None:
    bench = Bench()
    fields = {"producer_id": 9, "producer_epoch": 0}
    for sequence in (0, 2, 4):
        batch = bench.batch(2, **fields, base_sequence=sequence)
        bench.log.append_as_leader(batch, leader_epoch=0)
    size = bench.log.size_bytes()
    again = bench.log.append_as_leader(bench.batch(2, **fields, base_sequence=2), leader_epoch=0)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (2, 3, True)
    assert bench.log.size_bytes() == size
    late = bench.batch(2, **fields, base_sequence=8)
    assert _code(bench, late) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    nameless = bench.batch(1, **fields, base_sequence=-1)
    assert _code(bench, nameless) is ErrorCode.INVALID_RECORD


def test_markers_decide_what_readers_of_committed_records_may_see() -> None:
    bench = Bench()
    log = bench.log
    fields = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    log.append_as_leader(bench.batch(2, **fields, base_sequence=0), leader_epoch=0)
    assert log.first_unstable_offset == 0
    marker = control_batch(
        ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp_ms=5
    )
    log.append_as_leader(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert log.first_unstable_offset == 0  # its marker is not replicated yet
    log.on_high_watermark_updated(3)
    assert log.first_unstable_offset is None
    assert [one.first_offset for one in log.aborted_transactions(0, 3)] == [0]
    stale = control_batch(
        ControlType.COMMIT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5
    )
    refused = _code(bench, stale, origin=AppendOrigin.COORDINATOR)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_follower_keeps_offsets_and_refuses_what_overlaps() -> None:
    bench = Bench()
    first = bench.batch(3, base_offset=0, leader_epoch=2)
    records = [Record(7, bench.now_ms, b"k", b"v")]
    second = build_batch(records, base_offset=7, leader_epoch=3)
    result = bench.log.append_as_follower(bytes(first + second) + bytes(second[:20]))
    assert (result.base_offset, result.last_offset) == (0, 7)
    assert bench.content() == bytes(first + second)
    assert bench.log.end_of_epoch(2) == (2, 7)
    with pytest.raises(KafkaError) as refused:
        bench.log.append_as_follower(second)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert bench.log.log_end_offset == 8


def test_with_flush_messages_one_an_append_that_returned_is_durable() -> None:
    bench = Bench(TopicConfig(flush_messages=1))
    batches = [bench.batch() for _ in range(3)]
    for batch in batches:
        bench.log.append_as_leader(batch, leader_epoch=0)
        assert bench.log.recovery_point == bench.log.log_end_offset
    content = bench.content()
    bench.simulation.power_loss("a")
    bench.log = bench.open(TopicConfig(), clean=False)
    assert bench.content() == content


def test_a_full_disk_refuses_one_append_and_the_log_goes_on() -> None:
    bench = Bench()
    bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    before = bench.content()
    bench.disk.limit_space(50)
    with pytest.raises(DiskFull):
        bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    assert bench.content() == before
    path = f"{DIRECTORY}/{0:020d}.log"
    assert bench.simulation.runtime("a").disk.read_bytes(path) == before
    bench.disk.limit_space(None)
    assert bench.log.append_as_leader(bench.batch(), leader_epoch=0).base_offset == 1
    assert not bench.failures
    bench.log.close()
    assert bench.open(TopicConfig()).log_end_offset == 2


@pytest.mark.parametrize("left", range(4))
def test_a_log_without_descriptors_refuses_and_loses_nothing(left: int) -> None:
    config = TopicConfig(segment_bytes=400, flush_messages=1)
    bench = Bench(config)
    log = bench.log
    stored = [bytes(bench.batch(size=n)) for n in range(8)]
    for n in range(0, 8, 2):
        log.append_as_leader(bytearray(stored[n]), leader_epoch=n)
        bench.disk.limit_open_files(left)
        before = log.log_end_offset
        try:
            log.append_as_leader(bytearray(stored[n + 1]), leader_epoch=n + 1)
        except DiskFull:
            # It may be there all the same: then only the sync was refused.
            assert log.log_end_offset in (before, before + 1)
        for offset in range(log.log_end_offset):
            try:
                log.read(offset, 1, end_offset=log.log_end_offset, at_least_one=True).release()
            except DiskFull:
                continue
        bench.disk.limit_open_files(None)
        if log.log_end_offset == before:
            log.append_as_leader(bytearray(stored[n + 1]), leader_epoch=n + 1)
    assert not bench.failures
    log.flush()
    bench.simulation.power_loss("a", Survival.NOTHING)
    bench.log = bench.open(config, clean=False)
    assert bench.log.log_end_offset == 8
    for n, batch in enumerate(stored):
        part = bench.log.read(n, 1, end_offset=8, at_least_one=True)
        assert part.read()[16:] == batch[16:]
        part.release()


@pytest.mark.parametrize("space", range(0, 1_200, 60))
def test_a_disk_that_fills_up_anywhere_in_a_roll_loses_nothing(space: int) -> None:
    config = TopicConfig(segment_bytes=400, index_interval_bytes=50)
    bench = Bench(config)
    bench.disk.limit_space(space)
    accepted = 0
    for _ in range(12):
        try:
            bench.log.append_as_leader(bench.batch(size=40), leader_epoch=0)
            accepted += 1
        except DiskFull:
            bench.disk.limit_space(None)
        except LogDirFailure:
            break  # the checkpoint of epochs found no room
    bench.disk.limit_space(None)
    bench.simulation.crash("a")
    bench.log = bench.open(config, clean=False)
    assert bench.log.log_end_offset == accepted


def test_an_input_error_takes_the_directory_offline() -> None:
    bench = Bench()
    bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    bench.disk.fail_io("/logs")
    with pytest.raises(LogDirFailure):
        bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    bench.disk.heal()
    assert len(bench.failures) == 1
    with pytest.raises(LogDirFailure):
        bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    with pytest.raises(LogDirFailure):
        bench.log.read(0, 10, end_offset=1, at_least_one=True)


def test_a_failed_sync_is_not_tried_again() -> None:
    bench = Bench()
    bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    bench.disk.fail_sync("/logs")
    with pytest.raises(LogDirFailure):
        bench.log.flush()
    with pytest.raises(LogDirFailure):
        bench.log.flush()
    assert bench.log.recovery_point == 0


def test_segments_roll_by_the_age_of_their_records() -> None:
    bench = Bench(TopicConfig(segment_ms=1_000))
    for ahead_ms in (0, 900, 1_000, 1_001, 1_500, 2_002):
        batch = build_batch([Record(0, bench.now_ms + ahead_ms, b"k", b"v")])
        bench.log.append_as_leader(batch, leader_epoch=0)
    assert bench.log.segment_base_offsets == [0, 3, 5]


def test_a_changed_configuration_counts_from_the_next_append() -> None:
    bench = Bench()
    bench.log.append_as_leader(bench.batch(), leader_epoch=0)
    bench.log.update_config(replace(TopicConfig(), max_message_bytes=30))
    assert _code(bench, bench.batch()) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_timestamp_leads_to_the_first_record_at_or_after_it() -> None:
    bench = Bench(TopicConfig(segment_bytes=600, index_interval_bytes=60))
    stamps = [50, 10, 70, 70, 20, 90, 30, 80, 60, 40] * 3
    for at in range(0, len(stamps), 2):
        pair = stamps[at : at + 2]
        codec = Codec.GZIP if at % 4 else Codec.NONE
        records = [Record(n, stamp, b"k", b"v" * 40) for n, stamp in enumerate(pair)]
        bench.log.append_as_leader(build_batch(records, codec=codec), leader_epoch=at // 10)
    for wanted in range(0, 95, 5):
        found = find_timestamp(bench.log, wanted)
        expected = next((n for n, stamp in enumerate(stamps) if stamp >= wanted), None)
        assert (None if found is None else found.offset) == expected, wanted
    assert find_timestamp(bench.log, 91) is None
    largest = find_timestamp(bench.log, MAX_TIMESTAMP)
    assert largest == (90, 5, 0)
    bench.log.advance_log_start_offset(6)
    found = find_timestamp(bench.log, 90)
    assert found is not None
    assert found.offset == 15


def test_a_slice_stays_readable_after_its_segment_is_gone() -> None:
    bench = Bench(TopicConfig(segment_bytes=400, file_delete_delay_ms=0))
    batch = bench.batch(size=200)
    bench.log.append_as_leader(batch, leader_epoch=0)
    part = bench.log.read(0, 1_000, end_offset=1, at_least_one=True)
    bench.log.truncate_fully_and_start_at(10)
    bench.log.remove_deleted_files()
    assert part.read() == bytes(batch)
    part.release()
    with pytest.raises(ValueError, match="released more often"):
        part.release()


@pytest.mark.parametrize("index_bytes", [4, 8, 11, 12, 16, 20, 23, 24, 36])
def test_however_small_the_indexes_are_the_log_rolls_and_goes_on(index_bytes: int) -> None:
    config = TopicConfig(segment_index_bytes=index_bytes, index_interval_bytes=0)
    bench = Bench(config)
    batches = [bytes(bench.batch(size=n)) for n in range(12)]
    for batch in batches:
        bench.log.append_as_leader(bytearray(batch), leader_epoch=0)
    assert bench.log.segment_count >= 3
    follower = Bench(config)
    follower.log.append_as_follower(_everything(bench))
    for log in (bench.log, follower.log):
        assert log.log_end_offset == 12
        assert find_timestamp(log, bench.now_ms) == (bench.now_ms, 0, 0)
        log.close()
    bench.log = bench.open(config)
    assert _everything(bench) == _everything(follower)
    assert bench.log.log_end_offset == 12


def _everything(bench: Bench) -> bytes:
    if bench.log.is_closed:
        bench.log = bench.open(bench.log.config)
    found, offset = b"", 0
    while offset < bench.log.log_end_offset:
        part = bench.log.read(
            offset, 1 << 20, end_offset=bench.log.log_end_offset, at_least_one=True
        )
        found += part.read()
        part.release()
        offset = [header for _, header in iter_batches(found)][-1].next_offset
    return found


def test_a_preallocated_segment_has_its_size_at_once_and_is_trimmed_when_it_ends() -> None:
    config = TopicConfig(segment_bytes=1_000, preallocate=True)
    bench = Bench(config)

    def sizes() -> list[int]:
        disk = bench.simulation.runtime("a").disk
        names = [name for name in disk.listdir(DIRECTORY) if name.endswith(".log")]
        return [disk.size(f"{DIRECTORY}/{name}") for name in names]

    assert sizes() == []
    batches = [bytes(bench.batch(size=200)) for _ in range(7)]
    bench.log.append_as_leader(bytearray(batches[0]), leader_epoch=0)
    assert sizes() == [1_000]
    for batch in batches[1:]:
        bench.log.append_as_leader(bytearray(batch), leader_epoch=0)
    size = len(batches[0])
    assert sizes() == [3 * size, 3 * size, 1_000]
    assert bench.log.size_bytes() == 7 * size
    assert [len(part) for part in (_everything(bench),)] == [7 * size]
    bench.simulation.crash("a")
    bench.log = bench.open(config, clean=False)
    assert bench.log.log_end_offset == 7
    assert sizes() == [3 * size, 3 * size, size]
    bench.log.append_as_leader(bytearray(batches[0]), leader_epoch=0)
    bench.log.roll()
    bench.log.append_as_leader(bytearray(batches[0]), leader_epoch=0)
    bench.log.close()
    assert sizes() == [3 * size, 3 * size, 2 * size, size]
    assert bench.open(config).log_end_offset == 9


def _claiming(bench: Bench, records: int, claimed: int, codec: Codec) -> bytearray:
    batch = bench.batch(records, codec=codec)
    pack_into(">i", batch, LAST_OFFSET_DELTA_AT, claimed - 1)
    pack_into(">i", batch, RECORDS_COUNT_AT, claimed)
    write_crc(batch, 0)
    return batch


@pytest.mark.parametrize("claimed", [1, 2, 4, 900])
def test_a_compressed_batch_with_a_false_count_harms_only_its_own_readers(claimed: int) -> None:
    config = TopicConfig(segment_bytes=2_000, index_interval_bytes=100)
    bench = Bench(config)
    before, after = bench.batch(2), bench.batch(2)
    bench.log.append_as_leader(before, leader_epoch=0)
    lie = _claiming(bench, 3, claimed, Codec.GZIP)
    assert bench.log.append_as_leader(lie, leader_epoch=0).last_offset == 1 + claimed
    bench.simulation.clock("a").jump(1_000)
    bench.now_ms += 1_000
    late = bench.batch(2)
    bench.log.append_as_leader(late, leader_epoch=0)
    bench.log.append_as_leader(after, leader_epoch=0)
    end = 2 + claimed + 4
    for _ in range(2):
        assert bench.log.log_end_offset == end
        assert bench.content() == before + lie + late + after
        found = find_timestamp(bench.log, bench.now_ms)
        assert found is not None
        assert found.offset == 2 + claimed
        assert find_timestamp(bench.log, MAX_TIMESTAMP) is not None
        found = find_timestamp(bench.log, bench.now_ms - 998)
        assert found is not None
        assert found.offset >= 2
        bench.simulation.crash("a")
        bench.log = bench.open(config, clean=False)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_compressed_batch_claims_no_more_than_can_be_decompressed(codec: Codec) -> None:
    bench = Bench()
    assert _code(bench, _claiming(bench, 3, 2**31 - 1, codec)) is ErrorCode.INVALID_RECORD
    assert _code(bench, _claiming(bench, 3, 20_000_000, codec)) is ErrorCode.INVALID_RECORD
