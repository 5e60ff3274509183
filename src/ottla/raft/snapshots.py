"""The snapshots of the metadata log: their names, and what frames their records.

A snapshot `<end offset>-<epoch>.checkpoint` holds the state after every record before its end
offset, as batches between a header and a footer. One without a footer was not finished and does
not exist for us; the writer renames it into place last.

Pure. raft/log.py owns the files.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import Epoch, Offset
from ottla.raft.batches import MetadataBatch, data_batch, parse_batches, raft_batch
from ottla.raft.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.raft.node import Quorum
from ottla.raft.wire_records import CorruptRecordError

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
BOOTSTRAP_FILE_NAME = "bootstrap.checkpoint"
RECORDS_PER_BATCH = 1000
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    end_offset: Offset  # exclusive
    epoch: Epoch

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


class Snapshot(NamedTuple):
    last_contained_timestamp_ms: int
    quorum: Quorum | None  # None where the snapshot names no voters
    values: tuple[bytes, ...]


def parse_snapshot_name(name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(Offset(int(match[1])), Epoch(int(match[2])))


def snapshot_batches(
    values: Iterable[bytes],
    *,
    epoch: Epoch,
    quorum: Quorum | None,
    last_contained_timestamp_ms: int,
    now_ms: int,
) -> Iterator[bytearray]:
    """The snapshot as batches, header and footer included."""
    header: list[ControlRecord] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms)
    ]
    if quorum is not None and quorum.kraft_version > 0:
        header += [
            KRaftVersionRecord(kraft_version=quorum.kraft_version),
            VotersRecord(voters=quorum.voters),
        ]
    yield raft_batch(header, base_offset=Offset(0), epoch=epoch, timestamp_ms=now_ms)
    offset = len(header)
    for chunk in _chunks(values):
        yield data_batch(chunk, base_offset=Offset(offset), epoch=epoch, timestamp_ms=now_ms)
        offset += len(chunk)
    yield raft_batch(
        (SnapshotFooterRecord(),), base_offset=Offset(offset), epoch=epoch, timestamp_ms=now_ms
    )


def _chunks(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == RECORDS_PER_BATCH:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def parse_snapshot(content: bytes, path: str) -> Snapshot:
    try:
        return _snapshot_of(list(parse_batches(content)))
    except (KafkaError, CorruptRecordError) as error:
        raise CorruptRecordError(f"snapshot {path}: {error}") from error


def _snapshot_of(batches: Sequence[MetadataBatch]) -> Snapshot:
    control = [record for batch in batches for record in batch.control]
    if not control or not isinstance(control[0], SnapshotHeaderRecord):
        raise CorruptRecordError("it does not begin with a header")
    if not isinstance(control[-1], SnapshotFooterRecord):
        raise CorruptRecordError("it does not end with a footer")
    kraft_version, quorum = 0, None
    for record in control:
        if isinstance(record, KRaftVersionRecord):
            kraft_version = record.kraft_version
        elif isinstance(record, VotersRecord):
            quorum = Quorum(kraft_version, record.voters)
    values = tuple(value for batch in batches for value in batch.values)
    return Snapshot(control[0].last_contained_log_timestamp, quorum, values)
