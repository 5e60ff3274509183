"""Record batches of the metadata log: what the state machine wrote, and what Raft wrote. Pure.

The metadata log never compresses and knows no producers, so a batch is fully given by its base
offset, epoch, time and values.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.protocol.batches import (
    BatchHeader,
    Record,
    build_batch,
    check_batch,
    iter_records,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.ids import Epoch, Offset
from ottla.raft.control_records import ControlRecord, decode_control, encode_control
from ottla.raft.wire_records import CorruptRecordError

# Kafka's readers allot this much for a batch of the metadata log.
BATCH_BYTES_MAX = 8 * 1024 * 1024


class MetadataBatch(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    epoch: Epoch
    timestamp_ms: int
    values: tuple[bytes, ...] = ()  # of the state machine
    control: tuple[ControlRecord, ...] = ()  # of Raft


def data_batch(
    values: Sequence[bytes], *, base_offset: Offset, epoch: Epoch, timestamp_ms: int
) -> bytearray:
    records = (
        Record(base_offset + delta, timestamp_ms, None, value) for delta, value in enumerate(values)
    )
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch)


def raft_batch(
    control: Sequence[ControlRecord], *, base_offset: Offset, epoch: Epoch, timestamp_ms: int
) -> bytearray:
    records = (
        Record(base_offset + delta, timestamp_ms, *encode_control(record))
        for delta, record in enumerate(control)
    )
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch, is_control=True)


def parse_batch(buffer: bytes, header: BatchHeader) -> MetadataBatch:
    """The batch that fills `buffer`, which `check_batch` has accepted."""
    if header.codec is not Codec.NONE:
        raise CorruptRecordError("a batch of the metadata log is compressed")
    records = tuple(iter_records(buffer))
    values: tuple[bytes, ...] = ()
    control: tuple[ControlRecord, ...] = ()
    if header.is_control:
        control = tuple(decode_control(record.key, record.value) for record in records)
    else:
        values = tuple(record.value or b"" for record in records)
    return MetadataBatch(
        Offset(header.base_offset),
        Offset(header.last_offset),
        Epoch(header.partition_leader_epoch),
        header.max_timestamp,
        values,
        control,
    )


def parse_batches(buffer: bytes) -> Iterator[MetadataBatch]:
    """Every batch of `buffer`, which must be intact and end where a batch ends."""
    position = 0
    while position < len(buffer):
        header = check_batch(buffer, position, len(buffer))
        end = position + header.size_bytes
        yield parse_batch(buffer[position:end], header)
        position = end
