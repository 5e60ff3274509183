"""The state of one consumer group (KIP-848), as its records tell it.

The group has an epoch that grows with every change of members, subscriptions or topics; a target
assignment, computed for one such epoch; and members that move towards the target one by one, each
in its own heartbeats. Nothing here decides: `replay_*` take in what the log has committed, alive
and while loading alike, and everything else is derived from that.

Records of one group may be replayed without those that a later one replaced (the log is compacted),
so a partition may for a while seem to have two holders: the later record wins.

Pure. Invariants: `owners` has exactly the partitions that members hold or are giving back; counts
are those of the members; `targets` may know members that are gone, never the other way round for
longer than one batch of records.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any

from ottla.coordinators.group.consumer.member import (
    LEAVE_EPOCH,
    NO_TARGET,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Target,
    TopicId,
    held_partitions,
)
from ottla.coordinators.group.consumer.records import (
    ConsumerRecord,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpoch,
    TargetEpochRecord,
    TargetMemberRecord,
)
from ottla.coordinators.group.consumer.timers import GroupTimers
from ottla.coordinators.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.protocol.errors import ErrorCode, KafkaError

NO_TARGET_EPOCH = TargetEpoch(-1, 0)
INITIAL_EPOCH = 1  # of a group that nobody joined yet, as in Kafka 4.3: members begin with 2
# Ids handed out and not used yet. A stranger can ask for any number; the oldest are forgotten.
HANDED_OUT_MAX = 10_000


class ConsumerGroupState(Enum):
    """The values are what ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # its newest epoch has no target yet
    RECONCILING = "Reconciling"  # members are on their way to the target
    STABLE = "Stable"
    DEAD = "Dead"  # being deleted


class ConsumerGroup:
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.target_epoch = NO_TARGET_EPOCH
        self.targets: dict[str, Target] = {}
        self.members: dict[str, ConsumerMember] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        # Derived
        self.static_ids: dict[str, str] = {}  # group instance id to member id
        self.owners: dict[tuple[TopicId, int], str] = {}
        self.topic_counts: Counter[str] = Counter()  # members that name the topic
        self.regex_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_protocol_counts: Counter[str] = Counter()
        self.classic_count = 0
        self._stable_by_epoch: Counter[int] = Counter()
        # Of this broker only
        self.timers = GroupTimers()
        self.is_metadata_stale = True  # what is subscribed to may have changed since it was read
        self.is_dead = False
        self._handed_out: dict[str, None] = {}  # ids of classic members that may join with them

    # What others read

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch.epoch:
            return ConsumerGroupState.ASSIGNING
        if self._stable_by_epoch[self.target_epoch.epoch] < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def is_idle(self) -> bool:
        return not self.members

    @property
    def is_empty(self) -> bool:
        return not self.members and not self.is_dead

    @property
    def wake_at_ms(self) -> int:
        return self.timers.wake_at_ms

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id[:200]} is not a member of group {self.group_id[:200]}",
            )
        return found

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self.static_ids.get(instance_id, ""))

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, NO_TARGET)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts or any(
            topic in resolved.topics for resolved in self.regexes.values()
        )

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that the member wants, those that its expression matched included."""
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_held_by_other(self, topic_id: TopicId, partition: int, *but: str | None) -> bool:
        owner = self.owners.get((topic_id, partition))
        return owner is not None and owner not in but

    def supports_classic(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a classic member with these protocols has one in common with all others."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if not self.members:
            return bool(names)
        return any(self.classic_protocol_counts[name] == self.classic_count for name in names)

    def preferred_assignor(
        self, before: ConsumerMember | None = None, after: ConsumerMember | None = None
    ) -> str | None:
        """What most members ask for, once `after` stands in place of `before`."""
        counts = Counter(self.assignor_counts)
        if before is not None and before.server_assignor is not None:
            counts[before.server_assignor] -= 1
        if after is not None and after.server_assignor is not None:
            counts[after.server_assignor] += 1
        wanted = [(count, name) for name, count in counts.items() if count > 0]
        return max(wanted)[1] if wanted else None

    def check_delete(self) -> None:
        if self.is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def mark_dead(self) -> None:
        """Its tombstones are on the way: nobody joins or commits any more."""
        self.is_dead = True

    def revive(self) -> None:
        """The tombstones could not be written."""
        self.is_dead = False

    def hand_out(self, member_id: str) -> None:
        while len(self._handed_out) >= HANDED_OUT_MAX:
            del self._handed_out[next(iter(self._handed_out))]
        self._handed_out[member_id] = None

    def knows(self, member_id: str) -> bool:
        return member_id in self.members or member_id in self._handed_out

    def hard_state(self) -> tuple[Any, ...]:
        """Everything that records carry; two groups that replayed the same are equal in it."""
        return (
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            self.targets,
            self.members,
            self.regexes,
            self.has_partition_metadata,
        )

    # Replay

    def replay(self, record: ConsumerRecord) -> None:
        if isinstance(record, MemberRecord):
            self._replay_member(record.member_id, record.value)
        elif isinstance(record, CurrentAssignmentRecord):
            self._replay_current(record.member_id, record.value)
        elif isinstance(record, TargetMemberRecord):
            if record.value is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.value
        elif isinstance(record, TargetEpochRecord):
            self.target_epoch = record.value or NO_TARGET_EPOCH
        elif isinstance(record, GroupEpochRecord):
            value = record.value or GroupEpoch(0)
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(record, RegexRecord):
            if record.value is None:
                self.regexes.pop(record.regex, None)
            else:
                self.regexes[record.regex] = record.value
        elif isinstance(record, PartitionMetadataRecord):
            self.has_partition_metadata = not record.is_tombstone

    def _replay_member(self, member_id: str, value: ConsumerMember | None) -> None:
        old = self.members.get(member_id)
        if value is None:
            self._replace(old, None)
        elif old is None:
            self._replace(None, value)
        else:
            self._replace(
                old,
                value._replace(
                    epoch=old.epoch,
                    previous_epoch=old.previous_epoch,
                    state=old.state,
                    assigned=old.assigned,
                    pending_revocation=old.pending_revocation,
                ),
            )

    def _replay_current(self, member_id: str, value: CurrentAssignment | None) -> None:
        old = self.members.get(member_id)
        if value is None:
            if old is None:
                return
            value = CurrentAssignment(LEAVE_EPOCH, LEAVE_EPOCH, old.state)
        if old is None:
            self._replace(None, ConsumerMember(member_id).with_assignment(value))
        else:
            # All that is counted of its subscription stays.
            new = self.members[member_id] = old.with_assignment(value)
            self._count_stable(old, -1)
            self._disown(old)
            self._count_stable(new, 1)
            self._own(new)

    def _replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None:
            self._count(old, -1)
            self._disown(old)
            if old.instance_id is not None and (
                self.static_ids.get(old.instance_id) == old.member_id
            ):
                del self.static_ids[old.instance_id]
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self.members[new.member_id] = new
            self._handed_out.pop(new.member_id, None)
            self._count(new, 1)
            self._own(new)
            if new.instance_id is not None:
                self.static_ids[new.instance_id] = new.member_id

    def _own(self, member: ConsumerMember) -> None:
        for place in held_partitions(member):
            self.owners[place] = member.member_id

    def _disown(self, member: ConsumerMember) -> None:
        owners = self.owners
        for place in held_partitions(member):
            if owners.get(place) == member.member_id:
                del owners[place]

    def _count(self, member: ConsumerMember, by: int) -> None:
        _add(self.topic_counts, member.topics, by)
        if member.regex:
            _add(self.regex_counts, (member.regex,), by)
        if member.server_assignor is not None:
            _add(self.assignor_counts, (member.server_assignor,), by)
        if member.classic is not None:
            self.classic_count += by
            _add(self.classic_protocol_counts, {name for name, _ in member.classic.protocols}, by)
        self._count_stable(member, by)

    def _count_stable(self, member: ConsumerMember, by: int) -> None:
        if member.state is MemberState.STABLE:
            _add(self._stable_by_epoch, (member.epoch,), by)


def _add(counts: "Counter[Any]", keys: Any, by: int) -> None:
    for key in keys:
        counts[key] += by
        if not counts[key]:
            del counts[key]


def all_subscribed_topics(group: ConsumerGroup) -> Iterator[str]:
    yield from group.topic_counts
    for resolved in group.regexes.values():
        yield from resolved.topics
