"""Who shall read which partition: the assignors of the server, `uniform` and `range`.

`uniform` spreads all partitions evenly and moves as few as it can; `range` gives each member the
same stretch of every topic, so that topics with equal partitions meet in one member. Neither looks
at racks, as in Kafka 4.3: they only decide when an assignment is computed anew.

Pure, and in proportion to members plus partitions where all members want the same topics; groups
of a thousand members with ten thousand partitions take tens of milliseconds. Invariants: each
partition of each wanted topic has exactly one member that wants it; the outcome depends on the
arguments alone.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

from ottla.coordinators.group.consumer.member import NO_TARGET, Target, TopicId

# Balancing overlapping subscriptions roughly halves what is uneven in each round.
BALANCING_ROUNDS_MAX = 16


class MemberSpec(NamedTuple):
    """What an assignor knows of a member."""

    instance_id: str | None
    topic_ids: frozenset[TopicId]
    target: Target = NO_TARGET  # what it was to have until now


Members: TypeAlias = Mapping[str, MemberSpec]
Sizes: TypeAlias = Mapping[TopicId, int]
"""How many partitions each topic has; every topic that a member wants is there."""

Assignor: TypeAlias = Callable[[Members, Sizes], dict[str, Target]]


def assign_range(members: Members, sizes: Sizes) -> dict[str, Target]:
    """Consecutive partitions of each topic to its subscribers; static members come first."""
    ordered = sorted(
        members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or one)
    )
    subscribers: dict[TopicId, int] = {}
    for spec in members.values():
        for topic_id in spec.topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    given: dict[TopicId, int] = dict.fromkeys(subscribers, 0)  # members served so far
    result: dict[str, Target] = {}
    for member_id in ordered:
        target = {}
        for topic_id in members[member_id].topic_ids:
            at = given[topic_id]
            given[topic_id] = at + 1
            quota, extra = divmod(sizes[topic_id], subscribers[topic_id])
            start = at * quota + min(at, extra)
            end = start + quota + (at < extra)
            if start < end:
                target[topic_id] = frozenset(range(start, end))
        result[member_id] = target
    return result


def assign_uniform(members: Members, sizes: Sizes) -> dict[str, Target]:
    """Equal shares, keeping what members have as far as that allows."""
    if not members:
        return {}
    wishes = {spec.topic_ids for spec in members.values()}
    if len(wishes) == 1:
        return _assign_alike(members, sizes, next(iter(wishes)))
    return _Balancer(members, sizes).assign()


def _assign_alike(
    members: Members, sizes: Sizes, topic_ids: frozenset[TopicId]
) -> dict[str, Target]:
    """All members want the same: a quota each, some of them one more."""
    quota, extra = divmod(sum(sizes[topic_id] for topic_id in topic_ids), len(members))
    taken: dict[TopicId, set[int]] = {topic_id: set() for topic_id in topic_ids}
    kept: dict[str, dict[TopicId, list[int]]] = {}
    has_more: list[str] = []
    for member_id, spec in members.items():
        kept[member_id] = _kept(spec, sizes, taken)
        if sum(map(len, kept[member_id].values())) > quota:
            has_more.append(member_id)
    larger = set(has_more[:extra])  # they have one more than the others already
    for member_id in members:
        if len(larger) == extra:
            break
        larger.add(member_id)
    result: dict[str, Target] = {}
    wanting: list[tuple[str, int]] = []
    for member_id, mine in kept.items():
        room = quota + (member_id in larger)
        unchanged = True
        for topic_id in list(mine):
            partitions = mine[topic_id]
            if len(partitions) > room:
                taken[topic_id].difference_update(partitions[room:])
                del partitions[room:]
                unchanged = False
            room -= len(partitions)
            if not partitions:
                del mine[topic_id]
        if room:
            wanting.append((member_id, room))
            unchanged = False
        old = members[member_id].target
        if (
            unchanged
            and len(old) == len(mine)
            and all(len(old[topic_id]) == len(partitions) for topic_id, partitions in mine.items())
        ):
            result[member_id] = old
    free = [
        (topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(sizes[topic_id])
        if partition not in taken[topic_id]
    ]
    at = 0
    for member_id, room in wanting:
        mine = kept[member_id]
        for topic_id, partition in free[at : at + room]:
            mine.setdefault(topic_id, []).append(partition)
        at += room
    for member_id, mine in kept.items():
        if member_id not in result:
            result[member_id] = {one: frozenset(partitions) for one, partitions in mine.items()}
    return {member_id: result[member_id] for member_id in members}


def _kept(
    spec: MemberSpec, sizes: Sizes, taken: dict[TopicId, set[int]]
) -> dict[TopicId, list[int]]:
    """What a member may keep: of topics that it wants, that are there, that nobody took."""
    kept = {}
    for topic_id, partitions in spec.target.items():
        if topic_id in spec.topic_ids:
            size, others = sizes[topic_id], taken[topic_id]
            mine = sorted(one for one in partitions if one < size and one not in others)
            if mine:
                kept[topic_id] = mine
                others.update(mine)
    return kept


class _Balancer:
    """Members want different topics: fill the emptiest first, then even out topic by topic."""

    def __init__(self, members: Members, sizes: Sizes) -> None:
        self._members = members
        self._sizes = sizes
        self._subscribers: dict[TopicId, list[str]] = {}
        for member_id, spec in members.items():
            for topic_id in spec.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        self._load: dict[str, int] = dict.fromkeys(members, 0)
        self._held: dict[TopicId, dict[str, list[int]]] = {
            topic_id: {} for topic_id in self._subscribers
        }

    def assign(self) -> dict[str, Target]:
        taken: dict[TopicId, set[int]] = {topic_id: set() for topic_id in self._subscribers}
        for member_id, spec in self._members.items():
            for topic_id, partitions in _kept(spec, self._sizes, taken).items():
                self._held[topic_id][member_id] = partitions
                self._load[member_id] += len(partitions)
        # Topics with few subscribers leave the least choice, so they choose first.
        order = sorted(
            self._subscribers,
            key=lambda one: (
                -self._sizes[one] / len(self._subscribers[one]),
                len(self._subscribers[one]),
                one,
            ),
        )
        for topic_id in order:
            free = [one for one in range(self._sizes[topic_id]) if one not in taken[topic_id]]
            self._give(topic_id, free)
        for _ in range(BALANCING_ROUNDS_MAX):
            moves = sum(self._even_out(topic_id) for topic_id in order)
            if not moves:
                break
        return self._targets()

    def _give(self, topic_id: TopicId, partitions: Sequence[int]) -> None:
        heap = [(self._load[one], one) for one in self._subscribers[topic_id]]
        heapify(heap)
        held = self._held[topic_id]
        for partition in partitions:
            load, member_id = heappop(heap)
            held.setdefault(member_id, []).append(partition)
            self._load[member_id] = load + 1
            heappush(heap, (load + 1, member_id))

    def _even_out(self, topic_id: TopicId) -> int:
        """Move partitions of one topic from its fullest to its emptiest subscribers."""
        held = self._held[topic_id]
        emptiest = [(self._load[one], one) for one in self._subscribers[topic_id]]
        fullest = [(-self._load[one], one) for one, partitions in held.items() if partitions]
        heapify(emptiest)
        heapify(fullest)
        moves = 0
        while fullest:
            high, giver = heappop(fullest)
            if -high != self._load[giver] or not held[giver]:
                if held[giver]:
                    heappush(fullest, (-self._load[giver], giver))
                continue
            low, taker = emptiest[0]
            if low != self._load[taker]:
                heappop(emptiest)
                heappush(emptiest, (self._load[taker], taker))
                heappush(fullest, (high, giver))
                continue
            if -high - low < 2:
                break
            held.setdefault(taker, []).append(held[giver].pop())
            self._load[giver] -= 1
            self._load[taker] += 1
            heappop(emptiest)
            heappush(emptiest, (self._load[taker], taker))
            heappush(fullest, (-self._load[giver], giver))
            moves += 1
        return moves

    def _targets(self) -> dict[str, Target]:
        result: dict[str, dict[TopicId, frozenset[int]]] = {one: {} for one in self._members}
        for topic_id, held in self._held.items():
            for member_id, partitions in held.items():
                if partitions:
                    result[member_id][topic_id] = frozenset(partitions)
        return dict(result)


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
