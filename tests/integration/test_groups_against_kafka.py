"""The same conversation with Ottla and with Apache Kafka: every version of every group API.

Answers are compared field by field. What a broker draws at random (member ids, topic ids) is
replaced by the order in which it appeared. Sentences meant for people may differ.
"""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from bench.brokers import BrokerProcess

from ottla.protocol.api import VERSIONS, ApiKey
from support.conversations import Talk, both_brokers, converse_with_each
from support.wire import Wire

OVERRIDES = {
    "group.min.session.timeout.ms": "100",
    "group.max.size": "2",
    "offset.metadata.max.bytes": "20",
    "num.partitions": "2",
}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with both_brokers(tmp_path_factory.mktemp("groups"), OVERRIDES) as started:
        for broker in started:
            _prepare(broker)
        yield started


def _prepare(broker: BrokerProcess) -> None:
    """A topic, and the offsets topic loaded: Kafka creates it when it is first asked for."""
    with Wire(broker.bootstrap, timeout_seconds=30) as wire:
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 1}
        wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000})
        deadline = time.monotonic() + 60
        while True:
            wire.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "warm", "key_type": 0})
            beat = {"group_id": "warm", "member_id": "nobody", "generation_id": 1}
            if wire.ask(ApiKey.HEARTBEAT, 3, beat).error_code == 25:
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)  # a poll: the protocol has no way to be told


def topic_id(talk: Talk) -> UUID:
    answer = talk.quietly(ApiKey.METADATA, 12, topics=[{"topic_id": None, "name": "t"}])
    found: UUID = answer.topics[0].topic_id
    return found


def join_fields(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        "reason": None,
        **more,
    }


def sync_fields(group: str, member_id: str, generation: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"all of it"}],
        **more,
    }


def join(talk: Talk, version: int, group: str, **more: Any) -> Any:
    """Join until there is a generation; older versions need one step, newer ones two."""
    answer = talk.ask(ApiKey.JOIN_GROUP, version, **join_fields(group, **more))
    if answer.error_code == 79:
        more["member_id"] = answer.member_id
        answer = talk.ask(ApiKey.JOIN_GROUP, version, **join_fields(group, **more))
    return answer


def commit_fields(talk: Talk, group: str, member_id: str, generation: int) -> dict[str, Any]:
    def partition(index: int, offset: int, note: str | None) -> dict[str, Any]:
        return {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": note,
        }

    good = [partition(0, 5, "note"), partition(1, 6, "x" * 21), partition(7, 1, None)]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [
            {"name": "t", "topic_id": topic_id(talk), "partitions": good},
            {"name": "gone", "topic_id": UUID(int=77), "partitions": [partition(0, 1, None)]},
        ],
    }


def fetch_fields(talk: Talk, group: str, *, is_all: bool) -> dict[str, Any]:
    topics = None
    if not is_all:
        topics = [
            {"name": "t", "topic_id": topic_id(talk), "partition_indexes": [0, 1, 9]},
            {"name": "gone", "topic_id": UUID(int=77), "partition_indexes": [0]},
        ]
    groups = [{"group_id": name, "topics": topics} for name in (group, "no such group")]
    return {"group_id": group, "topics": topics, "groups": groups, "require_stable": True}


def versions(key: ApiKey) -> range:
    return range(VERSIONS[key][0], VERSIONS[key][1] + 1)


def live_through_a_group(talk: Talk, version: int) -> None:
    """Join, sync, heartbeat, commit, fetch and leave, with what strangers try in between."""

    def at(key: ApiKey) -> int:
        return min(max(version, VERSIONS[key][0]), VERSIONS[key][1])

    group = f"group-{version}"
    joined = join(talk, at(ApiKey.JOIN_GROUP), group)
    member, generation = joined.member_id, joined.generation_id
    sync, beat = at(ApiKey.SYNC_GROUP), at(ApiKey.HEARTBEAT)
    talk.ask(ApiKey.SYNC_GROUP, sync, **sync_fields(group, "nobody", generation))
    talk.ask(ApiKey.SYNC_GROUP, sync, **sync_fields(group, member, generation + 1))
    commit = commit_fields(talk, group, member, generation)
    talk.ask(ApiKey.OFFSET_COMMIT, at(ApiKey.OFFSET_COMMIT), **commit)  # before the assignment
    talk.ask(ApiKey.SYNC_GROUP, sync, **sync_fields(group, member, generation))
    for who, when in ((member, generation), (member, generation - 1), ("nobody", generation)):
        fields = {"group_id": group, "member_id": who, "generation_id": when}
        talk.ask(ApiKey.HEARTBEAT, beat, group_instance_id=None, **fields)
        commit = commit_fields(talk, group, who, when)
        talk.ask(ApiKey.OFFSET_COMMIT, at(ApiKey.OFFSET_COMMIT), **commit)
    talk.ask(ApiKey.OFFSET_COMMIT, at(ApiKey.OFFSET_COMMIT), **commit_fields(talk, group, "", -1))
    fetch = at(ApiKey.OFFSET_FETCH)
    talk.ask(ApiKey.OFFSET_FETCH, fetch, **fetch_fields(talk, group, is_all=False))
    if fetch >= 2:
        talk.ask(ApiKey.OFFSET_FETCH, fetch, **fetch_fields(talk, group, is_all=True))
    described = {"groups": [group, "no such group"], "include_authorized_operations": False}
    talk.ask(ApiKey.DESCRIBE_GROUPS, at(ApiKey.DESCRIBE_GROUPS), **described)
    delete = at(ApiKey.DELETE_GROUPS)
    talk.ask(ApiKey.DELETE_GROUPS, delete, groups_names=[group, "no such group"])
    talk.ask(ApiKey.OFFSET_DELETE, 0, **_offset_delete(group))
    leave = at(ApiKey.LEAVE_GROUP)
    for who in ("nobody", member):
        leaving = {"member_id": who, "group_instance_id": None, "reason": None}
        talk.ask(ApiKey.LEAVE_GROUP, leave, group_id=group, member_id=who, members=[leaving])
    described["include_authorized_operations"] = True
    talk.ask(ApiKey.DESCRIBE_GROUPS, at(ApiKey.DESCRIBE_GROUPS), **described)
    for state in ("empty", "Stable"):
        list_group(talk, at(ApiKey.LIST_GROUPS), group, states_filter=[state])
    talk.ask(ApiKey.OFFSET_COMMIT, at(ApiKey.OFFSET_COMMIT), **commit_fields(talk, group, "", -1))
    talk.ask(ApiKey.OFFSET_DELETE, 0, **_offset_delete(group))
    talk.ask(ApiKey.OFFSET_FETCH, fetch, **fetch_fields(talk, group, is_all=False))
    talk.ask(ApiKey.DELETE_GROUPS, delete, groups_names=[group])
    commit = commit_fields(talk, group, member, generation)
    talk.ask(ApiKey.OFFSET_COMMIT, at(ApiKey.OFFSET_COMMIT), **commit)
    list_group(talk, at(ApiKey.LIST_GROUPS), group)


def list_group(talk: Talk, version: int, group: str, **fields: Any) -> None:
    """What ListGroups says of one group; Kafka also keeps groups that nobody joined."""
    talk.ask_filtered(
        lambda answer: (
            answer.error_code,
            tuple(one for one in answer.groups if one.group_id == group),
        ),
        ApiKey.LIST_GROUPS,
        version,
        **fields,
    )


def _offset_delete(group: str) -> dict[str, Any]:
    topics = [
        {"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}
        for name in ("t", "gone")
    ]
    return {"group_id": group, "topics": topics}


def be_refused(talk: Talk, version: int) -> None:
    """Bad input of all kinds to JoinGroup and its kin."""
    for more in (
        {"session_timeout": 99},
        {"session_timeout": 1_800_001},
        {"protocols": []},
        {"protocol_type": ""},
        {"member_id": "nobody"},
    ):
        talk.ask(ApiKey.JOIN_GROUP, version, **{**join_fields("bad"), **more})
    talk.ask(ApiKey.JOIN_GROUP, version, **join_fields(""))
    talk.ask(ApiKey.SYNC_GROUP, min(version, 5), **sync_fields("", "m", 1))
    talk.ask(ApiKey.SYNC_GROUP, min(version, 5), **sync_fields("none", "m", 1))
    for group in ("", "none"):
        fields = {"group_id": group, "member_id": "m", "generation_id": 1}
        talk.ask(ApiKey.HEARTBEAT, min(version, 4), group_instance_id=None, **fields)
        leaving = [{"member_id": "m", "group_instance_id": None, "reason": None}]
        talk.ask(
            ApiKey.LEAVE_GROUP, min(version, 5), group_id=group, member_id="m", members=leaving
        )
        talk.ask(ApiKey.OFFSET_DELETE, 0, **_offset_delete(group))
        talk.ask(
            ApiKey.OFFSET_COMMIT,
            min(version + 2, 10),
            **commit_fields(talk, group, "m", 1),
        )


def be_static(talk: Talk, other: Talk, version: int) -> None:
    """A static member is replaced by a second process of its name."""
    group = f"static-{version}"
    sync = min(version, 5)
    box = {"group_instance_id": "box"}
    first = join(talk, version, group, **box)
    talk.ask(
        ApiKey.SYNC_GROUP, sync, **sync_fields(group, first.member_id, first.generation_id, **box)
    )
    second = join(other, version, group, **box)
    nothing: dict[str, Any] = {"assignments": [], **box}
    other.ask(
        ApiKey.SYNC_GROUP,
        sync,
        **sync_fields(group, second.member_id, second.generation_id, **nothing),
    )
    fields = {"group_id": group, "generation_id": first.generation_id, **box}
    talk.ask(ApiKey.HEARTBEAT, min(version, 4), member_id=first.member_id, **fields)
    talk.ask(ApiKey.HEARTBEAT, min(version, 4), member_id=second.member_id, **fields)
    talk.ask(ApiKey.JOIN_GROUP, version, **join_fields(group, first.member_id, **box))
    leaving = {"member_id": "", "group_instance_id": "box", "reason": "gone"}
    stranger = {"member_id": "", "group_instance_id": "nobody", "reason": None}
    talk.ask(ApiKey.LEAVE_GROUP, min(version, 5), group_id=group, members=[stranger, leaving])


def be_too_many(talk: Talk, others: list[Talk], version: int) -> None:
    """Two members share a group that takes no third, and rebalance."""
    group = f"two-{version}"
    first = join(talk, version, group)
    member, generation = first.member_id, first.generation_id
    talk.ask(ApiKey.SYNC_GROUP, 5, **sync_fields(group, member, generation))
    asked = others[0].ask(ApiKey.JOIN_GROUP, version, **join_fields(group))
    others[0].send(ApiKey.JOIN_GROUP, version, **join_fields(group, asked.member_id))
    _await_rebalance(talk, group, member, generation)
    rejoined = talk.ask(ApiKey.JOIN_GROUP, version, **join_fields(group, member))
    second = others[0].hear(ApiKey.JOIN_GROUP, version)
    others[1].ask(ApiKey.JOIN_GROUP, version, **join_fields(group))
    given = [
        {"member_id": member, "assignment": b"first"},
        {"member_id": second.member_id, "assignment": b"second"},
    ]
    generation = rejoined.generation_id
    others[0].send(
        ApiKey.SYNC_GROUP, 5, **sync_fields(group, second.member_id, generation, assignments=[])
    )
    talk.ask(ApiKey.SYNC_GROUP, 5, **sync_fields(group, member, generation, assignments=given))
    others[0].hear(ApiKey.SYNC_GROUP, 5)
    alien = {"protocols": [{"name": "alien", "metadata": b""}]}
    talk.ask(ApiKey.JOIN_GROUP, version, **join_fields(group, second.member_id, **alien))
    liar = {"protocol_name": "alien"}
    talk.ask(ApiKey.SYNC_GROUP, 5, **sync_fields(group, second.member_id, generation, **liar))
    talk.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    for who in (member, second.member_id):
        leaving = [{"member_id": who, "group_instance_id": None, "reason": None}]
        talk.ask(ApiKey.LEAVE_GROUP, 5, group_id=group, members=leaving)


def _await_rebalance(talk: Talk, group: str, member_id: str, generation: int) -> None:
    """The second member's join has arrived once the first one's heartbeat says so."""
    fields = {"group_id": group, "member_id": member_id, "generation_id": generation}
    deadline = time.monotonic() + 30
    while talk.quietly(ApiKey.HEARTBEAT, 3, **fields).error_code != 27:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # a poll of the broker's state


def find_coordinators(talk: Talk, version: int) -> None:
    keys = {"coordinator_keys": ["one", ""], "key": "one"}
    talk.ask(ApiKey.FIND_COORDINATOR, version, key_type=0, **keys)
    if version >= 1:
        talk.ask(ApiKey.FIND_COORDINATOR, version, key_type=9, **keys)


def compare(brokers: list[BrokerProcess], converse: Any, *arguments: Any, talks: int = 1) -> None:
    bootstraps = [broker.bootstrap for broker in brokers]
    assert not converse_with_each(bootstraps, converse, *arguments, talks=talks)


@pytest.mark.parametrize("version", range(11))
def test_life_of_a_group(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, live_through_a_group, version)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_refusals(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, be_refused, version)


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, be_static, version, talks=2)


@pytest.mark.parametrize("version", range(4, 10))
def test_two_members_and_a_third(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, be_too_many, version, talks=3)


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_coordinators_are_found(brokers: list[BrokerProcess], version: int) -> None:
    compare(brokers, find_coordinators, version)
