"""Batches of a coordinator, which its own broker built, are written without a second look."""

from dataclasses import replace

import pytest
from test_storage_log_append import Bench

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import TimestampType, iter_records, plain_batch, read_header
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.core.append_origin import AppendOrigin

COMPACTED = replace(TopicConfig(), cleanup_policy=frozenset({"compact"}))


def stored(bench: Bench, offset: int) -> bytes:
    found = bench.log.read(offset, 1 << 20, end_offset=bench.log.log_end_offset, at_least_one=True)
    try:
        return found.read()
    finally:
        found.release()


def append(bench: Bench, batch: bytearray, epoch: int = 3) -> tuple[int, int]:
    result = bench.log.append_as_leader(batch, leader_epoch=epoch, origin=AppendOrigin.COORDINATOR)
    return result.base_offset, result.last_offset


def test_own_batches_get_the_next_offsets_and_keep_their_bytes() -> None:
    bench = Bench(COMPACTED)
    for first, count in ((0, 2), (2, 1)):
        fields = [(b"key-%d" % number, b"value") for number in range(count)]
        batch = plain_batch(fields, bench.now_ms)
        assert append(bench, batch) == (first, first + count - 1)
        found = stored(bench, first)
        assert found == batch
        header = read_header(found)
        assert (header.base_offset, header.partition_leader_epoch) == (first, 3)
        records = iter_records(found, decompressed_bytes_max=1 << 20)
        assert [(one.key, one.value) for one in records] == fields


def test_a_topic_that_stamps_or_compresses_still_does() -> None:
    stamping = Bench(replace(COMPACTED, message_timestamp_type="LogAppendTime"))
    append(stamping, plain_batch([(b"k", b"v")], 5))
    assert read_header(stored(stamping, 0)).timestamp_type is TimestampType.LOG_APPEND_TIME
    packing = Bench(replace(COMPACTED, compression_type="gzip"))
    append(packing, plain_batch([(b"k", b"v" * 500)], packing.now_ms))
    assert read_header(stored(packing, 0)).codec == Codec.GZIP


def test_an_own_batch_that_is_too_large_is_refused() -> None:
    bench = Bench(replace(COMPACTED, max_message_bytes=100))
    with pytest.raises(KafkaError) as refused:
        append(bench, plain_batch([(b"k", bytes(200))], bench.now_ms))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert bench.log.log_end_offset == 0
