"""Requests that come again and again: recognised as the parser would read them, or not at all."""

from typing import Any
from uuid import UUID

from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.protocol.fetch import (
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response_parts,
    parse_fetch,
)
from ottla.protocol.frames import parse_header
from ottla.protocol.messages import decode_request, encode_request
from ottla.protocol.produce import (
    PartitionProduceResult,
    ProduceRequest,
    encode_produce_response,
    parse_produce,
)
from ottla.protocol.repeated_commit import RepeatedCommit
from ottla.protocol.repeated_fetch import RepeatedFetch
from ottla.protocol.repeated_produce import RepeatedProduce
from ottla.protocol.repeated_request import RepeatedRequest

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
ABOUT_BYTES = 4  # API key and version: whoever asks has compared them
offsets = st.integers(0, 2**63 - 1)
names = st.text("abc.-_", min_size=1, max_size=200)


def fetch_frame(version: int, offset: int, topic: str, **others: Any) -> memoryview:
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
    return memoryview(encode_request(1, version, 5, "me", fields))


def produce_frame(version: int, records: bytes | None, topic: str, **others: Any) -> memoryview:
    named = {"name": topic} if version < 13 else {"topic_id": TOPIC_ID}
    data = [{"index": others.pop("partition", 3), "records": records}]
    fields = {
        "acks": 1,
        "timeout": 9_000,
        "topic_data": [{**named, "partition_data": data}],
        **others,
    }
    return memoryview(encode_request(0, version, 5, "me", fields))


def parsed_fetch(version: int, frame: memoryview) -> FetchRequest:
    header = parse_header(frame, 0, len(frame))
    return parse_fetch(version, frame, header.body_start, len(frame))


def parsed_produce(version: int, frame: memoryview) -> ProduceRequest:
    header = parse_header(frame, 0, len(frame))
    return parse_produce(version, frame, header.body_start, len(frame))


def repeated_fetch(version: int, frame: memoryview) -> RepeatedFetch | None:
    return RepeatedFetch.of(version, parsed_fetch(version, frame), frame)


def repeated_produce(version: int, frame: memoryview) -> RepeatedProduce | None:
    return RepeatedProduce.of(version, parsed_produce(version, frame), frame)


def offset_in(repeated: RepeatedFetch, frame: memoryview) -> tuple[int, int] | None:
    """Found in the middle of a buffer, as requests are."""
    return repeated.offset_in(memoryview(b"..." + bytes(frame) + b"..."), 3, 3 + len(frame))


def records_in(repeated: RepeatedProduce, frame: memoryview) -> tuple[int, memoryview] | None:
    return repeated.records_in(memoryview(b"..." + bytes(frame) + b"..."), 3, 3 + len(frame))


@given(st.integers(12, 18), offsets, offsets, names)
def test_a_fetch_with_another_offset_is_recognised(
    version: int, first: int, second: int, topic: str
) -> None:
    repeated = repeated_fetch(version, fetch_frame(version, first, topic))
    assert repeated is not None
    assert (repeated.partition, repeated.bytes_max, repeated.min_bytes) == (3, 1_024, 1)
    assert repeated.topic == (topic if version < 13 else TOPIC_ID.bytes)
    assert offset_in(repeated, fetch_frame(version, second, topic)) == (5, second)


@given(st.integers(12, 18), st.data())
def test_a_fetch_that_differs_in_any_byte_but_the_offset_is_another(
    version: int, data: st.DataObject
) -> None:
    frame = fetch_frame(version, 77, "orders")
    repeated = repeated_fetch(version, frame)
    assert repeated is not None
    changed = bytearray(frame)
    place = data.draw(st.integers(ABOUT_BYTES, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    found = offset_in(repeated, memoryview(changed))
    if found is not None:
        header = parse_header(memoryview(changed), 0, len(changed))
        original_header = parse_header(frame, 0, len(frame))
        assert header._replace(correlation_id=5) == original_header
        request = parsed_fetch(version, memoryview(changed))
        asked = request.topics[0][1][0]
        assert (header.correlation_id, asked.fetch_offset) == found
        same = asked._replace(fetch_offset=77)
        original = parsed_fetch(version, frame)
        assert request._replace(topics=[(request.topics[0][0], [same])]) == original
    assert offset_in(repeated, memoryview(bytes(frame) + b"\0")) is None
    assert offset_in(repeated, frame[:-1]) is None


def test_a_fetch_of_a_session_a_follower_or_several_partitions_is_not_expected_again() -> None:
    assert repeated_fetch(12, fetch_frame(12, 1, "t")) is not None
    assert repeated_fetch(12, fetch_frame(12, 1, "t", session_epoch=0)) is None
    assert repeated_fetch(12, fetch_frame(12, 1, "t", session_id=7)) is None
    assert repeated_fetch(12, fetch_frame(12, 1, "t", replica_id=2)) is None
    assert repeated_fetch(12, fetch_frame(12, 1, "t", min_bytes=0)) is None
    assert repeated_fetch(12, fetch_frame(12, 1, "t", count=2)) is None
    assert repeated_fetch(12, fetch_frame(12, 1, "t", last_fetched_epoch=4)) is None
    assert repeated_fetch(11, fetch_frame(11, 1, "t")) is None


@given(st.integers(12, 18), names, offsets, st.binary(min_size=1, max_size=20_000), st.booleans())
def test_the_answer_to_a_repeated_fetch_has_the_bytes_of_any_other(
    version: int, topic: str, offset: int, records: bytes, is_committed: bool
) -> None:
    frame = fetch_frame(version, 1, topic, isolation_level=int(is_committed))
    repeated = repeated_fetch(version, frame)
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
    repeated = repeated_produce(version, produce_frame(version, first, topic, acks=acks))
    assert repeated is not None
    assert (repeated.partition, repeated.acks, repeated.timeout_ms) == (3, acks, 9_000)
    assert repeated.topic == (topic if version < 13 else TOPIC_ID.bytes)
    found = records_in(repeated, produce_frame(version, bytes(size), topic, acks=acks))
    assert found is not None
    assert (found[0], len(found[1])) == (5, size)


@given(st.integers(9, 13), st.integers(1, 300), st.data())
def test_a_produce_that_is_recognised_is_what_the_parser_finds(
    version: int, size: int, data: st.DataObject
) -> None:
    frame = produce_frame(version, b"x" * size, "orders")
    repeated = repeated_produce(version, frame)
    assert repeated is not None
    changed = bytearray(frame)
    place = data.draw(st.integers(ABOUT_BYTES, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    view = memoryview(changed)
    found = records_in(repeated, view)
    if found is not None:
        header = parse_header(view, 0, len(view))
        assert header._replace(correlation_id=5) == parse_header(frame, 0, len(frame))
        request = parsed_produce(version, view)
        assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 9_000, None)
        assert (header.correlation_id, request.topics) == (
            found[0],
            [(repeated.topic, [(3, found[1])])],
        )
    assert records_in(repeated, frame[:-1]) is None
    assert records_in(repeated, frame[:20]) is None


def test_a_produce_without_records_or_answer_or_in_a_transaction_is_not_expected_again() -> None:
    assert repeated_produce(11, produce_frame(11, b"r", "t")) is not None
    assert repeated_produce(11, produce_frame(11, b"", "t")) is None
    assert repeated_produce(11, produce_frame(11, None, "t")) is None
    assert repeated_produce(11, produce_frame(11, b"r", "t", acks=0)) is None
    assert repeated_produce(11, produce_frame(11, b"r", "t", transactional_id="x")) is None


@given(st.integers(9, 13), names, offsets, offsets)
def test_the_answer_to_a_repeated_produce_has_the_bytes_of_any_other(
    version: int, topic: str, offset: int, log_start: int
) -> None:
    repeated = repeated_produce(version, produce_frame(version, b"r", topic))
    assert repeated is not None
    result = PartitionProduceResult(3, 0, offset, -1, log_start)
    expected = encode_produce_response(version, 9, [(repeated.topic, [result])])
    assert repeated.encode_answer(9, offset, -1, log_start) == expected


def commit_frame(version: int, committed: list[tuple[int, int]], **others: Any) -> memoryview:
    """A commit of so many partitions of two topics: offset and leader epoch of each."""
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": others.get("metadata", ""),
        }
        for index, (offset, epoch) in enumerate(committed)
    ]
    named = {"name": "orders"} if version < 10 else {"topic_id": TOPIC_ID}
    other = {"name": "bills"} if version < 10 else {"topic_id": UUID(int=7)}
    half = len(partitions) // 2
    fields = {
        "group_id": others.get("group_id", "g"),
        "generation_id_or_member_epoch": others.get("epoch", 4),
        "member_id": "m-1",
        "group_instance_id": None,
        "topics": [
            {**named, "partitions": partitions[:half]},
            {**other, "partitions": partitions[half:]},
        ],
    }
    return memoryview(encode_request(8, version, 5, "me", fields))


def parsed_commit(version: int, frame: memoryview) -> Any:
    header = parse_header(frame, 0, len(frame))
    return decode_request(8, version, frame[header.body_start :])


def repeated_commit(version: int, frame: memoryview) -> RepeatedCommit | None:
    return RepeatedCommit.of(version, parsed_commit(version, frame), frame)


def offsets_in(
    repeated: RepeatedCommit, frame: memoryview
) -> tuple[int, list[tuple[int, int]]] | None:
    return repeated.offsets_in(memoryview(b"..." + bytes(frame) + b"..."), 3, 3 + len(frame))


def committed_in(request: Any) -> list[tuple[int, int]]:
    return [
        (one.committed_offset, one.committed_leader_epoch)
        for topic in request.topics
        for one in topic.partitions
    ]


committed_offsets = st.lists(st.tuples(offsets, st.integers(-1, 99)), min_size=5, max_size=5)


@given(st.integers(6, 10), committed_offsets, committed_offsets)
def test_a_commit_with_other_offsets_is_recognised(
    version: int, first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    repeated = repeated_commit(version, commit_frame(version, first))
    assume(repeated is not None)  # zeros among zeros cannot be told apart
    assert repeated is not None
    assert offsets_in(repeated, commit_frame(version, second)) == (5, second)
    assert offsets_in(repeated, commit_frame(version, second, epoch=5)) is None
    assert offsets_in(repeated, commit_frame(version, second, group_id="h")) is None
    assert offsets_in(repeated, commit_frame(version, second, metadata="x")) is None
    assert offsets_in(repeated, commit_frame(version, second[:4])) is None


@given(st.integers(6, 10), st.data())
def test_a_commit_that_is_recognised_is_what_the_parser_finds(
    version: int, data: st.DataObject
) -> None:
    frame = commit_frame(version, [(70, 1), (71, 1), (72, 2)])
    repeated = repeated_commit(version, frame)
    assert repeated is not None
    changed = bytearray(frame)
    place = data.draw(st.integers(ABOUT_BYTES, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    found = offsets_in(repeated, memoryview(changed))
    if found is not None:
        header = parse_header(memoryview(changed), 0, len(changed))
        request = parsed_commit(version, memoryview(changed))
        assert found == (header.correlation_id, committed_in(request))
        assert request.group_id == "g"
    assert offsets_in(repeated, frame[:-1]) is None


def test_a_commit_whose_offsets_cannot_be_told_apart_is_not_expected_again() -> None:
    assert repeated_commit(9, commit_frame(9, [(1, 1), (2, 1)])) is not None
    assert repeated_commit(5, commit_frame(5, [(1, 1), (2, 1)])) is None
    assert repeated_commit(9, commit_frame(9, [])) is None
    # What looks like a partition stands in a name, too.
    place = (0).to_bytes(4, "big") + (1).to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert repeated_commit(9, commit_frame(9, [(1, 1)], group_id=place.decode())) is None


def heartbeat_frame(version: int, correlation_id: int = 5, **others: Any) -> memoryview:
    fields = {
        "group_id": "g",
        "member_id": "m-1",
        "member_epoch": 3,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": None,
        **others,
    }
    if version >= 1:
        fields.setdefault("subscribed_topic_regex", None)
    return memoryview(encode_request(68, version, correlation_id, "me", fields))


def correlation_id_in(repeated: RepeatedRequest, frame: memoryview) -> int | None:
    return repeated.correlation_id_in(memoryview(b"..." + bytes(frame) + b"..."), 3, 3 + len(frame))


@given(st.integers(0, 1), st.integers(0, 2**31 - 1), names)
def test_a_request_that_says_the_same_is_recognised(
    version: int, correlation_id: int, group: str
) -> None:
    repeated = RepeatedRequest(heartbeat_frame(version, group_id=group))
    again = heartbeat_frame(version, correlation_id, group_id=group)
    assert correlation_id_in(repeated, again) == correlation_id
    assert correlation_id_in(repeated, heartbeat_frame(version, member_epoch=4)) is None
    assert correlation_id_in(repeated, heartbeat_frame(version, topic_partitions=[])) is None
    assert correlation_id_in(repeated, again[:-1]) is None
    assert correlation_id_in(repeated, memoryview(bytes(again) + b"\0")) is None


@given(st.integers(0, 1), st.data())
def test_a_request_that_differs_in_any_byte_but_the_correlation_id_is_another(
    version: int, data: st.DataObject
) -> None:
    frame = heartbeat_frame(version)
    repeated = RepeatedRequest(frame)
    changed = bytearray(frame)
    place = data.draw(st.integers(ABOUT_BYTES, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    view = memoryview(changed)
    found = correlation_id_in(repeated, view)
    if place < 2 * ABOUT_BYTES:
        assert found == parse_header(view, 0, len(view)).correlation_id
    else:
        assert found is None
