"""The `.snapshot` files of a partition: their bytes, and which of them to keep.

A snapshot at offset N is the producer state after every record below N, so that a start
need not read the whole log again. Kafka's holds the last batch of each producer only, so there a
duplicate of an older one is answered OUT_OF_ORDER_SEQUENCE_NUMBER after a restart: a batch that
was stored is said not to be. So the older batches follow after what Kafka wants to see; Kafka
checks the CRC over the whole file and does not look at what it did not expect. Of a file that
Kafka wrote, the last batches are known.

Pure. A file is: version 1 (2 bytes), CRC32C of all that follows, the number of entries, the
entries of 46 bytes each; then, if there are any, `_OLDER_HEAD` and the older batches of 32 bytes
each, those of one producer in their order; big-endian.
"""

from collections.abc import Collection, Iterable
from itertools import pairwise
from struct import Struct

from crc32c import crc32c

from ottla.protocol.ids import Offset, ProducerId
from ottla.storage.core.producer_state import (
    SEQUENCE_MAX,
    Batch,
    ProducerEntry,
    last_sequence_of,
)

VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")
_OLDER_HEAD = b"ottla 1\n"
_OLDER = Struct(">qiqiq")  # producer id, base sequence, last offset, offset delta, timestamp


class CorruptSnapshotError(Exception):
    """The bytes are no snapshot; the shell deletes the file and tries an older one."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's content."""
    parts = []
    older = []
    for entry in entries:
        for one in entry.batches[:-1]:
            older.append(
                _OLDER.pack(
                    entry.producer_id,
                    one.base_sequence,
                    one.last_offset,
                    one.offset_delta,
                    one.timestamp_ms,
                )
            )
        if entry.batches:
            batch = entry.batches[-1]
            last_offset, offset_delta = int(batch.last_offset), batch.offset_delta
        else:
            last_offset, offset_delta = -1, 0
        first_offset = entry.transaction_first_offset
        parts.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                last_offset,
                offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                -1 if first_offset is None else first_offset,
            )
        )
    count = len(parts).to_bytes(4, "big")
    body = b"".join((*parts, _OLDER_HEAD, *older) if older else parts)
    return _HEAD.pack(VERSION, crc32c(body, crc32c(count)), len(parts)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers of a file, in its order; CorruptSnapshotError if it is none."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few for a snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"snapshot version {version} is unknown")
    if crc != crc32c(memoryview(data)[_CRC_END:]):
        raise CorruptSnapshotError("the checksum does not match")
    view = memoryview(data)
    entries_end = _HEAD.size + count * _ENTRY.size
    if count < 0 or entries_end > len(data):
        raise CorruptSnapshotError(f"{len(data)} bytes do not hold {count} entries")
    entries = [_entry_of(fields) for fields in _ENTRY.iter_unpack(view[_HEAD.size : entries_end])]
    if entries_end < len(data):
        _restore_older(entries, view[entries_end:])
    return entries


def _restore_older(entries: Iterable[ProducerEntry], tail: memoryview) -> None:
    head_bytes = len(_OLDER_HEAD)
    if tail[:head_bytes] != _OLDER_HEAD or (len(tail) - head_bytes) % _OLDER.size:
        raise CorruptSnapshotError(f"the last {len(tail)} bytes mean nothing")
    batches: dict[int, list[Batch]] = {}
    for producer_id, base, last_offset, delta, timestamp_ms in _OLDER.iter_unpack(
        tail[head_bytes:]
    ):
        batches.setdefault(producer_id, []).append(
            Batch(base, last_sequence_of(base, delta), Offset(last_offset), delta, timestamp_ms)
        )
    for entry in entries:
        if entry.producer_id in batches:
            entry.batches[:0] = batches[entry.producer_id]
            entry.is_consecutive = all(
                after.base_sequence == before.last_sequence + 1
                for before, after in pairwise(entry.batches)
            )


def _entry_of(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator, first = fields
    entry = ProducerEntry(ProducerId(producer_id))
    entry.epoch = epoch
    entry.coordinator_epoch = coordinator
    entry.last_timestamp_ms = timestamp_ms
    entry.transaction_first_offset = Offset(first) if first >= 0 else None
    if last_offset >= 0:
        has_sequence = last_sequence >= 0
        base_sequence = (last_sequence - delta) & SEQUENCE_MAX if has_sequence else last_sequence
        entry.last_sequence = last_sequence
        entry.batches = [
            Batch(base_sequence, last_sequence, Offset(last_offset), delta, timestamp_ms)
        ]
    return entry


def outside(
    snapshot_offsets: Iterable[Offset], *, log_start_offset: Offset, log_end_offset: Offset
) -> list[Offset]:
    """Snapshots that a truncation to this range invalidates; the newest other is to load."""
    return [
        offset for offset in snapshot_offsets if not log_start_offset < offset <= log_end_offset
    ]


def strays(
    snapshot_offsets: Iterable[Offset], segment_base_offsets: Collection[Offset]
) -> list[Offset]:
    """Snapshots that belong to no segment, but for the newest of them if no segment is newer.

    That one was written by a clean shutdown, at the log end offset.
    """
    bases = set(segment_base_offsets)
    stray = sorted(offset for offset in snapshot_offsets if offset not in bases)
    if stray and (not bases or stray[-1] > max(bases)):
        stray.pop()
    return stray
