"""The `.snapshot` files of a partition: their bytes, and which of them to keep.

A snapshot at offset N is the producer state after every record below N, so that a start
need not read the whole log again. It keeps the last batch of each producer only; those before
it are looked for in the log (`producer_replay`).

Pure. A file is: version 1 (2 bytes), CRC32C of all that follows, the number of entries, the
entries of 46 bytes each; big-endian.
"""

from collections.abc import Collection, Iterable
from struct import Struct

from crc32c import crc32c

from ottla.protocol.ids import Offset, ProducerId
from ottla.storage.core.producer_state import SEQUENCE_MAX, Batch, ProducerEntry

VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """The bytes are no snapshot; the shell deletes the file and tries an older one."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's content."""
    parts = []
    for entry in entries:
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
    body = b"".join(parts)
    count = len(parts).to_bytes(4, "big")
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
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{len(data)} bytes do not hold {count} entries")
    return [_entry_of(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]


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
