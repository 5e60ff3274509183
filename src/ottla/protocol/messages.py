"""Every message of the protocol but Produce and Fetch, with kio behind one door. Pure.

kio has one class for each version of each message. Requests are decoded into these classes
(decoders.py); a field that an older version lacks is read with `given`. Responses are encoded
from plain dicts by functions compiled from the same classes (encoders.py), so that a handler
fills in what the newest version has, once.

Schema modules are imported when their version is first spoken, not before: all of them would
take seconds and more memory than the rest of the broker.

Bodies come from strangers: whatever is wrong with one becomes KafkaError(INVALID_REQUEST). Bytes
after a message are ignored, as Apache Kafka does.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import pack
from typing import Any, TypeVar

from ottla.protocol.api import has_flexible_response_header
from ottla.protocol.decoders import Decoder, decoder_of
from ottla.protocol.encoders import Encoder, encoder_of
from ottla.protocol.error_responses import error_fields
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import request_header, response_header, skip_response_header
from ottla.protocol.primitives import unsigned_varint
from ottla.protocol.schemas import duration_ms, kinds_of, timestamp_ms

__all__ = [
    "decode_request",
    "decode_response",
    "duration_ms",
    "encode_error_response",
    "encode_request",
    "encode_response",
    "encode_response_body",
    "encode_response_in_slices",
    "given",
    "request_parts",
    "timestamp_ms",
]

T = TypeVar("T")

# About a millisecond of work, where an element is the configuration of a topic.
ELEMENTS_PER_SLICE = 20

_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_request_encoders: dict[tuple[int, int], Encoder] = {}
_response_encoders: dict[tuple[int, int], Encoder] = {}


def decode_request(api_key: int, version: int, body: memoryview) -> Any:
    """The kio entity of a request's body; KafkaError(INVALID_REQUEST) if it is not one."""
    decoder = _request_decoders.get((api_key, version))
    if decoder is None:
        decoder = _request_decoders[api_key, version] = decoder_of(
            _schema(api_key, version, "request")
        )
    return decoder(body, 0)[0]


def encode_response(
    api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]
) -> bytes:
    """The response from its correlation id on; `fields` as encoders.py takes them."""
    encoder = _response_encoders.get((api_key, version))
    if encoder is None:
        encoder = _response_encoders[api_key, version] = encoder_of(
            _schema(api_key, version, "response")
        )
    parts = [response_header(api_key, version, correlation_id)]
    encoder(fields, parts.append)
    return b"".join(parts)


def encode_error_response(
    api_key: int,
    version: int,
    correlation_id: int,
    request: Any,
    code: ErrorCode,
    message: str | None = None,
) -> bytes:
    """The response that refuses all that the decoded `request` asked for."""
    schema = _schema(api_key, version, "response")
    fields = error_fields(schema, request, code, message)
    return encode_response(api_key, version, correlation_id, fields)


def encode_response_in_slices(
    api_key: int,
    version: int,
    correlation_id: int,
    array: str,
    elements: Sequence[Mapping[str, Any]],
) -> Iterator[bytes]:
    """The bytes of `encode_response(..., {array: elements})`, a few elements at a time.

    For answers whose encoding takes so long that others must be served in between. `array` is
    the last field of the response.
    """
    schema: Any = _schema(api_key, version, "response")
    kind = kinds_of(schema)[0][-1]
    if kind.name != array or not kind.is_array or kind.entity is None:
        raise ValueError(f"{array} is not the array at the end of API {api_key}")
    empty = encode_response(api_key, version, correlation_id, {array: ()})
    if schema.__flexible__:
        yield empty[:-2] + unsigned_varint(len(elements) + 1)  # without the length and the tags
    else:
        yield empty[:-4] + pack(">i", len(elements))
    encode = encoder_of(kind.entity)
    for start in range(0, len(elements), ELEMENTS_PER_SLICE):
        parts: list[bytes] = []
        for element in elements[start : start + ELEMENTS_PER_SLICE]:
            encode(element, parts.append)
        yield b"".join(parts)
    if schema.__flexible__:
        yield b"\0"


def encode_response_body(api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """The response without its header, for those who keep it and answer many requests with it."""
    header_bytes = 5 if has_flexible_response_header(api_key, version) else 4
    return encode_response(api_key, version, 0, fields)[header_bytes:]


def encode_request(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    fields: Mapping[str, Any],
) -> bytes:
    """A request from its header on, as a client sends it after the frame length."""
    return b"".join(request_parts(api_key, version, correlation_id, client_id, fields))


def request_parts(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    fields: Mapping[str, Any],
) -> list[bytes]:
    """As `encode_request`, in pieces, so that records need not be copied to be sent."""
    encoder = _request_encoders.get((api_key, version))
    if encoder is None:
        encoder = _request_encoders[api_key, version] = encoder_of(
            _schema(api_key, version, "request")
        )
    parts = [request_header(api_key, version, correlation_id, client_id)]
    encoder(fields, parts.append)
    return parts


def decode_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """The correlation id and the kio entity of a response frame."""
    decoder = _response_decoders.get((api_key, version))
    if decoder is None:
        decoder = _response_decoders[api_key, version] = decoder_of(
            _schema(api_key, version, "response")
        )
    correlation_id, body_start = skip_response_header(api_key, version, frame)
    return correlation_id, decoder(frame, body_start)[0]


def given(entity: Any, name: str, default: T) -> T:
    """The field `name` of a decoded message, or `default` if its version has no such field."""
    value: T = getattr(entity, name, default)
    return value


def _schema(api_key: int, version: int, entity_type: str) -> type:
    from kio.index import KioIndexError, load_request_schema, load_response_schema

    load = load_request_schema if entity_type == "request" else load_response_schema
    try:
        return load(api_key, version)
    except KioIndexError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"API {api_key} has no version {version}"
        ) from None
