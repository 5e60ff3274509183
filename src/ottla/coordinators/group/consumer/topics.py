"""What a consumer group sees of the cluster's topics, and whether that has changed. Pure.

Kafka 4.1 and later store a hash of the subscribed topics with the group's epoch (KIP-1101): ids,
names, partitions and the racks of their replicas. A coordinator that finds another hash than the
stored one gives the group a new epoch; so the number must be the same in every broker.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from ottla.coordinators.group.consumer.xxh3 import xxh3_64
from ottla.coordinators.regexes import Regex, compile_regex
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.protocol.errors import KafkaError

TOPIC_HASHES_MAX = (
    4096  # topics whose hash is kept, as it takes long for those with many partitions
)
Racks: TypeAlias = tuple[tuple[str, ...], ...]
"""The racks of each partition's replicas; nothing where no broker has one."""

_INT = Struct("<i")
_LONG = Struct("<q")


def metadata_hash(topics: Iterable[str], image: MetadataImage) -> int:
    """A number that changes when one of the topics does; 0 if none of them exists."""
    found = [image.topics[name] for name in sorted(set(topics)) if name in image.topics]
    if not found:
        return 0
    racks = {one.broker_id: one.rack for one in image.brokers.values() if one.rack is not None}
    return xxh3_64(
        b"".join(
            _LONG.pack(
                _topic_hash(
                    one.topic_id.bytes, one.name, len(one.partitions), _racks_of(one, racks)
                )
            )
            for one in found
        )
    )


def _racks_of(topic: TopicImage, racks: Mapping[int, str]) -> Racks:
    if not racks:
        return ()
    return tuple(
        tuple(sorted(racks[one] for one in topic.partitions[index].replicas if one in racks))
        for index in sorted(topic.partitions)
    )


@lru_cache(maxsize=TOPIC_HASHES_MAX)
def _topic_hash(topic_id: bytes, name: str, partitions: int, racks: Racks) -> int:
    parts = [b"\0", topic_id[7::-1], topic_id[:7:-1], _string(name), _INT.pack(partitions)]
    for index in range(partitions):
        parts.append(_INT.pack(index))
        for rack in racks[index] if racks else ():
            parts += (_INT.pack(_units(rack)), _string(rack))
    return xxh3_64(b"".join(parts))


def _string(text: str) -> bytes:
    """As a Java stream of characters, with their number at the end."""
    return text.encode("utf-16-le") + _INT.pack(_units(text))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def matching_topics(regex: str, image: MetadataImage) -> frozenset[str]:
    """The topics of which the expression matches the whole name."""
    pattern = stored_regex(regex)
    return frozenset(filter(pattern.matches, image.topics)) if pattern else frozenset()


def stored_regex(regex: str) -> Regex | None:
    """An expression that a member has; None if it is one that only another broker understood.

    Such a member finds no topics, and the other members of its group do not notice.
    """
    try:
        return compile_regex(regex)
    except KafkaError:
        return None
