"""Whose request is this, in which version, and where does its body start? Pure.

A request header names its API and version first; these two decide whether the rest of the
header is version 1 or 2 (KIP-482). Version 2 ends in tagged fields, none of which is
defined: they are skipped, and their claimed lengths are held against the frame.

The four bytes of frame length before the header belong to the connection, which decides how
much it is willing to buffer.

Invariant: nothing outside [start, end) is read, and nothing is copied but the client id.
"""

from struct import Struct
from typing import NamedTuple

from ottla.protocol.api import FLEXIBLE_FROM, has_flexible_response_header
from ottla.protocol.errors import ErrorCode, KafkaError

_FIXED = Struct(">hhih")
_UNSIGNED_VARINT_SHIFT_MAX = 28  # five bytes: what a 32-bit number needs
_CORRELATION = Struct(">i")
_new_tuple = tuple.__new__  # what a NamedTuple's own constructor calls, without the detour


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    start: int
    body_start: int


def parse_header(buffer: memoryview, start: int, end: int) -> RequestHeader:
    """The header of the request in [start, end); KafkaError(INVALID_REQUEST) if it is not one.

    The version is not judged: an ApiVersions request of a version yet unknown must be
    answered, not refused.
    """
    if end - start < _FIXED.size:
        raise _malformed("is shorter than a header")
    api_key, version, correlation_id, client_id_length = _FIXED.unpack_from(buffer, start)
    flexible_from = FLEXIBLE_FROM.get(api_key)
    if flexible_from is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request has an unknown API key {api_key}")
    position = start + 10
    if client_id_length > 0:
        client_id_end = position + client_id_length
        if client_id_end > end:
            raise _malformed("ends inside its client id")
        client_id = buffer[position:client_id_end].tobytes().decode("utf-8", "replace")
        position = client_id_end
    elif client_id_length == 0:
        client_id = ""
    elif client_id_length == -1:
        client_id = None
    else:
        raise _malformed(f"has a client id of {client_id_length} bytes")
    if version >= flexible_from:
        if position >= end:
            raise _malformed("ends before its tagged fields")
        if buffer[position] == 0:
            position += 1
        else:
            position = skip_tagged_fields(buffer, position, end)
    return _new_tuple(RequestHeader, (api_key, version, correlation_id, client_id, start, position))


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The bytes before the body of a response."""
    if has_flexible_response_header(api_key, version):
        return _CORRELATION.pack(correlation_id) + b"\0"
    return _CORRELATION.pack(correlation_id)


def skip_response_header(api_key: int, version: int, buffer: memoryview) -> tuple[int, int]:
    """The correlation id of a response, and where its body starts."""
    if len(buffer) < 4:
        raise _malformed("is shorter than a response header")
    correlation_id: int = _CORRELATION.unpack_from(buffer)[0]
    if has_flexible_response_header(api_key, version):
        return correlation_id, skip_tagged_fields(buffer, 4, len(buffer))
    return correlation_id, 4


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The bytes before the body of a request."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    tags = b"\0" if version >= FLEXIBLE_FROM[api_key] else b""
    return _FIXED.pack(api_key, version, correlation_id, length) + encoded + tags


def read_unsigned_varint(buffer: memoryview, position: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position
        shift += 7
        if shift > _UNSIGNED_VARINT_SHIFT_MAX:
            raise _malformed("has a varint of more than five bytes")
    raise _malformed("ends inside a varint")


def skip_tagged_fields(buffer: memoryview, position: int, end: int) -> int:
    """The position after a section of tagged fields, whatever they are."""
    count, position = read_unsigned_varint(buffer, position, end)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position, end)
        size, position = read_unsigned_varint(buffer, position, end)
        position += size
        if position > end:
            raise _malformed("ends inside a tagged field")
    return position


def _malformed(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"The request {what}")
