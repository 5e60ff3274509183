"""The raw fetch parser against the broker's encoder, in every version, and on frames that lie."""

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.errors import CorruptBatch, is_retriable
from ottla.client.fetch_response import (
    TOPIC_ID_VERSION,
    FetchedPartition,
    parse_fetch_response,
)
from ottla.client.fetcher import whole_batches
from ottla.client.metadata import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import KafkaError
from ottla.protocol.fetch import (
    VERSION_MAX,
    VERSION_MIN,
    FetchPartitionResult,
    RecordsSlot,
    encode_fetch_response_parts,
)
from ottla.protocol.frames import skip_response_header

PARTITION = TopicPartition("t", 3)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
RESULTS = st.builds(
    FetchPartitionResult,
    partition=st.integers(0, 100),
    error_code=st.integers(-1, 100),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    records=st.binary(min_size=1, max_size=300),
    aborted_transactions=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    preferred_read_replica=st.integers(-1, 5),
    diverging_epoch=st.none(),
    current_leader=st.none() | st.just((1, 2)),
    snapshot_id=st.none(),
    records_length=st.just(0),
).map(lambda result: result._replace(records_length=len(result.records)))
TOPICS = st.lists(
    st.tuples(st.text("abc.-_", min_size=1, max_size=20), st.lists(RESULTS, max_size=3)), max_size=3
)


def encoded(version: int, topics: Any, throttle_time_ms: int) -> bytes:
    if version >= TOPIC_ID_VERSION:
        topics = [(name.encode().ljust(16, b"\1")[:16], results) for name, results in topics]
    parts = encode_fetch_response_parts(version, 77, throttle_time_ms, 0, 5, topics)
    return b"".join(p.records if isinstance(p, RecordsSlot) else p for p in parts)


def expected(version: int, result: FetchPartitionResult) -> FetchedPartition:
    return FetchedPartition(
        result.partition,
        result.error_code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset if version >= 5 else -1,
        tuple(result.aborted_transactions or ()),
        result.preferred_read_replica if version >= 11 else -1,
        memoryview(result.records),
    )


@given(st.integers(VERSION_MIN, VERSION_MAX), TOPICS, st.integers(0, 1000))
def test_what_the_broker_encodes_is_parsed(version: int, topics: Any, throttle_ms: int) -> None:
    frame = memoryview(encoded(version, topics, throttle_ms))
    correlation_id, body_start = skip_response_header(ApiKey.FETCH, version, frame)
    response = parse_fetch_response(version, frame, body_start)
    assert correlation_id == 77
    assert response.throttle_time_ms == throttle_ms
    assert [topic.partitions for topic in response.topics] == [
        [expected(version, result) for result in results] for _, results in topics
    ]
    for (name, _), topic in zip(topics, response.topics, strict=True):
        if version >= TOPIC_ID_VERSION:
            assert topic.topic == UUID(bytes=name.encode().ljust(16, b"\1")[:16])
        else:
            assert topic.topic == name


@given(st.integers(VERSION_MIN, VERSION_MAX), TOPICS, st.data())
@settings(max_examples=100)
def test_frames_that_lie_are_parsed_or_refused(version: int, topics: Any, data: Any) -> None:
    frame = bytearray(encoded(version, topics, 0))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] = data.draw(st.integers(0, 255))
    cut = memoryview(frame)[: data.draw(st.integers(5, len(frame)))]
    with suppress(KafkaError):
        parse_fetch_response(version, cut, 5)


def batch(base_offset: int, count: int) -> bytearray:
    records = [Record(base_offset + n, 1, None, b"v") for n in range(count)]
    return build_batch(records, base_offset=base_offset)


def test_whole_batches_end_before_what_is_cut_off() -> None:
    first, second = batch(10, 3), batch(13, 2)
    both = memoryview(bytes(first + second))
    assert whole_batches(PARTITION, both) == (len(both), 15)
    assert whole_batches(PARTITION, both[:-1]) == (len(first), 13)
    assert whole_batches(PARTITION, both[: len(first) + 70]) == (len(first), 13)
    assert whole_batches(PARTITION, both[:20]) == (0, -1)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (slice(8, 12), b"\0\0\0\5", "it has 5 bytes"),
        (slice(8, 12), b"\xff\xff\xff\xff", "it has -1 bytes"),
        (slice(16, 17), b"\1", "message format 1; only format 2"),
        (slice(16, 17), b"\0", "message format 0; only format 2"),
    ],
)
def test_a_header_that_no_batch_has_is_refused_for_good(
    place: slice, value: bytes, said: str
) -> None:
    broken = batch(10, 1)
    broken[place] = value
    with pytest.raises(CorruptBatch, match=f"offset 10 of topic t, partition 3.*{said}") as caught:
        whole_batches(PARTITION, memoryview(broken))
    assert not is_retriable(caught.value)
