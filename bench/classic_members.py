"""Simulated members of a classic group: JoinGroup, SyncGroup and heartbeats, in one event loop.

The leader assigns partitions in turns, as the bytes of an assignment are no concern of a broker.
A member joins again when a heartbeat or an answer tells of a rebalance. Owned by one event loop.
"""

import asyncio
import struct
import time
import uuid
from functools import partial

from bench import group_frames as frames
from bench.brokers import BrokerProcess
from bench.group_members import CONNECTS_AT_ONCE, SETTLE_S_MAX, Channel, GroupFailed

HEARTBEAT_S = 1.0
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION = 79, 27, 22
_REJOIN = frozenset((REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION))


def subscription(topic: str) -> bytes:
    """A consumer's metadata, version 0: one topic, no user data."""
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


def assignment(topic: str, partitions: list[int]) -> bytes:
    """A consumer's assignment, version 0."""
    name = topic.encode()
    head = struct.pack(">hih", 0, 1, len(name)) + name
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return head + numbers + struct.pack(">i", -1)


class ClassicGroup:
    def __init__(self, address: tuple[str, int], topic: str, partitions: int, size: int) -> None:
        self.address = address
        self.name = f"bench-classic-{uuid.uuid4().hex[:12]}"
        self.topic = topic
        self.partitions = partitions
        self.size = size
        self.members = [ClassicMember(self) for _ in range(size)]
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for start in range(0, self.size, CONNECTS_AT_ONCE):
            some = self.members[start : start + CONNECTS_AT_ONCE]
            await asyncio.gather(
                *(loop.create_connection(partial(_channel_of, one), *self.address) for one in some)
            )

    def plan(self, member_ids: tuple[str, ...]) -> dict[str, bytes]:
        count = len(member_ids)
        return {
            member_id: assignment(self.topic, list(range(number, self.partitions, count)))
            for number, member_id in enumerate(sorted(member_ids))
        }

    def on_synced(self) -> None:
        """Settled: all members hold an assignment of one generation that everyone is in."""
        generations = {one.synced_generation for one in self.members}
        is_whole = all(one.size_seen in (0, self.size) for one in self.members)
        if len(generations) == 1 and -1 not in generations and is_whole:
            self._finish(None)

    def fail(self, error: GroupFailed) -> None:
        self._finish(error)

    def _finish(self, error: GroupFailed | None) -> None:
        if self._settled.done():
            return
        if error is None:
            self._settled.set_result(None)
        else:
            self._settled.set_exception(error)

    async def settled(self) -> None:
        try:
            await asyncio.wait_for(self._settled, SETTLE_S_MAX)
        except TimeoutError:
            raise GroupFailed(f"not settled in {SETTLE_S_MAX:.0f} s") from None

    def close(self) -> None:
        for member in self.members:
            member.close()


class ClassicMember:
    def __init__(self, group: ClassicGroup) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.synced_generation = -1
        self.size_seen = 0  # how many members the leader was told of; 0 for the others
        self.channel = Channel(self._on_joined)
        self._timer: asyncio.TimerHandle | None = None

    def join(self) -> None:
        self.synced_generation = -1
        self.channel.on_answer = self._on_joined
        metadata = subscription(self.group.topic)
        self.channel.send(frames.join_group(self.group.name, self.member_id, metadata))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.channel.close()

    def _on_joined(self, data: bytes) -> None:
        joined = frames.read_joined(data)
        self.member_id = joined.member_id or self.member_id
        if joined.error_code in (MEMBER_ID_REQUIRED, *_REJOIN):
            self.join()
            return
        if joined.error_code:
            self.group.fail(GroupFailed(f"a join was answered with error {joined.error_code}"))
            return
        self.generation = joined.generation
        self.size_seen = len(joined.members)
        plan = self.group.plan(joined.members) if joined.leader == self.member_id else {}
        self.channel.on_answer = self._on_synced
        self.channel.send(frames.sync_group(self.group.name, self.member_id, self.generation, plan))

    def _on_synced(self, data: bytes) -> None:
        error_code, assigned = frames.read_synced(data)
        if error_code in _REJOIN:
            self.join()
            return
        if error_code or not assigned:
            self.group.fail(GroupFailed(f"a sync was answered with error {error_code}"))
            return
        self.synced_generation = self.generation
        self.channel.on_answer = self._on_heartbeat
        self._schedule()
        self.group.on_synced()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEARTBEAT_S, self._beat)

    def _beat(self) -> None:
        if self.synced_generation >= 0:
            self.channel.send(frames.heartbeat(self.group.name, self.member_id, self.generation))

    def _on_heartbeat(self, data: bytes) -> None:
        error_code = frames.heartbeat_error(data)
        if error_code in _REJOIN:
            self.join()
        elif error_code:
            self.group.fail(GroupFailed(f"a heartbeat was answered with error {error_code}"))
        else:
            self._schedule()


def _channel_of(member: ClassicMember) -> Channel:
    return member.channel


async def rebalance_classic(broker: BrokerProcess, topic: str, count: int) -> dict[str, float]:
    """`count` members join at once, until all hold an assignment of the whole group."""
    group = ClassicGroup(broker.address, topic, 2 * count, count)
    try:
        await group.connect()
        cpu_before, began = broker.usage().cpu_s, time.monotonic()
        for member in group.members:
            member.join()
        await group.settled()
        seconds = time.monotonic() - began
        cpu_s = broker.usage().cpu_s - cpu_before
    finally:
        group.close()
    return {"join_s": seconds, "rebalance_cpu_s": cpu_s}
