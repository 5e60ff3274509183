"""Fetch by hand against kio's schemas, in every version."""

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from message_generator import random_fields

from ottla.protocol.encoders import encoder_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import (
    NO_HIGH_WATERMARK,
    VERSION_MAX,
    VERSION_MIN,
    FetchPartition,
    FetchPartitionResult,
    RecordsSlot,
    encode_fetch_response_parts,
    parse_fetch,
)
from ottla.protocol.messages import encode_response
from ottla.protocol.schemas import uuid_bytes

versions = st.integers(VERSION_MIN, VERSION_MAX)
seeds = st.integers(0, 2**32)


def request_of(version: int, seed: int) -> tuple[dict[str, Any], bytes]:
    schema = load_request_schema(1, version)
    fields = random_fields(random.Random(seed), schema)
    parts: list[bytes] = []
    encoder_of(schema)(fields, parts.append)
    return fields, b"".join(parts)


def topic_key(topic: dict[str, Any]) -> str | bytes:
    return uuid_bytes(topic["topic_id"]) if "topic_id" in topic else topic["topic"]


def partition_of(part: dict[str, Any]) -> FetchPartition:
    directory_id = part.get("replica_directory_id")
    return FetchPartition(
        part["partition"],
        part.get("current_leader_epoch", -1),
        part["fetch_offset"],
        part.get("last_fetched_epoch", -1),
        part.get("log_start_offset", -1),
        part["partition_max_bytes"],
        None if directory_id is None else directory_id.bytes,
        part.get("high_watermark", NO_HIGH_WATERMARK),
    )


@given(versions, seeds)
def test_a_request_parses_to_the_values_it_was_made_of(version: int, seed: int) -> None:
    fields, data = request_of(version, seed)
    buffer = bytearray(b"####" + data + b"####")
    request = parse_fetch(version, memoryview(buffer), 4, 4 + len(data))
    replica = fields.get("replica_state", {"replica_id": fields.get("replica_id", -1)})
    assert request.replica_id == replica["replica_id"]
    assert request.replica_epoch == replica.get("replica_epoch", -1)
    assert request.max_wait_ms == fields["max_wait"]
    assert request.min_bytes == fields["min_bytes"]
    assert request.max_bytes == fields["max_bytes"]
    assert request.isolation_level == fields["isolation_level"]
    assert request.session_id == fields.get("session_id", 0)
    assert request.session_epoch == fields.get("session_epoch", -1)
    assert request.rack_id == fields.get("rack_id", "")
    assert request.cluster_id == fields.get("cluster_id")
    assert request.topics == [
        (topic_key(topic), [partition_of(part) for part in topic["partitions"]])
        for topic in fields["topics"]
    ]
    assert request.forgotten_topics == [
        (topic_key(topic), topic["partitions"]) for topic in fields.get("forgotten_topics_data", ())
    ]


@given(versions, seeds, st.data())
def test_a_truncated_request_is_refused(version: int, seed: int, data: st.DataObject) -> None:
    _, encoded = request_of(version, seed)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(KafkaError) as caught:
        parse_fetch(version, memoryview(encoded), 0, end)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@given(versions, seeds, st.data())
def test_a_mutated_request_is_parsed_or_refused(
    version: int, seed: int, data: st.DataObject
) -> None:
    mutated = bytearray(request_of(version, seed)[1])
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_fetch(version, memoryview(mutated), 0, len(mutated))
    except KafkaError as error:
        assert error.code == ErrorCode.INVALID_REQUEST  # noqa: PT017


def result_of(part: dict[str, Any]) -> FetchPartitionResult:
    aborted = part["aborted_transactions"]
    return FetchPartitionResult(
        partition=part["partition_index"],
        error_code=part["error_code"],
        high_watermark=part["high_watermark"],
        last_stable_offset=part["last_stable_offset"],
        log_start_offset=part.get("log_start_offset", -1),
        records=part["records"],
        records_length=len(part["records"]),
        aborted_transactions=None
        if aborted is None
        else [(item["producer_id"], item["first_offset"]) for item in aborted],
        preferred_read_replica=part.get("preferred_read_replica", -1),
        diverging_epoch=tag_of(part, "diverging_epoch"),
        current_leader=tag_of(part, "current_leader"),
        snapshot_id=tag_of(part, "snapshot_id"),
    )


def tag_of(part: dict[str, Any], name: str) -> tuple[int, int] | None:
    first, second = part[name].values() if name in part else (-1, -1)
    return None if (first, second) == (-1, -1) else (first, second)


@given(versions, seeds)
def test_a_response_has_the_bytes_of_its_schema(version: int, seed: int) -> None:
    fields = random_fields(random.Random(seed), load_response_schema(1, version))
    for topic in fields["responses"]:
        for part in topic["partitions"]:
            part["records"] = part["records"] or b""  # absent records are sent as empty ones
    endpoints = [tuple(endpoint.values()) for endpoint in fields.get("node_endpoints", ())]
    parts = encode_fetch_response_parts(
        version,
        99,
        fields["throttle_time"],
        fields.get("error_code", 0),
        fields.get("session_id", 0),
        [
            (topic_key(topic), [result_of(p) for p in topic["partitions"]])
            for topic in fields["responses"]
        ],
        endpoints,  # type: ignore[arg-type]
    )
    ours = b"".join(part.records if isinstance(part, RecordsSlot) else part for part in parts)
    assert ours == encode_response(1, version, 99, fields)
    kinds = [isinstance(part, bytes) for part in parts]
    assert (True, True) not in list(pairwise(kinds))


def test_versions_outside_the_range_are_refused() -> None:
    for version in (3, 19):
        with pytest.raises(KafkaError) as caught:
            parse_fetch(version, memoryview(b""), 0, 0)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
