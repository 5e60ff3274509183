"""The frames of simulated members against Ottla's own encoding, and when a group has settled."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from bench import group_frames as frames
from bench import report
from bench.classic_members import assignment, subscription
from bench.group_members import Group, Member
from bench.table import Figure, Row

from ottla.protocol.messages import decode_request, encode_response
from ottla.protocol.messages import encode_request as encode

TOPIC_ID = UUID(int=7)


def body(frame: bytes) -> tuple[int, int, Any]:
    """The API, version and decoded body of a frame, whose length must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
    return key, version, decode_request(key, version, memoryview(frame)[20:])


def test_a_joining_heartbeat_is_what_a_client_sends() -> None:
    frame = frames.consumer_heartbeat("g", "m", 0, topic="orders", owned=frozenset())
    expected = encode(
        68,
        1,
        1,
        "bench",
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": frames.REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
        },
    )
    assert frame[4:] == expected


def test_a_heartbeat_that_tells_what_is_owned_names_every_partition() -> None:
    owned = frozenset((TOPIC_ID.bytes, number) for number in (3, 1, 200))
    _, _, request = body(frames.consumer_heartbeat("g", "m", 5, owned=owned))
    (topic,) = request.topic_partitions
    assert (topic.topic_id, topic.partitions) == (TOPIC_ID, (1, 3, 200))
    assert request.subscribed_topic_names is None
    assert request.member_epoch == 5


@pytest.mark.parametrize("partitions", [None, [], [4, 5]])
def test_the_answer_to_a_heartbeat_is_read(partitions: list[int] | None) -> None:
    assigned: dict[str, Any] = {"topic_partitions": []}
    if partitions:
        assigned["topic_partitions"] = [{"topic_id": TOPIC_ID, "partitions": partitions}]
    fields = {
        "member_id": "m",
        "member_epoch": 3,
        "heartbeat_interval": 1000,
        "assignment": None if partitions is None else assigned,
    }
    beat = frames.read_beat(encode_response(68, 1, 1, fields))
    expected = None if partitions is None else {(TOPIC_ID.bytes, p) for p in partitions}
    assert (beat.error_code, beat.member_epoch, beat.interval_ms) == (0, 3, 1000)
    assert beat.assigned == expected


def test_commits_and_classic_requests_are_what_a_broker_reads() -> None:
    key, version, commit = body(frames.offset_commit("g", "m", 2, "orders", 4, 42))
    assert (key, version) == (8, 9)
    (partition,) = commit.topics[0].partitions
    assert (partition.partition_index, partition.committed_offset) == (4, 42)
    _, _, join = body(frames.join_group("g", "m", subscription("orders")))
    assert join.protocols[0].metadata == subscription("orders")
    _, _, sync = body(frames.sync_group("g", "m", 1, {"m": assignment("orders", [1])}))
    assert sync.assignments[0].assignment == assignment("orders", [1])
    _, _, beat = body(frames.heartbeat("g", "m", 1))
    assert (beat.group_id, beat.generation_id, beat.member_id) == ("g", 1, "m")


def test_answers_of_the_classic_protocol_are_read() -> None:
    fields = {
        "generation_id": 4,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "a",
        "member_id": "b",
        "members": [{"member_id": name, "metadata": b"x" * 200} for name in "ab"],
    }
    joined = frames.read_joined(encode_response(11, 9, 1, fields))
    assert joined == frames.Joined(0, 4, "a", "b", ("a", "b"))
    synced = encode_response(14, 5, 1, {"assignment": b"plan", "protocol_type": "consumer"})
    assert frames.read_synced(synced) == (0, b"plan")
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 25}]}]
    assert frames.commit_error(encode_response(8, 9, 1, {"topics": topics})) == 25
    assert frames.heartbeat_error(encode_response(12, 4, 1, {"error_code": 27})) == 27


def test_a_group_has_settled_when_partitions_are_shared_out_once_and_evenly() -> None:
    async def scenario() -> list[bool]:
        group = Group(("127.0.0.1", 1), "orders", 4)
        members = [Member(group) for _ in range(2)]
        for member in members:
            group.members.add(member)
            group.tally.add(member)
        seen = [group.is_settled]
        one, two, three, four = ((TOPIC_ID.bytes, number) for number in range(4))
        for member, epoch, owned in (
            (members[0], 1, {one, two, three, four}),
            (members[1], 1, set()),  # not assigned yet, though all know the epoch
            (members[0], 2, {one, two}),
            (members[1], 2, {two, three}),  # two owners
            (members[1], 2, {three, four}),
        ):
            group.tally.move(member, epoch, frozenset(owned))
            seen.append(group.is_settled)
        return seen

    assert asyncio.run(scenario()) == [False] * 5 + [True]


def test_sections_are_replaced_and_the_others_stay() -> None:
    facts = dict.fromkeys(
        ("date", "Ottla", "command", "load average before", "load average after"), "x"
    )
    page = "# Benchmarks\n\nhead\n\n## One\n\nold one\n\n## Two\n\nold two\n"
    row = Row("load", Figure("key", "unit"), {"ottla": [1.0], "kafka": [2.0]})
    found = report.with_sections(page, facts, {"Two": [row], "Three": [row], "Four": []})
    assert found.startswith("# Benchmarks\n\nhead\n\n## One\n\nold one\n\n## Two\n")
    assert "old two" not in found
    assert found.count("| load | unit |") == 2
    assert "## Four" not in found
