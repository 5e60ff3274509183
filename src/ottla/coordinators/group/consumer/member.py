"""One member of a consumer group: what it asked for, and how far its assignment has come. Pure.

Partitions are kept per topic id (sixteen raw bytes, as they lie in records and requests) with the
epoch in which each was given to the member: a commit that was sent before the member heard of its
newest epoch still counts for what it has held since then.

Invariant: a member's `assigned` and `pending_revocation` have no partition in common.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ottla.coordinators.group.members import Protocols

TopicId: TypeAlias = bytes
Held: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""Partitions per topic, each with the epoch in which it was assigned."""

Target: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Partitions per topic that a member shall have."""

Owned: TypeAlias = Mapping[TopicId, Collection[int]]
"""Partitions per topic that a member says it has."""

NOTHING_HELD: Held = {}
NO_TARGET: Target = {}

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # a static member that will be back


class MemberState(IntEnum):
    """The values are what the records say."""

    STABLE = 0  # has all that its epoch's target gives it
    UNREVOKED_PARTITIONS = 1  # was told to give something back, and has not yet
    UNRELEASED_PARTITIONS = 2  # waits for what others have not given back
    UNKNOWN = 127  # written by another version


class ClassicMetadata(NamedTuple):
    """What a member says that still speaks JoinGroup and SyncGroup."""

    session_timeout_ms: int
    protocols: Protocols


class CurrentAssignment(NamedTuple):
    """How far a member has come: the last fields of a `ConsumerMember`, in their order."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    pending_revocation: Held = NOTHING_HELD


NOT_ASSIGNED = CurrentAssignment()


class ConsumerMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    # From here on as in `CurrentAssignment`.
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    pending_revocation: Held = NOTHING_HELD

    @property
    def has_left(self) -> bool:
        """Whether it is a static member that is away for a while."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    def subscription(self) -> "ConsumerMember":
        """What it asked for, without what it has been given."""
        return self.with_assignment(NOT_ASSIGNED)

    @property
    def current_assignment(self) -> CurrentAssignment:
        return CurrentAssignment._make(self[_SUBSCRIPTION_FIELDS:])

    def with_assignment(self, assignment: CurrentAssignment) -> "ConsumerMember":
        return ConsumerMember._make(self[:_SUBSCRIPTION_FIELDS] + assignment)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved(
        self, epoch: int, state: MemberState, assigned: Held, pending_revocation: Held
    ) -> "ConsumerMember":
        """The member in `epoch`, which may be the one it is in."""
        return self.with_assignment(
            CurrentAssignment(epoch, self.epoch, state, assigned, pending_revocation)
        )

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """Since which epoch it holds the partition, one that it is giving back included."""
        found = self.assigned.get(topic_id, {}).get(partition)
        if found is None:
            found = self.pending_revocation.get(topic_id, {}).get(partition)
        return found


_SUBSCRIPTION_FIELDS = ConsumerMember._fields.index("epoch")


def held_partitions(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    """Everything that the member may be reading."""
    for held in (member.assigned, member.pending_revocation):
        for topic_id, partitions in held.items():
            for partition in partitions:
                yield topic_id, partition


def same_partitions(one: Held, other: Held) -> bool:
    """Whether both hold the same, since whichever epoch."""
    return one.keys() == other.keys() and all(
        partitions.keys() == other[topic_id].keys() for topic_id, partitions in one.items()
    )


def is_subset(owned: Owned | None, held: Held) -> bool:
    """Whether a member that says what it owns has nothing beyond what is held."""
    if owned is None:
        return False
    return all(
        partition in held.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for partition in partitions
    )
