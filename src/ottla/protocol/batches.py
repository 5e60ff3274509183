"""What a record batch of message format 2 says, and whether it says it consistently. Pure.

The broker stores and sends batches as they came. It reads the 61 bytes of the header, checks
the CRC, patches the base offset and the leader epoch in place (both lie before what the CRC
covers) and looks no further, but for one thing: the record count of the header becomes an
offset, so it must be true. `count_records` therefore walks the length prefixes of an
uncompressed batch without opening a record.

Batches come from strangers: every length and varint is held against the bytes there are.

Errors: CORRUPT_MESSAGE where bytes are not what was sent, INVALID_RECORD where they are but
the sender should not have sent them, as Apache Kafka's LogValidator tells them apart.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from ottla.protocol.codecs import SIZE_MAX, Buffer, Codec, compress, decompress
from ottla.protocol.errors import ErrorCode, KafkaError

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
MAGIC = 2

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21  # the CRC covers the batch from here to its end
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORDS_COUNT_AT = 57

LOG_OVERHEAD_BYTES = 12  # base offset and length, which the length does not count
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_TIMESTAMP = -1
NO_SEQUENCE = -1

RECORD_BYTES_MIN = 7  # a length, attributes, two deltas, two absent lengths, a header count

_RUN_RECORDS = 16  # so many are walked singly before looking again for a run of equal ones
_FAR = 1 << 40  # a step that no buffer can hold: the length is negative or has a third byte
_STEP_FIRST = [
    _FAR if byte & 1 else (byte >> 1) + 1 if byte < 0x80 else ((byte & 0x7F) >> 1) + 2
    for byte in range(256)
]
_STEP_SECOND = [byte << 6 if byte < 0x80 else _FAR for byte in range(256)]

_BATCH_PREFIX = Struct(">qi")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_CONTROL_KEY = Struct(">hh")
_END_TXN_MARKER = Struct(">hi")
_new_tuple = tuple.__new__  # what a NamedTuple's own constructor calls, without the detour


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int  # bytes after itself; see size_bytes
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap to 0 after the highest int32."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & TIMESTAMP_TYPE_MASK) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def codec_of(attributes: int) -> Codec:
    """The codec in a batch's attributes; KafkaError if its number is not taken."""
    number = attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"No codec has the number {number}"
        )
    return Codec(number)


def read_header(buffer: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked; there must be 61 bytes."""
    try:
        return _new_tuple(BatchHeader, HEADER.unpack_from(buffer, pos))
    except StructError:
        raise _corrupt("ends inside its header") from None


def check_batch(buffer: Buffer, pos: int, end: int) -> BatchHeader:
    """The header at `pos`, once magic, length, CRC and counts have been found consistent.

    The batch need not reach `end`; it must not pass it.
    """
    if end - pos < HEADER_BYTES:
        raise _corrupt(f"has {end - pos} bytes, fewer than its header")
    header = _new_tuple(BatchHeader, HEADER.unpack_from(buffer, pos))
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"Record batches of magic {header.magic} are not accepted"
            )
        raise _corrupt(f"has an unknown magic {header.magic}")
    length = header.batch_length
    if length < LENGTH_MIN:
        raise _corrupt(f"claims {length} bytes, fewer than its header")
    batch_end = pos + LOG_OVERHEAD_BYTES + length
    if batch_end > end:
        raise _corrupt(f"claims {length} bytes, but ends earlier")
    crc = crc32c(memoryview(buffer)[pos + ATTRIBUTES_AT : batch_end])
    if crc != header.crc:
        raise _corrupt(f"has CRC {crc:#010x}, but claims {header.crc:#010x}")
    if header.records_count <= 0:
        raise _invalid(f"The batch claims {header.records_count} records")
    if header.last_offset_delta != header.records_count - 1:
        raise _invalid(
            f"The batch claims {header.records_count} records, but its last offset delta is "
            f"{header.last_offset_delta}"
        )
    return header


def iter_batches(
    buffer: Buffer, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; one cut short at the end is left out.

    CRCs are not checked. A length below the least possible is CORRUPT_MESSAGE.
    """
    if end is None:
        end = len(buffer)
    unpack = HEADER.unpack_from
    while end - start >= HEADER_BYTES:
        header = _new_tuple(BatchHeader, unpack(buffer, start))
        length = header.batch_length
        if length < LENGTH_MIN:
            raise _corrupt(f"claims {length} bytes, fewer than its header")
        next_start = start + LOG_OVERHEAD_BYTES + length
        if next_start > end:
            return
        yield start, header
        start = next_start


def count_records(batch: Buffer) -> int:
    """How many records the uncompressed `batch` holds; INVALID_RECORD unless its header agrees.

    The length prefixes must lead from record to record exactly to the end of the batch.
    """
    header = read_header(batch)
    if header.attributes & CODEC_MASK:
        raise ValueError("the records of a compressed batch cannot be counted without opening it")
    end = LOG_OVERHEAD_BYTES + header.batch_length
    if end > len(batch):
        raise _corrupt("ends earlier than it claims")
    count = header.records_count
    if not 0 <= count <= (end - HEADER_BYTES) // RECORD_BYTES_MIN:
        raise _invalid(f"The batch claims {count} records in {end} bytes")
    walk_record_lengths(batch, HEADER_BYTES, end, count)
    return count


def walk_record_lengths(buffer: Buffer, pos: int, end: int, count: int) -> None:
    """Verify that `count` length-prefixed records fill [pos, end) exactly; else INVALID_RECORD.

    Records often are of one size for a while. Then their first bytes lie at a fixed stride, and
    one slice of the buffer shows how far that goes, at a few nanoseconds a record.
    """
    start = pos
    left = count
    window = _RUN_RECORDS
    try:
        while left:
            if left > 2:
                first = buffer[pos]
                stride = _STEP_FIRST[first]
                if first >= 0x80:
                    stride += _STEP_SECOND[buffer[pos + 1]]
                if pos + stride + 1 < end and buffer[pos + stride] == first:
                    run = _run_of_equal_lengths(buffer, pos, end, stride, min(window, left))
                    window = window * 8 if run == window else _RUN_RECORDS
                    pos += run * stride
                    left -= run
                    if run >= _RUN_RECORDS:
                        continue
            steps = min(left, _RUN_RECORDS)
            for _ in range(steps):
                byte = buffer[pos]
                if byte < 0x80:
                    pos += _STEP_FIRST[byte]
                else:
                    pos += _STEP_FIRST[byte] + _STEP_SECOND[buffer[pos + 1]]
            left -= steps
    except IndexError:
        pos = -1
    if pos != end:
        _walk_exactly(buffer, start, end, count)


def _run_of_equal_lengths(buffer: Buffer, pos: int, end: int, stride: int, limit: int) -> int:
    """How many records from `pos` on, at most `limit`, repeat the first one's length."""
    column = bytes(buffer[pos : min(pos + stride * limit, end) : stride])
    run = len(column) - len(column.lstrip(column[:1]))
    if column[0] >= 0x80:
        column = bytes(buffer[pos + 1 : pos + 1 + stride * run : stride])
        run = len(column) - len(column.lstrip(column[:1]))
    return run


def _walk_exactly(buffer: Buffer, pos: int, end: int, count: int) -> None:
    """What the fast walk could not follow: a record of 8 KB and more, or a lie."""
    for _ in range(count):
        length, pos = read_varint(buffer, pos, end)
        if length < 0:
            raise _invalid("A record claims a negative length")
        pos += length
    if pos != end:
        raise _invalid("The records do not end where the batch does")


def read_varint(buffer: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits, and the position after it."""
    value = shift = 0
    while pos < end:
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 28:
            raise _invalid("A varint has more than five bytes")
    raise _invalid("A record ends inside a varint")


def read_varlong(buffer: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it."""
    value = shift = 0
    while pos < end:
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 63:
            raise _invalid("A varlong has more than ten bytes")
    raise _invalid("A record ends inside a varlong")


def iter_records(batch: Buffer, *, decompressed_bytes_max: int = SIZE_MAX) -> Iterator[Record]:
    """The records of one whole batch, in order.

    INVALID_RECORD once one is malformed, or if they do not end where the batch does.
    """
    header = read_header(batch)
    end = LOG_OVERHEAD_BYTES + header.batch_length
    if header.batch_length < LENGTH_MIN or end > len(batch):
        raise _corrupt("ends earlier than it claims")
    codec = codec_of(header.attributes)
    with memoryview(batch)[HEADER_BYTES:end] as section:
        data = (
            bytes(section)
            if codec == Codec.NONE
            else decompress(codec, section, size_max=decompressed_bytes_max)
        )
    return _iter_records_of(header, data)


def _iter_records_of(header: BatchHeader, data: bytes) -> Iterator[Record]:
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
    pos = 0
    data_end = len(data)
    for _ in range(header.records_count):
        length, pos = read_varint(data, pos, data_end)
        end = pos + length
        if length < 1 or end > data_end:
            raise _invalid(f"A record claims {length} bytes")
        timestamp_delta, pos = read_varlong(data, pos + 1, end)
        offset_delta, pos = read_varint(data, pos, end)
        key, pos = _read_bytes(data, pos, end)
        value, pos = _read_bytes(data, pos, end)
        header_count, pos = read_varint(data, pos, end)
        headers: tuple[tuple[bytes, bytes | None], ...] = ()
        if header_count:
            headers, pos = _read_headers(data, pos, end, header_count)
        if pos != end:
            raise _invalid("A record does not end where its length says")
        timestamp_ms = base_timestamp + timestamp_delta if append_time is None else append_time
        yield _new_tuple(Record, (base_offset + offset_delta, timestamp_ms, key, value, headers))
    if pos != data_end:
        raise _invalid("The records do not end where the batch does")


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(data, pos, end)
    if length < 0:
        if length != -1:
            raise _invalid(f"A record has a key or value of {length} bytes")
        return None, pos
    field_end = pos + length
    if field_end > end:
        raise _invalid("A record ends inside its key or value")
    return data[pos:field_end], field_end


def _read_headers(
    data: bytes, pos: int, end: int, count: int
) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    if not 0 <= count <= (end - pos) // 2:
        raise _invalid(f"A record claims {count} headers")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        key, pos = _read_bytes(data, pos, end)
        if key is None:
            raise _invalid("A record header has no key")
        value, pos = _read_bytes(data, pos, end)
        headers.append((key, value))
    return tuple(headers), pos


def encode_varint(value: int) -> bytes:
    """A zigzag varint, of any size that Kafka writes (varlong too)."""
    value = (value << 1) ^ (value >> 63)
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# Those that nearly every length fits; looked up, not made.
_varint = lru_cache(4096)(encode_varint)


def encode_record(record: Record, *, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record, its length first."""
    parts = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for field in (record.key, record.value):
        if field is None:
            parts.append(b"\1")
        else:
            parts += (encode_varint(len(field)), field)
    parts.append(encode_varint(len(record.headers)))
    for key, value in record.headers:
        parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(b"\1")
        else:
            parts += (encode_varint(len(value)), value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    codec_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of `records`, whose offsets lie at or after `base_offset`, in order.

    With log append time, the first record's timestamp is the time of the append. Compaction
    hands over the `last_offset_delta` of the batch it thins out, as it must survive.
    """
    kept = list(records)
    first_timestamp = kept[0].timestamp_ms if kept else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    body = b"".join(
        encode_record(
            record,
            offset_delta=record.offset - base_offset,
            timestamp_delta=record.timestamp_ms - base_timestamp,
        )
        for record in kept
    )
    if last_offset_delta is None:
        last_offset_delta = kept[-1].offset - base_offset if kept else -1
    attributes = (
        codec
        | timestamp_type << 3
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
        | (DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0)
    )
    max_timestamp = max((record.timestamp_ms for record in kept), default=NO_TIMESTAMP)
    if codec != Codec.NONE:
        body = compress(codec, body, codec_level)
    batch = bytearray(HEADER_BYTES)
    batch += body
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        first_timestamp if timestamp_type == TimestampType.LOG_APPEND_TIME else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(kept),
    )
    write_crc(batch, 0)
    return batch


def plain_batch(fields: Iterable[tuple[bytes, bytes | None]], timestamp_ms: int) -> bytearray:
    """A batch of keys and values of one time, as brokers write to their own topics.

    The same bytes as `build_batch`, for half the time: a coordinator writes one for each request.
    """
    batch = bytearray(HEADER_BYTES)
    count = 0
    for key, value in fields:
        head = b"\0\0" + _varint(count) + _varint(len(key))
        tail = b"\1\0" if value is None else b"%b%b\0" % (_varint(len(value)), value)
        batch += b"%b%b%b%b" % (_varint(len(head) + len(key) + len(tail)), head, key, tail)
        count += 1
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LOG_OVERHEAD_BYTES, -1, MAGIC, 0, 0, count - 1,
        timestamp_ms, timestamp_ms, -1, -1, NO_SEQUENCE, count,
    )  # fmt: skip
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def control_batch(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch that ends a transaction on a partition: COMMIT or ABORT."""
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        raise ValueError(f"{control_type.name} does not end a transaction")
    marker = Record(
        base_offset,
        timestamp_ms,
        control_key(control_type),
        _END_TXN_MARKER.pack(0, coordinator_epoch),
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_key(control_type: ControlType) -> bytes:
    """The key of a control record: a version, then the type."""
    return _CONTROL_KEY.pack(0, control_type)


def parse_control_key(key: bytes | None) -> ControlType | None:
    """The type of a control record, or None if this version of Kafka does not know it."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise _invalid("A control record has no valid key")
    version, number = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise _invalid(f"A control record has key version {version}")
    return ControlType(number) if 0 <= number <= ControlType.KRAFT_VOTERS else None


def parse_end_txn_marker(value: bytes | None) -> int:
    """The coordinator epoch in the value of a COMMIT or ABORT record."""
    if value is None or len(value) < _END_TXN_MARKER.size:
        raise _invalid("A transaction marker has no valid value")
    version, coordinator_epoch = _END_TXN_MARKER.unpack_from(value)
    if version < 0:
        raise _invalid(f"A transaction marker has version {version}")
    epoch: int = coordinator_epoch
    return epoch


def set_log_append_time(buffer: bytearray | memoryview, pos: int, timestamp_ms: int) -> None:
    """Stamp the batch at `pos` with the time of its append, and renew its CRC."""
    attributes = _ATTRIBUTES.unpack_from(buffer, pos + ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(buffer, pos + ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE_MASK)
    _TIMESTAMP.pack_into(buffer, pos + MAX_TIMESTAMP_AT, timestamp_ms)
    write_crc(buffer, pos)


def set_max_timestamp(buffer: bytearray | memoryview, pos: int, timestamp_ms: int) -> None:
    """Correct the highest timestamp of a batch of create time, and renew its CRC."""
    attributes = _ATTRIBUTES.unpack_from(buffer, pos + ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(buffer, pos + ATTRIBUTES_AT, attributes & ~TIMESTAMP_TYPE_MASK)
    _TIMESTAMP.pack_into(buffer, pos + MAX_TIMESTAMP_AT, timestamp_ms)
    write_crc(buffer, pos)


def write_crc(buffer: bytearray | memoryview, pos: int) -> None:
    """Renew the CRC of the batch at `pos`."""
    length = _BATCH_PREFIX.unpack_from(buffer, pos)[1]
    crc = crc32c(memoryview(buffer)[pos + ATTRIBUTES_AT : pos + LOG_OVERHEAD_BYTES + length])
    _CRC.pack_into(buffer, pos + CRC_AT, crc)


def _corrupt(what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The record batch {what}")


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, sentence)
