"""What a consumer group sees of the cluster's topics, and whether that has changed. Pure.

Kafka 4.1 and later store a hash of the subscribed topics with the group's epoch (KIP-1101): topic
ids, partitions and the racks of their replicas. A broker that finds another hash than the stored
one computes a new assignment. The number itself is this broker's own, so a log that comes from
Apache Kafka gets one new epoch on its first refresh, and the other way round.
"""

from collections.abc import Iterable
from hashlib import blake2b

from ottla.coordinators.group.consumer.regexes import compile_regex
from ottla.metadata.image import MetadataImage, TopicImage

_HASH_BYTES = 8


def metadata_hash(topics: Iterable[str], image: MetadataImage) -> int:
    """A number that changes when one of the topics does; 0 if none of them exists."""
    found = [image.topics[name] for name in sorted(set(topics)) if name in image.topics]
    if not found:
        return 0
    hasher = blake2b(digest_size=_HASH_BYTES)
    racks = {broker.broker_id: broker.rack for broker in image.brokers.values()}
    has_racks = any(rack is not None for rack in racks.values())
    for topic in found:
        hasher.update(topic.topic_id.bytes)
        hasher.update(len(topic.partitions).to_bytes(4, "big"))
        if has_racks:
            hasher.update(_racks_of(topic, racks))
    return int.from_bytes(hasher.digest(), "big", signed=True) or 1


def _racks_of(topic: TopicImage, racks: dict[int, str | None]) -> bytes:
    lines = []
    for index in sorted(topic.partitions):
        names = {racks.get(one) for one in topic.partitions[index].replicas}
        lines.append(f"{index}:{','.join(sorted(name for name in names if name is not None))}")
    return "\n".join(lines).encode()


def matching_topics(regex: str, image: MetadataImage) -> frozenset[str]:
    """The topics of which the expression matches the whole name."""
    pattern = compile_regex(regex)
    return frozenset(name for name in image.topics if pattern.fullmatch(name))
