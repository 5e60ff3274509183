"""The groups and offsets of one partition of `__consumer_offsets`.

`decide_*` turn a request into records and an answer and change nothing that is stored; `replay`
is the only way in for what the log has committed, alive and while loading alike.

Pure; owned by the shell in coordinator.py. Invariant: two shards that replayed the same records
have equal offsets and equal `recorded` groups.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer.decisions import check_commit, may_commit, stale
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.consumer.migration import group_tombstones
from ottla.coordinators.group.consumer.records import (
    ConsumerRecord,
    DecidedRecord,
    GroupEpochRecord,
    PartitionMetadataRecord,
    decode_consumer_record,
)
from ottla.coordinators.group.effects import Moment
from ottla.coordinators.group.offsets import OffsetStore, expires_at_ms
from ottla.coordinators.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    decode_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from ottla.coordinators.group.requests import GroupLimits
from ottla.coordinators.group.states import GroupState
from ottla.coordinators.record_fields import FieldReader, KeyValue
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import STRING_BYTES_MAX

# Since OffsetCommit v9 a group that is not there is said to be so, and members of consumer groups
# may commit.
GROUP_ID_NOT_FOUND_FROM = 9

Group: TypeAlias = ClassicGroup | ConsumerGroup


class CommitRequest(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    retention_ms: int  # -1 for the broker's
    version: int
    is_transactional: bool = False


class WantedOffset(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class GroupShard:
    def __init__(
        self, limits: Callable[[], GroupLimits], metadata_characters_max: Callable[[], int]
    ) -> None:
        self._limits = limits
        self._metadata_characters_max = metadata_characters_max
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id[:200]!r}")
        return group

    def classic_or_new(self, group_id: str, now: Moment) -> ClassicGroup:
        """The classic group, or a new one; that it is no consumer group was seen to before."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, self._limits(), now.wall_ms)
        else:
            group.limits = self._limits()
        return group

    def forget_if_unused(self, group_id: str) -> None:
        """Drop a group that exists in memory only and that nobody joined after all."""
        group = self.groups.get(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.is_idle
            and group.recorded is None
            and group.state is GroupState.EMPTY
            and not self.offsets.of(group_id)
            and not self.offsets.has_open_transaction(group_id)
        ):
            del self.groups[group_id]

    def decide_commit(
        self, request: CommitRequest, wanted: Sequence[WantedOffset], now: Moment
    ) -> tuple[list[CoordinatorRecord], list[ErrorCode]]:
        """Records for what may be committed, and one error code for each wanted offset."""
        member = self._check_commit(request, now)
        expire_ms = NO_TIMESTAMP
        if request.retention_ms >= 0:
            expire_ms = now.wall_ms + request.retention_ms
        records = []
        codes = []
        characters_max = self._metadata_characters_max()
        for one in wanted:
            if member is not None and not may_commit(
                member, request.generation, one.topic_id, one.partition
            ):
                raise stale(member)  # all of it or nothing
            metadata = one.metadata or ""
            if metadata and (
                len(metadata) > characters_max or len(metadata.encode()) > STRING_BYTES_MAX
            ):
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(ErrorCode.NONE)
            records.append(
                offset_record(
                    OffsetKey(request.group_id, one.topic, one.partition),
                    CommittedOffset(
                        one.offset,
                        one.leader_epoch,
                        metadata,
                        now.wall_ms,
                        expire_ms,
                        one.topic_id,
                    ),
                )
            )
        return records, codes

    def _check_commit(self, request: CommitRequest, now: Moment) -> ConsumerMember | None:
        """Refuse it, or say which member of a consumer group it comes from, if it is one."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.is_dead:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return check_commit(
                group,
                request.member_id,
                request.instance_id,
                request.generation,
                is_transactional=request.is_transactional,
                is_old_version=(
                    not request.is_transactional and request.version < GROUP_ID_NOT_FOUND_FROM
                ),
            )
        if request.is_transactional:
            if group is not None:
                group.check_transactional_commit(
                    request.member_id, request.instance_id, request.generation
                )
            elif request.generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif group is not None:
            group.check_commit(request.member_id, request.instance_id, request.generation, now)
        elif request.generation >= 0:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if request.version >= GROUP_ID_NOT_FOUND_FROM
                else ErrorCode.ILLEGAL_GENERATION
            )
        return None

    def decide_delete_offsets(
        self, group_id: str, places: Iterable[tuple[str, int]], *, has_writes_in_flight: bool
    ) -> tuple[list[CoordinatorRecord], list[ErrorCode]]:
        """Tombstones, and one error code for each place."""
        group = self.group(group_id)
        if isinstance(group, ClassicGroup):
            group.check_delete_offsets()
        known = set(self.offsets.keys_of(group_id))
        records = []
        codes = []
        for topic, partition in places:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            key = OffsetKey(group_id, topic, partition)
            # A commit on its way to the log is not known here yet, but will lie before this.
            if key in known or has_writes_in_flight:
                records.append(offset_tombstone(key))
        return records, codes

    def decide_delete_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for the group and all it committed; the group is dead from now on."""
        group = self.group(group_id)
        group.check_delete()
        records = [offset_tombstone(key) for key in self.offsets.keys_of(group_id)]
        records += _tombstones(group)
        group.mark_dead()
        return records

    def decide_expire(
        self, group_id: str, retention_ms: int, now: Moment
    ) -> list[CoordinatorRecord]:
        """Tombstones for offsets whose time is up, and for a group that has nothing left."""
        group = self.groups.get(group_id)
        if group is None:
            return []
        records = []
        committed = self.offsets.of(group_id)
        for place, one in committed.items():
            since_ms = _retained_since_ms(group, one)
            if (
                since_ms is not None
                and not group.is_subscribed_to(place[0])
                and expires_at_ms(one, since_ms, retention_ms) <= now.wall_ms
                and not self.offsets.is_pending(group_id, place)
            ):
                records.append(offset_tombstone(OffsetKey(group_id, *place)))
        if (
            len(records) == len(committed)
            and group.is_empty
            and group.is_idle
            and not self.offsets.has_open_transaction(group_id)
        ):
            records += _tombstones(group)
            group.mark_dead()
        return records

    def decide_forget_topics(self, topics: frozenset[str]) -> list[CoordinatorRecord]:
        """Tombstones for the offsets of topics that are gone."""
        return [offset_tombstone(key) for key in self.offsets.keys_of_topics(topics)]

    def replay_decided(self, producer_id: int, record: KeyValue) -> None:
        """As `replay`, of what was decided here: what it says may be known without its bytes."""
        if isinstance(record, DecidedRecord):
            self._replay_consumer(record.says)
        else:
            self.replay(producer_id, record.key, record.value)

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        if isinstance(record, OffsetRecord):
            offset_key, committed = record
            self.offsets.replay(producer_id, offset_key, committed)
            if committed is not None:
                self._ensure_group(offset_key.group_id)
        elif isinstance(record, GroupRecord):
            self._replay_classic(record)
        else:
            reader = FieldReader(key)
            consumer_record = decode_consumer_record(reader.int16(), reader, value)
            if consumer_record is not None:
                self._replay_consumer(consumer_record)

    def _replay_classic(self, record: GroupRecord) -> None:
        group = self.groups.get(record.group_id)
        if record.value is not None:
            if not isinstance(group, ClassicGroup):
                group = ClassicGroup(record.group_id, self._limits(), NO_TIMESTAMP)
                self.groups[record.group_id] = group
            group.replay(record.value)
        elif isinstance(group, ClassicGroup):
            self._remove_group(record.group_id)

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group = self.groups.get(record.group_id)
        if isinstance(group, ConsumerGroup):
            group.replay(record)
            if isinstance(record, GroupEpochRecord) and record.value is None:
                self._remove_group(record.group_id)
        elif not (
            record.is_tombstone
            if isinstance(record, PartitionMetadataRecord)
            else record.value is None
        ):
            # A group that only stores offsets has no record of its own; it becomes this one.
            group = self.groups[record.group_id] = ConsumerGroup(record.group_id)
            group.replay(record)

    def _remove_group(self, group_id: str) -> None:
        """Its offsets may stay, as those of a group without members."""
        del self.groups[group_id]
        if self.offsets.of(group_id):
            self._ensure_group(group_id)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        for group_id in self.offsets.replay_marker(producer_id, is_commit=is_commit):
            self._ensure_group(group_id)

    def on_loaded(self, now: Moment) -> None:
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                group.limits = self._limits()
                group.on_loaded(now)

    def _ensure_group(self, group_id: str) -> None:
        """Offsets without a group belong to one without members: a consumer that assigns itself."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, self._limits(), NO_TIMESTAMP)


def _tombstones(group: Group) -> list[CoordinatorRecord]:
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    return [group_tombstone(group.group_id)]


def _retained_since_ms(group: Group, committed: CommittedOffset) -> int | None:
    """From when on the retention of an offset counts; None while it does not run."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return committed.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        became_empty_ms = group.state_timestamp_ms
        return committed.commit_timestamp_ms if became_empty_ms < 0 else became_empty_ms
    if (
        group.is_consumer_group
        and group.subscribed_topics is not None
        and group.state is GroupState.STABLE
    ):
        return committed.commit_timestamp_ms
    return None
