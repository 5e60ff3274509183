"""What do the indexes of a segment say, and does the segment agree? Pure: bytes in, rows out.

An index that points past its batches makes readers miss records without an error, so each entry
is held against the segment that lies beside it, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.cli.record_format import timestamp_text
from ottla.protocol import batches
from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import Offset

Rows = Iterator[Mapping[str, Any]]


def offset_index_rows(data: bytes, base_offset: Offset, segment: memoryview | None) -> Rows:
    """Each entry; its offset is the last one of the batch at its position."""
    from ottla.storage.core.offset_index import OffsetIndex

    index = OffsetIndex(base_offset, index_bytes_max=len(data), data=data)
    for slot in range(len(index)):
        entry = index.entry(slot)
        problem = None
        if segment is not None:
            last_offset = _last_offset_at(segment, entry.position)
            if last_offset is None:
                problem = "no batch begins there"
            elif last_offset != entry.offset:
                problem = f"the batch there ends with offset {last_offset}"
        yield {"offset": entry.offset, "position": entry.position, "problem": problem}


def _last_offset_at(segment: memoryview, position: int) -> int | None:
    if not 0 <= position < len(segment):
        return None
    try:
        return next(
            (header.last_offset for _, header in batches.iter_batches(segment, position)), None
        )
    except KafkaError:
        return None


def time_index_rows(data: bytes, base_offset: Offset, segment: memoryview | None) -> Rows:
    """Each entry: the greatest timestamp so far, and the last offset of the batch that has it."""
    from ottla.storage.core.time_index import TimeIndex

    index = TimeIndex(base_offset, index_bytes_max=len(data), data=data)
    timestamps = None if segment is None else _timestamps_by_last_offset(segment)
    previous_ms = -1
    for slot in range(len(index)):
        entry = index.entry(slot)
        problem = None
        if timestamps is not None and entry.offset not in timestamps:
            problem = "no batch ends with this offset"
        elif timestamps is not None and timestamps[entry.offset] != entry.timestamp_ms:
            problem = f"its batch has {timestamps[entry.offset]}"
        elif entry.timestamp_ms <= previous_ms:
            problem = "the timestamp is not above the one before"
        previous_ms = entry.timestamp_ms
        yield {
            "timestamp": timestamp_text(entry.timestamp_ms, is_iso=True),
            "timestamp_ms": entry.timestamp_ms,
            "offset": entry.offset,
            "problem": problem,
        }


def _timestamps_by_last_offset(segment: memoryview) -> dict[int, int]:
    found = {}
    try:
        for _, header in batches.iter_batches(segment):
            found[header.last_offset] = header.max_timestamp
    except KafkaError:
        pass  # zeros or damage at the end: what lies there has no entry
    return found


def transaction_index_rows(data: bytes, base_offset: Offset, _segment: memoryview | None) -> Rows:
    """Each transaction that was aborted."""
    from ottla.storage.core.transaction_index import TransactionIndex

    for aborted in TransactionIndex(base_offset, data).transactions:
        yield aborted._asdict()


def producer_snapshot_rows(data: bytes, _base_offset: Offset, _segment: memoryview | None) -> Rows:
    """Each producer that the log remembered."""
    from ottla.storage.core.producer_snapshots import decode_snapshot

    for entry in decode_snapshot(data):
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": timestamp_text(entry.last_timestamp_ms, is_iso=True),
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }
