"""Consumer groups of the new protocol, over sockets: what configs, topics and crashes do."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testing import Cluster
from support.wire import Wire

PARTITIONS = 3
WAIT_S = 20.0
GROUP_RESOURCE = 32
SET = 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        "offsets.topic.num.partitions": "1",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.min.session.timeout.ms": "500",
    }
    with Cluster(config=config) as started:
        started.create_topic("t", partitions=PARTITIONS)
        yield started


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap_servers) as opened:
        _load(opened)
        yield opened


def _load(wire: Wire) -> None:
    """Have the offsets topic created and loaded."""
    deadline = time.monotonic() + WAIT_S
    while True:
        wire.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "warm", "key_type": 0})
        code = beat(wire, "warm", "nobody", 1).error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        assert time.monotonic() < deadline, code
        time.sleep(0.05)  # a poll: the protocol has no way to be told


def beat(wire: Wire, group: str, member: str, epoch: int, **more: Any) -> Any:
    fields: dict[str, Any] = {
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
    return wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)


def join(wire: Wire, group: str, member: str, *topics: str, **more: Any) -> Any:
    fields: dict[str, Any] = {
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **more,
    }
    return beat(wire, group, member, 0, **fields)


def partitions(answer: Any) -> list[tuple[UUID, int]]:
    return [
        (topic.topic_id, one)
        for topic in answer.assignment.topic_partitions
        for one in topic.partitions
    ]


def alter(wire: Wire, group: str, **configs: int) -> None:
    wanted = [
        {
            "name": f"consumer.{name.replace('_', '.')}",
            "config_operation": SET,
            "value": str(value),
        }
        for name, value in configs.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": wanted}
    answer = wire.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
    )
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


def test_config_of_a_group_counts_for_that_group_at_once(wire: Wire) -> None:
    alter(wire, "own", heartbeat_interval_ms=250, session_timeout_ms=700)
    own = join(wire, "own", "one", "t")
    assert own.heartbeat_interval == timedelta(milliseconds=250)
    assert join(wire, "other", "one", "t").heartbeat_interval == timedelta(seconds=5)
    alter(wire, "own", heartbeat_interval_ms=400)
    again = beat(wire, "own", "one", own.member_epoch)
    assert again.heartbeat_interval == timedelta(milliseconds=400)
    deadline = time.monotonic() + WAIT_S
    while True:  # nothing is sent, so the session of this group ends
        described = wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["own"]})
        if described.groups[0].group_state == "Empty":
            break
        assert time.monotonic() < deadline, described
        time.sleep(0.05)  # a poll: a broker tells nobody of an expiry


def test_topic_that_comes_and_matches_is_assigned_with_the_next_heartbeat(
    cluster: Cluster, wire: Wire
) -> None:
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "late-.*"}
    first = join(wire, "late", "one", **pattern)
    assert first.error_code == ErrorCode.NONE
    assert partitions(first) == []
    cluster.create_topic("late-1", partitions=2)
    second = beat(wire, "late", "one", first.member_epoch)
    assert len(partitions(second)) == 2
    assert second.member_epoch > first.member_epoch
    unchanged = beat(wire, "late", "one", second.member_epoch)
    assert unchanged.assignment is None


def test_group_goes_on_after_kill_of_the_broker(cluster: Cluster, wire: Wire) -> None:
    joined = join(wire, "survivor", "one", "t")
    assert len(partitions(joined)) == PARTITIONS
    cluster.kill()
    cluster.restart()
    with Wire(cluster.bootstrap_servers) as again:
        _load(again)
        alive = beat(again, "survivor", "one", joined.member_epoch)
        assert alive.error_code == ErrorCode.NONE, alive
        assert alive.member_epoch == joined.member_epoch
        assert alive.assignment is None, "nothing has changed"
        other = join(again, "survivor", "two", "t")
        assert partitions(other) == [], "the first one still has everything"


def test_many_members_join_one_group_and_share(cluster: Cluster) -> None:
    """Each hears of its share within a few heartbeats; one that changes nothing is answered so."""
    cluster.create_topic("wide", partitions=300)
    with Wire(cluster.bootstrap_servers) as wire:
        _load(wire)
        epochs = {}
        owned: dict[str, list[tuple[UUID, int]]] = {}
        for number in range(100):
            answer = join(wire, "many", f"m{number}", "wide")
            epochs[f"m{number}"] = answer.member_epoch
            owned[f"m{number}"] = partitions(answer)
        deadline = time.monotonic() + WAIT_S
        while sorted(map(len, owned.values())) != [3] * 100:
            assert time.monotonic() < deadline, sorted(map(len, owned.values()))
            for member, epoch in epochs.items():
                has = [{"topic_id": one, "partitions": [index]} for one, index in owned[member]]
                answer = beat(wire, "many", member, epoch, topic_partitions=has)
                assert answer.error_code == ErrorCode.NONE, answer
                epochs[member] = answer.member_epoch
                if answer.assignment is not None:
                    owned[member] = partitions(answer)
        everything = [one for mine in owned.values() for one in mine]
        assert len(set(everything)) == len(everything) == 300


def test_new_protocol_can_be_switched_off() -> None:
    config = {"group.coordinator.rebalance.protocols": "classic"}
    with Cluster(config=config) as cluster, Wire(cluster.bootstrap_servers) as wire:
        answer = join(wire, "g", "one", "t")
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
