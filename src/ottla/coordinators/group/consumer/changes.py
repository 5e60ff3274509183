"""Which consumer groups a change of the cluster's metadata concerns. Pure."""

from collections.abc import Iterable

from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.topics import stored_regex
from ottla.metadata.delta import MetadataDelta, TopicDelta


def touched_topics(delta: MetadataDelta) -> frozenset[str]:
    """Topics that came, went, grew or moved; a change of leader is none of a group's business."""
    names = {one.name for one in delta.deleted_topics.values()}
    names |= {one.name for one in delta.topics.values() if _is_touched(one)}
    return frozenset(names)


def has_rack_change(delta: MetadataDelta) -> bool:
    before = delta.previous.brokers
    for broker_id, broker in delta.brokers.changed.items():
        known = before.get(broker_id)
        if (known.rack if known else None) != (broker.rack if broker else None):
            return True
    return False


def is_concerned(group: ConsumerGroup, topics: Iterable[str]) -> bool:
    """Whether the group reads one of the topics, or would if it looked for topics again."""
    patterns = [one for one in map(stored_regex, group.regex_counts) if one is not None]
    return any(
        group.is_subscribed_to(topic) or any(one.matches(topic) for one in patterns)
        for topic in topics
    )


def _is_touched(topic: TopicDelta) -> bool:
    if topic.previous is None:
        return True
    before = topic.previous.partitions
    return any(
        index not in before or before[index].replicas != partition.replicas
        for index, partition in topic.changed.items()
    )
