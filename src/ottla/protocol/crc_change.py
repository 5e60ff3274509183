"""The CRC of a batch after a change of its header, without reading the records again. Pure.

CRC-32C is linear: the CRCs of two messages of one length differ by a number that depends only on
where the messages differ. If that is within the first bytes, it is the difference of the CRCs of
these bytes, carried past the rest: multiplied by x to the power of its bits, modulo the
polynomial. A megabyte costs as much as a kilobyte: some multiplications of 32 bits.

Whoever changes a batch like this keeps what the CRC is for: records that were damaged before are
refused by whoever checks it after.
"""

from functools import lru_cache

from crc32c import crc32c

_POLYNOMIAL = 0x82F63B78  # the lowest power is the highest bit, as the CRC has it
_ONE = 1 << 31
_X = 1 << 30
_LENGTHS_REMEMBERED = 1024


def _times(one: int, other: int) -> int:
    """The product of two polynomials, modulo CRC-32C's."""
    product, bit = 0, _ONE
    while bit:
        if one & bit:
            product ^= other
        bit >>= 1
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def _squares() -> list[int]:
    """x to the powers 1, 2, 4, 8 and so on, for lengths up to 2 GB."""
    powers = [_X]
    while len(powers) < 34:
        powers.append(_times(powers[-1], powers[-1]))
    return powers


_POWERS = _squares()


@lru_cache(_LENGTHS_REMEMBERED)
def _x_to_bytes(count: int) -> int:
    """x to the power of the bits in `count` bytes."""
    result = _ONE
    for number, power in enumerate(_POWERS[3:]):
        if count >> number & 1:
            result = _times(result, power)
    return result


def changed_crc(crc: int, before: bytes, after: bytes, *, bytes_behind: int) -> int:
    """The CRC of a message that began with `before` and begins with `after`, of one length."""
    if len(before) != len(after):
        raise ValueError(f"{len(after)} bytes cannot take the place of {len(before)}")
    return crc ^ _times(crc32c(before) ^ crc32c(after), _x_to_bytes(bytes_behind))
