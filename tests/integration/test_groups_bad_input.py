"""Groups and strangers: hostile names, sizes and lies get an error code; others go on."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import encode_request
from ottla.testing import Cluster
from support.wire import Wire

HUGE = "x" * 40_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config={"group.min.session.timeout.ms": "100"}) as cluster:
        cluster.create_topic("t", 2)
        with Wire(cluster.bootstrap_servers) as wire:
            wire.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
            while join(wire, "g").error_code != ErrorCode.MEMBER_ID_REQUIRED:
                pass  # the coordinator loads
        yield cluster


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap_servers) as wire:
        yield wire


@pytest.fixture(autouse=True)
def _a_good_member_goes_on(cluster: Cluster) -> Iterator[None]:
    """A member from before the test is one after it, and can commit."""
    with Wire(cluster.bootstrap_servers) as wire:
        member_id, generation = settle(wire, "good")
        yield
        beat = {"group_id": "good", "member_id": member_id, "generation_id": generation}
        assert wire.ask(ApiKey.HEARTBEAT, 4, beat).error_code == ErrorCode.NONE
        assert commit(wire, "good", member_id, generation) == [ErrorCode.NONE]
        wire.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "good", "members": [{"member_id": member_id}]})


def join_fields(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        **more,
    }


def join(wire: Wire, group: str, member_id: str = "", **more: Any) -> Any:
    return wire.ask(ApiKey.JOIN_GROUP, 9, join_fields(group, member_id, **more))


def settle(wire: Wire, group: str) -> tuple[str, int]:
    member_id = join(wire, group).member_id
    joined = join(wire, group, member_id)
    assert joined.error_code == ErrorCode.NONE
    assert sync(wire, group, member_id, joined.generation_id).error_code == ErrorCode.NONE
    return member_id, joined.generation_id


def sync(wire: Wire, group: str, member_id: str, generation: int, **more: Any) -> Any:
    fields = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"mine"}],
        **more,
    }
    return wire.ask(ApiKey.SYNC_GROUP, 5, fields)


def commit(
    wire: Wire, group: str, member_id: str, generation: int, notes: tuple[str, ...] = ("",)
) -> list[int]:
    partitions = [
        {"partition_index": index % 2, "committed_offset": 1, "committed_metadata": note}
        for index, note in enumerate(notes)
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    answer = wire.ask(ApiKey.OFFSET_COMMIT, 9, fields)
    return [one.error_code for one in answer.topics[0].partitions]


def test_group_id_that_no_record_can_hold_is_invalid_everywhere(wire: Wire) -> None:
    invalid = ErrorCode.INVALID_GROUP_ID
    assert join(wire, HUGE).error_code == invalid
    assert sync(wire, HUGE, "m", 1).error_code == invalid
    beat = {"group_id": HUGE, "member_id": "m", "generation_id": 1}
    assert wire.ask(ApiKey.HEARTBEAT, 4, beat).error_code == invalid
    assert commit(wire, HUGE, "", -1) == [invalid]
    asked = {"groups": [{"group_id": HUGE, "topics": None}]}
    assert wire.ask(ApiKey.OFFSET_FETCH, 9, asked).groups[0].error_code == invalid
    found = wire.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": [HUGE]})
    assert found.coordinators[0].error_code == invalid
    described = wire.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [HUGE]})
    assert described.groups[0].error_code == invalid
    deleted = wire.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [HUGE]})
    assert deleted.results[0].error_code == invalid


@pytest.mark.parametrize(
    "more",
    [
        {"group_instance_id": HUGE},
        {"protocol_type": HUGE},
        {"protocols": [{"name": HUGE, "metadata": b""}]},
    ],
)
def test_other_names_that_no_record_can_hold_are_refused(wire: Wire, more: Any) -> None:
    assert join(wire, "hostile", **more).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("group", ["\0", "../../etc/passwd", "мир 🌍", " ", "a\nb"])
def test_strange_group_ids_are_just_names(wire: Wire, group: str) -> None:
    member_id, generation = settle(wire, group)
    assert commit(wire, group, member_id, generation) == [ErrorCode.NONE]
    leaving = {"group_id": group, "members": [{"member_id": member_id}]}
    assert wire.ask(ApiKey.LEAVE_GROUP, 5, leaving).error_code == ErrorCode.NONE
    asked = {"groups": [{"group_id": group, "topics": None}]}
    fetched = wire.ask(ApiKey.OFFSET_FETCH, 9, asked).groups[0]
    assert fetched.topics[0].partitions[0].committed_offset == 1
    deleted = wire.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})
    assert deleted.results[0].error_code == ErrorCode.NONE


def test_commit_that_fits_no_batch_is_refused_as_a_whole(wire: Wire) -> None:
    codes = commit(wire, "big", "", -1, ("x" * 4096,) * 400)
    assert set(codes) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    asked = {"groups": [{"group_id": "big", "topics": None}]}
    assert not wire.ask(ApiKey.OFFSET_FETCH, 9, asked).groups[0].topics


def test_assignment_that_fits_no_batch_fails_the_sync_and_the_group_goes_on(wire: Wire) -> None:
    member_id = join(wire, "wide").member_id
    joined = join(wire, "wide", member_id)
    huge = [{"member_id": member_id, "assignment": bytes(2 << 20)}]
    failed = sync(wire, "wide", member_id, joined.generation_id, assignments=huge)
    assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert failed.assignment == b""
    again = join(wire, "wide", member_id)
    assert again.generation_id == joined.generation_id + 1
    assert sync(wire, "wide", member_id, again.generation_id).assignment == b"mine"


def test_assignment_for_strangers_is_ignored(wire: Wire) -> None:
    member_id = join(wire, "nosy").member_id
    generation = join(wire, "nosy", member_id).generation_id
    given = [{"member_id": f"stranger-{n}", "assignment": b"theirs"} for n in range(1000)]
    synced = sync(wire, "nosy", member_id, generation, assignments=given)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"")


def test_connection_that_breaks_in_a_join_does_not_hold_up_the_group(
    cluster: Cluster, wire: Wire
) -> None:
    member_id, generation = settle(wire, "patient")
    beat = {"group_id": "patient", "member_id": member_id, "generation_id": generation}
    with Wire(cluster.bootstrap_servers) as other:
        newcomer = join(other, "patient").member_id
        other.send(encode_request(ApiKey.JOIN_GROUP, 9, 1, None, join_fields("patient", newcomer)))
        while wire.ask(ApiKey.HEARTBEAT, 4, beat).error_code == ErrorCode.NONE:
            pass  # until the newcomer's request has arrived
    again = join(wire, "patient", member_id)
    assert again.generation_id == generation + 1
    assert {one.member_id for one in again.members} == {member_id, newcomer}
    assert sync(wire, "patient", member_id, again.generation_id).assignment == b"mine"


def test_leaving_with_an_id_that_was_never_used_disturbs_nobody(wire: Wire) -> None:
    member_id, generation = settle(wire, "calm")
    unused = join(wire, "calm").member_id
    leaving = {"group_id": "calm", "members": [{"member_id": unused}]}
    assert wire.ask(ApiKey.LEAVE_GROUP, 5, leaving).members[0].error_code == ErrorCode.NONE
    beat = {"group_id": "calm", "member_id": member_id, "generation_id": generation}
    assert wire.ask(ApiKey.HEARTBEAT, 4, beat).error_code == ErrorCode.NONE


def test_thousand_groups_that_nobody_joins_leave_no_group(wire: Wire) -> None:
    for number in range(1000):
        asked = join(wire, f"ghost-{number}", session_timeout=100)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    leaving = {"group_id": "ghost-0", "members": [{"member_id": "x"}]}
    wire.ask(ApiKey.LEAVE_GROUP, 5, leaving)
    for _ in range(200):
        listed = wire.ask(ApiKey.LIST_GROUPS, 5, {}).groups
        if not any(one.group_id.startswith("ghost-") for one in listed):
            return
    raise AssertionError(f"{len(listed)} groups are left")


def test_a_commit_that_is_repeated_is_judged_anew(cluster: Cluster, wire: Wire) -> None:
    """One connection commits the same partition again and again, while the world changes."""
    cluster.create_topic("passing", 1)
    member_id, generation = settle(wire, "repeats")

    def commit_offset(offset: int) -> int:
        one = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        fields = {
            "group_id": "repeats",
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "topics": [{"name": "passing", "partitions": [{**one, "committed_metadata": ""}]}],
        }
        answer = wire.ask(ApiKey.OFFSET_COMMIT, 9, fields)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    for offset in (7, 8, 9):
        assert commit_offset(offset) == ErrorCode.NONE
    asked = [{"group_id": "repeats", "topics": None}]
    fetched = wire.ask(ApiKey.OFFSET_FETCH, 8, {"groups": asked}).groups[0]
    assert fetched.topics[0].partitions[0].committed_offset == 9
    deletion = {"topics": [{"name": "passing", "topic_id": None}], "timeout": 5_000}
    assert wire.ask(ApiKey.DELETE_TOPICS, 6, deletion).responses[0].error_code == ErrorCode.NONE
    assert commit_offset(10) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.create_topic("passing", 1)
    assert commit_offset(11) == ErrorCode.NONE
    members = [{"member_id": member_id}]
    wire.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "repeats", "members": members})
    assert commit_offset(12) != ErrorCode.NONE
