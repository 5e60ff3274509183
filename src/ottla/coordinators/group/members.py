"""The members of a classic group and what they have in common. Pure.

Members vote: each names the protocols it can do, best first. A generation uses one that all of
them can do; among those, the one that most members like best.

Invariants: `_supporters` counts, per protocol, the members that name it; `static_ids` has exactly
the members with an instance id; the leader, if any, is a member.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ottla.coordinators.group.records import MemberMetadata
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError

Waiter: TypeAlias = object
"""Whoever waits for an answer; the shell knows what it is."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names and metadata, best first. The metadata is opaque: consumers and Connect both pass here."""

NO_ASSIGNMENT = b""


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    session_deadline_ms: int = 0
    is_new: bool = False  # has not been given a generation yet
    awaiting_join: Waiter | None = None
    awaiting_sync: Waiter | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says about itself under `protocol`."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it likes best."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InvariantError(f"member {self.member_id} supports none of {sorted(candidates)}")

    def as_metadata(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )


class Members:
    """All members, in the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}  # group instance id to member id
        self.leader: str | None = None
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def validated(self, member_id: str, instance_id: str | None) -> Member:
        """The member that asks; FENCED_INSTANCE_ID if another took its place, else UNKNOWN."""
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self._by_id.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: Member) -> None:
        if member.member_id in self._by_id or member.instance_id in self.static_ids:
            raise InvariantError(f"{member.member_id} is in the group already")
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self._count(member.protocols, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Take a member out; the oldest of the others leads if it was the leader."""
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        self._count(member.protocols, -1)
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def replace_id(self, old_id: str, new_id: str) -> Member:
        """Let the static member `old_id` go on under `new_id`, in its place and with its role."""
        member = self._by_id[old_id]
        member.member_id = new_id
        self._by_id = {one.member_id: one for one in self._by_id.values()}
        if member.instance_id is None:
            raise InvariantError(f"{old_id} is not a static member")
        self.static_ids[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def can_all_speak_one_of(self, names: Collection[str]) -> bool:
        return any(self._supporters[name] == len(self._by_id) for name in names)

    def select_protocol(self) -> str:
        """The protocol that all members support and most of them prefer."""
        everyone = len(self._by_id)
        candidates = {name for name, count in self._supporters.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self._by_id.values())
        return votes.most_common(1)[0][0]

    def elect_awaiting_leader(self) -> bool:
        """Keep the leader if it has rejoined, else take one that has; False if none has."""
        leader = self._by_id.get(self.leader or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self._by_id.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def rebalance_timeout_ms(self) -> int:
        return max((one.rebalance_timeout_ms for one in self._by_id.values()), default=0)

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in {name for name, _ in protocols}:
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]
