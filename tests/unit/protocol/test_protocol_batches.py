"""Record batches: against bytes that Apache Kafka 4.3 wrote, against aiokafka, and against lies."""

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol import batches
from ottla.protocol.batches import (
    HEADER_BYTES,
    ControlType,
    Record,
    TimestampType,
    build_batch,
    check_batch,
    control_batch,
    count_records,
    iter_batches,
    iter_records,
    parse_control_key,
    parse_end_txn_marker,
    read_header,
    set_log_append_time,
    set_max_timestamp,
    walk_record_lengths,
    write_crc,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError

# MemoryRecords.builder of Apache Kafka 4.3.1: three records from offset 100 on, producer 4711,
# epoch 3, sequence 17, transactional, leader epoch 9.
WRITTEN_BY_KAFKA = {
    Codec.NONE: (
        "00000000000000640000008100000009028bacc28f0010000000020000018bcfe568000000018bcf"
        "e5680700000000000012670003000000110000000330000000046b311276616c7565206f6e650402"
        "680276026e015a000e02014e76616c75652074776f2076616c75652074776f2076616c7565207477"
        "6f2076616c75652074776f0010000104046b330100"
    ),
    Codec.GZIP: (
        "0000000000000064000000760000000902d53315e30011000000020000018bcfe568000000018bcf"
        "e568070000000000001267000300000011000000031f8b08000000000000ff3360606060c936142a"
        "4bcc294d55c8cf4b6561ca602a63ca638c62e06362f483089794e72be06531083030b2b0641b3332"
        "0000d1e0af7650000000"
    ),
    Codec.SNAPPY: (
        "00000000000000640000007b000000090277762b350012000000020000018bcfe568000000018bcf"
        "e5680700000000000012670003000000110000000382534e41505059000000000100000001000000"
        "36507830000000046b311276616c7565206f6e650402680276026e015a000e02014e09170c74776f"
        "20720a00240010000104046b330100"
    ),
    Codec.LZ4: (
        "000000000000006400000076000000090288f235f50013000000020000018bcfe568000000018bcf"
        "e5680700000000000012670003000000110000000304224d1860408236000000f21030000000046b"
        "311276616c7565206f6e650402680276026e015a000e02014e17004f74776f200a000aa000100001"
        "04046b33010000000000"
    ),
    Codec.ZSTD: (
        "0000000000000064000000740000000902776d275d0014000000020000018bcfe568000000018bcf"
        "e5680700000000000012670003000000110000000328b52ffd0058bc0100d40230000000046b3112"
        "76616c7565206f6e650402680276026e015a000e02014e74776f200010000104046b33010002002d"
        "97acd87402010000"
    ),
}
MARKERS_WRITTEN_BY_KAFKA = {
    ControlType.COMMIT: (
        "0000000000000037000000420000000602f5f27e9a0030000000000000018bcfe568000000018bcf"
        "e5680000000000000012670003ffffffff000000012000000008000000010c00000000000c00"
    ),
    ControlType.ABORT: (
        "000000000000003700000042000000060201cca8d20030000000000000018bcfe568000000018bcf"
        "e5680000000000000012670003ffffffff000000012000000008000000000c00000000000c00"
    ),
}
THE_RECORDS = [
    Record(100, 1_700_000_000_000, b"k1", b"value one", ((b"h", b"v"), (b"n", None))),
    Record(101, 1_700_000_000_007, None, b"value two value two value two value two"),
    Record(102, 1_699_999_999_999, b"k3", None),
]

FEWER = settings(max_examples=40)  # each example draws many records

texts = st.none() | st.binary(max_size=150)
record_bodies = st.tuples(
    st.integers(-5, 2**41), texts, texts, st.lists(st.tuples(st.binary(max_size=9), texts))
)
bodies = st.lists(record_bodies, min_size=1, max_size=40)


def records_from(bodies: list[Any], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(bodies)
    ]


@pytest.mark.parametrize("codec", Codec)
def test_batches_written_by_kafka_are_read(codec: Codec) -> None:
    data = bytes.fromhex(WRITTEN_BY_KAFKA[codec])
    header = check_batch(data, 0, len(data))
    assert header.size_bytes == len(data)
    assert header.codec is codec
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 102, 103)
    assert (header.producer_id, header.producer_epoch) == (4711, 3)
    assert (header.base_sequence, header.last_sequence) == (17, 19)
    assert header.partition_leader_epoch == 9
    assert header.is_transactional
    assert not header.is_control
    assert header.max_timestamp == 1_700_000_000_007
    assert list(iter_records(data, decompressed_bytes_max=1000)) == THE_RECORDS


def test_an_uncompressed_batch_has_the_bytes_that_kafka_writes() -> None:
    ours = build_batch(
        THE_RECORDS,
        base_offset=100,
        leader_epoch=9,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        is_transactional=True,
    )
    assert ours.hex() == WRITTEN_BY_KAFKA[Codec.NONE]


@pytest.mark.parametrize("control_type", [ControlType.COMMIT, ControlType.ABORT])
def test_transaction_markers_have_the_bytes_that_kafka_writes(control_type: ControlType) -> None:
    ours = control_batch(
        control_type,
        producer_id=4711,
        producer_epoch=3,
        coordinator_epoch=12,
        timestamp_ms=1_700_000_000_000,
        base_offset=55,
        leader_epoch=6,
    )
    assert ours.hex() == MARKERS_WRITTEN_BY_KAFKA[control_type]
    [marker] = iter_records(ours, decompressed_bytes_max=0)
    assert parse_control_key(marker.key) is control_type
    assert parse_end_txn_marker(marker.value) == 12
    assert read_header(ours).is_control


@FEWER
@given(bodies, st.sampled_from(Codec), st.integers(0, 2**40))
def test_records_survive_a_batch(bodies: list[Any], codec: Codec, base_offset: int) -> None:
    records = records_from(bodies, base_offset)
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    check_batch(batch, 0, len(batch))
    assert list(iter_records(batch, decompressed_bytes_max=1 << 20)) == records


@FEWER
@given(bodies, st.sampled_from(Codec))
def test_aiokafka_reads_what_is_built(bodies: list[Any], codec: Codec) -> None:
    bodies = [(timestamp, k, v, [(b"h", b"x")] * (len(h) % 3)) for timestamp, k, v, h in bodies]
    records = records_from(bodies)
    theirs = DefaultRecordBatch(build_batch(records, codec=codec))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [r[:4] for r in records]


@FEWER
@given(st.lists(st.integers(0, 300), min_size=1, max_size=300), st.data())
def test_counting_agrees_with_a_record_by_record_walk(
    sizes: list[int], data: st.DataObject
) -> None:
    repeats = data.draw(st.lists(st.integers(1, 40), min_size=len(sizes), max_size=len(sizes)))
    values = [bytes(size) for size, times in zip(sizes, repeats, strict=True) for _ in range(times)]
    values = values[:1500]
    batch = build_batch([Record(i, 0, None, value) for i, value in enumerate(values)])
    assert count_records(batch) == count_records(memoryview(batch)) == len(values)
    for position in data.draw(st.lists(st.integers(HEADER_BYTES, len(batch) - 1), max_size=8)):
        broken = bytearray(batch)
        broken[position] ^= data.draw(st.integers(1, 255))
        assert outcome(walk_record_lengths, broken, len(values)) == outcome(
            slow_walk, broken, len(values)
        )


def outcome(walk: Any, batch: bytearray, count: int) -> bool:
    try:
        walk(batch, HEADER_BYTES, len(batch), count)
    except KafkaError as error:
        assert error.code == ErrorCode.INVALID_RECORD  # noqa: PT017
        return False
    return True


def slow_walk(batch: bytearray, pos: int, end: int, count: int) -> None:
    for _ in range(count):
        length, pos = batches.read_varint(batch, pos, end)
        pos += length
        if length < 0 or pos > end:
            raise KafkaError(ErrorCode.INVALID_RECORD)
    if pos != end:
        raise KafkaError(ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("size", [8_189, 8_190, 8_200, 100_000, 2_100_000])
def test_records_with_long_lengths_are_counted(size: int) -> None:
    values = [b"a", bytes(size), b"b", bytes(size), bytes(size), b"c"]
    assert count_records(build_batch([Record(i, 0, None, v) for i, v in enumerate(values)])) == 6


def test_a_record_count_that_is_a_lie_is_found() -> None:
    for claimed in (0, 1, 2, 4, 2**31 - 1, -1):
        batch = build_batch([Record(i, 0, b"k", b"v") for i in range(3)])
        struct.pack_into(">i", batch, batches.RECORDS_COUNT_AT, claimed)
        with pytest.raises(KafkaError) as caught:
            count_records(batch)
        assert caught.value.code == ErrorCode.INVALID_RECORD


@FEWER
@given(bodies, st.data())
def test_a_flipped_byte_breaks_the_crc(bodies: list[Any], data: st.DataObject) -> None:
    batch = build_batch(records_from(bodies))
    position = data.draw(st.integers(batches.CRC_AT, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KafkaError) as caught:
        check_batch(batch, 0, len(batch))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@FEWER
@given(bodies, st.data())
def test_a_batch_cut_short_is_corrupt(bodies: list[Any], data: st.DataObject) -> None:
    batch = build_batch(records_from(bodies))
    end = data.draw(st.integers(0, len(batch) - 1))
    for check in (
        lambda: check_batch(batch, 0, end),
        lambda: list(iter_records(memoryview(batch)[:end])),
    ):
        with pytest.raises(KafkaError) as caught:
            check()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@FEWER
@given(bodies, st.sampled_from(Codec), st.data())
def test_records_of_a_mutated_batch_are_read_or_refused(
    bodies: list[Any], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(records_from(bodies), codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(batches.ATTRIBUTES_AT, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    write_crc(batch, 0)
    for use in (lambda: check_batch(batch, 0, len(batch)), lambda: list(iter_records(batch))):
        try:
            use()
        except KafkaError as error:
            assert error.code in REFUSALS  # noqa: PT017


REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


@pytest.mark.parametrize(
    ("field_at", "layout", "value", "code"),
    [
        (batches.MAGIC_AT, ">b", 1, ErrorCode.INVALID_RECORD),
        (batches.MAGIC_AT, ">b", 0, ErrorCode.INVALID_RECORD),
        (batches.MAGIC_AT, ">b", 3, ErrorCode.CORRUPT_MESSAGE),
        (batches.LENGTH_AT, ">i", 48, ErrorCode.CORRUPT_MESSAGE),
        (batches.LENGTH_AT, ">i", -1, ErrorCode.CORRUPT_MESSAGE),
        (batches.LENGTH_AT, ">i", 2**31 - 1, ErrorCode.CORRUPT_MESSAGE),
        (batches.CRC_AT, ">I", 0, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_wrong_header_is_refused(field_at: int, layout: str, value: int, code: int) -> None:
    batch = build_batch([Record(0, 0, b"k", b"v")])
    struct.pack_into(layout, batch, field_at, value)
    with pytest.raises(KafkaError) as caught:
        check_batch(batch, 0, len(batch))
    assert caught.value.code == code


@pytest.mark.parametrize(("count", "last_delta"), [(0, -1), (2, 2), (3, 1), (-1, -2), (3, 5)])
def test_counts_that_disagree_are_invalid(count: int, last_delta: int) -> None:
    batch = build_batch([Record(i, 0, b"k", b"v") for i in range(3)])
    struct.pack_into(">i", batch, batches.RECORDS_COUNT_AT, count)
    struct.pack_into(">i", batch, batches.LAST_OFFSET_DELTA_AT, last_delta)
    write_crc(batch, 0)
    with pytest.raises(KafkaError) as caught:
        check_batch(batch, 0, len(batch))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_log_append_time_replaces_every_timestamp() -> None:
    batch = build_batch([Record(i, 5 + i, b"k", b"v") for i in range(3)])
    set_log_append_time(batch, 0, 999)
    header = check_batch(batch, 0, len(batch))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in iter_records(batch)] == [999] * 3
    set_max_timestamp(batch, 0, 7)
    assert check_batch(batch, 0, len(batch)).max_timestamp == 7
    assert [record.timestamp_ms for record in iter_records(batch)] == [5, 6, 7]


def test_batches_are_found_one_after_another_and_a_partial_one_is_left_out() -> None:
    first = build_batch([Record(0, 0, None, b"a")])
    second = build_batch([Record(1, 0, None, b"bb")], base_offset=1)
    data = bytes(first + second)
    assert [(pos, h.base_offset) for pos, h in iter_batches(data)] == [(0, 0), (len(first), 1)]
    assert [pos for pos, _ in iter_batches(data, 0, len(data) - 1)] == [0]
    with pytest.raises(KafkaError):
        list(iter_batches(bytes(100)))


def test_sequences_wrap_after_the_highest() -> None:
    batch = build_batch([Record(i, 0, None, b"") for i in range(3)], base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0


def test_a_thinned_out_batch_keeps_its_last_offset_and_its_delete_horizon() -> None:
    batch = build_batch(
        [Record(12, 50, b"k", b"v")], base_offset=10, last_offset_delta=9, delete_horizon_ms=77
    )
    header = read_header(batch)
    assert (header.last_offset, header.delete_horizon_ms) == (19, 77)
    assert next(iter_records(batch)) == Record(12, 50, b"k", b"v")
    assert read_header(build_batch([Record(0, 50, b"k", b"v")])).delete_horizon_ms is None


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_survive(value: int) -> None:
    encoded = batches.encode_varint(value)
    assert batches.read_varint(encoded, 0, len(encoded)) == (value, len(encoded))
    assert len(encoded) <= 5


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_survive(value: int) -> None:
    encoded = batches.encode_varint(value)
    assert batches.read_varlong(encoded, 0, len(encoded)) == (value, len(encoded))
    assert len(encoded) <= 10


def test_varints_that_never_end_are_refused() -> None:
    for read in (batches.read_varint, batches.read_varlong):
        for data in (b"\xff" * 20, b"\xff", b""):
            with pytest.raises(KafkaError):
                read(data, 0, len(data))


def raw_record(body: bytes) -> bytes:
    return batches.encode_varint(len(body)) + body


def batch_of_raw_records(*records: bytes) -> bytearray:
    batch = build_batch([Record(i, 0, None, b"") for i in range(len(records))])
    del batch[HEADER_BYTES:]
    batch += b"".join(records)
    struct.pack_into(">i", batch, batches.LENGTH_AT, len(batch) - batches.LOG_OVERHEAD_BYTES)
    write_crc(batch, 0)
    return batch


RECORD_START = b"\0\0\0"  # attributes, timestamp delta, offset delta


@pytest.mark.parametrize(
    "body",
    [
        RECORD_START + b"\1\1\0" + b"slack",
        RECORD_START + b"\1\1\1",  # minus one headers
        RECORD_START + b"\1\1\2",  # a header that is not there
        RECORD_START + b"\1\1\2\1\1",  # a header without a key
        RECORD_START + b"\3\1\0",  # a key of minus two bytes
        RECORD_START + b"\1\x7f\0",  # a value longer than the record
        RECORD_START + b"\xff\xff\xff\xff\x0f\1\0",
        b"\0\0",
        b"",
    ],
)
def test_a_malformed_record_is_invalid(body: bytes) -> None:
    batch = batch_of_raw_records(raw_record(body))
    check_batch(batch, 0, len(batch))
    with pytest.raises(KafkaError) as caught:
        list(iter_records(batch))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_records_beyond_the_count_are_invalid() -> None:
    good = raw_record(RECORD_START + b"\1\1\0")
    batch = batch_of_raw_records(good)
    assert len(list(iter_records(batch))) == 1
    longer = batch_of_raw_records(good + good)
    with pytest.raises(KafkaError) as caught:
        list(iter_records(longer))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_lengths_that_only_seem_to_tile_the_batch_are_found() -> None:
    evenly = bytearray((b"\xc4\x01" + bytes(98)) * 20)
    walk_record_lengths(evenly, 0, len(evenly), 20)
    evenly[501] = 2  # the first byte of the length is the same, its second is not
    deceptions = [
        (evenly, 20),
        (bytearray(b"\1" * 10), 10),  # ten records of minus one byte
        (bytearray(b"\x81\x01" + bytes(65)), 1),  # minus 65 bytes, not 65
        (bytearray(b"\x80\x80\x01" + bytes(8191)), 1),  # three bytes of length read as two
    ]
    for buffer, count in deceptions:
        with pytest.raises(KafkaError):
            walk_record_lengths(buffer, 0, len(buffer), count)


def test_a_record_hidden_behind_another_one_is_found() -> None:
    hidden = raw_record(RECORD_START + b"\1\1\0")
    batch = batch_of_raw_records(raw_record(RECORD_START + b"\1\1\0" + hidden), b"")
    with pytest.raises(KafkaError, match="does not end where its length says"):
        list(iter_records(batch))
