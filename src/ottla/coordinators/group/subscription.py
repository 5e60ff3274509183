"""Which topics the consumers of a group subscribed to; the only look into their metadata. Pure.

All versions of the consumer protocol's subscription begin alike: a version, then the topics. What
does not parse means that the topics are unknown, never an error: the group works without.
"""

from collections.abc import Iterable

from ottla.coordinators.record_fields import FieldReader
from ottla.protocol.errors import KafkaError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The union over all members, or None if one of them cannot be read."""
    topics: set[str] = set()
    try:
        for data in subscriptions:
            reader = FieldReader(data)
            if reader.int16() < 0:
                return None
            topics.update(reader.string() for _ in range(reader.array_length()))
    except KafkaError:
        return None
    return frozenset(topics)
