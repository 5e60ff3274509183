"""How the records of a batch are compressed, in the exact framing that Java clients use. Pure.

What arrives compressed was written by a stranger: a few kilobytes may claim, or really
become, gigabytes. No path here trusts a declared size before holding it against `size_max`,
and none produces more than `size_max` bytes plus one chunk before it notices.

Three framings are easily got wrong. LZ4 is the frame format with independent blocks; Java
refuses dependent ones. Snappy is cut into blocks under a header of Xerial's Java library,
though raw snappy is accepted, as some clients send it. Gzip may be several members.

Codec libraries are loaded when first used: a broker that only relays never needs them.

Invariant: `decompress` returns at most `size_max` bytes or raises KafkaError: INVALID_RECORD
if the data would grow beyond `size_max`, CORRUPT_MESSAGE if it is not what it claims to be.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


NAMES: dict[str, Codec] = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The words of `compression.type`, but for `producer`."""

SIZE_MAX = 1 << 31  # no Kafka client can hold more than Java's longest array

_GZIP_WINDOW_BITS = 31
_GZIP_LEVEL = 6
_CHUNK_BYTES = 65_536

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES = 32_768  # the block size of Xerial's stream, which Kafka leaves alone
_BLOCK_LENGTH = Struct(">i")

_LZ4_LEVEL = 0  # the fast compressor, as Kafka's default of 9 means the fast one too
_ZSTD_LEVEL = 3

_SNAPPY_RATIO_MAX = 32  # three bytes copy at most 64; what claims more than this is lying
_GZIP_MEMBERS_MAX = 64  # each costs a copy of the rest, and Java writes one
_OUTPUT_FULL = "failed to write whole buffer"  # cramjam's one way to say so


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the framing of `codec`; `level` counts where the codec has one."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        compressor = zlib.compressobj(
            _GZIP_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS
        )
        return compressor.compress(data) + compressor.flush()
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    import cramjam

    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, *, size_max: int) -> bytes:
    """What `data` holds, if that is at most `size_max` bytes."""
    if codec == Codec.NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_gzip(data, size_max)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, size_max)
    return _decompress_stream(codec, data, size_max)


def _decompress_gzip(data: Buffer, size_max: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    rest: Buffer = data
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            piece = member.decompress(rest, size_max - total + 1)
        except zlib.error as error:
            raise _corrupt(Codec.GZIP) from error
        total += len(piece)
        if total > size_max:
            raise _too_large(Codec.GZIP, size_max)
        if not member.eof:
            raise _corrupt(Codec.GZIP)
        pieces.append(piece)
        rest = member.unused_data
        if not rest:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise _corrupt(Codec.GZIP)


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, size_max: int) -> bytes:
    """Each block says how much it holds, so all are asked before the first one is opened."""
    import cramjam

    blocks = [(block, _snappy_claim(block)) for block in _snappy_blocks(memoryview(data))]
    total = sum(claimed for _, claimed in blocks)
    if total > size_max:
        raise _too_large(Codec.SNAPPY, size_max)
    output = bytearray(total)
    view = memoryview(output)
    position = 0
    try:
        for block, claimed in blocks:
            piece = view[position : position + claimed]
            if cramjam.snappy.decompress_raw_into(block, piece) != claimed:
                raise _corrupt(Codec.SNAPPY)
            position += claimed
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY) from error
    return bytes(output)


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    """The blocks of Java's framing, or the one block that comes without."""
    if view[:8] != _XERIAL_MAGIC:
        return [view]
    if len(view) < len(_XERIAL_HEADER):
        raise _corrupt(Codec.SNAPPY)
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise _corrupt(Codec.SNAPPY)
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise _corrupt(Codec.SNAPPY)
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _snappy_claim(block: memoryview) -> int:
    """How many bytes a block says that it holds."""
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _corrupt(Codec.SNAPPY)
    if claimed > len(block) * _SNAPPY_RATIO_MAX:
        raise _corrupt(Codec.SNAPPY)
    return claimed


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import cramjam

    compressor = cramjam.lz4.Compressor(
        level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
    )
    compressor.compress(data)
    return bytes(compressor.finish())


def _decompress_stream(codec: Codec, data: Buffer, size_max: int) -> bytes:
    """LZ4 and zstd, into a buffer that grows as the data proves itself, never past the limit."""
    import cramjam

    library: Any = cramjam.lz4 if codec == Codec.LZ4 else cramjam.zstd
    capacity = min(size_max, max(_CHUNK_BYTES, len(data) * 4)) + 1
    while True:
        output = bytearray(capacity)
        try:
            written = library.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _corrupt(codec) from error
            if capacity > size_max:
                raise _too_large(codec, size_max) from error
            capacity = min(size_max, capacity * 4) + 1
            continue
        if written > size_max:
            raise _too_large(codec, size_max)
        return bytes(memoryview(output)[:written])


def _too_large(codec: Codec, size_max: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD, f"The {codec.name} data holds more than {size_max} bytes"
    )


def _corrupt(codec: Codec) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The {codec.name} data is corrupt")
