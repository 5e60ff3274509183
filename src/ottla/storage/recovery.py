"""Opening a partition's directory: what a crash left is put right, then the log is built.

After a clean shutdown the files are trusted. After any other end, everything from the
recovery point on is suspect: the tail may be torn, a file may be shorter than what was
written to it or end in zeros, renamed files may bear their old names again, and indexes and
snapshots may be of any age. So the batches themselves are read, their length, format, CRC
and order checked, the first bad one and all after it cut off, and indexes, transaction
index, producer state, snapshots and leader epochs rebuilt on the way, in one pass.

Runs on the event loop when a log is first used, or in a thread while nobody can use the log.

Invariant: what is served after recovery is a prefix of what was written, of whole batches.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import Epoch, Offset, TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.storage.batch_headers import CorruptSegmentError
from ottla.storage.core.index_bytes import CorruptIndexError
from ottla.storage.core.leader_epochs import LeaderEpochs
from ottla.storage.core.producer_state import BATCHES_KEPT_MAX, ProducerState
from ottla.storage.core.time_index import NO_TIMESTAMP_MS
from ottla.storage.failures import PASSING_ERRNOS, DiskFull, LogDirFailure
from ottla.storage.file_pool import FilePool
from ottla.storage.files.checkpoint import (
    LEADER_EPOCHS,
    decode_leader_epochs,
    encode_leader_epochs,
)
from ottla.storage.files.malformed import MalformedFileError
from ottla.storage.files.names import FileKind, SegmentFileName
from ottla.storage.leftovers import settle_leftovers
from ottla.storage.log import PartitionLog
from ottla.storage.log_segments import LogSegments
from ottla.storage.log_state import LoadedLog
from ottla.storage.producer_replay import (
    note_completed,
    replay_control_batch,
    replay_data_batch,
    replay_segments,
)
from ottla.storage.producer_snapshot_files import ProducerSnapshotFiles
from ottla.storage.removals import Removals
from ottla.storage.segment import Segment

# Large enough that the calls cost nothing beside the CRC, small enough for the cache of a core.
_SCAN_CHUNK_BYTES = 256 << 10
_LOADER_FILES_MAX = 2
# Of a header: base offset, length, epoch, magic, CRC, last offset delta, largest timestamp and
# producer id.
_SCANNED_FIELDS = Struct(">qiibI2xi8xqq")


class OpenOptions(NamedTuple):
    """What the log manager knows about a partition before its directory is opened."""

    config: TopicConfig
    had_clean_shutdown: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    producer_expiration_ms: int = 86_400_000
    is_verification_required: bool = False
    leader_epoch: int | None = None  # begins at the end of the log


def open_log(
    runtime: Runtime,
    pool: FilePool,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    directory: str,
    options: OpenOptions,
    *,
    on_failure: Callable[[LogDirFailure], None] = lambda failure: None,
    on_recovery_point_lowered: Callable[[], None] = lambda: None,
    on_refusal: Callable[[DiskFull], None] = lambda refusal: None,
    removals: Removals | None = None,
) -> PartitionLog:
    """The log in `directory`, recovered if need be. Raises LogDirFailure.

    DiskFull if a recovery found no room for what it has to write; it may be tried again.

    `on_failure` and `on_refusal` are told of later ones only; this one is the caller's to handle.
    """
    try:
        loader = _Loader(runtime, directory, options)
        loaded = loader.load()
        loader.hand_over(loaded.segments, pool)
    except (OSError, MalformedFileError, CorruptSegmentError) as error:
        if isinstance(error, OSError) and error.errno in PASSING_ERRNOS:
            raise DiskFull(directory, error) from error
        raise LogDirFailure(directory.rpartition("/")[0], error) from error
    return PartitionLog(
        runtime,
        pool,
        topic_partition=topic_partition,
        topic_id=topic_id,
        directory=directory,
        config=options.config,
        loaded=loaded,
        on_failure=on_failure,
        on_recovery_point_lowered=on_recovery_point_lowered,
        on_refusal=on_refusal,
        removals=Removals(runtime) if removals is None else removals,
    )


class _Loader:
    def __init__(self, runtime: Runtime, directory: str, options: OpenOptions) -> None:
        self._disk = runtime.disk
        self._now_ms = runtime.clock.wall_ms()
        # Its own, so that a log can be opened in a thread.
        self._pool = FilePool(self._disk, _LOADER_FILES_MAX)
        self._directory = directory
        self._options = options
        self._epochs = LeaderEpochs()
        self._stored_epochs = LeaderEpochs()
        self._snapshots = ProducerSnapshotFiles(self._disk, directory)
        self._producers = ProducerState(
            expiration_ms=options.producer_expiration_ms,
            is_verification_required=options.is_verification_required,
        )
        self._has_state = False

    def load(self) -> LoadedLog:
        options = self._options
        files = settle_leftovers(self._disk, self._directory)
        self._snapshots.offsets = {file.offset for file in files if file.kind is FileKind.SNAPSHOT}
        stored_epochs = self._load_epochs()
        segments = LogSegments(self._load_segments(files))
        has_new_names = not options.had_clean_shutdown
        log_end_offset = self._recover(segments, _unindexed(files))
        if log_end_offset < options.log_start_offset:
            # Files were lost: what is left lies below what was deleted on purpose.
            self._drop(segments, list(segments))
        if not len(segments):
            log_end_offset = options.log_start_offset
            segments.add(self._create_segment(log_end_offset))
            self._epochs.clear()
            self._has_state = False
            has_new_names = log_end_offset > 0
        log_start_offset = max(options.log_start_offset, segments.first.base_offset)
        self._epochs.truncate_tail(Offset(log_end_offset))
        self._epochs.truncate_head(Offset(log_start_offset))
        if not options.had_clean_shutdown:
            self._restore_first_epochs(segments, log_start_offset)
        self._save_epochs(stored_epochs, log_end_offset)
        segments.last.become_active(log_end_offset)
        self._load_producers(segments, log_start_offset, log_end_offset)
        recovery_point = min(options.recovery_point, log_end_offset)
        return LoadedLog(
            segments,
            self._epochs,
            self._producers,
            self._snapshots,
            log_start_offset,
            log_end_offset,
            log_end_offset if options.had_clean_shutdown else recovery_point,
            has_new_names,
        )

    def hand_over(self, segments: LogSegments, pool: FilePool) -> None:
        """The log is built: from now on its files belong to the broker's pool."""
        # The log will ask for it, and this may be a thread, which must not use that pool.
        _ = segments.last.first_timestamp_ms
        for segment in segments:
            segment.move_to(pool)

    # Files.

    def _load_segments(self, files: list[SegmentFileName]) -> list[Segment]:
        bases = {file.offset for file in files if file.kind is FileKind.LOG}
        for file in files:
            if file.offset not in bases and file.kind is not FileKind.SNAPSHOT:
                self._disk.remove(f"{self._directory}/{file.offset:020d}{file.kind.value}")
        config = self._options.config
        with_txn_index = {file.offset for file in files if file.kind is FileKind.TRANSACTION_INDEX}
        segments = []
        for base_offset in sorted(bases):
            segment = Segment(
                self._disk,
                self._pool,
                self._directory,
                base_offset,
                size=self._disk.size(f"{self._directory}/{base_offset:020d}.log"),
                index_interval_bytes=config.index_interval_bytes,
                index_bytes_max=config.segment_index_bytes,
                created_ms=self._now_ms,
            )
            segment.has_txn_file = base_offset in with_txn_index
            segments.append(segment)
        return segments

    def _create_segment(self, base_offset: int) -> Segment:
        config = self._options.config
        return Segment.create(
            self._disk,
            self._pool,
            self._directory,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
            created_ms=self._now_ms,
            is_lazy=base_offset == 0,
        )

    def _drop(self, segments: LogSegments, doomed: list[Segment]) -> None:
        """Remove segments at once: nobody can be reading them."""
        for segment in doomed:
            segments.remove(segment)
            for path in segment.mark_deleted():
                self._disk.remove(path)
            self._snapshots.remove(Offset(segment.base_offset))

    def _load_epochs(self) -> bytes:
        path = f"{self._directory}/{LEADER_EPOCHS}"
        try:
            data = self._disk.read_bytes(path)
        except FileNotFoundError:
            return b""
        entries = decode_leader_epochs(data, path)
        self._epochs, self._stored_epochs = LeaderEpochs(entries), LeaderEpochs(entries)
        return data

    def _save_epochs(self, stored: bytes, log_end_offset: int) -> None:
        known, latest = self._epochs.entries, self._epochs.latest
        epoch = self._options.leader_epoch
        if epoch is not None and (latest is None or epoch > latest.epoch):
            self._epochs.assign(Epoch(epoch), Offset(log_end_offset))
        data = encode_leader_epochs(self._epochs.entries)
        if data == stored or not (stored or self._epochs.entries):
            return
        try:
            self._disk.write_atomic(f"{self._directory}/{LEADER_EPOCHS}", data)
        except OSError as error:
            if error.errno not in PASSING_ERRNOS or epoch is None:
                raise
            # There is something to read; who appends in the new epoch has to save it first.
            self._epochs = LeaderEpochs(known)

    def _restore_first_epochs(self, segments: LogSegments, log_start_offset: int) -> None:
        """Find epochs that were forgotten with segments whose deletion was then undone."""
        earliest = self._epochs.earliest
        known_from = None if earliest is None else earliest.start_offset
        if known_from is not None and known_from <= log_start_offset:
            return
        restored = LeaderEpochs()
        for segment in segments:
            for _, header in segment.headers():
                if known_from is not None and header.base_offset >= known_from:
                    break
                if header.partition_leader_epoch >= 0 and header.last_offset >= log_start_offset:
                    start = max(header.base_offset, log_start_offset)
                    restored.assign(Epoch(header.partition_leader_epoch), Offset(start))
        self._epochs = LeaderEpochs((*restored.entries, *self._epochs.entries))

    # Segments.

    def _recover(self, segments: LogSegments, unindexed: set[int]) -> int:
        """Recover what must be and drop what cannot follow; the log end offset."""
        if not len(segments):
            return self._options.log_start_offset
        unflushed = set(unindexed)
        is_clean = self._options.had_clean_shutdown
        if not is_clean:
            suspects = segments.from_floor(self._options.recovery_point)
            unflushed.update(segment.base_offset for segment in suspects)
        next_offset: int | None = None
        ordered = list(segments)
        for at, segment in enumerate(ordered):
            if self._contradicts(segment, next_offset):
                self._drop(segments, ordered[at:])
                break
            if at:
                ordered[at - 1].forget_indexes()  # all of a large log would fill the memory
            if segment.base_offset not in unflushed and self._has_sound_txn_index(segment):
                next_offset = None
                continue
            scanned = self._recover_segment(segment, segments)
            next_offset = scanned.next_offset
            if scanned.is_cut and not is_clean and not self._goes_on(ordered, at + 1, next_offset):
                self._drop(segments, ordered[at + 1 :])
                break
        return segments.last.read_next_offset() if next_offset is None else next_offset

    def _goes_on(self, ordered: list[Segment], at: int, next_offset: int) -> bool:
        """Whether what was cut off was only the room that a segment had been given."""
        return (
            self._options.config.preallocate
            and at < len(ordered)
            and ordered[at].base_offset == next_offset
        )

    def _contradicts(self, segment: Segment, next_offset: int | None) -> bool:
        """Whether a segment cannot follow one that was recovered up to `next_offset`."""
        if next_offset is None or next_offset == segment.base_offset:
            return False
        # Below: a truncated segment whose name came back. Above: the end of the one before
        # it never reached the disk; only compaction leaves such holes on purpose.
        if next_offset > segment.base_offset:
            return True
        return not self._options.had_clean_shutdown and not self._options.config.is_compacted

    def _has_sound_txn_index(self, segment: Segment) -> bool:
        if not segment.has_txn_file:
            return True
        try:
            segment.txn_index  # noqa: B018
        except CorruptIndexError:
            return False
        return True

    def _recover_segment(self, segment: Segment, segments: LogSegments) -> "_Scanned":
        producers = self._producers
        if not self._has_state or producers.end_offset != segment.base_offset:
            self._snapshots.load_latest(
                producers,
                log_start_offset=self._options.log_start_offset,
                end_offset=segment.base_offset,
                now_ms=self._now_ms,
            )
            replay_segments(
                producers,
                segments,
                log_start_offset=self._options.log_start_offset,
                end_offset=segment.base_offset,
            )
            self._has_state = True
        self._epochs.truncate_tail(Offset(segment.base_offset))
        scanned = scan_segment(segment, producers, self._epochs, self._stored_epochs)
        if scanned.size < segment.size:
            segment.log.use().truncate(scanned.size)
            segment.size = scanned.size
        segment.become_inactive()
        segment.save_indexes()
        producers.end_offset = Offset(scanned.next_offset)
        self._snapshots.replace(producers)
        return scanned

    def _load_producers(
        self, segments: LogSegments, log_start_offset: int, log_end_offset: int
    ) -> None:
        self._snapshots.remove_strays(segments.base_offsets)
        if self._has_state and self._producers.end_offset == log_end_offset:
            return
        has_snapshots = self._snapshots.latest is not None
        self._snapshots.load_latest(
            self._producers,
            log_start_offset=log_start_offset,
            end_offset=log_end_offset,
            now_ms=self._now_ms,
        )
        # Without any snapshot, a log that was closed in order has never seen a producer id.
        if has_snapshots or not self._options.had_clean_shutdown:
            replay_segments(
                self._producers,
                segments,
                log_start_offset=log_start_offset,
                end_offset=log_end_offset,
            )
        self._producers.end_offset = Offset(log_end_offset)
        if log_end_offset > log_start_offset:
            self._snapshots.take(self._producers)


def _unindexed(files: list[SegmentFileName]) -> set[int]:
    """Base offsets of segments that lack an index file which every closed segment has."""
    offsets = {
        kind: {file.offset for file in files if file.kind is kind}
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    }
    indexed = offsets[FileKind.OFFSET_INDEX] & offsets[FileKind.TIME_INDEX]
    return {int(offset) for offset in offsets[FileKind.LOG] - indexed}


class _Scanned(NamedTuple):
    size: int  # of the valid batches
    next_offset: int
    is_cut: bool


def scan_segment(
    segment: Segment, producers: ProducerState, epochs: LeaderEpochs, stored_epochs: LeaderEpochs
) -> _Scanned:
    """Read every batch of a segment up to the first bad one, rebuilding what follows from them.

    `producers` and `epochs` must be the state at the segment's base offset. `stored_epochs`
    may be of another history: a truncation may have been undone by the power cut.
    """
    segment.reset_indexes()
    replaying = _Replaying(segment, producers)
    latest = epochs.latest
    latest_epoch = -1 if latest is None else latest.epoch
    next_offset, offset_max = segment.base_offset, segment.offset_max
    position, size = 0, segment.size
    wanted = _SCAN_CHUNK_BYTES
    largest_ms, largest_offset = NO_TIMESTAMP_MS, next_offset
    run_bytes, run_bytes_max = 0, segment.index_interval_bytes
    is_sound = True
    unpack = _SCANNED_FIELDS.unpack_from
    while is_sound and size - position >= HEADER_BYTES:
        chunk = segment.log.use().pread(min(wanted, size - position), position)
        wanted = _SCAN_CHUNK_BYTES
        at, chunk_bytes = 0, len(chunk)
        last_start = chunk_bytes - HEADER_BYTES
        with memoryview(chunk) as view:
            while at <= last_start:
                base_offset, length, epoch, magic, crc, delta, timestamp_ms, producer_id = unpack(
                    chunk, at
                )
                end = at + length + LOG_OVERHEAD_BYTES
                last_offset = base_offset + delta
                if (
                    magic != MAGIC
                    or length < LENGTH_MIN
                    or base_offset < next_offset
                    or delta < 0
                    or last_offset > offset_max
                    or position + end > size
                ):
                    is_sound = False
                    break
                if end > chunk_bytes:
                    wanted = max(end - at, _SCAN_CHUNK_BYTES)
                    break
                if crc32c(view[at + ATTRIBUTES_AT : end]) != crc or not (
                    producer_id < 0 or replaying.take(producer_id, view, at, end)
                ):
                    is_sound = False
                    break
                if epoch > latest_epoch:
                    latest_epoch = epoch
                    start = _epoch_start(epoch, base_offset, next_offset, stored_epochs)
                    epochs.assign(Epoch(epoch), Offset(start))
                if run_bytes > run_bytes_max:
                    segment.note_recovered_run(run_bytes, largest_ms, largest_offset)
                    segment.note_recovered_batch(position + at, end - at, last_offset, timestamp_ms)
                    run_bytes, run_bytes_max = 0, segment.index_interval_bytes - (end - at)
                else:
                    run_bytes += end - at
                if timestamp_ms > largest_ms:
                    largest_ms, largest_offset = timestamp_ms, last_offset
                next_offset = last_offset + 1
                at = end
        if at == 0 and wanted == _SCAN_CHUNK_BYTES:
            break  # nothing sound, or fewer bytes than the file's size promised
        position += at
    replaying.finish()
    segment.note_recovered_run(run_bytes, largest_ms, largest_offset)
    return _Scanned(position, next_offset, position < size)


def _epoch_start(epoch: int, base_offset: int, next_offset: int, stored: LeaderEpochs) -> int:
    """Where the epoch of the batch at `base_offset`, the first of it, began.

    The checkpoint knows better than the batch where compaction removed those before it.
    """
    entry = stored.entry_of(Epoch(epoch))
    if entry is not None and next_offset <= entry.start_offset < base_offset:
        return entry.start_offset
    return base_offset


class _Replaying:
    """Repeats the effects of a segment's batches on producers and transactions.

    A producer's state remembers its last few batches, so of a long run outside of transactions
    only those are replayed.
    """

    __slots__ = ("_latest", "_producers", "_segment")

    def __init__(self, segment: Segment, producers: ProducerState) -> None:
        self._segment = segment
        self._producers = producers
        self._latest: dict[int, deque[bytes]] = {}

    def take(self, producer_id: int, view: memoryview, start: int, end: int) -> bool:
        """Note the batch at [start, end); False if it makes no sense."""
        if not view[start + ATTRIBUTES_AT + 1] & (TRANSACTIONAL_MASK | CONTROL_MASK):
            latest = self._latest.get(producer_id)
            if latest is None:
                latest = self._latest[producer_id] = deque(maxlen=BATCHES_KEPT_MAX)
            latest.append(bytes(view[start : start + HEADER_BYTES]))
            return True
        self.finish()
        header = BatchHeader._make(HEADER.unpack_from(view, start))
        if not header.is_control:
            replay_data_batch(self._producers, header)
            return True
        try:
            completed = replay_control_batch(self._producers, header, view[start:end])
        except KafkaError:
            return False
        if completed is not None:
            note_completed(self._segment, completed)
        return True

    def finish(self) -> None:
        """Replay what was put off."""
        for latest in self._latest.values():
            for header in latest:
                replay_data_batch(self._producers, BatchHeader._make(HEADER.unpack(header)))
        self._latest.clear()
