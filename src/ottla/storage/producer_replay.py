"""What written batches mean for the producer state: the one path for followers and recovery.

The leader decides whether a batch may be written (ProducerState.check); whoever finds it
written, because the leader sent it or because it lies on disk, only repeats its effect.

Functions over objects that the PartitionLog owns.
"""

from ottla.protocol.batches import (
    BatchHeader,
    ControlType,
    iter_records,
    parse_control_key,
    parse_end_txn_marker,
)
from ottla.protocol.ids import Offset, ProducerId
from ottla.runtime.interfaces import Buffer
from ottla.storage.core.producer_state import (
    Batch,
    CompletedTransaction,
    ProducerState,
    last_sequence_of,
)
from ottla.storage.core.transaction_index import AbortedTransaction
from ottla.storage.log_segments import LogSegments
from ottla.storage.segment import Segment

# How many batch headers are read to recall those of one producer, and of all: a tenth of a second.
RECALL_NEARBY_MAX = 5_000
RECALL_MAX = 50_000
_RECALL_CHUNK_BYTES = 64 * 1024


class Marker:
    """The end of a transaction, as its control batch says it."""

    __slots__ = ("coordinator_epoch", "is_abort")

    def __init__(self, *, is_abort: bool, coordinator_epoch: int) -> None:
        self.is_abort = is_abort
        self.coordinator_epoch = coordinator_epoch


def marker_of(batch: Buffer) -> Marker | None:
    """The transaction marker in a control batch; None if it is of another kind or empty."""
    for record in iter_records(batch):
        control_type = parse_control_key(record.key)
        if control_type not in (ControlType.COMMIT, ControlType.ABORT):
            return None
        return Marker(
            is_abort=control_type is ControlType.ABORT,
            coordinator_epoch=parse_end_txn_marker(record.value),
        )
    return None  # compaction emptied it


def replay_data_batch(producers: ProducerState, header: BatchHeader) -> None:
    """Remember a written batch of records."""
    producers.apply(
        ProducerId(header.producer_id),
        header.producer_epoch,
        header.base_sequence,
        Offset(header.base_offset),
        Offset(header.last_offset),
        header.max_timestamp,
        header.is_transactional,
    )


def replay_control_batch(
    producers: ProducerState, header: BatchHeader, batch: Buffer
) -> CompletedTransaction | None:
    """Remember a written control batch; the transaction that it completed."""
    marker = marker_of(batch)
    if marker is None:
        return None
    return producers.apply_marker(
        ProducerId(header.producer_id),
        header.producer_epoch,
        marker.coordinator_epoch,
        offset=Offset(header.base_offset),
        timestamp_ms=header.max_timestamp,
        is_abort=marker.is_abort,
    )


def note_completed(segment: Segment, completed: CompletedTransaction) -> None:
    """Put an aborted transaction into the index of the segment that holds its marker."""
    if completed.is_aborted:
        segment.note_aborted(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )


def replay_segments(
    producers: ProducerState, segments: LogSegments, *, log_start_offset: int, end_offset: int
) -> None:
    """Bring what a snapshot says up to `end_offset` by reading batch headers."""
    _recall_batches(producers, segments, log_start_offset)
    for segment in segments.from_floor(producers.end_offset):
        if segment.base_offset >= end_offset:
            break
        start_offset = max(segment.base_offset, producers.end_offset, log_start_offset)
        position = segment.position_of(start_offset)
        if position is None:
            continue
        for at, header in segment.headers(position):
            if header.last_offset >= end_offset:
                break
            if header.producer_id >= 0:
                if header.is_control:
                    replay_control_batch(producers, header, segment.batch_at(at, header))
                else:
                    replay_data_batch(producers, header)
    producers.end_offset = Offset(end_offset)


def _recall_batches(producers: ProducerState, segments: LogSegments, log_start_offset: int) -> None:
    """Find the batches again that a snapshot does not name: all but the last of each producer.

    `producers` is the state at its end offset, from a snapshot. Those that a client had under way
    together lie close together, so the headers before each last batch are read backwards, the
    newest first, until nothing is missed or it is far enough.
    """
    missed = {one.producer_id: one for one in producers.entries() if one.has_batches_before}
    read, before = 0, int(producers.end_offset)
    for entry in sorted(missed.values(), key=lambda one: one.batches[-1].last_offset, reverse=True):
        before = min(before, entry.batches[-1].last_offset)
        read_max = min(read + RECALL_NEARBY_MAX, RECALL_MAX)
        while entry.producer_id in missed and before > log_start_offset and read < read_max:
            headers = _headers_before(segments, before)
            if not headers:
                return
            for header in reversed(headers):
                found = missed.get(ProducerId(header.producer_id))
                if (
                    found is not None
                    and not header.is_control
                    and header.last_offset >= log_start_offset
                    and not found.recall(header.producer_epoch, _batch_of(header))
                ):
                    del missed[found.producer_id]
            read, before = read + len(headers), headers[0].base_offset
        missed.pop(entry.producer_id, None)


def _headers_before(segments: LogSegments, offset: int) -> list[BatchHeader]:
    """Some of the batches that end before the one with `offset` begins, in their order."""
    at = segments.floor_index(offset - 1)
    while (segment := segments.at(at)) is not None:
        end = segment.position_of(offset)
        end = segment.size if end is None else end
        start = segment.offset_index.floor_position(max(end - _RECALL_CHUNK_BYTES, 0))
        if end:
            return [header for _, header in segment.headers(start, end)]
        at -= 1
    return []


def _batch_of(header: BatchHeader) -> Batch:
    delta = header.last_offset - header.base_offset
    return Batch(
        header.base_sequence,
        last_sequence_of(header.base_sequence, delta),
        Offset(header.last_offset),
        delta,
        header.max_timestamp,
    )
