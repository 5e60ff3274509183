"""Request headers, against kio's and against damage; and the table of APIs."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from ottla.protocol.api import (
    CONTROLLER_APIS,
    CONTROLLER_ONLY,
    FLEXIBLE_FROM,
    PRODUCE_VERSION_MIN,
    VERSIONS,
    ApiKey,
    has_flexible_response_header,
    is_flexible,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import (
    parse_header,
    read_unsigned_varint,
    request_header,
    skip_tagged_fields,
)
from ottla.protocol.primitives import unsigned_varint

apis = st.sampled_from(sorted(VERSIONS))
client_ids = st.none() | st.text(max_size=40)


@given(apis, st.data(), st.integers(-(2**31), 2**31 - 1), client_ids)
def test_headers_agree_with_kio(
    api_key: ApiKey, data: st.DataObject, correlation_id: int, client_id: str | None
) -> None:
    lowest, highest = VERSIONS[api_key]
    if api_key == ApiKey.PRODUCE:
        lowest = PRODUCE_VERSION_MIN
    version = data.draw(st.integers(lowest, highest))
    schema = load_request_schema(api_key, version).__header_schema__
    header = schema(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    buffer = BytesIO()
    entity_writer(schema)(buffer, header)
    encoded = buffer.getvalue()
    assert request_header(api_key, version, correlation_id, client_id) == encoded
    frame = memoryview(b"##" + encoded + b"body")
    parsed = parse_header(frame, 2, len(frame))
    assert parsed == (api_key, version, correlation_id, client_id, 2, 2 + len(encoded))
    for end in range(len(encoded)):
        with pytest.raises(KafkaError) as caught:
            parse_header(frame, 2, 2 + end)
        assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = memoryview(b"\0\x03\0\x0c\0\0\0\1\0\1c\2\0\3abc\x64\0body")
    assert parse_header(frame, 0, len(frame)) == (3, 12, 1, "c", 0, len(frame) - 4)


def test_a_client_id_that_is_not_text_does_not_refuse_the_request() -> None:
    frame = memoryview(b"\0\x03\0\1\0\0\0\1\0\2\xff\xfe")
    assert parse_header(frame, 0, len(frame)).client_id == "��"


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_an_api_versions_request_from_the_future_has_a_readable_header(version: int) -> None:
    frame = memoryview(request_header(18, version, 4, "c") + b"whatever")
    assert parse_header(frame, 0, len(frame)).api_version == version


def test_an_unknown_api_is_refused() -> None:
    for api_key in (-1, 4, 93, 32_767):
        frame = memoryview(api_key.to_bytes(2, "big", signed=True) + bytes(20))
        with pytest.raises(KafkaError) as caught:
            parse_header(frame, 0, len(frame))
        assert caught.value.code == ErrorCode.INVALID_REQUEST


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_survive(value: int) -> None:
    encoded = memoryview(unsigned_varint(value))
    assert read_unsigned_varint(encoded, 0, len(encoded)) == (value, len(encoded))


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xff\xff\xff\xff\xff", b"\1", b"\1\0\5abcd"])
def test_malformed_tagged_fields_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError):
        skip_tagged_fields(memoryview(data), 0, len(data))


def test_every_version_has_a_schema_and_the_flexibility_of_its_schema() -> None:
    for api_key, (lowest, highest) in VERSIONS.items():
        versions = schema_name_map[api_key_map[api_key]]
        floor = PRODUCE_VERSION_MIN if api_key == ApiKey.PRODUCE else lowest
        assert set(range(floor, highest + 1)) <= set(versions)
        for version in (floor, FLEXIBLE_FROM[api_key] - 1, FLEXIBLE_FROM[api_key], highest):
            if floor <= version <= highest:
                schema = load_request_schema(api_key, version)
                assert schema.__flexible__ == is_flexible(api_key, version)


def test_the_table_says_what_kafka_announces() -> None:
    assert len(VERSIONS) == 89
    assert VERSIONS[ApiKey.PRODUCE] == (0, 13)
    assert VERSIONS[ApiKey.JOIN_GROUP] == (0, 9)
    assert VERSIONS[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert not has_flexible_response_header(ApiKey.API_VERSIONS, 4)
    assert has_flexible_response_header(ApiKey.METADATA, 9)
    assert ApiKey.VOTE in CONTROLLER_ONLY
    assert CONTROLLER_ONLY < CONTROLLER_APIS
    assert ApiKey.PRODUCE not in CONTROLLER_APIS
