"""What happened between two views of a cluster: the time line. Pure.

Kafka keeps no list of elections, rebalances or topic changes that a client could read, but each of
them leaves a trace: a leader epoch that rose, an ISR that shrank, a group's state and generation.
Two views that follow each other are compared; what happened and was undone between them is not
seen, but for rebalances, which leave another generation behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.console.kafka.model import ClusterView, GroupView, Metadata, TopicView

# The time line of a day on a calm cluster; bounded, as a restart of a large one is thousands.
EVENTS_MAX = 500
# More changes of one kind than this between two looks become one line.
LINES_PER_KIND = 8


class Event(NamedTuple):
    at: float
    kind: str  # election, isr, topic, broker, group, console
    severity: str  # good, info, warn, bad
    text: str
    link: str  # a topic's or group's name, or nothing
    subject: str  # topic, group, broker or nothing


def compare(before: ClusterView, after: ClusterView, at: float) -> list[Event]:
    """The events between two views, the oldest first, in a fixed order and bounded per kind."""
    if not before.metadata_at or not after.metadata_at:
        return []
    events: list[Event] = []
    for found in (
        _brokers(before.metadata, after.metadata, at),
        _topics(before.metadata, after.metadata, at),
        _partitions(before.metadata, after.metadata, at),
        _groups(before, after, at),
    ):
        kept = list(found)
        if len(kept) > LINES_PER_KIND:
            more = len(kept) - LINES_PER_KIND
            # Before them: the time line is read from its end, and this is to stand below them.
            events.append(Event(at, kept[0].kind, "info", f"and {more} more like it", "", ""))
        events += kept[:LINES_PER_KIND]
    return events


def _brokers(before: Metadata, after: Metadata, at: float) -> Iterator[Event]:
    if before is after:
        return
    for broker_id in before.brokers.keys() - after.brokers.keys():
        yield Event(at, "broker", "bad", f"Broker {broker_id} left the cluster", "", "broker")
    for broker_id in after.brokers.keys() - before.brokers.keys():
        yield Event(at, "broker", "good", f"Broker {broker_id} joined the cluster", "", "broker")
    if before.controller_id != after.controller_id and after.controller_id >= 0:
        text = f"Controller moved from {before.controller_id} to {after.controller_id}"
        yield Event(at, "election", "info", text, "", "")


def _topics(before: Metadata, after: Metadata, at: float) -> Iterator[Event]:
    if before is after:
        return
    for name in sorted(before.topics.keys() - after.topics.keys()):
        yield Event(at, "topic", "info", f"Topic {name} was deleted", "", "")
    for name in sorted(after.topics.keys() - before.topics.keys()):
        count = len(after.topics[name].partitions)
        plural = "" if count == 1 else "s"
        text = f"Topic {name} was created with {count} partition{plural}"
        yield Event(at, "topic", "good", text, name, "topic")
    for name, topic in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is None:
            continue
        if earlier.topic_id != topic.topic_id:
            yield Event(
                at, "topic", "info", f"Topic {name} was deleted and created anew", name, "topic"
            )
        elif len(earlier.partitions) != len(topic.partitions):
            text = (
                f"Topic {name} grew from {len(earlier.partitions)} to {len(topic.partitions)} "
                "partitions"
            )
            yield Event(at, "topic", "info", text, name, "topic")


def _partitions(before: Metadata, after: Metadata, at: float) -> Iterator[Event]:
    if before is after:
        return
    for name, topic in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is not None and earlier != topic and earlier.topic_id == topic.topic_id:
            yield from _partitions_of(earlier, topic, at)


def _partitions_of(before: TopicView, after: TopicView, at: float) -> Iterator[Event]:
    for old, new in zip(before.partitions, after.partitions, strict=False):
        where = f"{after.name}-{new.number}"
        if old.leader != new.leader or old.leader_epoch != new.leader_epoch:
            if new.leader < 0:
                yield Event(at, "election", "bad", f"{where} lost its leader", after.name, "topic")
            else:
                text = f"{where} elected broker {new.leader} (epoch {new.leader_epoch})"
                yield Event(at, "election", "info", text, after.name, "topic")
        if set(old.isr) != set(new.isr):
            is_shrunk = len(new.isr) < len(old.isr)
            verb = "shrank" if is_shrunk else "grew"
            text = f"ISR of {where} {verb} to {_numbers(new.isr)}"
            yield Event(at, "isr", "warn" if is_shrunk else "good", text, after.name, "topic")


def _groups(before: ClusterView, after: ClusterView, at: float) -> Iterator[Event]:
    if before.groups is after.groups or not before.groups_at:
        return
    for group_id, group in after.groups.items():
        if group_id in after.markers:
            continue  # the place where a sink keeps its last batch; nobody reads with it
        earlier = before.groups.get(group_id)
        if earlier is None:
            yield Event(at, "group", "good", f"Group {group_id} appeared", group_id, "group")
        elif earlier.state != group.state:
            yield _state_change(earlier, group, at)
        elif _is_rebalanced(before, after, group_id):
            count = len(after.descriptions[group_id].members)
            text = f"Group {group_id} rebalanced: {count} member{'' if count == 1 else 's'}"
            yield Event(at, "group", "info", text, group_id, "group")
    for group_id in sorted(before.groups.keys() - after.groups.keys() - before.markers.keys()):
        yield Event(at, "group", "info", f"Group {group_id} is gone", "", "")


def _is_rebalanced(before: ClusterView, after: ClusterView, group_id: str) -> bool:
    """Whether a group that looks the same has another generation."""
    earlier, now = before.descriptions.get(group_id), after.descriptions.get(group_id)
    return earlier is not None and now is not None and earlier.generation != now.generation


def _state_change(before: GroupView, after: GroupView, at: float) -> Event:
    if after.is_rebalancing:
        text, severity = f"Group {after.group_id} is rebalancing", "warn"
    elif after.state == "Stable":
        text, severity = f"Group {after.group_id} is stable", "good"
    elif after.state == "Empty":
        text, severity = f"Group {after.group_id} has no members left", "info"
    else:
        text, severity = f"Group {after.group_id}: {before.state} to {after.state}", "info"
    return Event(at, "group", severity, text, after.group_id, "group")


def _numbers(ids: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, sorted(ids))) + "}"
