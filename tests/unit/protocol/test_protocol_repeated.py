"""Requests that come again and again: recognised as the parser would read them, or not at all."""

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.fetch import (
    FetchPartitionResult,
    encode_fetch_response_parts,
    parse_fetch,
)
from ottla.protocol.messages import encode_request
from ottla.protocol.produce import (
    PartitionProduceResult,
    encode_produce_response,
    parse_produce,
)
from ottla.protocol.repeated_fetch import RepeatedFetch
from ottla.protocol.repeated_produce import RepeatedProduce

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
HEADER_BYTES = 8 + 2 + 1  # of a request without client id
offsets = st.integers(0, 2**63 - 1)
names = st.text("abc.-_", min_size=1, max_size=200)


def fetch_body(version: int, offset: int, topic: str, **others: Any) -> memoryview:
    partition = {
        "partition": others.pop("partition", 3),
        "current_leader_epoch": others.pop("epoch", -1),
        "fetch_offset": offset,
        "last_fetched_epoch": others.pop("last_fetched_epoch", -1),
        "partition_max_bytes": 1_024,
    }
    named = {"topic": topic} if version < 13 else {"topic_id": TOPIC_ID}
    fields = {
        "replica_id": -1,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 4_096,
        "session_epoch": -1,
        "topics": [{**named, "partitions": [partition] * others.pop("count", 1)}],
        **others,
    }
    header_bytes = HEADER_BYTES if version >= 12 else HEADER_BYTES - 1
    return memoryview(encode_request(1, version, 5, None, fields))[header_bytes:]


def produce_body(version: int, records: bytes | None, topic: str, **others: Any) -> memoryview:
    named = {"name": topic} if version < 13 else {"topic_id": TOPIC_ID}
    data = [{"index": others.pop("partition", 3), "records": records}]
    fields = {
        "acks": 1,
        "timeout": 9_000,
        "topic_data": [{**named, "partition_data": data}],
        **others,
    }
    return memoryview(encode_request(0, version, 5, None, fields))[HEADER_BYTES:]


def repeated_fetch(version: int, body: memoryview) -> RepeatedFetch | None:
    return RepeatedFetch.of(version, parse_fetch(version, body, 0, len(body)), body)


def repeated_produce(version: int, body: memoryview) -> RepeatedProduce | None:
    return RepeatedProduce.of(version, parse_produce(version, body, 0, len(body)), body)


@given(st.integers(12, 18), offsets, offsets, names)
def test_a_fetch_with_another_offset_is_recognised(
    version: int, first: int, second: int, topic: str
) -> None:
    repeated = repeated_fetch(version, fetch_body(version, first, topic))
    assert repeated is not None
    assert (repeated.partition, repeated.bytes_max, repeated.min_bytes) == (3, 1_024, 1)
    assert repeated.topic == (topic if version < 13 else TOPIC_ID.bytes)
    assert repeated.offset_in(fetch_body(version, second, topic)) == second


@given(st.integers(12, 18), st.data())
def test_a_fetch_that_differs_in_any_byte_but_the_offset_is_another(
    version: int, data: st.DataObject
) -> None:
    body = fetch_body(version, 77, "orders")
    repeated = repeated_fetch(version, body)
    assert repeated is not None
    changed = bytearray(body)
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    offset = repeated.offset_in(memoryview(changed))
    if offset >= 0:
        request = parse_fetch(version, memoryview(changed), 0, len(changed))
        assert request.topics[0][1][0].fetch_offset == offset
        original = parse_fetch(version, body, 0, len(body))
        same = request.topics[0][1][0]._replace(fetch_offset=77)
        assert request._replace(topics=[(request.topics[0][0], [same])]) == original
    assert repeated.offset_in(memoryview(bytes(body) + b"\0")) == -1
    assert repeated.offset_in(body[:-1]) == -1


def test_a_fetch_of_a_session_a_follower_or_several_partitions_is_not_expected_again() -> None:
    assert repeated_fetch(12, fetch_body(12, 1, "t")) is not None
    assert repeated_fetch(12, fetch_body(12, 1, "t", session_epoch=0)) is None
    assert repeated_fetch(12, fetch_body(12, 1, "t", session_id=7)) is None
    assert repeated_fetch(12, fetch_body(12, 1, "t", replica_id=2)) is None
    assert repeated_fetch(12, fetch_body(12, 1, "t", min_bytes=0)) is None
    assert repeated_fetch(12, fetch_body(12, 1, "t", count=2)) is None
    assert repeated_fetch(12, fetch_body(12, 1, "t", last_fetched_epoch=4)) is None
    assert repeated_fetch(11, fetch_body(11, 1, "t")) is None


@given(st.integers(12, 18), names, offsets, st.binary(min_size=1, max_size=20_000), st.booleans())
def test_the_answer_to_a_repeated_fetch_has_the_bytes_of_any_other(
    version: int, topic: str, offset: int, records: bytes, is_committed: bool
) -> None:
    body = fetch_body(version, 1, topic, isolation_level=int(is_committed))
    repeated = repeated_fetch(version, body)
    assert repeated is not None
    result = FetchPartitionResult(
        3, 0, offset, offset, 1, records, len(records), [] if is_committed else None
    )
    parts = encode_fetch_response_parts(version, 9, 0, 0, 0, [(repeated.topic, [result])])
    expected = b"".join(part if isinstance(part, bytes) else part.records for part in parts)
    assert repeated.encode_answer(9, offset, offset, 1, records) == expected


@given(
    st.integers(9, 13),
    st.binary(min_size=1, max_size=300),
    st.integers(1, 40_000),
    names,
    st.sampled_from([-1, 1]),
)
def test_a_produce_with_other_records_is_recognised(
    version: int, first: bytes, size: int, topic: str, acks: int
) -> None:
    repeated = repeated_produce(version, produce_body(version, first, topic, acks=acks))
    assert repeated is not None
    assert (repeated.partition, repeated.acks, repeated.timeout_ms) == (3, acks, 9_000)
    assert repeated.topic == (topic if version < 13 else TOPIC_ID.bytes)
    records = repeated.records_in(produce_body(version, bytes(size), topic, acks=acks))
    assert records is not None
    assert len(records) == size


@given(st.integers(9, 13), st.integers(1, 300), st.data())
def test_a_produce_that_is_recognised_is_what_the_parser_finds(
    version: int, size: int, data: st.DataObject
) -> None:
    body = produce_body(version, b"x" * size, "orders")
    repeated = repeated_produce(version, body)
    assert repeated is not None
    changed = bytearray(body)
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    view = memoryview(changed)
    records = repeated.records_in(view)
    if records is not None:
        request = parse_produce(version, view, 0, len(view))
        assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 9_000, None)
        assert request.topics == [(repeated.topic, [(3, records)])]


def test_a_produce_without_records_or_answer_or_in_a_transaction_is_not_expected_again() -> None:
    assert repeated_produce(11, produce_body(11, b"r", "t")) is not None
    assert repeated_produce(11, produce_body(11, b"", "t")) is None
    assert repeated_produce(11, produce_body(11, None, "t")) is None
    assert repeated_produce(11, produce_body(11, b"r", "t", acks=0)) is None
    assert repeated_produce(11, produce_body(11, b"r", "t", transactional_id="x")) is None


@given(st.integers(9, 13), names, offsets, offsets)
def test_the_answer_to_a_repeated_produce_has_the_bytes_of_any_other(
    version: int, topic: str, offset: int, log_start: int
) -> None:
    repeated = repeated_produce(version, produce_body(version, b"r", topic))
    assert repeated is not None
    result = PartitionProduceResult(3, 0, offset, -1, log_start)
    expected = encode_produce_response(version, 9, [(repeated.topic, [result])])
    assert repeated.encode_answer(9, offset, -1, log_start) == expected
