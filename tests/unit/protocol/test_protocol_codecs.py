"""Codecs: what they keep, what they refuse, and how little they believe."""

import resource
import struct
import subprocess
import sys
import tracemalloc
import zlib

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.codecs import Codec, compress, decompress
from ottla.protocol.errors import ErrorCode, KafkaError

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
BOMB = bytes(50_000_000)
SIZE_MAX = 1_000_000

payloads = st.builds(
    lambda piece, times, tail: piece * times + tail,
    st.binary(max_size=50),
    st.integers(0, 4000),
    st.binary(max_size=500),
)


@given(st.sampled_from(Codec), payloads)
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, size_max=len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), size_max=len(data) + 1) == data


@given(st.sampled_from(Codec), payloads.filter(len))
def test_one_byte_beyond_the_limit_is_refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, compress(codec, data), size_max=len(data) - 1)
    assert caught.value.code == ErrorCode.INVALID_RECORD


AIOKAFKA = {
    Codec.GZIP: (aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
    Codec.SNAPPY: (aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
    Codec.LZ4: (aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
    Codec.ZSTD: (aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
}


@given(st.sampled_from(COMPRESSED), payloads.filter(len))  # it cannot read its framing of nothing
def test_aiokafka_and_we_read_each_other(codec: Codec, data: bytes) -> None:
    encode, decode = AIOKAFKA[codec]
    assert bytes(decode(compress(codec, data))) == data
    assert decompress(codec, bytes(encode(data)), size_max=len(data)) == data


def test_raw_snappy_is_read_too() -> None:
    data = b"abc" * 1000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), size_max=3000) == data


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    frame = compress(Codec.LZ4, bytes(range(256)) * 1000)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20, "the flag of independent blocks"


def test_gzip_of_several_members_is_read() -> None:
    members = compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two")
    assert decompress(Codec.GZIP, members, size_max=6) == b"onetwo"
    with pytest.raises(KafkaError):
        decompress(Codec.GZIP, members, size_max=5)
    with pytest.raises(KafkaError) as caught:
        decompress(Codec.GZIP, compress(Codec.GZIP, b"") * 1000, size_max=6)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_before_it_is_memory(codec: Codec) -> None:
    packed = compress(codec, BOMB)
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError) as caught:
            decompress(codec, packed, size_max=SIZE_MAX)
        assert tracemalloc.get_traced_memory()[1] < 4 * SIZE_MAX
    finally:
        tracemalloc.stop()
    assert caught.value.code == ErrorCode.INVALID_RECORD


LIES = {
    "a snappy block of four gigabytes": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc"),
    "a snappy length without end": (Codec.SNAPPY, b"\xff" * 20),
    "a xerial block longer than the data": (
        Codec.SNAPPY,
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", 2**31 - 1) + b"abc",
    ),
    "a xerial block of negative length": (
        Codec.SNAPPY,
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", -5) + b"abc",
    ),
    "a xerial header cut short": (Codec.SNAPPY, b"\x82SNAPPY\0\0\0"),
    "a zstd frame that claims an exabyte": (
        Codec.ZSTD,
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\1\0\0",
    ),
    "an lz4 frame that claims an exabyte": (
        Codec.LZ4,
        b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", 1 << 60) + b"\0",
    ),
    "nothing at all": (Codec.GZIP, b""),
}


@pytest.mark.parametrize(("codec", "data"), LIES.values(), ids=LIES)
def test_a_claimed_size_is_not_believed(codec: Codec, data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, size_max=SIZE_MAX)
    assert caught.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@given(st.sampled_from(COMPRESSED), payloads, st.data())
def test_mutated_data_is_read_or_refused(codec: Codec, data: bytes, choice: st.DataObject) -> None:
    packed = bytearray(compress(codec, data))
    for _ in range(choice.draw(st.integers(1, 5))):
        packed[choice.draw(st.integers(0, len(packed) - 1))] = choice.draw(st.integers(0, 255))
    del packed[choice.draw(st.integers(1, len(packed))) :]
    try:
        assert len(decompress(codec, packed, size_max=SIZE_MAX)) <= SIZE_MAX
    except KafkaError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)  # noqa: PT017


def test_levels_are_passed_on() -> None:
    data = bytes(i * i % 251 for i in range(100_000))
    for codec in (Codec.GZIP, Codec.ZSTD):
        assert len(compress(codec, data, 9)) <= len(compress(codec, data, 1))
    assert zlib.decompress(compress(Codec.GZIP, data, 1), 31) == data


def test_codec_libraries_are_not_loaded_before_they_are_needed() -> None:
    program = "import sys, ottla.protocol.batches; sys.exit('cramjam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_native_memory_stays_bounded_too() -> None:
    bombs = {codec: compress(codec, BOMB) for codec in COMPRESSED}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for codec, packed in bombs.items():
        with pytest.raises(KafkaError):
            decompress(codec, packed, size_max=SIZE_MAX)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KB
