"""Compiled encoders and decoders against kio's own, for every API in every version."""

import random
import tracemalloc
from dataclasses import is_dataclass
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer
from message_generator import all_schemas, entity_from, random_fields, served_versions

from ottla.protocol.api import VERSIONS, ApiKey
from ottla.protocol.decoders import decoder_of
from ottla.protocol.encoders import encoder_of, entity_encoder_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import (
    ELEMENTS_PER_SLICE,
    decode_request,
    decode_response,
    encode_error_response,
    encode_request,
    encode_response,
    encode_response_body,
    encode_response_in_slices,
    given,
)
from ottla.protocol.schemas import kinds_of

EXAMPLES = 2  # of each schema; there are more than 600


def written_by_kio(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def encoded(encode: Any, value: Any) -> bytes:
    parts: list[bytes] = []
    encode(value, parts.append)
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_dicts_and_entities_encode_to_the_bytes_that_kio_writes(seed: int) -> None:
    for api_key, version, schema in all_schemas():
        rng = random.Random(f"{seed}-{api_key}-{version}-{schema.__name__}")
        fields = random_fields(rng, schema)
        entity = entity_from(schema, fields)
        expected = written_by_kio(entity)
        assert encoded(encoder_of(schema), fields) == expected, (schema, fields)
        assert encoded(entity_encoder_of(schema), entity) == expected, (schema, fields)


@pytest.mark.parametrize(
    ("key", "array"), [(ApiKey.DESCRIBE_CONFIGS, "results"), (ApiKey.CREATE_TOPICS, "topics")]
)
@pytest.mark.parametrize("count", [0, 1, ELEMENTS_PER_SLICE, 2 * ELEMENTS_PER_SLICE + 1, 200])
def test_slices_of_a_response_are_the_response(key: ApiKey, array: str, count: int) -> None:
    for version in range(VERSIONS[key][0], VERSIONS[key][1] + 1):
        schema = load_response_schema(key, version)
        element = kinds_of(schema)[0][-1].entity
        rng = random.Random(f"{key}-{version}-{count}")
        elements = [random_fields(rng, element) for _ in range(count)]
        slices = list(encode_response_in_slices(key, version, 7, array, elements))
        assert b"".join(slices) == encode_response(key, version, 7, {array: elements})
        assert len(slices) >= count / ELEMENTS_PER_SLICE


def codes_in(value: Any) -> list[int]:
    """Every error code of a decoded message, wherever it lies."""
    found = []
    for kind in kinds_of(type(value))[0]:
        inner = getattr(value, kind.name)
        if kind.wire == "error_code":
            found.append(int(inner))
        elif kind.entity and kind.is_array:
            found += [code for item in inner or () for code in codes_in(item)]
    return found


def requested(value: Any) -> int:
    """How many things a request names, at its deepest."""
    if not is_dataclass(value):
        return 1
    arrays = [kind.name for kind in kinds_of(type(value))[0] if kind.is_array]
    return sum(map(requested, getattr(value, arrays[0]) or ())) if arrays else 1


# Answered by handlers that see bytes, and by hand there.
RAW = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.OFFSET_COMMIT)


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_request_that_failed_is_answered_with_its_error_for_all_that_it_named(seed: int) -> None:
    for key, version in served_versions():
        if key in RAW:
            continue
        schema = load_request_schema(key, version)
        rng = random.Random(f"{seed}-{key}-{version}")
        request = entity_from(schema, random_fields(rng, schema))
        code = ErrorCode.POLICY_VIOLATION
        frame = encode_error_response(key, version, 9, request, code, "why")
        correlation_id, response = decode_response(key, version, memoryview(frame))
        codes = codes_in(response)
        assert correlation_id == 9
        assert set(codes) <= {code}, (key, version)
        assert codes or not requested(request), (key, version, request)


def test_a_refusal_repeats_what_was_asked_for() -> None:
    def refused(key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        body = memoryview(encoded(encoder_of(load_request_schema(key, version)), fields))
        request = decode_request(key, version, body)
        frame = encode_error_response(key, version, 1, request, ErrorCode.POLICY_VIOLATION, "no")
        return decode_response(key, version, memoryview(frame))[1]

    created = refused(ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "a"}, {"name": "b"}]})
    assert [(topic.name, topic.error_message) for topic in created.topics] == [
        ("a", "no"),
        ("b", "no"),
    ]
    groups = refused(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g", "h"]}).groups
    assert [group.group_id for group in groups] == ["g", "h"]
    asked = {"name": "t", "partition_indexes": [3, 4]}
    (producers,) = refused(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [asked]}).topics
    assert producers.name == "t"
    assert [one.partition_index for one in producers.partitions] == [3, 4]
    deleted = refused(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["x"]})
    assert [one.name for one in deleted.responses] == ["x"]
    coordinators = refused(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["k"]}).coordinators
    assert [one.key for one in coordinators] == ["k"]


def test_only_the_array_at_the_end_comes_in_slices() -> None:
    with pytest.raises(ValueError, match="brokers"):
        list(encode_response_in_slices(ApiKey.METADATA, 9, 7, "brokers", []))


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_what_kio_writes_is_decoded_to_the_same_entity(seed: int) -> None:
    for api_key, version, schema in all_schemas():
        rng = random.Random(f"{seed}-{api_key}-{version}-{schema.__name__}")
        entity = entity_from(schema, random_fields(rng, schema))
        data = written_by_kio(entity)
        view = memoryview(bytearray(b"head" + data + b"tail"))
        assert decoder_of(schema)(view, 4) == (entity, 4 + len(data)), schema


def test_every_truncated_request_is_refused() -> None:
    for api_key, version in served_versions():
        schema = load_request_schema(api_key, version)
        rng = random.Random(f"{api_key}-{version}")
        data = written_by_kio(entity_from(schema, random_fields(rng, schema)))
        for end in range(0, len(data), max(1, len(data) // 9)):
            with pytest.raises(KafkaError) as caught:
                decode_request(api_key, version, memoryview(data)[:end])
            assert caught.value.code == ErrorCode.INVALID_REQUEST, (schema, end)


def test_missing_fields_take_the_defaults_of_the_schema() -> None:
    for api_key, version, schema in all_schemas():
        data = encoded(encoder_of(schema), {})
        entity, end = decoder_of(schema)(memoryview(data), 0)
        assert end == len(data)
        assert written_by_kio(entity) == data, (api_key, version)


def test_fields_of_newer_versions_are_dropped() -> None:
    newest = {"throttle_time": 5, "no_such_field": object(), "coordinators": [], "host": "h"}
    oldest = decode_response(10, 0, memoryview(encode_response(10, 0, 9, newest)))[1]
    assert oldest.host == "h"
    assert given(oldest, "throttle_time", "absent") == "absent"


def test_a_response_frame_carries_its_header() -> None:
    for api_key, version in served_versions():
        frame = encode_response(api_key, version, 77, {})
        correlation_id, entity = decode_response(api_key, version, memoryview(frame))
        assert correlation_id == 77
        header = load_response_schema(api_key, version).__header_schema__
        header_bytes = written_by_kio(header(correlation_id=77))
        assert frame == header_bytes + written_by_kio(entity)
        assert frame[len(header_bytes) :] == encode_response_body(api_key, version, {})


def test_unknown_tagged_fields_are_skipped() -> None:
    entity = decode_request(18, 3, memoryview(b"\2a\2b\2\x63\1x\x64\2yz"))
    assert (entity.client_software_name, entity.client_software_version) == ("a", "b")


def test_a_known_tagged_field_must_be_as_long_as_it_says() -> None:
    fields = {"cluster_id": "abc", "max_wait": 1}
    good = encode_request(1, 13, 1, None, fields)
    assert decode_request(1, 13, memoryview(good)[11:]).cluster_id == "abc"
    bad = good[:-5] + b"\6" + good[-4:] + b"zz"
    with pytest.raises(KafkaError, match="does not fit"):
        decode_request(1, 13, memoryview(bad)[11:])


def test_ids_may_be_uuids_raw_bytes_or_none() -> None:
    topic_id = UUID(int=5)
    frames = [
        encode_response(3, 12, 1, {"topics": [{"topic_id": value}]})
        for value in (topic_id, topic_id.bytes)
    ]
    assert frames[0] == frames[1]
    response = decode_response(3, 12, memoryview(encode_response(3, 12, 1, {"topics": [{}]})))[1]
    assert response.topics[0].topic_id is None


HUGE_LEGACY = (b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x7f\xff", b"\x80\x00\x00\x00")
HUGE_COMPACT = (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize("huge", HUGE_LEGACY + HUGE_COMPACT)
def test_a_claimed_length_is_never_believed(huge: bytes) -> None:
    decoders = [
        decoder_of(load_request_schema(api_key, version)) for api_key, version in served_versions()
    ]
    bodies = [huge * 8, b"\2" + huge * 8, b"\0\1a" + huge * 8, b"\0\0\0\1" + huge * 8]
    tracemalloc.start()
    try:
        for decoder in decoders:
            for body in bodies:
                try:
                    decoder(memoryview(body), 0)
                except KafkaError as error:
                    assert error.code == ErrorCode.INVALID_REQUEST  # noqa: PT017
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_unknown_version_is_refused() -> None:
    for api_key in VERSIONS:
        with pytest.raises(KafkaError) as caught:
            decode_request(api_key, 99, memoryview(b""))
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError):
        encode_response(ApiKey.PRODUCE, 2, 1, {})


def test_durations_beyond_python_are_clamped_not_refused() -> None:
    body = memoryview(b"\1" + (2**63 - 1).to_bytes(8, "big") + b"\0")
    assert decode_request(39, 2, body).renew_period.days == 999_999_999
