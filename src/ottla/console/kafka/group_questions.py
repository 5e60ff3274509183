"""What the coordinators know of groups: which there are, what they committed, who is a member.

Each protocol is asked in its own words: a share or streams group asked as a classic one answers
that it is dead. A coordinator that loads or is away has not lost its groups: it is told as silent.
Shell over `Brokers`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.errors import code_of
from ottla.console.kafka.brokers import Brokers
from ottla.console.kafka.model import (
    GroupDescription,
    GroupView,
    MemberView,
    Metadata,
    TopicPartition,
)
from ottla.console.kafka.questions import check, raise_unless_expected
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given

# Groups per OffsetFetch or DescribeGroups: keeps one answer of a busy cluster below a megabyte.
GROUPS_PER_REQUEST = 200
# A sink that writes exactly once keeps its last batch as the offset of a group of its own; the
# metadata of that offset says so. It is no place in the topic, and no lag.
_MARKER = "next_batch"
_METADATA_CHARACTERS_MAX = 4_096


class Committed(NamedTuple):
    """What groups have committed: places in topics, and markers of sinks."""

    offsets: dict[str, dict[TopicPartition, int]]
    markers: dict[str, int]  # group -> the batch that its sink writes next
    troubles: dict[int, str]  # coordinators that did not tell, and why


class Groups(NamedTuple):
    found: dict[str, GroupView]
    troubles: dict[int, str]  # brokers that did not tell all of theirs, and why


class GroupQuestions:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def groups(self, metadata: Metadata) -> Groups:
        """Every group from the brokers that coordinate them, and the brokers that kept silent."""
        found: dict[str, GroupView] = {}
        troubles: dict[int, str] = {}
        answers = await asyncio.gather(
            *(
                self._brokers.ask(b, ApiKey.LIST_GROUPS, (4, 5), {"states_filter": []})
                for b in metadata.brokers
            ),
            return_exceptions=True,
        )
        for broker_id, answered in zip(metadata.brokers, answers, strict=True):
            if isinstance(answered, BaseException):
                raise_unless_expected(answered)
                troubles[broker_id] = str(answered)
                continue
            if answered.error_code != ErrorCode.NONE:
                # It loads its groups, and names those that it has already.
                troubles[broker_id] = code_of(answered.error_code).name
            for group in answered.groups:
                group_type = str(given(group, "group_type", "classic")).lower()
                found[group.group_id] = GroupView(
                    group.group_id, group.group_state, group_type, group.protocol_type, broker_id
                )
        return Groups(dict(sorted(found.items())), troubles)

    async def committed(self, groups: Iterable[GroupView]) -> Committed:
        """The committed offsets of many groups, a few requests per coordinator."""
        merged = Committed({}, {}, {})
        for answer in await self._in_batches(groups, self._committed_at, merged.troubles):
            merged.offsets.update(answer.offsets)
            merged.markers.update(answer.markers)
        return merged

    async def _committed_at(self, coordinator: int, group_ids: Sequence[str]) -> Committed:
        fields = {
            "groups": [
                {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
                for group_id in group_ids
            ],
            "require_stable": False,
        }
        answer = await self._brokers.ask(coordinator, ApiKey.OFFSET_FETCH, (8, 9), fields)
        found = Committed({}, {}, {})
        for group in answer.groups:
            if group.error_code != ErrorCode.NONE:
                continue
            offsets = found.offsets[group.group_id] = {}
            for topic in group.topics:
                for p in topic.partitions:
                    if p.error_code != ErrorCode.NONE or p.committed_offset < 0:
                        continue
                    if is_marker(p.metadata):
                        found.markers[group.group_id] = int(p.committed_offset)
                    else:
                        offsets[topic.name, p.partition_index] = p.committed_offset
        return found

    async def coordinator(self, group_id: str) -> int:
        """Which broker coordinates a group."""
        fields = {"key_type": 0, "coordinator_keys": [group_id]}
        answer = await self._brokers.ask_any(ApiKey.FIND_COORDINATOR, (4, 5), fields)
        found = answer.coordinators[0]
        check(found.error_code, found.error_message)
        return int(found.node_id)

    async def describe(self, group: GroupView) -> GroupDescription:
        """Members and assignments of one group; KafkaError if its coordinator cannot tell."""
        answer = await self._describe_at(group.group_type, group.coordinator, [group.group_id])
        found = answer.groups[0]
        check(found.error_code, given(found, "error_message", None))
        return _description(group, found)

    async def describe_all(self, groups: Iterable[GroupView]) -> dict[str, GroupDescription]:
        """As `describe`, for many; those whose coordinator cannot tell are left out."""
        by_type: dict[str, list[GroupView]] = defaultdict(list)
        for group in groups:
            by_type[group.group_type].append(group)
        found: dict[str, GroupDescription] = {}
        for group_type, members in by_type.items():
            known = {group.group_id: group for group in members}

            async def ask(coordinator: int, ids: Sequence[str], kind: str = group_type) -> Any:
                return await self._describe_at(kind, coordinator, ids)

            for answer in await self._in_batches(members, ask, {}):
                for told in answer.groups:
                    if told.error_code == ErrorCode.NONE:
                        found[told.group_id] = _description(known[told.group_id], told)
        return found

    async def _describe_at(
        self, group_type: str, coordinator: int, group_ids: Sequence[str]
    ) -> Any:
        api, spoken, name = _DESCRIBES.get(group_type, _DESCRIBE_CLASSIC)
        fields = {name: list(group_ids), "include_authorized_operations": False}
        return await self._brokers.ask(coordinator, api, spoken, fields)

    async def _in_batches(
        self,
        groups: Iterable[GroupView],
        ask: Callable[[int, Sequence[str]], Awaitable[Any]],
        troubles: dict[int, str],
    ) -> list[Any]:
        """The answers of every coordinator that gives one; why of those that do not."""
        by_coordinator: dict[int, list[str]] = defaultdict(list)
        for group in groups:
            by_coordinator[group.coordinator].append(group.group_id)
        batches = [
            (coordinator, ids[start : start + GROUPS_PER_REQUEST])
            for coordinator, ids in by_coordinator.items()
            for start in range(0, len(ids), GROUPS_PER_REQUEST)
        ]
        answers = await asyncio.gather(
            *(ask(coordinator, ids) for coordinator, ids in batches), return_exceptions=True
        )
        told = []
        for (coordinator, _), answer in zip(batches, answers, strict=True):
            if isinstance(answer, BaseException):
                raise_unless_expected(answer)
                troubles[coordinator] = str(answer)
            else:
                told.append(answer)
        return told


_DESCRIBE_CLASSIC = (ApiKey.DESCRIBE_GROUPS, (4, 5), "groups")
_DESCRIBES: Mapping[str, tuple[ApiKey, tuple[int, int], str]] = {
    "classic": _DESCRIBE_CLASSIC,
    "consumer": (ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), "group_ids"),
    "share": (ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), "group_ids"),
    "streams": (ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), "group_ids"),
}


def is_marker(metadata: str | None) -> bool:
    """Whether an offset was committed by a sink to remember its batch."""
    if not metadata or _MARKER not in metadata or len(metadata) > _METADATA_CHARACTERS_MAX:
        return False
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get(_MARKER), int)


def _description(group: GroupView, found: Any) -> GroupDescription:
    members: tuple[MemberView, ...]
    if group.group_type in ("consumer", "share"):
        members = tuple(_member(m, group.group_type) for m in found.members)
        assignor = str(found.assignor_name)
    elif group.group_type == "streams":
        sources = _sources(found.topology)
        members = tuple(_streams_member(m, sources) for m in found.members)
        assignor = ""
    else:
        is_consumer = found.protocol_type in ("", "consumer")
        members = tuple(_classic_member(m, is_consumer) for m in found.members)
        assignor = str(found.protocol_data)
    return GroupDescription(
        group.group_id,
        found.group_state,
        group.group_type,
        assignor,
        given(found, "group_epoch", None),
        group.coordinator,
        members,
    )


def _classic_member(m: Any, is_consumer: bool) -> MemberView:
    return MemberView(
        m.member_id,
        m.group_instance_id,
        m.client_id,
        m.client_host.removeprefix("/"),
        parse_assignment(m.member_assignment) if is_consumer else (),
        None,
        None,
    )


def _member(m: Any, group_type: str) -> MemberView:
    return MemberView(
        m.member_id,
        given(m, "instance_id", None),
        m.client_id,
        m.client_host.removeprefix("/"),
        _assigned(m.assignment),
        _assigned(m.target_assignment) if group_type == "consumer" else None,
        m.member_epoch,
    )


def _streams_member(m: Any, sources: Mapping[str, Sequence[str]]) -> MemberView:
    return MemberView(
        m.member_id,
        m.instance_id,
        m.client_id,
        m.client_host.removeprefix("/"),
        _tasks(m.assignment, sources),
        _tasks(m.target_assignment, sources),
        m.member_epoch,
    )


def _sources(topology: Any) -> dict[str, list[str]]:
    """The topics that each part of a Kafka Streams topology reads."""
    found: dict[str, list[str]] = {}
    for part in (topology.subtopologies or ()) if topology is not None else ():
        repartitioned = [topic.name for topic in part.repartition_source_topics]
        found[part.subtopology_id] = [*part.source_topics, *repartitioned]
    return found


def _tasks(assignment: Any, sources: Mapping[str, Sequence[str]]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            (str(topic), int(index))
            for task in assignment.active_tasks
            for topic in sources.get(task.subtopology_id, ())
            for index in task.partitions
        )
    )


def _assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            (str(t.topic_name), int(index))
            for t in assignment.topic_partitions
            for index in t.partitions
        )
    )


def parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a classic member's assignment; nothing if it is not one.

    Members write these bytes, so any length in them may be a lie.
    """
    found: list[TopicPartition] = []
    try:
        _version, topics = struct.unpack_from(">hi", data)
        position = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, position)
            name = data[position + 2 : position + 2 + length].decode()
            (count,) = struct.unpack_from(">i", data, position + 2 + length)
            position += 6 + length
            if not 0 <= count <= (len(data) - position) // 4:
                return ()
            indexes = struct.unpack_from(f">{count}i", data, position)
            position += 4 * count
            found += [(name, index) for index in indexes]
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))
