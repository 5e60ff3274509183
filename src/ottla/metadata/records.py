# ruff: noqa: RUF009 (`wire` wraps `dataclasses.field`; its defaults are immutable)
"""Every record that a Kafka 4.3 controller puts into the metadata log, in Kafka's schemas.

`encode_record` and `decode_record` frame them as Kafka does: frame version, record type and
record version as varints, then the message. A record type or version from a newer Kafka is
refused with a sentence, because guessing at metadata would damage a cluster.

Pure. The version of a record that is written follows the cluster's metadata.version.
"""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from ottla.raft.wire_records import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_TYPE,
    CorruptRecordError,
    UnsupportedRecordError,
    layout,
    read_uvarint,
    wire,
)

FRAME_VERSION = 1
LATEST_METADATA_VERSION = 30

NO_LEADER = -1
NO_LEADER_CHANGE = -2


class MetadataRecord:
    """What all records share: their type, and the highest version that is known."""

    __slots__ = ()

    api_key: ClassVar[int]
    highest_version: ClassVar[int] = 0
    # By falling metadata.version: the record version that every node at that level can read.
    version_since: ClassVar[tuple[tuple[int, int], ...]] = ()

    def version_at(self, metadata_version: int) -> int:
        """The version this record is written at while the cluster agrees on `metadata_version`."""
        for level, version in self.version_since:
            if metadata_version >= level:
                return version
        return 0


@dataclass(frozen=True, slots=True)
class RecordEndpoint:
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)
    security_protocol: int = wire(INT16)


@dataclass(frozen=True, slots=True)
class RecordFeature:
    name: str = wire(STRING)
    min_supported_version: int = wire(INT16)
    max_supported_version: int = wire(INT16)


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord(MetadataRecord):
    api_key = 0
    highest_version = 4
    version_since = ((30, 4), (17, 3), (8, 2), (0, 1))
    broker_id: int = wire(INT32)
    is_migrating_zk_broker: bool = wire(BOOL, since=2)
    incarnation_id: UUID = wire(UUID_TYPE)
    broker_epoch: int = wire(INT64)
    end_points: tuple[RecordEndpoint, ...] = wire(RecordEndpoint, array=True)
    features: tuple[RecordFeature, ...] = wire(RecordFeature, array=True)
    rack: str | None = wire(STRING, nullable=True, default=None)
    fenced: bool = wire(BOOL, default=True)
    in_controlled_shutdown: bool = wire(BOOL, since=1)
    log_dirs: tuple[UUID, ...] = wire(UUID_TYPE, array=True, since=3, tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = wire(
        UUID_TYPE, array=True, nullable=True, since=4, tag=1, default=None
    )


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord(MetadataRecord):
    api_key = 1
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)


@dataclass(frozen=True, slots=True)
class TopicRecord(MetadataRecord):
    api_key = 2
    name: str = wire(STRING)
    topic_id: UUID = wire(UUID_TYPE)


@dataclass(frozen=True, slots=True)
class PartitionRecord(MetadataRecord):
    api_key = 3
    highest_version = 2
    version_since = ((23, 2), (17, 1))
    partition_id: int = wire(INT32, default=-1)
    topic_id: UUID = wire(UUID_TYPE)
    replicas: tuple[int, ...] = wire(INT32, array=True)
    isr: tuple[int, ...] = wire(INT32, array=True)
    removing_replicas: tuple[int, ...] = wire(INT32, array=True)
    adding_replicas: tuple[int, ...] = wire(INT32, array=True)
    leader: int = wire(INT32, default=NO_LEADER)
    leader_recovery_state: int = wire(INT8, tag=0)
    leader_epoch: int = wire(INT32, default=-1)
    partition_epoch: int = wire(INT32, default=-1)
    directories: tuple[UUID, ...] = wire(UUID_TYPE, array=True, since=1)
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, since=2, tag=1, default=None
    )
    last_known_elr: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, since=2, tag=2, default=None
    )


@dataclass(frozen=True, slots=True)
class ConfigRecord(MetadataRecord):
    api_key = 4
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=True)


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord(MetadataRecord):
    """What changed about a partition; None or -2 leave a field as it is."""

    api_key = 5
    highest_version = 2
    version_since = ((23, 2), (17, 1))
    partition_id: int = wire(INT32, default=-1)
    topic_id: UUID = wire(UUID_TYPE)
    isr: tuple[int, ...] | None = wire(INT32, array=True, nullable=True, tag=0, default=None)
    leader: int = wire(INT32, tag=1, default=NO_LEADER_CHANGE)
    replicas: tuple[int, ...] | None = wire(INT32, array=True, nullable=True, tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, tag=3, default=None
    )
    adding_replicas: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, tag=4, default=None
    )
    leader_recovery_state: int = wire(INT8, tag=5, default=-1)
    directories: tuple[UUID, ...] | None = wire(
        UUID_TYPE, array=True, nullable=True, since=1, tag=8, default=None
    )
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, since=2, tag=6, default=None
    )
    last_known_elr: tuple[int, ...] | None = wire(
        INT32, array=True, nullable=True, since=2, tag=7, default=None
    )


@dataclass(frozen=True, slots=True)
class FenceBrokerRecord(MetadataRecord):
    api_key = 7
    id: int = wire(INT32)
    epoch: int = wire(INT64)


@dataclass(frozen=True, slots=True)
class UnfenceBrokerRecord(MetadataRecord):
    api_key = 8
    id: int = wire(INT32)
    epoch: int = wire(INT64)


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord(MetadataRecord):
    api_key = 9
    topic_id: UUID = wire(UUID_TYPE)


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord(MetadataRecord):
    api_key = 10
    owner: str = wire(STRING)
    requester: str = wire(STRING)
    renewers: tuple[str, ...] = wire(STRING, array=True)
    issue_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    expiration_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord(MetadataRecord):
    api_key = 11
    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    salt: bytes = wire(BYTES)
    stored_key: bytes = wire(BYTES)
    server_key: bytes = wire(BYTES)
    iterations: int = wire(INT32)


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord(MetadataRecord):
    api_key = 12
    name: str = wire(STRING)
    feature_level: int = wire(INT16)


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable=True)


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord(MetadataRecord):
    api_key = 14
    entity: tuple[QuotaEntity, ...] = wire(QuotaEntity, array=True)
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord(MetadataRecord):
    api_key = 15
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)
    next_producer_id: int = wire(INT64)


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord(MetadataRecord):
    """What changed about a broker; zero, empty and None leave a field as it is."""

    api_key = 17
    highest_version = 3
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    fenced: int = wire(INT8, tag=0)  # -1 unfenced, 1 fenced
    in_controlled_shutdown: int = wire(INT8, since=1, tag=1)
    log_dirs: tuple[UUID, ...] = wire(UUID_TYPE, array=True, since=2, tag=2)
    cordoned_log_dirs: tuple[UUID, ...] | None = wire(
        UUID_TYPE, array=True, nullable=True, since=3, tag=3, default=None
    )

    def version_at(self, metadata_version: int) -> int:
        """The lowest that holds what is set, as Kafka writes it."""
        if self.cordoned_log_dirs is not None and metadata_version >= 30:
            return 3
        if self.log_dirs:
            return 2
        return 1 if self.in_controlled_shutdown else 0


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord(MetadataRecord):
    api_key = 18
    id: UUID = wire(UUID_TYPE)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord(MetadataRecord):
    api_key = 19
    id: UUID = wire(UUID_TYPE)


@dataclass(frozen=True, slots=True)
class NoOpRecord(MetadataRecord):
    api_key = 20


@dataclass(frozen=True, slots=True)
class ZkMigrationStateRecord(MetadataRecord):
    api_key = 21
    zk_migration_state: int = wire(INT8)


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord(MetadataRecord):
    api_key = 22
    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord(MetadataRecord):
    api_key = 23
    name: str | None = wire(STRING, nullable=True, tag=0, default=None)


@dataclass(frozen=True, slots=True)
class EndTransactionRecord(MetadataRecord):
    api_key = 24


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord(MetadataRecord):
    api_key = 25
    reason: str | None = wire(STRING, nullable=True, tag=0, default=None)


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord(MetadataRecord):
    api_key = 26
    token_id: str = wire(STRING)


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord(MetadataRecord):
    api_key = 27
    controller_id: int = wire(INT32)
    incarnation_id: UUID = wire(UUID_TYPE)
    zk_migration_ready: bool = wire(BOOL)
    end_points: tuple[RecordEndpoint, ...] = wire(RecordEndpoint, array=True)
    features: tuple[RecordFeature, ...] = wire(RecordFeature, array=True)


@dataclass(frozen=True, slots=True)
class ClearElrRecord(MetadataRecord):
    """Forgets the eligible leader replicas of one topic, or of all when the name is empty."""

    api_key = 28
    topic_name: str = wire(STRING)


RECORD_CLASSES: dict[int, type[MetadataRecord]] = {
    record_class.api_key: record_class
    for record_class in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


def encode_record(record: MetadataRecord, metadata_version: int = LATEST_METADATA_VERSION) -> bytes:
    """The value of a log record, readable by every node at `metadata_version`."""
    return encode_record_at(record, record.version_at(metadata_version))


def encode_record_at(record: MetadataRecord, version: int) -> bytes:
    """The value of a log record: frame, type, version, message."""
    out = bytearray((FRAME_VERSION, record.api_key, version))  # varints, all below 128
    layout(type(record), version).write(record, out)
    return bytes(out)


def decode_record(value: bytes | None) -> MetadataRecord:
    if value is None:
        raise CorruptRecordError("a record of the metadata log has no value")
    frame, position = read_uvarint(value, 0)
    if frame != FRAME_VERSION:
        raise UnsupportedRecordError(
            f"the metadata log holds a record in frame version {frame}; only 1 is known"
        )
    api_key, position = read_uvarint(value, position)
    version, position = read_uvarint(value, position)
    record_class = RECORD_CLASSES.get(api_key)
    if record_class is None:
        raise UnsupportedRecordError(
            f"the metadata log holds a record of type {api_key}, which this version does not know;"
            " it was written by a newer Kafka or Ottla"
        )
    if version > record_class.highest_version:
        raise UnsupportedRecordError(
            f"the metadata log holds a {record_class.__name__} of version {version}; this version"
            f" reads up to {record_class.highest_version}"
        )
    record, end = layout(record_class, version).read(value, position)
    if end != len(value):
        raise CorruptRecordError(f"{len(value) - end} bytes follow a {record_class.__name__}")
    return record
