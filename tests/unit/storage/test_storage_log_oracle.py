"""A partition log against a list of batches, through any order of what can happen to it."""

from bisect import bisect_left
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import BatchHeader, Record, build_batch, check_batch
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.storage.file_pool import FilePool
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import OpenOptions, open_log

DIRECTORY = "/logs/t-0"
CONFIG = TopicConfig(
    segment_bytes=1_400,
    index_interval_bytes=100,
    retention_bytes=3_000,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation(seed=1)
        self.simulation.runtime("a").disk.mkdir(DIRECTORY)
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.start = self.end = 0
        self.epoch = 0
        self.bases_deleted = 0
        self.clock_ms = 1_000
        self.log = self.open(clean=True)

    def open(self, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
        runtime = self.simulation.runtime("a")
        return open_log(
            runtime,
            FilePool(runtime.disk, capacity=2),
            TopicPartition("t", 0),
            UUID(int=5),
            DIRECTORY,
            OpenOptions(CONFIG, clean, recovery_point, self.start),
        )

    def teardown(self) -> None:
        self.simulation.close()

    def note(self, batch: bytes) -> None:
        header = check_batch(batch, 0, len(batch))
        self.batches.append((header, batch))
        self.end = header.next_offset

    @rule(
        records=st.integers(1, 4),
        size=st.integers(0, 300),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
        jump_ms=st.integers(-20, 50),
        new_epoch=st.booleans(),
    )
    def append(self, records: int, size: int, codec: Codec, jump_ms: int, new_epoch: bool) -> None:
        self.clock_ms = max(0, self.clock_ms + jump_ms)
        self.epoch += new_epoch
        batch = build_batch(
            [Record(n, self.clock_ms + n, b"k", bytes(size)) for n in range(records)], codec=codec
        )
        result = self.log.append_as_leader(batch, leader_epoch=self.epoch)
        assert (result.base_offset, result.last_offset) == (self.end, self.end + records - 1)
        self.note(bytes(batch))

    @rule(gap=st.integers(0, 3), count=st.integers(1, 4), size=st.integers(0, 300))
    def follow(self, gap: int, count: int, size: int) -> None:
        """A leader whose topic was compacted sends batches with holes between them."""
        sent = b""
        offset = self.end
        for n in range(count):
            offset += gap if n == 0 else 0
            batch = build_batch(
                [Record(offset, self.clock_ms, None, bytes(size))],
                base_offset=offset,
                leader_epoch=self.epoch,
            )
            self.note(bytes(batch))
            sent += batch
            offset += 1
        self.log.append_as_follower(sent + sent[:30])
        assert self.log.log_end_offset == self.end

    @rule()
    def roll(self) -> None:
        self.log.roll()
        passed = range(self.start, self.log.log_start_offset)
        assert not any(header.last_offset in passed for header, _ in self.batches)
        self.start = self.log.log_start_offset

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        kept = [one for one in self.batches if one[0].last_offset < offset]
        self.log.truncate_to(offset)
        if len(kept) < len(self.batches):
            cut = self.batches[len(kept)][0].base_offset
            self.end = min(offset, cut)
        self.batches = kept
        self.end = min(self.end, offset)
        self.start = min(self.start, self.end)
        assert self.log.log_end_offset == self.end

    @rule(offset=st.integers(0, 50))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.batches = []
        self.start = self.end = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start_offset(offset)
        self.start = offset

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        high_watermark = data.draw(st.integers(self.start, self.end))
        before = self.log.size_bytes()
        self.log.delete_old_segments(high_watermark)
        self.log.remove_deleted_files()
        assert self.start <= self.log.log_start_offset <= max(high_watermark, self.start)
        assert self.log.size_bytes() <= before
        self.start = self.log.log_start_offset

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = self.open(clean=True)
        self.adopt_end()

    def adopt_end(self) -> None:
        """Where the log ended in a hole, only a segment's name can tell where."""
        last = self.batches[-1][0].next_offset if self.batches else 0
        assert max(last, self.start) <= self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset

    @rule(from_start=st.booleans())
    def kill_and_open(self, from_start: bool) -> None:
        """The hole check of recovery would take compaction's holes for lost records."""
        self.log.flush()
        recovery_point = self.start if from_start else self.log.recovery_point
        if from_start and self.has_holes():
            return
        self.simulation.crash("a")
        self.log = self.open(clean=False, recovery_point=recovery_point)
        self.adopt_end()

    def has_holes(self) -> bool:
        offsets = [header.base_offset for header, _ in self.batches]
        ends = [header.next_offset for header, _ in self.batches]
        return offsets[1:] != ends[:-1] or (bool(ends) and ends[-1] != self.end)

    @invariant()
    def every_offset_reads_what_was_written(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        lasts = [header.last_offset for header, _ in self.batches]
        for offset in range(self.start, self.end):
            at = bisect_left(lasts, offset)
            part = log.read(offset, 1, end_offset=self.end, at_least_one=True)
            expected = self.batches[at][1] if at < len(lasts) else b""
            assert part.read() == expected, (offset, log)
            part.release()
        assert log.read(self.end, 9, end_offset=self.end, at_least_one=True).length == 0

    @invariant()
    def ranges_hold_whole_batches_below_their_end(self) -> None:
        middle = (self.start + self.end) // 2
        for start, end, bytes_max in (
            (self.start, middle, 10_000),
            (self.start, self.end, 400),
            (middle, self.end, 10_000),
            (middle, self.end - 1, 300),
        ):
            if not self.start <= start <= self.end:
                continue
            part = self.log.read(start, bytes_max, end_offset=end, at_least_one=False)
            data = part.read()
            part.release()
            assert len(data) == part.length <= bytes_max
            wanted = [
                (header, batch)
                for header, batch in self.batches
                if header.last_offset >= start and header.last_offset < end
            ]
            whole = b"".join(batch for _, batch in wanted)
            assert whole.startswith(data)
            if wanted and len(wanted[0][1]) <= bytes_max:
                assert data  # and it stops only at a segment's end or for want of room
            place = 0
            while place < len(data):
                place += check_batch(data, place, len(data)).size_bytes

    @invariant()
    def a_small_read_finds_what_a_read_would_or_nothing(self) -> None:
        log = self.log
        for start in range(self.start, self.end, max(1, (self.end - self.start) // 7)):
            for end, bytes_max in ((self.end, 1), (self.end, 500), (start + 2, 40_000)):
                found = log.read_small(start, bytes_max, end)
                if found is None:
                    continue
                wanted = [
                    batch for header, batch in self.batches if start <= header.last_offset < end
                ]
                assert found
                assert b"".join(wanted).startswith(found)
                assert len(found) <= max(bytes_max, len(wanted[0]))
                place = 0
                while place < len(found):
                    place += check_batch(found, place, len(found)).size_bytes
        assert log.read_small(self.start - 1, 100, self.end) is None
        assert log.read_small(self.end, 100, self.end) is None

    @invariant()
    def offsets_outside_are_refused(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(KafkaError) as refused:
                self.log.read(offset, 100, end_offset=self.end, at_least_one=True)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        for header, _ in self.batches:
            if header.base_offset >= self.start:
                assert (
                    self.log.epoch_for_offset(header.base_offset) == header.partition_leader_epoch
                )


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
test_a_log_reads_back_what_a_list_would = LogMachine.TestCase
