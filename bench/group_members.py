"""Simulated members of one group: as many as are wanted, in one event loop, a connection each.

A member of a KIP-848 group does what a client does: it joins, heartbeats as often as the broker
says, gives back and takes over what it is told at once, and says so in a heartbeat right away. So a
rebalance takes as long as the broker and the heartbeat interval make it, and records play no part.

Owned by one event loop. `Group.settled` ends when every partition has exactly one owner, all
members are in one epoch, and no member owns two partitions more than another.
"""

import asyncio
import random
import struct
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

from bench import group_frames as frames
from bench.group_frames import LEAVING_EPOCH, Beat, Place

SETTLE_S_MAX = 120.0
CONNECTS_AT_ONCE = 64  # a longer queue of unaccepted connections overflows in the kernel
_LENGTH = struct.Struct(">i")


class GroupFailed(Exception):
    """A broker answered a member with an error."""


class Channel(asyncio.Protocol):
    """A connection that calls back with each whole answer."""

    def __init__(self, on_answer: Callable[[bytes], None]) -> None:
        self.on_answer = on_answer
        self._pending = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        data = self._pending + data if self._pending else data
        position = 0
        while len(data) - position >= 4:
            size = _LENGTH.unpack_from(data, position)[0]
            if len(data) - position - 4 < size:
                break
            answer = data[position + 4 : position + 4 + size]
            position += 4 + size
            self.on_answer(answer)
        self._pending = data[position:]

    def send(self, data: bytes) -> None:
        if self.transport is None:
            raise GroupFailed("a member is not connected")
        self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Member:
    """One member of a KIP-848 group."""

    def __init__(self, group: "Group") -> None:
        self.group = group
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: frozenset[Place] = frozenset()
        self.channel = Channel(self._on_answer)
        self._timer: asyncio.TimerHandle | None = None

    def join(self) -> None:
        self.channel.send(
            frames.consumer_heartbeat(
                self.group.name, self.member_id, 0, topic=self.group.topic, owned=frozenset()
            )
        )

    def leave(self) -> None:
        self.close_timer()
        self.group.members.discard(self)
        self.group.tally.remove(self)
        self.epoch = LEAVING_EPOCH
        self.channel.send(frames.consumer_heartbeat(self.group.name, self.member_id, LEAVING_EPOCH))

    def close_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_answer(self, data: bytes) -> None:
        beat = frames.read_beat(data)
        if beat.error_code:
            self.group.fail(GroupFailed(f"a heartbeat was answered with error {beat.error_code}"))
            return
        if self.epoch == LEAVING_EPOCH:
            return
        is_first = self.epoch == 0
        owned = self.owned if beat.assigned is None else beat.assigned
        is_telling = owned != self.owned
        self.group.tally.move(self, beat.member_epoch, owned)
        if is_telling:
            self._beat(is_telling=True)
        else:
            self._schedule(beat, is_first=is_first)
        self.group.on_change()

    def _schedule(self, beat: Beat, *, is_first: bool) -> None:
        # The first wait is cut at random: clients that started at once do not stay in step.
        share = self.group.random.random() if is_first else 1.0
        self.close_timer()
        self._timer = asyncio.get_running_loop().call_later(
            beat.interval_ms / 1000 * share, self._beat
        )

    def _beat(self, *, is_telling: bool = False) -> None:
        owned = self.owned if is_telling else None
        self.channel.send(
            frames.consumer_heartbeat(self.group.name, self.member_id, self.epoch, owned=owned)
        )


class Tally:
    """Epochs and owners of a group, counted as they change: a look costs nothing."""

    def __init__(self) -> None:
        self.epochs: Counter[int] = Counter()
        self.sizes: Counter[int] = Counter()  # how many members own so many partitions
        self.owners: Counter[Place] = Counter()
        self.disputed = 0  # partitions with more than one owner

    def add(self, member: Member) -> None:
        self.epochs[member.epoch] += 1
        self.sizes[len(member.owned)] += 1
        self._own(member.owned, 1)

    def remove(self, member: Member) -> None:
        for counter, value in ((self.epochs, member.epoch), (self.sizes, len(member.owned))):
            counter[value] -= 1
            if not counter[value]:
                del counter[value]
        self._own(member.owned, -1)

    def move(self, member: Member, epoch: int, owned: frozenset[Place]) -> None:
        self.remove(member)
        member.epoch, member.owned = epoch, owned
        self.add(member)

    def _own(self, places: frozenset[Place], change: int) -> None:
        for place in places:
            before = self.owners[place]
            self.disputed += (before + change > 1) - (before > 1)
            self.owners[place] = before + change
            if not self.owners[place]:
                del self.owners[place]


class Group:
    def __init__(self, address: tuple[str, int], topic: str, partitions: int) -> None:
        self.address = address
        self.name = f"bench-{uuid.uuid4().hex[:12]}"
        self.topic = topic
        self.partitions = partitions
        self.members: set[Member] = set()
        self.tally = Tally()
        self.random = random.Random(0)
        self._left: list[Member] = []
        self._waiting: asyncio.Future[None] | None = None

    async def connect(self, count: int) -> list[Member]:
        """New members that have a connection and have not said anything yet."""
        loop = asyncio.get_running_loop()
        new = [Member(self) for _ in range(count)]
        for start in range(0, count, CONNECTS_AT_ONCE):
            await asyncio.gather(
                *(
                    loop.create_connection(partial(_channel_of, member), *self.address)
                    for member in new[start : start + CONNECTS_AT_ONCE]
                )
            )
        return new

    def join(self, members: list[Member]) -> None:
        for member in members:
            self.members.add(member)
            self.tally.add(member)
            member.join()

    def leave(self, member: Member) -> None:
        member.leave()
        self._left.append(member)

    @property
    def is_settled(self) -> bool:
        tally = self.tally
        is_one_epoch = len(tally.epochs) == 1 and 0 not in tally.epochs
        is_covered = len(tally.owners) == self.partitions and not tally.disputed
        # Brokers put off assigning (group.consumer.assignment.interval.ms): until then the old
        # owners keep everything, in an epoch that all know.
        return is_one_epoch and is_covered and max(tally.sizes) - min(tally.sizes) <= 1

    def on_change(self) -> None:
        if self._waiting is not None and not self._waiting.done() and self.is_settled:
            self._waiting.set_result(None)

    def fail(self, error: GroupFailed) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    async def settled(self) -> None:
        """Return once the group has settled after what was begun just now."""
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(self._waiting, SETTLE_S_MAX)
        except TimeoutError:
            epochs, owned = dict(self.tally.epochs), len(self.tally.owners)
            raise GroupFailed(
                f"not settled in {SETTLE_S_MAX:.0f} s: members by epoch {epochs}, {owned} owned"
            ) from None

    def close(self) -> None:
        for member in (*self.members, *self._left):
            member.close_timer()
            member.channel.close()


def _channel_of(member: Member) -> Channel:
    return member.channel
