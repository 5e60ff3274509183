"""One partition's records on disk, and everything a broker asks of them.

`append_as_leader` is the hottest call of the broker. A batch of one record must cost a few
microseconds beyond its CRC, so the header is unpacked once, what it says decides whether the
batch can be written as it came, offset and leader epoch are patched in place (the CRC does
not cover them), and one `pwrite` follows. Whatever is unusual goes through `rewriting`.

Durability. A written batch survives a killed process at once. It survives a power cut after
a flush: inline before the append returns where `flush.messages` is due, else on the log
manager's ticks. `recovery_point` is the offset below which everything is synced.

A write that the disk refuses is cut off again. A full disk refuses that one append; any other
error, or one that cannot be undone, takes the directory offline (LogDirFailure).

Owned by the event loop; `FlushJob.run` alone may run in a thread.

Invariants: log_start_offset <= log_end_offset; recovery_point <= log_end_offset; every
segment but the last is closed to writes; `_active` is the last of `_segments`.
"""

import errno
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_batch,
    walk_record_lengths,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.runtime.interfaces import Buffer, Runtime
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.batch_validation import ValidationRules
from ottla.storage.core.leader_epochs import Durability, EpochEnd, LeaderEpochs
from ottla.storage.core.producer_state import (
    NO_VERIFICATION_GUARD,
    ActiveProducer,
    Duplicate,
    ProducerState,
)
from ottla.storage.core.retention import SegmentFacts, decide_retention
from ottla.storage.core.rolling import jitter_bound_ms, segment_ms_max
from ottla.storage.core.transaction_index import AbortedTransaction
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.file_pool import FilePool
from ottla.storage.files.checkpoint import LEADER_EPOCHS, encode_leader_epochs
from ottla.storage.files.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.flushing import FlushJob
from ottla.storage.log_segments import LogSegments
from ottla.storage.producer_replay import (
    Marker,
    marker_of,
    note_completed,
    replay_control_batch,
    replay_data_batch,
    replay_segments,
)
from ottla.storage.producer_snapshot_files import ProducerSnapshotFiles
from ottla.storage.rewriting import DECOMPRESSED_BYTES_MAX, prepare_batch
from ottla.storage.segment import Segment
from ottla.storage.slices import EMPTY_SLICE, LogSlice
from ottla.storage.timestamp_lookup import (
    TimestampAndOffset,
    find_max_timestamp,
    find_offset_for_timestamp,
)

_PLACE = Struct(">qii")
_unpack_header = HEADER.unpack_from
_place_into = _PLACE.pack_into

# What a batch may say of itself and still be written as it came: codec, transactional.
_PLAIN_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_MASK
_NEVER_MS = (1 << 63) - 1
_FULL_DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT))


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless the topic keeps it
    log_start_offset: int
    is_duplicate: bool


class LoadedLog(NamedTuple):
    """What opening a directory found; see storage/recovery.py."""

    segments: LogSegments
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshotFiles
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    has_new_names: bool


class PartitionLog:
    __slots__ = (
        "_active",
        "_clock",
        "_codec_number",
        "_disk",
        "_epochs",
        "_flush_messages",
        "_generation",
        "_has_new_names",
        "_is_new_directory",
        "_is_plain",
        "_latest_epoch",
        "_message_bytes_max",
        "_on_failure",
        "_on_log_start_offset_advanced",
        "_on_recovery_point_lowered",
        "_pending_removals",
        "_pool",
        "_producers",
        "_roll_after_timestamp_ms",
        "_roll_at_wall_ms",
        "_rules",
        "_runtime",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "_timestamp_ahead_ms_max",
        "config",
        "directory",
        "failure",
        "high_watermark",
        "is_closed",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        runtime: Runtime,
        pool: FilePool,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        directory: str,
        config: TopicConfig,
        loaded: LoadedLog,
        on_failure: Callable[[LogDirFailure], None],
        on_recovery_point_lowered: Callable[[], None],
        on_log_start_offset_advanced: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._pool = pool
        self._on_failure = on_failure
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self._on_log_start_offset_advanced = on_log_start_offset_advanced
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.failure: LogDirFailure | None = None
        self.is_closed = False
        self._segments = loaded.segments
        self._active = loaded.segments.last
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        self.last_flush_ms = self._clock.wall_ms()
        self._has_new_names = loaded.has_new_names
        # Its name and metadata may never have been synced.
        self._is_new_directory = loaded.has_new_names or loaded.log_end_offset == 0
        self._generation = 0
        self._pending_removals: list[tuple[int, list[str]]] = []
        self._latest_epoch = -1
        self._note_latest_epoch()
        self.update_config(config)

    def __repr__(self) -> str:
        offsets = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"PartitionLog({self.topic_partition}, {offsets})"

    def update_config(self, config: TopicConfig) -> None:
        """Take another configuration; it counts from the next append on."""
        self.config = config
        self._rules = ValidationRules(config)
        self._codec_number = (
            -1 if self._rules.target_codec is None else int(self._rules.target_codec)
        )
        self._is_plain = (
            config.message_timestamp_type == "CreateTime"
            and config.message_timestamp_before_max_ms == _NEVER_MS
            and not config.is_compacted
        )
        self._message_bytes_max = config.max_message_bytes
        self._timestamp_ahead_ms_max = config.message_timestamp_after_max_ms
        self._segment_bytes = config.segment_bytes
        self._flush_messages = config.flush_messages
        self._plan_roll()

    # Appending.

    def append_as_leader(
        self,
        records: bytearray | memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: int = NO_VERIFICATION_GUARD,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Validate one batch, give it the next offsets, in `records` itself, and write it.

        `guard` and `transaction_version` concern transactions: see ProducerState. With the
        origin RAFT_LEADER offsets and epochs are the caller's already.
        """
        size = len(records)
        if size >= HEADER_BYTES and self._is_plain and origin is AppendOrigin.CLIENT:
            (
                given_offset, length, _, magic, crc, attributes, delta, _, max_timestamp_ms,
                producer_id, producer_epoch, base_sequence, count,
            ) = _unpack_header(records)  # fmt: skip
            codec = attributes & CODEC_MASK
            now_ms = self._clock.wall_ms()
            if (
                given_offset == 0
                and length == size - LOG_OVERHEAD_BYTES
                and magic == MAGIC
                and not attributes & ~_PLAIN_ATTRIBUTES
                and count == delta + 1
                and count > 0
                and size <= self._message_bytes_max
                and max_timestamp_ms - now_ms <= self._timestamp_ahead_ms_max
                and (codec == self._codec_number or self._codec_number < 0)
                and codec <= Codec.ZSTD
                and (base_sequence >= 0 or producer_id < 0)
                and crc32c(memoryview(records)[ATTRIBUTES_AT:]) == crc
            ):
                if codec == 0:
                    walk_record_lengths(records, HEADER_BYTES, size, count)
                if producer_id >= 0:
                    is_transactional = attributes & TRANSACTIONAL_MASK != 0
                    duplicate = self._producers.check(
                        ProducerId(producer_id), producer_epoch, base_sequence, delta,
                        is_transactional, origin, guard,
                    )  # fmt: skip
                    if duplicate is not None:
                        return self._answer_duplicate(duplicate)
                base_offset = self._write(
                    records, size, length, delta, max_timestamp_ms, leader_epoch, now_ms
                )
                last_offset = base_offset + delta
                if producer_id >= 0:
                    self._producers.apply(
                        ProducerId(producer_id), producer_epoch, base_sequence,
                        Offset(base_offset), Offset(last_offset), max_timestamp_ms,
                        is_transactional,
                    )  # fmt: skip
                if self.log_end_offset - self.recovery_point >= self._flush_messages:
                    self.flush()
                return AppendResult(base_offset, last_offset, -1, self.log_start_offset, False)
        return self._append_slowly(records, leader_epoch, origin, guard, transaction_version)

    def _append_slowly(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        origin: AppendOrigin,
        guard: int,
        transaction_version: int,
    ) -> AppendResult:
        if origin is AppendOrigin.RAFT_LEADER:
            return self._append_as_given(records, origin, leader_epoch)
        now_ms = self._clock.wall_ms()
        batch, header, log_append_time_ms = prepare_batch(
            records, self._rules, self.config, now_ms=now_ms, origin=origin
        )
        marker: Marker | None = None
        if header.is_control:
            marker = marker_of(batch)
            if marker is not None:
                self._producers.check_marker(
                    ProducerId(header.producer_id),
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    origin=origin,
                    transaction_version=transaction_version,
                )
        elif header.producer_id >= 0:
            duplicate = self._producers.check(
                ProducerId(header.producer_id),
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                header.is_transactional,
                origin,
                guard,
            )
            if duplicate is not None:
                return self._answer_duplicate(duplicate)
        base_offset = self._write(
            batch,
            len(batch),
            header.batch_length,
            header.last_offset_delta,
            header.max_timestamp,
            leader_epoch,
            now_ms,
        )
        header = header._replace(base_offset=base_offset)
        self._replay(self._active, header, batch)
        self._maybe_flush()
        return AppendResult(
            base_offset, header.last_offset, log_append_time_ms, self.log_start_offset, False
        )

    def append_as_follower(self, records: bytearray | memoryview | bytes) -> AppendResult:
        """Write batches with the offsets and epochs that their leader gave them.

        Bytes behind the last whole batch are left out: a fetch may cut one short. OFFSET_OUT_
        OF_RANGE if they would overlap what is here.
        """
        return self._append_as_given(records, AppendOrigin.REPLICATION, None)

    def _append_as_given(
        self, records: bytearray | memoryview | bytes, origin: AppendOrigin, epoch: int | None
    ) -> AppendResult:
        batches, end = self._check_given(records, epoch)
        if not batches:
            return AppendResult(-1, -1, NO_TIMESTAMP, self.log_start_offset, False)
        with memoryview(records) as view:
            for batch in batches:
                self._assign_epoch_of(batch[1])
            for start, stop, group in self._grouped_by_segment(batches, end):
                self._write_group(view[start:stop], start, group)
        self._maybe_flush()
        first, last = batches[0][1], batches[-1][1]
        return AppendResult(
            first.base_offset, last.last_offset, NO_TIMESTAMP, self.log_start_offset, False
        )

    def _check_given(
        self, records: Buffer, epoch: int | None
    ) -> tuple[list[tuple[int, BatchHeader]], int]:
        """Place and header of every whole batch, checked, and where the last one ends."""
        batches: list[tuple[int, BatchHeader]] = []
        place, end = 0, len(records)
        next_offset = self.log_end_offset
        while end - place >= HEADER_BYTES:
            length = _unpack_header(records, place)[1]
            if length > end - place - LOG_OVERHEAD_BYTES:
                break
            header = check_given_batch(records, place, end)
            if header.base_offset < next_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset {header.base_offset} in an append to"
                    f" {self.topic_partition}: the next one is {next_offset}",
                )
            if epoch is not None and header.partition_leader_epoch != epoch:
                raise InvariantError(
                    f"a batch of epoch {header.partition_leader_epoch} in epoch {epoch}"
                )
            batches.append((place, header))
            next_offset = header.next_offset
            place += header.size_bytes
        return batches, place

    def _grouped_by_segment(
        self, batches: list[tuple[int, BatchHeader]], end: int
    ) -> list[tuple[int, int, list[tuple[int, BatchHeader]]]]:
        """Cut the batches into runs, each of which fits one segment by size."""
        groups: list[tuple[int, int, list[tuple[int, BatchHeader]]]] = []
        room = self._segment_bytes - self._active.size
        start, group = 0, [batches[0]]
        room -= batches[0][1].size_bytes
        for place, header in batches[1:]:
            if header.size_bytes > room:
                groups.append((start, place, group))
                start, group = place, []
                room = self._segment_bytes
            group.append((place, header))
            room -= header.size_bytes
        groups.append((start, end, group))
        return groups

    def _write_group(
        self, records: memoryview, start: int, batches: list[tuple[int, BatchHeader]]
    ) -> None:
        first, last = batches[0][1], batches[-1][1]
        max_timestamp_ms = max(header.max_timestamp for _, header in batches)
        now_ms = self._clock.wall_ms()
        segment = self._segment_for(
            len(records), max_timestamp_ms, first.base_offset, last.last_offset, now_ms
        )
        was_empty = segment.size == 0
        try:
            segment.append_batches(records, [(place - start, header) for place, header in batches])
        except OSError as error:
            raise self._undo_append(segment, error) from error
        self.log_end_offset = last.next_offset
        if was_empty:
            self._on_first_batch()
        for place, header in batches:
            with records[place - start : place - start + header.size_bytes] as batch:
                self._replay(segment, header, batch)

    def _replay(self, segment: Segment, header: BatchHeader, batch: Buffer) -> None:
        """Let the producer state know a batch that is written."""
        if header.producer_id >= 0:
            if header.is_control:
                completed = replay_control_batch(self._producers, header, batch)
                if completed is not None:
                    note_completed(segment, completed)
            else:
                replay_data_batch(self._producers, header)

    def _write(
        self,
        batch: bytearray | memoryview,
        size: int,
        length: int,
        last_offset_delta: int,
        max_timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Give one batch the next offsets and write it; returns its base offset."""
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        if leader_epoch != self._latest_epoch:
            self.assign_epoch(leader_epoch, base_offset)
        segment = self._active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp_ms > self._roll_after_timestamp_ms
            or now_ms > self._roll_at_wall_ms
            or last_offset > segment.offset_max
            or segment.is_index_full
            or self.failure is not None
        ):
            if size > self._segment_bytes:
                raise KafkaError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"A record batch of {size} bytes exceeds segment.bytes, {self._segment_bytes}",
                )
            segment = self._segment_for(size, max_timestamp_ms, base_offset, last_offset, now_ms)
        _place_into(batch, 0, base_offset, length, leader_epoch)
        is_first = segment.size == 0
        try:
            segment.append(batch, size, last_offset, max_timestamp_ms)
        except OSError as error:
            raise self._undo_append(segment, error) from error
        self.log_end_offset = last_offset + 1
        if is_first:
            self._on_first_batch()
        return base_offset

    def _answer_duplicate(self, duplicate: Duplicate) -> AppendResult:
        return AppendResult(
            duplicate.base_offset,
            duplicate.last_offset,
            duplicate.timestamp_ms,
            self.log_start_offset,
            True,
        )

    def _undo_append(self, segment: Segment, error: OSError) -> KafkaError:
        """Cut off what a failed write left; what to tell the client."""
        try:
            segment.undo_failed_append()
        except OSError as second:
            return self.fail(second)
        if error.errno in _FULL_DISK_ERRNOS:
            return DiskFull(self.directory, error)
        return self.fail(error)

    def fail(self, cause: BaseException) -> LogDirFailure:
        """Give the directory up; every later use raises the same failure."""
        if self.failure is None:
            self.failure = LogDirFailure(self.directory.rpartition("/")[0], cause)
            self._on_failure(self.failure)
        return self.failure

    # Rolling.

    def _segment_for(
        self,
        size: int,
        max_timestamp_ms: int,
        first_offset: int,
        last_offset: int,
        now_ms: int,
    ) -> Segment:
        """The active segment, after a roll if this append is not for the present one."""
        self._check_usable()
        segment = self._active
        if (
            segment.size + size <= self._segment_bytes
            and (
                segment.size == 0
                or (
                    max_timestamp_ms <= self._roll_after_timestamp_ms
                    and now_ms <= self._roll_at_wall_ms
                )
            )
            and last_offset <= segment.offset_max
            and not segment.is_index_full
        ):
            return segment
        self.roll(first_offset)
        return self._active

    def roll(self, first_offset: int | None = None) -> None:
        """Close the active segment and begin another, at the log's end or `first_offset`."""
        self._check_usable()
        base_offset = max(self.log_end_offset, first_offset or 0)
        active = self._active
        if active.size == 0 and active.base_offset == base_offset:
            return  # it is as fresh as a new one
        try:
            active.become_inactive()
            active.save_indexes()
            if active.size and self.recovery_point == self.log_end_offset:
                # No later flush would come back to this segment for its indexes.
                self._perform(self.begin_flush(is_closing=True))
            segment = self._new_segment(base_offset)
            self._producers.end_offset = Offset(base_offset)
            self._snapshots.take(self._producers)
        except OSError as error:
            if error.errno in _FULL_DISK_ERRNOS:
                raise DiskFull(self.directory, error) from error
            raise self.fail(error) from error
        if active.size == 0:
            self._delete_segments([active])  # it holds nothing, and never will
        self._segments.add(segment)
        self._active = segment
        self._plan_roll()

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment.create(
            self._disk,
            self._pool,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes_max=self.config.segment_index_bytes,
            created_ms=self._clock.wall_ms(),
            roll_jitter_ms=self._draw_jitter_ms(),
        )
        self._has_new_names = True
        return segment

    def _draw_jitter_ms(self) -> int:
        bound = jitter_bound_ms(
            segment_ms=self.config.segment_ms, segment_jitter_ms=self.config.segment_jitter_ms
        )
        return self._runtime.random.randint(0, bound - 1) if bound > 0 else 0

    def _on_first_batch(self) -> None:
        """The active segment is no longer empty, and may not have had a file before."""
        self._has_new_names = True
        self._plan_roll()

    def _plan_roll(self) -> None:
        """Work out once when the active segment is too old: core/rolling says the rule."""
        config, segment = self.config, self._active
        age_ms_max = segment_ms_max(
            segment_ms=config.segment_ms,
            is_compacted=config.is_compacted,
            compaction_lag_ms_max=config.max_compaction_lag_ms,
        )
        age_ms_max -= segment.roll_jitter_ms
        self._roll_after_timestamp_ms = self._roll_at_wall_ms = _NEVER_MS
        if segment.size:
            first_timestamp_ms = segment.first_timestamp_ms
            if first_timestamp_ms >= 0:
                self._roll_after_timestamp_ms = first_timestamp_ms + age_ms_max
            else:
                self._roll_at_wall_ms = segment.created_ms + age_ms_max

    # Reading.

    def read(self, offset: int, bytes_max: int, *, end_offset: int, at_least_one: bool) -> LogSlice:
        """Whole batches from the one that holds `offset` on, all of them below `end_offset`.

        At most `bytes_max` bytes, but the first batch whole if `at_least_one`. The slice
        must be released. OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset].
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is not in"
                f" [{self.log_start_offset}, {log_end_offset}]",
            )
        if self.failure is not None:
            raise self.failure
        if end_offset > log_end_offset:
            end_offset = log_end_offset
        if offset >= end_offset:
            return EMPTY_SLICE
        try:
            segment = self._active
            if offset >= segment.base_offset:
                return (
                    self._read_segment(
                        segment, log_end_offset, offset, bytes_max, end_offset, at_least_one
                    )
                    or EMPTY_SLICE
                )
            return self._read_older(offset, bytes_max, end_offset, at_least_one)
        except OSError as error:
            raise self.fail(error) from error

    def _read_older(
        self, offset: int, bytes_max: int, end_offset: int, at_least_one: bool
    ) -> LogSlice:
        """Read from the segment that holds `offset`, or from the next that has records."""
        segments = self._segments
        index = segments.floor_index(offset)
        while (segment := segments.at(index)) is not None and segment.base_offset < end_offset:
            segment_end = segments.end_offset_of(segment, self.log_end_offset)
            found = self._read_segment(
                segment, segment_end, offset, bytes_max, end_offset, at_least_one
            )
            if found is not None:
                return found
            index += 1
        return EMPTY_SLICE

    def _read_segment(
        self,
        segment: Segment,
        segment_end: int,
        offset: int,
        bytes_max: int,
        end_offset: int,
        at_least_one: bool,
    ) -> LogSlice | None:
        """None if no batch of this segment reaches `offset`."""
        start = segment.position_of(offset)
        if start is None:
            return None
        bound = segment.position_of(end_offset) if end_offset < segment_end else None
        limit = segment.size if bound is None else bound
        if limit <= start:
            return EMPTY_SLICE
        end = segment.whole_batches_end(start, bytes_max, limit)
        if end == start:
            if not at_least_one:
                return EMPTY_SLICE
            end = start + segment.first_batch_size(start)
        elif end == bound:
            segment.remember_cursor(end_offset, end)
        return LogSlice(segment.log.pin(), start, end - start, segment.log)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that touch [first_offset, end_offset), by their last offsets."""
        found: list[AbortedTransaction] = []
        for segment in self._segments.from_floor(first_offset):
            part = segment.txn_index.collect(Offset(first_offset), Offset(end_offset))
            found += part.transactions
            if part.is_complete:
                break
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record at or after `timestamp_ms`; None if there is none."""
        self._check_usable()
        return find_offset_for_timestamp(
            self._segments,
            timestamp_ms,
            start_offset=self.log_start_offset,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp; None if no record has one."""
        self._check_usable()
        return find_max_timestamp(self._segments, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)

    def size_bytes(self) -> int:
        return self._segments.size_bytes()

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def first_base_offset(self) -> int:
        """Where the first segment begins; at or below the log start offset."""
        return self._segments.first.base_offset

    @property
    def segment_base_offsets(self) -> list[int]:
        return self._segments.base_offsets

    # Leader epochs.

    @property
    def latest_epoch(self) -> Epoch | None:
        return Epoch(self._latest_epoch) if self._latest_epoch >= 0 else None

    def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """Where `epoch`, or the newest before it, ends; None if this log cannot tell."""
        return self._epochs.end_of(Epoch(epoch), log_end_offset=Offset(self.log_end_offset))

    def epoch_for_offset(self, offset: int) -> Epoch | None:
        return self._epochs.epoch_for_offset(Offset(offset))

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record, durably, that `epoch` begins at `start_offset`."""
        if epoch < 0:
            return  # older tools write none
        self._keep_epochs(self._epochs.assign(Epoch(epoch), Offset(start_offset)))

    def _assign_epoch_of(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch != self._latest_epoch:
            self.assign_epoch(header.partition_leader_epoch, header.base_offset)

    def _keep_epochs(self, durability: Durability) -> None:
        self._note_latest_epoch()
        if durability is Durability.UNCHANGED:
            return
        try:
            self._disk.write_atomic(
                f"{self.directory}/{LEADER_EPOCHS}", encode_leader_epochs(self._epochs.entries)
            )
        except OSError as error:
            raise self.fail(error) from error

    def _note_latest_epoch(self) -> None:
        latest = self._epochs.latest
        self._latest_epoch = -1 if latest is None else latest.epoch

    # Producers and transactions.

    @property
    def producers(self) -> ProducerState:
        """For verification of transactions; the log alone applies what was written."""
        return self._producers

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that readers of committed records must not pass."""
        unstable = self._producers.first_unstable_offset
        return None if unstable is None else max(unstable, self.log_start_offset)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transaction markers below it are decided for good."""
        self.high_watermark = high_watermark
        self._producers.on_high_watermark_updated(Offset(high_watermark))

    def active_producers(self) -> list[ActiveProducer]:
        return self._producers.describe()

    def expire_producers(self) -> int:
        """Forget producers that were idle too long; how many."""
        return self._producers.expire(self._clock.wall_ms())

    # Flushing.

    def flush(self) -> None:
        """Return once everything that is in the log would survive a power cut."""
        self._perform(self.begin_flush())

    def _perform(self, job: FlushJob | None) -> None:
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            # After a failed sync the kernel may have dropped the pages: trying again would lie.
            raise self.fail(error) from error
        finally:
            job.release()
        self.finish_flush(job)

    def _maybe_flush(self) -> None:
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.flush()

    @property
    def needs_flush(self) -> bool:
        """Whether a rolled segment, or records older than `flush.ms`, wait to be synced."""
        return self.recovery_point < self._active.base_offset or self.is_flush_due

    @property
    def is_flush_due(self) -> bool:
        """Whether records have waited for `flush.ms`."""
        return (
            self.recovery_point < self.log_end_offset
            and self._clock.wall_ms() - self.last_flush_ms >= self.config.flush_ms
        )

    def begin_flush(
        self, *, only_inactive: bool = False, is_closing: bool = False
    ) -> FlushJob | None:
        """What to sync now; None if nothing. `finish_flush` must follow unless it failed.

        The active segment's indexes are left out, as a recovery would build them; but not when
        `is_closing`, as then the next start trusts them.
        """
        self._check_usable()
        end_offset = self._active.base_offset if only_inactive else self.log_end_offset
        is_synced = end_offset <= self.recovery_point and not self._has_new_names
        if self._is_empty or (is_synced and not is_closing):
            return None
        job = FlushJob(self._disk, end_offset, self._generation)
        try:
            for segment in self._segments.from_floor(self.recovery_point):
                is_active = segment is self._active
                if is_active and only_inactive:
                    continue
                if is_closing or not is_active:
                    segment.become_inactive()
                    segment.save_indexes()
                job.add_segment(segment, with_indexes=is_closing or not is_active)
            job.paths += self._snapshots.take_unsynced()
        except OSError as error:
            job.release()
            raise self.fail(error) from error
        if self._has_new_names or is_closing:
            job.directories.append(self.directory)
        if self._is_new_directory:
            job.paths.append(f"{self.directory}/{PARTITION_METADATA}")
            job.directories.append(self.directory.rpartition("/")[0])
        self._has_new_names = self._is_new_directory = False
        return job

    def finish_flush(self, job: FlushJob) -> None:
        """The job ran: what it covered is durable, unless it was truncated meanwhile."""
        self.last_flush_ms = self._clock.wall_ms()
        if job.generation == self._generation:
            self.recovery_point = max(self.recovery_point, job.end_offset)

    # Cutting and deleting.

    def truncate_to(self, offset: int) -> bool:
        """Drop every batch that reaches `offset`, as a whole; True if the log changed."""
        self._check_usable()
        if offset < 0:
            raise ValueError(f"a log cannot be truncated to offset {offset}")
        if offset >= self.log_end_offset:
            # This replica may have begun an epoch without writing anything in it.
            self._keep_epochs(self._epochs.truncate_tail(Offset(self.log_end_offset)))
            return False
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        had_producers = len(self._producers) > 0
        try:
            self._lower_recovery_point(offset)
            self._delete_segments([s for s in self._segments if s.base_offset > offset])
            self._active = self._segments.last
            offset = self._active.truncate_to(offset, self._clock.wall_ms())
            self.log_end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._keep_epochs(self._epochs.truncate_tail(Offset(offset)))
            self._rebuild_producers(offset, had_producers=had_producers)
        except OSError as error:
            raise self.fail(error) from error
        self._plan_roll()
        return True

    def _lower_recovery_point(self, offset: int) -> None:
        """What follows in place of the truncated records will not be synced yet.

        A checkpoint that says otherwise must not outlive a crash, so it is lowered first.
        """
        self._generation += 1
        self._has_new_names = True
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._on_recovery_point_lowered()

    def _rebuild_producers(self, end_offset: int, *, had_producers: bool) -> None:
        self._snapshots.load_latest(
            self._producers,
            log_start_offset=self.log_start_offset,
            end_offset=end_offset,
            now_ms=self._clock.wall_ms(),
        )
        if had_producers:
            replay_segments(
                self._producers,
                self._segments,
                log_start_offset=self.log_start_offset,
                end_offset=end_offset,
            )
        self._producers.end_offset = Offset(end_offset)
        self._snapshots.take(self._producers)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop every record and continue at `offset`."""
        self._check_usable()
        try:
            self._lower_recovery_point(offset)
            self._delete_segments(list(self._segments))
            self._active = self._new_segment(offset)
            self._segments.add(self._active)
            self.log_end_offset = offset
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._keep_epochs(self._epochs.clear())
            self._snapshots.remove_all()
            self._producers.clear_and_start_at(Offset(offset))
        except OSError as error:
            raise self.fail(error) from error
        self._plan_roll()

    def advance_log_start_offset(self, offset: int) -> bool:
        """Forget records below `offset` (DeleteRecords); True if that was news."""
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log of {self.topic_partition} cannot start at {offset}, as it ends at"
                f" {self.log_end_offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._producers.on_log_start_offset_incremented(Offset(offset))
        self._keep_epochs(self._epochs.truncate_head(Offset(offset)))
        return True

    def delete_old_segments(self, high_watermark: int) -> int:
        """Delete what has outlived its retention; the number of segments."""
        self._check_usable()
        config = self.config
        try:
            facts = [
                SegmentFacts(
                    Offset(segment.base_offset), segment.size, segment.largest_timestamp_ms()
                )
                for segment in self._segments
            ]
            retention = decide_retention(
                facts,
                is_delete_policy=config.is_deleted_by_retention,
                retention_bytes=config.retention_bytes,
                retention_ms=config.retention_ms,
                now_ms=self._clock.wall_ms(),
                high_watermark=Offset(high_watermark),
                log_start_offset=Offset(self.log_start_offset),
                log_end_offset=Offset(self.log_end_offset),
            )
            if not retention.deletions:
                return 0
            if retention.must_roll:
                self.roll()
            self.advance_log_start_offset(retention.log_start_offset)
            # A power cut may undo any of the deletions, and leave a hole between the rest.
            self._on_log_start_offset_advanced()
            doomed = {base_offset for base_offset, _ in retention.deletions}
            self._delete_segments([s for s in self._segments if s.base_offset in doomed])
        except OSError as error:
            raise self.fail(error) from error
        return len(retention.deletions)

    def _delete_segments(self, segments: list[Segment]) -> None:
        """Take segments out of the log; their files go once no reader can hold them."""
        paths: list[str] = []
        for segment in segments:
            self._segments.remove(segment)
            paths += segment.mark_deleted()
            self._snapshots.remove(Offset(segment.base_offset))
        if paths:
            due_ms = self._clock.wall_ms() + self.config.file_delete_delay_ms
            self._pending_removals.append((due_ms, paths))
            self._has_new_names = True

    def remove_deleted_files(self, *, now_ms: int | None = None) -> None:
        """Remove the files of deleted segments whose delay is over; all of them if None."""
        kept = []
        for due_ms, paths in self._pending_removals:
            if now_ms is not None and due_ms > now_ms:
                kept.append((due_ms, paths))
                continue
            for path in paths:
                if self._disk.exists(path):
                    self._disk.remove(path)
        self._pending_removals = kept

    # Ending.

    def close(self) -> None:
        """Close in order: flushed, with indexes and a producer snapshot that can be trusted."""
        if self.is_closed:
            return
        if self.failure is None:
            try:
                self._producers.end_offset = Offset(self.log_end_offset)
                self._snapshots.take(self._producers)
                self.remove_deleted_files()
            except OSError as error:
                raise self.fail(error) from error
            is_untouched = self._is_empty or (
                self.recovery_point == self.log_end_offset
                and self._active.is_index_saved
                and not self._has_new_names
                and not self._snapshots.has_unsynced
            )
            if not is_untouched:
                self._perform(self.begin_flush(is_closing=True))
        self.abandon()

    @property
    def _is_empty(self) -> bool:
        """Nothing was ever written: there may be no file, and nothing to lose."""
        return self.log_end_offset == 0 and self._active.size == 0

    def abandon(self) -> None:
        """Close the files and write nothing: the directory is gone or about to be."""
        self.is_closed = True
        for segment in self._segments:
            segment.log.retire()

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_closed:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The log of {self.topic_partition} is closed"
            )


def check_given_batch(records: Buffer, place: int, end: int) -> BatchHeader:
    """A batch that a leader wrote: sound, but compaction may have thinned it out."""
    try:
        return check_batch(records, place, end)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_RECORD:
            raise
        header = BatchHeader._make(_unpack_header(records, place))
        if header.magic != MAGIC:
            raise
        return header
