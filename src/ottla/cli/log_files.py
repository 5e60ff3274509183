"""What is in a file of a log directory, as rows. Pure: bytes and a name in, rows out.

Segments, indexes, producer snapshots, metadata snapshots and the small text files are told apart
by their names, as Kafka does. A file may be damaged, which is why people look at it: rows come
until the damage, which is then raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.cli.errors import CliError
from ottla.cli.log_indexes import (
    offset_index_rows,
    producer_snapshot_rows,
    time_index_rows,
    transaction_index_rows,
)
from ottla.cli.log_records import DECODERS, Decode, decoder_for, plain, text
from ottla.cli.record_format import timestamp_text
from ottla.protocol import batches
from ottla.protocol.ids import Offset
from ottla.storage.files.names import FileKind, parse_segment_file_name

Row = Mapping[str, Any]
Rows = Iterator[Row]

# A record may claim any size once decompressed; this is what one batch may take here.
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024


class DamagedFileError(Exception):
    """A file that ends in something else than what it began with."""


def rows_of(
    path: str,
    data: memoryview,
    *,
    is_deep: bool = False,
    records_kind: str | None = None,
    segment: memoryview | None = None,
    advance: Callable[[int], None] | None = None,
) -> Rows:
    """The rows of a file, chosen by its name.

    `records_kind` says what the records are, instead of the directory. `segment` are the bytes
    that an index is checked against. `advance` hears of bytes that are read.
    """
    name = path.rpartition("/")[2]
    if name.endswith(".checkpoint"):
        return batch_rows(data, DECODERS["metadata"], is_deep=is_deep, advance=advance)
    if (reader := _SMALL_FILES.get(name)) is not None:
        return reader(bytes(data), path)
    parsed = parse_segment_file_name(name)
    if parsed is None:
        raise CliError(
            f"{path} is no file that Kafka writes; give a .log, .index, .timeindex, .txnindex, "
            ".snapshot or .checkpoint file, or one of a log directory's text files."
        )
    if parsed.kind is FileKind.LOG:
        decode = decoder_for(path, records_kind)
        return batch_rows(data, decode, is_deep=is_deep, advance=advance)
    return _INDEX_FILES[parsed.kind](bytes(data), parsed.offset, segment)


def segment_beside(path: str) -> str | None:
    """The segment that an index can be checked against, if the file is an index."""
    directory, _, name = path.rpartition("/")
    parsed = parse_segment_file_name(name)
    if parsed is None or parsed.kind not in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        return None
    return f"{directory}/{name.partition('.')[0]}.log"


def batch_rows(
    data: memoryview,
    decode: Decode | None,
    *,
    is_deep: bool,
    advance: Callable[[int], None] | None,
) -> Rows:
    """Each batch of a segment, or with `is_deep` each record."""
    from ottla.protocol.errors import KafkaError

    end = 0
    try:
        for position, header in batches.iter_batches(data):
            batch = data[position : position + header.size_bytes]
            if is_deep:
                yield from _record_rows(batch, header, decode)
            else:
                yield _batch_row(data, position, header)
            end = position + header.size_bytes
            if advance is not None:
                advance(header.size_bytes)
    except KafkaError:
        # Zeros are room that was set aside for the segment and never written.
        if any(data[end : end + batches.HEADER_BYTES]):
            raise
        return
    if any(data[end:]):
        raise DamagedFileError(f"{len(data) - end} bytes at position {end} are no whole batch")


def _batch_row(data: memoryview, position: int, header: batches.BatchHeader) -> Row:
    from ottla.protocol.errors import KafkaError

    try:
        batches.check_batch(data, position, position + header.size_bytes)
        problem = None
    except KafkaError as error:
        # Compaction leaves fewer records than offsets, which a producer may not send.
        problem = None if _is_compacted(header) else str(error)
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "leader_epoch": header.partition_leader_epoch,
        "size_bytes": header.size_bytes,
        "position": position,
        "codec": header.codec.name.lower(),
        "max_timestamp": timestamp_text(header.max_timestamp, is_iso=True),
        "producer_id": _unless_negative(header.producer_id),
        "producer_epoch": _unless_negative(header.producer_epoch),
        "base_sequence": _unless_negative(header.base_sequence),
        "transactional": header.is_transactional,
        "control": header.is_control,
        "timestamp_type": header.timestamp_type.name.lower(),
        "crc": header.crc,
        "problem": problem,
    }


def _is_compacted(header: batches.BatchHeader) -> bool:
    return 0 <= header.records_count <= header.last_offset_delta


def _record_rows(batch: memoryview, header: batches.BatchHeader, decode: Decode | None) -> Rows:
    for record in batches.iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
        row: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": timestamp_text(record.timestamp_ms, is_iso=True),
            "key": text(record.key),
            "value": text(record.value),
            "headers": {name.decode(errors="replace"): text(v) for name, v in record.headers},
        }
        if header.is_control:
            row |= _control_fields(record.key, record.value)
        elif decode is not None:
            row |= decode(record.key, record.value)
        yield row


def _control_fields(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    kind = batches.parse_control_key(key)
    if kind in (batches.ControlType.ABORT, batches.ControlType.COMMIT):
        epoch = batches.parse_end_txn_marker(value)
        return {"key": kind.name, "value": {"coordinator_epoch": epoch}}
    if kind is None:
        return {"key": "unknown control record"}
    from ottla.raft.control_records import decode_control

    return {"key": kind.name, "value": plain(decode_control(key, value))}


_INDEX_FILES: Mapping[FileKind, Callable[[bytes, Offset, memoryview | None], Rows]] = {
    FileKind.OFFSET_INDEX: offset_index_rows,
    FileKind.TIME_INDEX: time_index_rows,
    FileKind.TRANSACTION_INDEX: transaction_index_rows,
    FileKind.SNAPSHOT: producer_snapshot_rows,
}


def _meta_properties_rows(data: bytes, path: str) -> Rows:
    from ottla.storage.files.meta_properties import decode_meta_properties

    yield plain(decode_meta_properties(data, path)._asdict())


def _partition_metadata_rows(data: bytes, path: str) -> Rows:
    from ottla.storage.files.partition_metadata import decode_partition_metadata

    yield {"topic_id": plain(decode_partition_metadata(data, path))}


def _leader_epoch_rows(data: bytes, path: str) -> Rows:
    from ottla.storage.files.checkpoint import decode_leader_epochs

    for entry in decode_leader_epochs(data, path):
        yield {"epoch": entry.epoch, "start_offset": entry.start_offset}


def _offset_checkpoint_rows(data: bytes, path: str) -> Rows:
    from ottla.storage.files.checkpoint import decode_offsets

    for topic_partition, offset in sorted(decode_offsets(data, path).items()):
        yield {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "offset": offset,
        }


def _quorum_state_rows(data: bytes, path: str) -> Rows:
    from ottla.raft.quorum_state import parse_quorum_state

    yield plain(parse_quorum_state(data.decode())._asdict())


_SMALL_FILES: Mapping[str, Callable[[bytes, str], Rows]] = {
    "meta.properties": _meta_properties_rows,
    "partition.metadata": _partition_metadata_rows,
    "leader-epoch-checkpoint": _leader_epoch_rows,
    "recovery-point-offset-checkpoint": _offset_checkpoint_rows,
    "replication-offset-checkpoint": _offset_checkpoint_rows,
    "log-start-offset-checkpoint": _offset_checkpoint_rows,
    "cleaner-offset-checkpoint": _offset_checkpoint_rows,
    "quorum-state": _quorum_state_rows,
}


def _unless_negative(number: int) -> int | None:
    return None if number < 0 else number
