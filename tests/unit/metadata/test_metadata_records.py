"""Metadata records against the bytes that Apache Kafka 4.3.1 wrote, and against themselves."""

from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.records import (
    RECORD_CLASSES,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
    encode_record,
    encode_record_at,
)
from ottla.raft.batches import data_batch, parse_batches, raft_batch
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
    WireField,
)

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(path.name for path in GOLDEN.iterdir())

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    INT8: st.integers(-128, 127),
    INT16: st.integers(-(2**15), 2**15 - 1),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT64: st.floats(allow_nan=False),
    BOOL: st.booleans(),
    UUID_TYPE: st.integers(0, 2**128 - 1).map(lambda n: UUID(int=n)),
    STRING: st.text(max_size=20),
    BYTES: st.binary(max_size=20),
}


def records_of(record_class: type, version: int) -> st.SearchStrategy[Any]:
    drawn = {}
    for declared in fields(record_class):
        spec: WireField = declared.metadata["wire"]
        if spec.since > version:
            continue
        value = VALUES[spec.type] if spec.type in VALUES else records_of(spec.type, version)  # type: ignore[arg-type]  # else a dataclass
        if spec.array:
            value = st.lists(value, max_size=3).map(tuple)
        drawn[declared.name] = st.none() | value if spec.nullable else value
    return st.builds(record_class, **drawn)


@pytest.mark.parametrize("name", FILES)
def test_every_record_that_kafka_wrote_is_written_the_same(name: str) -> None:
    count = 0
    for batch in parse_batches((GOLDEN / name).read_bytes()):
        for value in batch.values:
            record = decode_record(value)
            assert encode_record_at(record, value[2]) == value
            assert encode_record(record) == value  # Kafka wrote it at metadata.version 4.3 too
            count += 1
    assert count > 0 or name == "kafka-dynamic-0-0.checkpoint"


@pytest.mark.parametrize("name", FILES)
def test_every_batch_that_kafka_wrote_is_built_the_same(name: str) -> None:
    rebuilt = bytearray()
    for batch in parse_batches((GOLDEN / name).read_bytes()):
        place = {
            "base_offset": batch.base_offset,
            "epoch": batch.epoch,
            "timestamp_ms": batch.timestamp_ms,
        }
        if batch.control:
            rebuilt += raft_batch(batch.control, **place)  # type: ignore[arg-type]  # by name
        else:
            rebuilt += data_batch(batch.values, **place)  # type: ignore[arg-type]  # by name
    assert rebuilt == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("record_class", RECORD_CLASSES.values(), ids=lambda c: c.__name__)
@given(data=st.data())
def test_every_record_comes_back_at_every_version(
    record_class: type[MetadataRecord], data: st.DataObject
) -> None:
    version = data.draw(st.integers(0, record_class.highest_version))
    record = data.draw(records_of(record_class, version))
    assert decode_record(encode_record_at(record, version)) == record


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(garbage: bytes) -> None:
    for value in (garbage, b"\x01" + garbage):
        try:
            decode_record(value)
        except (CorruptRecordError, UnsupportedRecordError):
            continue


def test_records_of_a_newer_kafka_are_refused_in_a_sentence() -> None:
    with pytest.raises(UnsupportedRecordError, match="type 99"):
        decode_record(bytes((1, 99, 0, 0)))
    with pytest.raises(UnsupportedRecordError, match="PartitionRecord of version 7"):
        decode_record(bytes((1, PartitionRecord.api_key, 7, 0)))
    with pytest.raises(UnsupportedRecordError, match="frame version 2"):
        decode_record(bytes((2, 0, 0, 0)))


@pytest.mark.parametrize(
    ("level", "broker", "partition"), [(7, 1, 0), (16, 2, 0), (17, 3, 1), (23, 3, 2), (30, 4, 2)]
)
def test_older_clusters_get_records_that_they_can_read(
    level: int, broker: int, partition: int
) -> None:
    assert encode_record(RegisterBrokerRecord(), level)[2] == broker
    assert encode_record(PartitionRecord(), level)[2] == partition


def test_records_of_different_types_are_never_equal() -> None:
    assert NoOpRecord() != TopicRecord()
    assert FeatureLevelRecord(name="a") != TopicRecord(name="a")
