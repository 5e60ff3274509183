"""How the protocol spells lengths and strings, for the encoders written by hand. Pure.

Flexible versions write lengths as unsigned varints of the length plus one, so that 0 is null
(KIP-482); older ones as int16 or int32, with -1 for null.
"""

from collections.abc import Sequence
from struct import Struct

CompactEndpoint = tuple[int, str, int, str | None]  # (node id, host, port, rack)

# As long as a string can be whose length takes 16 bits.
STRING_BYTES_MAX = 2**15 - 1

_SHORT = Struct(">h")
_INT = Struct(">i")

ONE_BYTE: tuple[bytes, ...] = tuple(bytes((value,)) for value in range(0x80))
"""Every unsigned varint that takes one byte."""


def unsigned_varint(value: int) -> bytes:
    """`value`, seven bits a byte, the lowest first."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_array_length(length: int) -> bytes:
    return unsigned_varint(length + 1)


def compact_bytes(data: bytes) -> bytes:
    return unsigned_varint(len(data) + 1) + data


def compact_nullable_string(value: str | None) -> bytes:
    return b"\0" if value is None else compact_bytes(value.encode())


def legacy_string(value: str) -> bytes:
    encoded = value.encode()
    return _SHORT.pack(len(encoded)) + encoded


def legacy_nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else legacy_string(value)


def node_endpoints_tag(endpoints: Sequence[CompactEndpoint]) -> bytes:
    """A section of tagged fields with the endpoints under tag 0, where KIP-951 put them."""
    items = [compact_array_length(len(endpoints))]
    for node_id, host, port, rack in endpoints:
        items += (
            _INT.pack(node_id),
            compact_bytes(host.encode()),
            _INT.pack(port),
            compact_nullable_string(rack),
            b"\0",
        )
    body = b"".join(items)
    return b"\1\0" + unsigned_varint(len(body)) + body
