"""A compacted log on a simulated disk, its cleaner, and a list of everything written to it.

The list is the oracle: slow, obvious, and never cleaned. What the log must still say after any
number of cleanings is worked out from it.
"""

from dataclasses import dataclass, replace
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    control_batch,
    iter_batches,
    iter_records,
    parse_control_key,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.storage.cleaner import CleanerSettings, LogCleaner
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.log import PartitionLog
from ottla.storage.log_manager import LogManager
from support.log_lookups import find_timestamp

TOPIC_PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID(int=77)
DELETE_RETENTION_MS = 10_000
CONFIG = TopicConfig(
    cleanup_policy=frozenset(["compact"]),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DELETE_RETENTION_MS,
    segment_bytes=1_500,
    index_interval_bytes=150,
    file_delete_delay_ms=0,
    message_timestamp_after_max_ms=(1 << 63) - 1,
)


@dataclass
class Written:
    record: Record
    base_offset: int
    producer_id: int
    status: str  # "committed", "open" or "aborted"


class CompactionWorld:
    def __init__(
        self,
        simulation: Simulation,
        config: TopicConfig = CONFIG,
        *,
        settings: CleanerSettings | None = None,
    ) -> None:
        self.simulation = simulation
        self.config = config
        self.settings = settings or CleanerSettings()
        self.written: list[Written] = []
        self.sequences: dict[int, int] = {}
        self.timestamp_ms = 1_000
        # The time before which each record, if a tombstone, must still be there.
        self.first_cleaned_ms: dict[int, int] = {}
        self.first_tried_ms: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.runtime = self.simulation.runtime("a")
        self.manager = LogManager(
            self.runtime,
            ["/logs"],
            config_of=lambda topic: self.config,
            producer_expiration_ms=1 << 60,
        )
        self.manager.start()
        self.cleaner = LogCleaner(
            self.runtime,
            self.manager,
            settings=lambda: self.settings,
            last_stable_offset_of=lambda topic_partition: self.last_stable_offset,
        )

    @property
    def log(self) -> PartitionLog:
        self.manager.create(TOPIC_PARTITION, TOPIC_ID)
        log = self.manager.get(TOPIC_PARTITION)
        log.on_high_watermark_updated(log.log_end_offset)
        return log

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.first_unstable_offset
        return self.log.log_end_offset if unstable is None else unstable

    @property
    def now_ms(self) -> int:
        return self.runtime.clock.wall_ms()

    # Writing.

    def append(
        self,
        pairs: list[tuple[bytes, bytes | None]],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
    ) -> None:
        records = []
        for at, (key, value) in enumerate(pairs):
            # Clocks of producers disagree.
            self.timestamp_ms += 7 if at % 3 else -5
            records.append(Record(at, self.timestamp_ms, key, value, ((b"h", b"x"),)))
        self.timestamp_ms += 20
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        base_offset = self.log.log_end_offset
        status = "open" if transactional else "committed"
        self.written += [
            Written(
                record._replace(offset=base_offset + record.offset),
                base_offset,
                producer_id,
                status,
            )
            for record in records
        ]
        self.log.append_as_leader(batch, leader_epoch=0)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        if not any(one.status == "open" and one.producer_id == producer_id for one in self.written):
            return
        marker = control_batch(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=3,
            timestamp_ms=self.timestamp_ms,
        )
        self.log.append_as_leader(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        for one in self.written:
            if one.producer_id == producer_id and one.status == "open":
                one.status = "committed" if commit else "aborted"

    def roll(self) -> None:
        self.log.roll()
        self.log.flush()

    def clean(self, *, delay_ms: int = 0) -> bool:
        """Clean what is dirty, some time later; whether there was anything."""
        self.simulation.clock("a").jump(delay_ms)
        self.log.flush()
        for offset in range(self.log.segments[-1].base_offset):
            self.first_tried_ms.setdefault(offset, self.now_ms)
        is_cleaned = self.simulation.run(self.cleaner.clean_dirtiest())
        assert not self.cleaner.uncleanable
        if is_cleaned:
            for offset in range(self.log.clean_offset or 0):
                self.first_cleaned_ms.setdefault(offset, self.now_ms)
            self.log.remove_deleted_files()
        return is_cleaned

    # Reading.

    def batches(self, log: PartitionLog | None = None) -> list[tuple[BatchHeader, bytes]]:
        """Every batch, read as a consumer would."""
        log = log or self.log
        found: list[tuple[BatchHeader, bytes]] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            part = log.read(offset, 700, end_offset=log.log_end_offset, at_least_one=True)
            data = part.read()
            part.release()
            if not data:
                break
            for at, header in iter_batches(data):
                assert header.next_offset > offset, "a batch twice, or out of order"
                found.append((header, data[at : at + header.size_bytes]))
                offset = header.next_offset
        return found

    def records(self, log: PartitionLog | None = None) -> list[Record]:
        return [
            record
            for header, batch in self.batches(log)
            if not header.is_control
            for record in iter_records(batch)
        ]

    def committed_records(self) -> list[Record]:
        """What a client with read_committed makes of batches, markers and the aborted list."""
        log = self.log
        end_offset = self.last_stable_offset
        aborted = sorted(
            log.aborted_transactions(log.log_start_offset, end_offset),
            key=lambda one: one.first_offset,
        )
        skipped: set[int] = set()
        found: list[Record] = []
        for header, batch in self.batches():
            if header.next_offset > end_offset:
                break
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            records = list(iter_records(batch))
            if header.is_control:
                if records and parse_control_key(records[0].key) is ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += records
        return found

    # Judging.

    def last_values(self, records: list[Record], start: int) -> dict[bytes, Record]:
        """What a reader of these records who begins at `start` knows at the end."""
        found: dict[bytes, Record] = {}
        for record in records:
            if record.offset >= start and record.key:
                if record.value is None:
                    found.pop(record.key, None)
                else:
                    found[record.key] = record
        return found

    def check(self, *, was_cut_off: bool = False) -> None:
        """Everything that must be true of the log, however often it was cleaned.

        If a cleaning `was_cut_off`, more may be clean than the checkpoint says.
        """
        log = self.log
        records = self.records()
        everything = [one.record for one in self.written if one.record.offset < log.log_end_offset]
        by_offset = {record.offset: record for record in everything}
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        for record in records:
            assert by_offset[record.offset] == record
        committed = self.committed_records()
        stable = [
            one.record
            for one in self.written
            if one.status == "committed" and one.record.offset < self.last_stable_offset
        ]
        for start in range(0, log.log_end_offset + 1, 3):
            before = self.last_values(stable, start)
            assert self.last_values(committed, start) == before, f"read from {start}"
        clean_offset = log.clean_offset or 0
        untouched = log.segments[-1].base_offset if was_cut_off else clean_offset
        # What was aborted may go at once, whatever the map holds.
        aborted = {one.record.offset for one in self.written if one.status == "aborted"}
        assert [o for o in offsets if o >= untouched and o not in aborted] == [
            record.offset
            for record in everything
            if record.offset >= untouched and record.offset not in aborted
        ]
        self._check_cleaned(records, clean_offset)
        self._check_tombstones(set(offsets))
        self._check_lookups(records)

    def _check_cleaned(self, records: list[Record], clean_offset: int) -> None:
        """Below the clean offset each key is there once, and nothing that was aborted."""
        status = {one.record.offset: one.status for one in self.written}
        cleaned = [record for record in records if record.offset < clean_offset]
        assert all(status[record.offset] == "committed" for record in cleaned)
        keys = [record.key for record in cleaned]
        assert len(keys) == len(set(keys))

    def _check_tombstones(self, offsets: set[int]) -> None:
        committed = [one.record for one in self.written if one.status == "committed"]
        last = {record.key: record for record in committed}
        for record in last.values():
            if record.value is None and record.offset not in offsets:
                since_ms = self.first_cleaned_ms.get(record.offset)
                if since_ms is None:
                    since_ms = self.first_tried_ms[record.offset]
                assert self.now_ms >= since_ms + DELETE_RETENTION_MS

    def _check_lookups(self, records: list[Record]) -> None:
        log = self.log
        for record in records[::3]:
            expected = next(r for r in records if r.timestamp_ms >= record.timestamp_ms)
            found = find_timestamp(log, record.timestamp_ms)
            if found is None or found.offset != expected.offset:
                # A marker may be as late, and it has an offset, too.
                assert found is not None
                assert found.offset < expected.offset
        headers = [header for header, _ in self.batches()]
        for offset in range(log.log_start_offset, log.log_end_offset):
            while headers and headers[0].last_offset < offset:
                del headers[0]
            if headers:
                part = log.read(offset, 1, end_offset=log.log_end_offset, at_least_one=True)
                assert next(iter_batches(part.read()))[1] == headers[0]
                part.release()

    def producers(self) -> list[tuple[int, int, int]]:
        """Id, epoch and last sequence of every producer that the log knows."""
        return sorted(
            (one.producer_id, one.producer_epoch, one.last_sequence)
            for one in self.log.active_producers()
        )

    def restart_without_snapshots(self) -> None:
        """A start that must find the producers again from the batches alone."""
        self.manager.close()
        disk = self.runtime.disk
        directory = "/logs/t-0"
        for name in disk.listdir(directory):
            if name.endswith(".snapshot"):
                disk.remove(f"{directory}/{name}")
        disk.remove("/logs/.kafka_cleanshutdown")
        self.start()

    def with_config(self, **changes: object) -> None:
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]  # any field
        self.log.update_config(self.config)
