# ruff: noqa: RUF009 (`wire` wraps `dataclasses.field`; its defaults are immutable)
"""The control records that Raft itself puts into the metadata log and its snapshots. Pure.

They tell who leads an epoch, who votes, which KRaft version is agreed, and where a snapshot
begins and ends. The state machine above never sees them, but they do take offsets.
"""

import struct
from dataclasses import dataclass
from uuid import UUID

from ottla.protocol.batches import ControlType, control_key, parse_control_key
from ottla.raft.wire_records import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_TYPE,
    ZERO_UUID,
    CorruptRecordError,
    UnsupportedRecordError,
    decode,
    encode,
    wire,
)

VERSION = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ElectionVoter:
    voter_id: int = wire(INT32)
    voter_directory_id: UUID = wire(UUID_TYPE, since=1, default=ZERO_UUID)


@dataclass(frozen=True, slots=True)
class LeaderChangeMessage:
    version: int = wire(INT16)
    leader_id: int = wire(INT32)
    voters: tuple[ElectionVoter, ...] = wire(ElectionVoter, array=True)
    granting_voters: tuple[ElectionVoter, ...] = wire(ElectionVoter, array=True)


@dataclass(frozen=True, slots=True)
class SnapshotHeaderRecord:
    version: int = wire(INT16)
    last_contained_log_timestamp: int = wire(INT64)


@dataclass(frozen=True, slots=True)
class SnapshotFooterRecord:
    version: int = wire(INT16)


@dataclass(frozen=True, slots=True)
class KRaftVersionRecord:
    version: int = wire(INT16)
    kraft_version: int = wire(INT16)


@dataclass(frozen=True, slots=True)
class VoterEndpoint:
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


@dataclass(frozen=True, slots=True)
class KRaftVersionFeature:
    min_supported_version: int = wire(INT16)
    max_supported_version: int = wire(INT16)


@dataclass(frozen=True, slots=True)
class Voter:
    voter_id: int = wire(INT32)
    voter_directory_id: UUID = wire(UUID_TYPE)
    endpoints: tuple[VoterEndpoint, ...] = wire(VoterEndpoint, array=True)
    kraft_version_feature: KRaftVersionFeature = wire(KRaftVersionFeature)


@dataclass(frozen=True, slots=True)
class VotersRecord:
    version: int = wire(INT16)
    voters: tuple[Voter, ...] = wire(Voter, array=True)


ControlRecord = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

CLASSES: dict[ControlType, type[ControlRecord]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
TYPES = {record_class: control_type for control_type, record_class in CLASSES.items()}


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Key and value of a control record; its first field is its own version."""
    return control_key(TYPES[type(record)]), encode(record, record.version)


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    control_type = parse_control_key(key)
    record_class = None if control_type is None else CLASSES.get(control_type)
    if record_class is None:
        raise UnsupportedRecordError(
            f"the metadata log holds a control record with key {key!r}, which this version does"
            " not know"
        )
    if value is None or len(value) < VERSION.size:
        raise CorruptRecordError(f"a {record_class.__name__} without a version")
    (version,) = VERSION.unpack_from(value)
    highest = 1 if record_class is LeaderChangeMessage else 0
    if not 0 <= version <= highest:
        raise UnsupportedRecordError(
            f"{record_class.__name__} of version {version}; this version reads up to {highest}"
        )
    return decode(record_class, version, value)
