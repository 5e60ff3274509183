"""The same conversation with Ottla and with Apache Kafka: ConsumerGroupHeartbeat and its kin.

Members join, share, give back, are replaced and fenced, commit by epoch, and meet members of the
classic protocol; and strangers send what no group could take.
"""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from bench.brokers import BrokerProcess

from ottla.protocol.api import ApiKey
from support.conversations import Talk, both_brokers, converse_with_each
from support.wire import Wire

OVERRIDES = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.max.size": "3",
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "2",
}
BEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
JOIN, SYNC = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with both_brokers(tmp_path_factory.mktemp("consumer-groups"), OVERRIDES) as started:
        for broker in started:
            _prepare(broker)
        yield started


def _prepare(broker: BrokerProcess) -> None:
    """The offsets topic, loaded: Kafka creates it when it is first asked for."""
    with Wire(broker.bootstrap, timeout_seconds=30) as wire:
        deadline = time.monotonic() + 60
        while True:
            wire.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "warm", "key_type": 0})
            beat = {"group_id": "warm", "member_id": "nobody", "generation_id": 1}
            if wire.ask(ApiKey.HEARTBEAT, 3, beat).error_code == 25:
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)  # a poll: the protocol has no way to be told


def beat_fields(group: str, member: str, epoch: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **more,
    }


def owning(topic_id: UUID, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(partitions)}] if partitions else []


def joining(group: str, member: str, *topics: str, **more: Any) -> dict[str, Any]:
    fields = {
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **more,
    }
    return beat_fields(group, member, 0, **fields)


def topic(talk: Talk, name: str, partitions: int = 1) -> UUID:
    """Create a topic and wait until the group coordinator can assign it.

    Kafka's coordinator hears of a topic, and of all that was decided before it, after the rest of
    the broker does.
    """
    made = talk.topic(name, partitions)
    deadline = time.monotonic() + 30
    while True:
        probe = talk.name(f"probe-{time.monotonic_ns()}")
        joined = talk.quietly(BEAT, 1, **joining(probe, "probe", talk.name(name)))
        talk.quietly(BEAT, 1, **beat_fields(probe, "probe", -1))
        if joined.assignment and joined.assignment.topic_partitions:
            return made
        assert time.monotonic() < deadline
        time.sleep(0.02)  # a poll: the protocol has no way to be told


def describe(talk: Talk, group: str, version: int = 1) -> None:
    asked = {"group_ids": [group, "no such group"], "include_authorized_operations": True}
    talk.ask(DESCRIBE, version, **asked)
    talk.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[group], include_authorized_operations=False)
    for kinds in ([], ["consumer"], ["Classic"]):
        talk.ask_filtered(
            lambda answer: tuple(one for one in answer.groups if one.group_id == group),
            ApiKey.LIST_GROUPS,
            5,
            types_filter=kinds,
            states_filter=[],
        )


def commit(
    talk: Talk, group: str, topic_id: UUID, member: str, epoch: int, version: int = 10
) -> None:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": epoch + 10 + index,
            "committed_leader_epoch": 0,
            "committed_metadata": "note",
        }
        for index in (0, 1)
    ]
    talk.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        group_instance_id=None,
        topics=[{"topic_id": topic_id, "name": talk.name("t"), "partitions": partitions}],
    )


def fetch(talk: Talk, group: str, topic_id: UUID, member: str | None, epoch: int) -> None:
    topics = [{"topic_id": topic_id, "name": talk.name("t"), "partition_indexes": [0, 1]}]
    asked = {"group_id": group, "member_id": member, "member_epoch": epoch, "topics": topics}
    talk.ask(ApiKey.OFFSET_FETCH, 10, groups=[asked], require_stable=True)
    talk.ask(ApiKey.OFFSET_FETCH, 9, groups=[asked], require_stable=True)


def share_a_topic(talk: Talk, version: int) -> None:
    """One member, a second one that takes half, and each of them goes."""
    topic_id = topic(talk, "t", 2)
    name, group = talk.name("t"), talk.name("share")
    ask = lambda **fields: talk.ask(BEAT, version, **fields)  # noqa: E731  # one word a step
    ask(**joining(group, "one", name))
    ask(**beat_fields(group, "one", 2))
    ask(**beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0, 1)))
    describe(talk, group, version)
    ask(**joining(group, "two", name))
    describe(talk, group, version)
    ask(**beat_fields(group, "two", 3))
    ask(**beat_fields(group, "one", 2))
    describe(talk, group, version)
    ask(**beat_fields(group, "two", 3))
    ask(**beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0, 1)))
    commit(talk, group, topic_id, "one", 2)
    ask(**beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0)))
    describe(talk, group, version)
    ask(**beat_fields(group, "two", 3))
    commit(talk, group, topic_id, "one", 2)
    for who, epoch in (("one", 3), ("two", 2), ("two", 4), ("none", 3), ("", -1)):
        commit(talk, group, topic_id, who, epoch)
        commit(talk, group, topic_id, who, epoch, 9)
        commit(talk, group, topic_id, who, epoch, 8)
        fetch(talk, group, topic_id, who, epoch)
    fetch(talk, group, topic_id, None, -1)
    fetch(talk, "no such group", topic_id, "one", 2)
    for epoch in (0, 1, 2, 3, 4, -3):
        ask(**beat_fields(group, "one", epoch))
    ask(**beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0)))
    ask(**beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0, 1)))
    ask(**joining(group, "one", name))  # again, as after an error
    again = {
        "subscribed_topic_names": [name],
        "rebalance_timeout": 30_000,
        "topic_partitions": owning(topic_id, 0),
    }
    ask(**beat_fields(group, "one", 3, **again))
    ask(**beat_fields(group, "one", -1))
    ask(**beat_fields(group, "one", -1))
    ask(**beat_fields(group, "one", 3))
    describe(talk, group, version)
    ask(**beat_fields(group, "two", 3))
    ask(**beat_fields(group, "two", 4))
    talk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
    ask(**beat_fields(group, "two", -1))
    describe(talk, group, version)
    commit(talk, group, topic_id, "", -1)
    fetch(talk, group, topic_id, None, -1)
    talk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
    describe(talk, group, version)
    ask(**beat_fields(group, "two", 4))


def be_refused(talk: Talk, version: int) -> None:
    """What no group takes."""
    topic_id = topic(talk, "t", 1)
    name, group = talk.name("t"), talk.name("refused")
    ask = lambda **fields: talk.ask(BEAT, version, **fields)  # noqa: E731  # one word a step
    for more in (
        {"group_id": ""},
        {"group_id": " "},
        {"member_id": " "},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"topic_partitions": owning(topic_id, 0)},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"server_assignor": "sticky"},
        {"server_assignor": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"member_epoch": -2, "instance_id": "box"},
        {"member_epoch": -1},
        {"member_epoch": 5},
    ):
        ask(**{**joining(group, "one", name), **more})
    describe(talk, group, version)
    ask(**joining(group, "one", name, "no-such-topic"))
    ask(**joining(group, "two", "no-such-topic"))
    ask(**joining(group, "three", name, rack_id="r", server_assignor="range"))
    ask(**joining(group, "four", name))
    ask(**beat_fields(group, "one", 1, server_assignor="sticky"))
    for who, epoch in (("nobody", 1), ("nobody", -1), ("", 1), ("one", 9)):
        ask(**beat_fields(group, who, epoch))
        ask(**beat_fields(group, who, epoch, instance_id="box"))
    describe(talk, group, version)


def use_an_expression(talk: Talk) -> None:
    """Topics by a regular expression; Kafka looks them up a little later."""
    topic(talk, "x1", 1)
    group = talk.name("regex")
    for regex in ("[", "(", "*", "a{1001}", "(?=x)", "(a)\\1", "\\p{Nope}"):
        fields = joining(group, "bad", subscribed_topic_regex=regex)
        talk.ask(BEAT, 1, **{**fields, "subscribed_topic_names": None})
    fields = joining(group, "one", subscribed_topic_regex=f"{talk.name('x')}[0-9]")
    _settle(talk, group, "one", {**fields, "subscribed_topic_names": None})
    describe(talk, group)
    talk.ask(BEAT, 1, **beat_fields(group, "one", -1))


def _settle(talk: Talk, group: str, member: str, first: dict[str, Any]) -> None:
    """Heartbeats until there is an assignment; epochs may differ by then."""
    answer = talk.quietly(BEAT, 1, **first)
    deadline = time.monotonic() + 30
    while not (answer.assignment and answer.assignment.topic_partitions):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # a poll of the broker's state
        answer = talk.quietly(BEAT, 1, **beat_fields(group, member, answer.member_epoch))
        assert answer.error_code == 0, answer


def be_static(talk: Talk, version: int) -> None:
    """A static member leaves for a while, is replaced, and its old self is fenced."""
    topic_id = topic(talk, "t", 2)
    name, group = talk.name("t"), talk.name("static")
    box = {"instance_id": "box"}
    ask = lambda **fields: talk.ask(BEAT, version, **fields)  # noqa: E731  # one word a step
    ask(**joining(group, "one", name, **box))
    ask(**beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0, 1), **box))
    ask(**joining(group, "two", name, **box))
    ask(**joining(group, "one", name, **box))
    ask(**beat_fields(group, "two", 2, **box))
    ask(**beat_fields(group, "two", -2, **box))
    ask(**beat_fields(group, "one", -2, **box))
    describe(talk, group, version)
    ask(**beat_fields(group, "one", 2, **box))
    ask(**joining(group, "two", name, **box))
    describe(talk, group, version)
    ask(**beat_fields(group, "one", 2, **box))
    ask(**beat_fields(group, "one", 2))
    ask(**beat_fields(group, "two", 2, topic_partitions=owning(topic_id, 0, 1), **box))
    ask(**beat_fields(group, "one", -1, **box))
    ask(**beat_fields(group, "two", -1, **box))
    describe(talk, group, version)


def subscription(topic: str, owned: tuple[int, ...]) -> bytes:
    encoded = topic.encode()
    text = len(encoded).to_bytes(2, "big") + encoded
    head = b"\0\1\0\0\0\1" + text + b"\xff\xff\xff\xff"
    if not owned:
        return head + b"\0\0\0\0"
    numbers = b"".join(one.to_bytes(4, "big") for one in owned)
    return head + b"\0\0\0\1" + text + len(owned).to_bytes(4, "big") + numbers


def join_fields(group: str, member: str, topic: str, *owned: int, **more: Any) -> dict[str, Any]:
    protocol = {"name": "range", "metadata": subscription(topic, owned)}
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [protocol],
        "reason": None,
        **more,
    }


def sync_fields(group: str, member: str, generation: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
        **more,
    }


def turn_over(talk: Talk) -> None:
    """A classic group becomes a consumer group, and a classic group again."""
    topic_id = topic(talk, "t", 2)
    name, group = talk.name("t"), talk.name("turning")
    old = talk.ask(JOIN, 9, **join_fields(group, "", name)).member_id
    talk.ask(JOIN, 9, **join_fields(group, old, name))
    whole = name.encode()
    assignment = (
        b"\0\1\0\0\0\1" + len(whole).to_bytes(2, "big") + whole
    ) + b"\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
    given = [{"member_id": old, "assignment": assignment}]
    talk.ask(SYNC, 5, **sync_fields(group, old, 1, assignments=given))

    def classic_beat(generation: int, member: str = old) -> None:
        fields = {"group_id": group, "member_id": member, "generation_id": generation}
        talk.ask(ApiKey.HEARTBEAT, 4, group_instance_id=None, **fields)

    classic_beat(1)
    talk.ask(BEAT, 1, **beat_fields(group, "new", 1))
    talk.ask(BEAT, 1, **joining(group, "new", name))
    describe(talk, group)
    classic_beat(1)
    commit(talk, group, topic_id, old, 1)
    commit(talk, group, topic_id, old, 2)
    talk.ask(SYNC, 5, **sync_fields(group, old, 1))
    talk.ask(JOIN, 9, **join_fields(group, old, name, 0, 1))
    describe(talk, group)
    talk.ask(SYNC, 5, **sync_fields(group, old, 1, protocol_name="alien"))
    talk.ask(SYNC, 5, **sync_fields(group, old, 1))
    classic_beat(1)
    talk.ask(JOIN, 9, **join_fields(group, old, name, 0))
    talk.ask(SYNC, 5, **sync_fields(group, old, 2))
    classic_beat(2)
    classic_beat(2, "new")
    classic_beat(2, "nobody")
    talk.ask(BEAT, 1, **beat_fields(group, "new", 2))
    describe(talk, group)
    alien = [{"name": "alien", "metadata": subscription(name, ())}]
    talk.ask(JOIN, 9, **join_fields(group, old, name, protocols=alien, protocol_type="connect"))
    talk.ask(JOIN, 9, **join_fields(group, "new", name))
    stranger = {"member_id": "new", "group_instance_id": None, "reason": None}
    talk.ask(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[stranger])
    talk.ask(BEAT, 1, **beat_fields(group, "new", -1))
    describe(talk, group)
    rejoined = talk.ask(JOIN, 9, **join_fields(group, old, name, 0))
    given = [{"member_id": old, "assignment": assignment}]
    talk.ask(SYNC, 5, **sync_fields(group, old, rejoined.generation_id, assignments=given))
    describe(talk, group)
    leaving = {"member_id": old, "group_instance_id": None, "reason": None}
    talk.ask(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[leaving])
    talk.ask(BEAT, 1, **joining(group, "last", name))
    describe(talk, group)
    talk.ask(BEAT, 1, **beat_fields(group, "last", -1))
    talk.ask(JOIN, 9, **join_fields(group, "nobody", name))
    first = talk.ask(JOIN, 9, **join_fields(group, "", name)).member_id
    talk.ask(JOIN, 9, **join_fields(group, first, name))
    describe(talk, group)


def change_topics(talk: Talk) -> None:
    """Partitions are added, and a topic goes."""
    topic_id = topic(talk, "t", 1)
    name, group = talk.name("t"), talk.name("changing")
    talk.ask(BEAT, 1, **joining(group, "one", name))
    more = [{"name": name, "count": 3, "assignments": None}]
    talk.quietly(ApiKey.CREATE_PARTITIONS, 3, topics=more, timeout=10_000, validate_only=False)
    topic(talk, "later")
    talk.ask(BEAT, 1, **beat_fields(group, "one", 2, topic_partitions=owning(topic_id, 0)))
    describe(talk, group)
    gone = [{"name": name, "topic_id": None}]
    talk.quietly(ApiKey.DELETE_TOPICS, 6, topics=gone, timeout=10_000)
    topic(talk, "last")
    talk.ask(BEAT, 1, **beat_fields(group, "one", 3, topic_partitions=owning(topic_id, 0, 1, 2)))
    describe(talk, group)


def compare(brokers: list[BrokerProcess], converse: Any, *arguments: Any, tag: str) -> None:
    bootstraps = [broker.bootstrap for broker in brokers]
    found = converse_with_each(bootstraps, converse, *arguments, tag=tag)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("version", [0, 1])
def test_members_share_a_topic(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, share_a_topic, version, tag=f"share{version}")


@pytest.mark.parametrize("version", [0, 1])
def test_refusals_of_heartbeats(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, be_refused, version, tag=f"refused{version}")


@pytest.mark.parametrize("version", [0, 1])
def test_static_members_of_consumer_groups(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, be_static, version, tag=f"static{version}")


def test_regular_expressions(brokers: list[BrokerProcess]) -> None:
    compare(brokers, use_an_expression, tag="regex")


def test_groups_that_turn_over(brokers: list[BrokerProcess]) -> None:
    compare(brokers, turn_over, tag="turn")


def test_topics_that_change(brokers: list[BrokerProcess]) -> None:
    compare(brokers, change_topics, tag="change")
