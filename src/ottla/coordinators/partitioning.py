"""Which partition of an internal topic holds a key, chosen as Kafka and its tools do. Pure."""

from functools import lru_cache

# The hash goes over every character, and the same groups ask again and again.
_KEYS_REMEMBERED = 8192

_INT32_MIN = -(2**31)


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, in 32 bits, signed."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


@lru_cache(_KEYS_REMEMBERED)
def partition_of(key: str, partition_count: int) -> int:
    """Kafka's `Utils.abs(hash) % n`, in which the one number without a positive twin becomes 0."""
    value = java_string_hash(key)
    return 0 if value == _INT32_MIN else abs(value) % partition_count
