"""XXH3, 64 bits, seed 0: the hash by which Kafka's coordinators tell whether topics changed. Pure.

It is stored with a group's epoch, so it must be Kafka's own for a log that moves between brokers.
Inputs are small (some bytes a partition) and rarely hashed, so plain integers are fast enough.
"""

from struct import Struct, unpack_from

_MASK = 2**64 - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX2 = 0x9FB21C651E98DF25
_AVALANCHE = 0x165667919E3779F9
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE_BYTES) // 8
_EIGHT = Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """The hash as a signed number, as Java has it."""
    length = len(data)
    if length <= 16:
        found = _short(data, length)
    elif length <= 128:
        found = _medium(data, length)
    elif length <= 240:
        found = _long(data, length)
    else:
        found = _very_long(data, length)
    return found - 2**64 if found >> 63 else found


def _u64(data: bytes, at: int) -> int:
    found: int = unpack_from("<Q", data, at)[0]
    return found


def _u32(data: bytes, at: int) -> int:
    found: int = unpack_from("<I", data, at)[0]
    return found


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ (product >> 64)


def _xxh64_avalanche(value: int) -> int:
    value = ((value ^ value >> 33) * _P64_2) & _MASK
    value = ((value ^ value >> 29) * _P64_3) & _MASK
    return value ^ value >> 32


def _avalanche(value: int) -> int:
    value = ((value ^ value >> 37) * _AVALANCHE) & _MASK
    return value ^ value >> 32


def _swap64(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _short(data: bytes, length: int) -> int:
    if length > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        return _avalanche((length + _swap64(low) + high + _fold(low, high)) & _MASK)
    if length >= 4:
        both = _u32(data, length - 4) + (_u32(data, 0) << 32)
        value = both ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        value ^= _rotate(value, 49) ^ _rotate(value, 24)
        value = (value * _MX2) & _MASK
        value ^= (value >> 35) + length
        value = (value * _MX2) & _MASK
        return value ^ value >> 28
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[length - 1] | length << 8
        return _xxh64_avalanche(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _xxh64_avalanche(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(
        _u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8)
    )


def _medium(data: bytes, length: int) -> int:
    total = length * _P64_1
    for number in reversed(range((length - 1) // 32 + 1)):
        total += _mix16(data, 16 * number, 32 * number)
        total += _mix16(data, length - 16 * (number + 1), 32 * number + 16)
    return _avalanche(total & _MASK)


def _long(data: bytes, length: int) -> int:
    total = length * _P64_1
    for number in range(8):
        total += _mix16(data, 16 * number, 16 * number)
    total = _avalanche(total & _MASK)
    for number in range(8, length // 16):
        total += _mix16(data, 16 * number, 16 * (number - 8) + 3)
    total += _mix16(data, length - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _very_long(data: bytes, length: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    stripes = (length - 1) // _STRIPE_BYTES
    for number in range(stripes):
        place = number % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, number * _STRIPE_BYTES, 8 * place)
        if place == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, length - _STRIPE_BYTES, len(_SECRET) - _STRIPE_BYTES - 7)
    total = length * _P64_1
    for pair in range(4):
        total += _fold(
            lanes[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair),
            lanes[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair),
        )
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values = _EIGHT.unpack_from(data, at)
    keys = _EIGHT.unpack_from(_SECRET, secret_at)
    for lane in range(8):
        keyed = values[lane] ^ keys[lane]
        lanes[lane ^ 1] += values[lane]
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK
    for lane in range(8):
        lanes[lane] &= _MASK


def _scramble(lanes: list[int]) -> None:
    keys = _EIGHT.unpack_from(_SECRET, len(_SECRET) - _STRIPE_BYTES)
    for lane in range(8):
        value = lanes[lane]
        lanes[lane] = ((value ^ value >> 47 ^ keys[lane]) * _P32_1) & _MASK
