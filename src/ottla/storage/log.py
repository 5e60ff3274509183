"""One partition's records on disk: appending to them and reading them.

`append_as_leader` is the hottest call of the broker. A batch of one record must cost a few
microseconds beyond its CRC, so the header is unpacked once, what it says decides whether the
batch can be written as it came, offset and leader epoch are patched in place (the CRC does
not cover them), and one `pwrite` follows. Whatever is unusual goes through `rewriting`.

A write that the disk refuses is cut off again. A full disk refuses that one append; any other
error, or one that cannot be undone, takes the directory offline (LogDirFailure).

What the log consists of, and its invariants, are in `log_state`; truncation and retention in
`log_trimming`, searches by timestamp in `log_searching`. Owned by the event loop.
"""

from functools import partial
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

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
from ottla.protocol.ids import Offset, ProducerId
from ottla.runtime.interfaces import Buffer, Offload
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.producer_state import (
    NO_VERIFICATION_GUARD,
    Duplicate,
)
from ottla.storage.core.transaction_index import AbortedTransaction
from ottla.storage.failures import DESCRIPTOR_ERRNOS
from ottla.storage.log_searching import SearchableLog
from ottla.storage.producer_replay import (
    Marker,
    marker_of,
    note_completed,
    replay_control_batch,
    replay_data_batch,
)
from ottla.storage.rewriting import COMPRESSED_RECORDS_MAX, prepare_batch
from ottla.storage.segment import Segment
from ottla.storage.slices import EMPTY_SLICE, UNBOUNDED, LogSlice
from ottla.storage.would_wait import Prepare, WouldWait

_PLACE = Struct(">qii")
_unpack_header = HEADER.unpack_from
_place_into = _PLACE.pack_into

# What a batch may say of itself and still be written as it came: codec, transactional.
_PLAIN_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_MASK

# Looking a member up in its enumeration costs as much as a comparison.
_CLIENT = AppendOrigin.CLIENT
_COORDINATOR = AppendOrigin.COORDINATOR
_CODEC_MAX = int(Codec.ZSTD)


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless the topic keeps it
    log_start_offset: int
    is_duplicate: bool


class PartitionLog(SearchableLog):
    __slots__ = ()

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
        if size >= HEADER_BYTES and self._is_plain and origin is _CLIENT:
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
                and 0 < count <= COMPRESSED_RECORDS_MAX
                and size <= self._message_bytes_max
                and max_timestamp_ms - now_ms <= self._timestamp_ahead_ms_max
                and (codec == self._codec_number or self._codec_number < 0)
                and codec <= _CODEC_MAX
                and (base_sequence >= 0 or producer_id < 0)
                and crc32c(memoryview(records)[ATTRIBUTES_AT:]) == crc
            ):
                if codec == 0:
                    walk_record_lengths(records, HEADER_BYTES, size, count)
                if producer_id >= 0:
                    is_transactional = attributes & TRANSACTIONAL_MASK != 0
                    duplicate = self._producers.check(
                        producer_id, producer_epoch, base_sequence, delta,
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
                        producer_id, producer_epoch, base_sequence,
                        Offset(base_offset), Offset(last_offset), max_timestamp_ms,
                        is_transactional,
                    )  # fmt: skip
                if self.log_end_offset - self.recovery_point >= self._flush_messages:
                    self.flush()
                return AppendResult(base_offset, last_offset, -1, self.log_start_offset, False)
        if origin is _COORDINATOR and self._is_own_plain and size <= self._message_bytes_max:
            return self._append_own(records, size, leader_epoch, guard, transaction_version)
        return self._append_slowly(records, leader_epoch, origin, guard, transaction_version)

    def _append_own(
        self,
        records: bytearray | memoryview,
        size: int,
        leader_epoch: int,
        guard: int,
        transaction_version: int,
    ) -> AppendResult:
        """What this broker built itself a moment ago needs no looking through."""
        (
            _, length, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, *_,
        ) = _unpack_header(records)  # fmt: skip
        if producer_id >= 0 or attributes & ~CODEC_MASK:
            return self._append_slowly(
                records, leader_epoch, _COORDINATOR, guard, transaction_version
            )
        now_ms = self._clock.wall_ms()
        base_offset = self._write(
            records, size, length, delta, max_timestamp_ms, leader_epoch, now_ms
        )
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.flush()
        return AppendResult(base_offset, base_offset + delta, -1, self.log_start_offset, False)

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
        # `core.rolling.should_roll`, asked without a call: where it may say yes it is called.
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
        if error.errno in DESCRIPTOR_ERRNOS:
            return self._refuse(error)  # there was no write
        try:
            segment.undo_failed_append()
        except OSError as second:
            return self.fail(second)
        return self._refuse_or_fail(error)

    # Reading.

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        end_offset: int,
        at_least_one: bool,
        may_wait: bool = True,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset` on, all of them below `end_offset`.

        At most `bytes_max` bytes, but the first batch whole if `at_least_one`. The slice
        must be released. OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset].
        Raises WouldWait where the place must be looked for on the disk, unless it `may_wait`.
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
                        segment,
                        log_end_offset,
                        offset,
                        bytes_max,
                        end_offset,
                        at_least_one,
                        may_wait,
                    )
                    or EMPTY_SLICE
                )
            return self._read_older(offset, bytes_max, end_offset, at_least_one, may_wait)
        except WouldWait as wait:
            raise WouldWait(partial(self._prepare, wait.prepare)) from None
        except OSError as error:
            raise self._refuse_or_fail(error) from error

    async def _prepare(self, prepare: Prepare, offload: Offload) -> None:
        try:
            await prepare(offload)
        except FileNotFoundError:
            return  # deleted or renamed meanwhile: who reads again finds out
        except OSError as error:
            raise self._refuse_or_fail(error) from error

    def read_small(self, offset: int, bytes_max: int, end_offset: int) -> bytes | bytearray | None:
        """What `read` with `at_least_one` would find, where one small read of one file finds it.

        None is no answer: `read` says what is there.
        """
        if not self.log_start_offset <= offset < end_offset or self.failure is not None:
            return None
        segment: Segment | None = self._active
        if offset < self._active.base_offset:
            segment = self._segments.at(max(self._segments.floor_index(offset), 0))
        try:
            return None if segment is None else segment.read_small(offset, bytes_max, end_offset)
        except OSError as error:
            raise self._refuse_or_fail(error) from error

    def _read_older(
        self, offset: int, bytes_max: int, end_offset: int, at_least_one: bool, may_wait: bool
    ) -> LogSlice:
        """Read from the segment that holds `offset`, or from the next that has records."""
        segments = self._segments
        index = max(segments.floor_index(offset), 0)  # the log may start in a hole
        while (segment := segments.at(index)) is not None and segment.base_offset < end_offset:
            segment_end = segments.end_offset_of(segment, self.log_end_offset)
            found = self._read_segment(
                segment, segment_end, offset, bytes_max, end_offset, at_least_one, may_wait
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
        may_wait: bool,
    ) -> LogSlice | None:
        """None if no batch of this segment reaches `offset`."""
        start = segment.position_of(offset, may_wait)
        if start is None:
            return None
        bound = segment.position_of(end_offset, may_wait) if end_offset < segment_end else None
        limit = segment.size if bound is None else bound
        if limit <= start:
            return EMPTY_SLICE
        end = segment.whole_batches_end(start, bytes_max, limit, may_wait)
        available = limit - start
        if bound is None and segment is not self._active:
            available = UNBOUNDED
        if end == start:
            if not at_least_one:
                return EMPTY_SLICE._replace(available=available)
            end = start + segment.first_batch_size(start, may_wait)
        elif end == bound:
            segment.remember_cursor(end_offset, end)
        return LogSlice(segment.log.pin(), start, end - start, segment.log, available)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that touch [first_offset, end_offset), by their last offsets."""
        found: list[AbortedTransaction] = []
        for segment in self._segments.from_floor(first_offset):
            part = segment.txn_index.collect(Offset(first_offset), Offset(end_offset))
            found += part.transactions
            if part.is_complete:
                break
        return found

    def end_bound_of(self, found: LogSlice, fetch_offset: int, end_offset: int) -> int:
        """An offset, at most `end_offset`, that the records of a read do not reach.

        Near their end, not exact: the index knows it without a look at the records.
        """
        segments = self._segments
        index = max(segments.floor_index(fetch_offset), 0)
        while (segment := segments.at(index)) is not None:
            if segment.log is found.pin:
                bound = None
                if segment.has_indexes:
                    bound = segment.offset_index.upper_bound(found.position + found.length)
                after = segments.end_offset_of(segment, self.log_end_offset)
                return min(after if bound is None else bound.offset, end_offset)
            index += 1
        return end_offset

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
