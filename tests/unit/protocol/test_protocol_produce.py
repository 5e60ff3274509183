"""Produce by hand against kio's schemas, in every version."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from message_generator import entity_from, random_fields

from ottla.protocol.encoders import encoder_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import response_header
from ottla.protocol.messages import encode_response
from ottla.protocol.produce import (
    VERSION_MAX,
    VERSION_MIN,
    PartitionProduceResult,
    encode_produce_response,
    parse_produce,
)
from ottla.protocol.schemas import uuid_bytes

versions = st.integers(VERSION_MIN, VERSION_MAX)
seeds = st.integers(0, 2**32)


def request_of(version: int, seed: int) -> tuple[dict[str, Any], bytes]:
    schema = load_request_schema(0, version)
    fields = random_fields(random.Random(seed), schema)
    parts: list[bytes] = []
    encoder_of(schema)(fields, parts.append)
    return fields, b"".join(parts)


def topic_key(topic: dict[str, Any]) -> str | bytes:
    return uuid_bytes(topic["topic_id"]) if "topic_id" in topic else topic["name"]


@given(versions, seeds)
def test_a_request_parses_to_the_values_it_was_made_of(version: int, seed: int) -> None:
    fields, data = request_of(version, seed)
    buffer = bytearray(b"####" + data + b"####")
    request = parse_produce(version, memoryview(buffer), 4, 4 + len(data))
    assert request.transactional_id == fields["transactional_id"]
    assert (request.acks, request.timeout_ms) == (fields["acks"], fields["timeout"])
    assert request.topics == [
        (topic_key(topic), [(part["index"], part["records"]) for part in topic["partition_data"]])
        for topic in fields["topic_data"]
    ]


@given(versions, seeds, st.data())
def test_a_truncated_request_is_refused(version: int, seed: int, data: st.DataObject) -> None:
    _, encoded = request_of(version, seed)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(KafkaError) as caught:
        parse_produce(version, memoryview(encoded), 0, end)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@given(versions, seeds, st.data())
def test_a_mutated_request_is_parsed_or_refused(
    version: int, seed: int, data: st.DataObject
) -> None:
    mutated = bytearray(request_of(version, seed)[1])
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_produce(version, memoryview(mutated), 0, len(mutated))
    except KafkaError as error:
        assert error.code == ErrorCode.INVALID_REQUEST  # noqa: PT017


def results_of(topic: dict[str, Any]) -> list[PartitionProduceResult]:
    return [
        PartitionProduceResult(
            part["index"],
            part["error_code"],
            part["base_offset"],
            -1 if part["log_append_time"] is None else part["log_append_time"],
            part.get("log_start_offset", -1),
            part.get("error_message"),
            [
                (error["batch_index"], error["batch_index_error_message"])
                for error in part.get("record_errors", ())
            ],
            tuple(part["current_leader"].values()) if "current_leader" in part else None,
        )
        for part in topic["partition_responses"]
    ]


@given(versions, seeds)
def test_a_response_has_the_bytes_of_its_schema(version: int, seed: int) -> None:
    schema = load_response_schema(0, version)
    fields = random_fields(random.Random(seed), schema)
    entity_from(schema, fields)
    endpoints = [tuple(endpoint.values()) for endpoint in fields.get("node_endpoints", ())]
    ours = encode_produce_response(
        version,
        99,
        [(topic_key(topic), results_of(topic)) for topic in fields["responses"]],
        fields["throttle_time"],
        endpoints,  # type: ignore[arg-type]
    )
    assert ours == encode_response(0, version, 99, fields)


def test_records_are_writable_slices_of_the_buffer() -> None:
    fields = {
        "acks": 1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abc"}]}],
    }
    parts: list[bytes] = []
    encoder_of(load_request_schema(0, 9))(fields, parts.append)
    buffer = bytearray(b"".join(parts))
    records = parse_produce(9, memoryview(buffer), 0, len(buffer)).topics[0][1][0][1]
    assert records is not None
    records[0] = ord("Z")
    assert b"Zbc" in buffer


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151])
def test_records_of_any_length_are_found(length: int) -> None:
    records = bytes(length)
    fields = {"topic_data": [{"partition_data": [{"index": 1, "records": records}] * 2}]}
    for version in (8, 9, 13):
        parts: list[bytes] = []
        encoder_of(load_request_schema(0, version))(fields, parts.append)
        data = memoryview(b"".join(parts))
        [(_, partitions)] = parse_produce(version, data, 0, len(data)).topics
        assert partitions == [(1, records), (1, records)]


def test_versions_outside_the_range_are_refused() -> None:
    for version in (2, 14):
        with pytest.raises(KafkaError) as caught:
            parse_produce(version, memoryview(b""), 0, 0)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_the_header_of_an_answer_is_flexible_from_version_9_on() -> None:
    assert response_header(0, 8, 5) == b"\0\0\0\5"
    assert response_header(0, 9, 5) == b"\0\0\0\5\0"
