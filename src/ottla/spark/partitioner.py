"""Which partition a record goes to, by the rules of Java's producer.

A record that names a partition gets it. One with a key goes to murmur2(key), made positive,
modulo the number of partitions, so that Java, Python and Spark put a key in the same place. The
rest stay with one partition for about a batch and then move on (KIP-480), because a partition for
every record would make batches of one.

`kafka.partitioner.class` is a Java class name. Those that Kafka ships are understood by name; a
class of one's own cannot run here and is refused with a sentence. Pure.
"""

from enum import Enum, auto

_MURMUR_SEED = 0x9747B28C
_MURMUR_MIX = 0x5BD1E995
_LOW_32_BITS = 0xFFFFFFFF

_ROUND_ROBIN_CLASS = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_KEY_CLASSES = frozenset(
    {
        "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
        "org.apache.kafka.clients.producer.internals.BuiltInPartitioner",
    }
)
_STICKY_CLASS = "org.apache.kafka.clients.producer.UniformStickyPartitioner"


class Partitioning(Enum):
    BY_KEY = auto()
    STICKY = auto()  # keys do not count
    ROUND_ROBIN = auto()  # keys do not count, every record moves on


def partitioning_of(class_name: str | None, *, ignore_keys: bool) -> Partitioning:
    """What `partitioner.class` and `partitioner.ignore.keys` ask for; ValueError if unknown."""
    if class_name is None or class_name in _KEY_CLASSES:
        return Partitioning.STICKY if ignore_keys else Partitioning.BY_KEY
    if class_name == _STICKY_CLASS:
        return Partitioning.STICKY
    if class_name == _ROUND_ROBIN_CLASS:
        return Partitioning.ROUND_ROBIN
    raise ValueError(
        f"kafka.partitioner.class is {class_name}, a Java class, which Ottla's sink cannot run; "
        "leave it out, name one that Kafka ships (RoundRobinPartitioner), or give the rows a "
        "'partition' column."
    )


def murmur2_of(key: bytes) -> int:
    """The hash of one key, as Java's signed int. Slow: for one key at a time."""
    h = (_MURMUR_SEED ^ len(key)) & _LOW_32_BITS
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little")
        k = (k * _MURMUR_MIX) & _LOW_32_BITS
        k ^= k >> 24
        k = (k * _MURMUR_MIX) & _LOW_32_BITS
        h = ((h * _MURMUR_MIX) & _LOW_32_BITS) ^ k
    if rest := key[whole:]:
        h ^= int.from_bytes(rest, "little")
        h = (h * _MURMUR_MIX) & _LOW_32_BITS
    h ^= h >> 13
    h = (h * _MURMUR_MIX) & _LOW_32_BITS
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a record with this key."""
    return (murmur2_of(key) & 0x7FFFFFFF) % partitions
