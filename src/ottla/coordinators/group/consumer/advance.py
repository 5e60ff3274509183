"""One member's turn: what its group makes of a new, changed or merely present member.

The same three steps for members of either protocol. The topics are looked at if the member's
subscription or the cluster changed, and the group's epoch grows if they differ; a target is
computed if the epoch has none; the member moves towards its target.

Pure: the group is only read. A `Turn` holds what the group will be like once the records of the
decision are replayed, as far as this one member is concerned.
"""

from collections.abc import Iterable, Mapping

from ottla.coordinators.group.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import (
    NO_TARGET,
    ConsumerMember,
    MemberState,
    Owned,
    Target,
    TopicId,
)
from ottla.coordinators.group.consumer.reconciliation import reconciled
from ottla.coordinators.group.consumer.records import (
    PARTITION_METADATA_TYPE,
    REGEX_TYPE,
    GroupEpoch,
    ResolvedRegex,
    TargetEpoch,
    current_assignment_record,
    group_epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_member_record,
    tombstone,
)
from ottla.coordinators.group.consumer.settings import Context
from ottla.coordinators.group.consumer.timers import TimerChange, TimerKind
from ottla.coordinators.group.consumer.topics import matching_topics, metadata_hash
from ottla.coordinators.regexes import compile_regex
from ottla.metadata.image import MetadataImage


class Turn:
    def __init__(
        self,
        group: ConsumerGroup,
        context: Context,
        out: Decision,
        *,
        before: ConsumerMember | None,
        after: ConsumerMember,
        replaced_id: str | None = None,
    ) -> None:
        self._group = group
        self._context = context
        self._out = out
        self._before = before  # as the group knows it; None for a new member
        self._after = after
        self._replaced_id = replaced_id  # a static member whose place it takes
        self._regexes: Mapping[str, ResolvedRegex] = group.regexes
        self.epoch = group.epoch
        self._target_epoch = group.target_epoch.epoch
        self._target = group.target_of(replaced_id or after.member_id)

    def take(self, owned: Owned | None) -> ConsumerMember:
        """The member after its turn, with all records that this makes necessary."""
        before, after, group = self._before, self._after, self._group
        if after != before:
            self._out.records.append(member_record(group.group_id, after))
        known = before or ConsumerMember(after.member_id)
        has_changed = known.topics != after.topics or known.regex != after.regex
        if after.regex and known.regex != after.regex:
            compile_regex(after.regex)  # refuses one that is wrong before anything is decided
        if has_changed or group.is_metadata_stale or self._is_regex_old():
            self._look_at_topics(has_changed)
        if self.epoch > self._target_epoch and self._is_assignment_due():
            self._assign()
        return self._reconcile(owned, has_changed)

    def _is_regex_old(self) -> bool:
        resolved = self._group.regexes.get(self._after.regex)
        return resolved is not None and (
            self._context.now.wall_ms - resolved.timestamp_ms
            >= self._context.settings.regex_refresh_interval_ms
        )

    # Topics

    def _look_at_topics(self, has_changed: bool) -> None:
        group, image, out = self._group, self._context.image, self._out
        self._resolve_regexes()
        names = set(group.topic_counts)
        gone = self._before
        if gone is not None:
            names -= {one for one in gone.topics if group.topic_counts[one] == 1}
        names |= self._after.topics
        for resolved in self._regexes.values():
            names |= resolved.topics
        # Members that come by the thousand want what others want: then the hash is known.
        is_known = (
            not group.is_metadata_stale
            and not self._regexes
            and not group.regexes
            and names == group.topic_counts.keys()
        )
        found = group.metadata_hash if is_known else metadata_hash(names, image)
        if has_changed or found != group.metadata_hash:
            self.epoch += 1
            out.records.append(group_epoch_record(group.group_id, GroupEpoch(self.epoch, found)))
            if group.has_partition_metadata:
                out.records.append(tombstone(PARTITION_METADATA_TYPE, group.group_id))
        out.is_metadata_fresh = True

    def _resolve_regexes(self) -> None:
        """Look up every expression that is in use now, and forget the others."""
        group, out = self._group, self._out
        if not (group.regexes or group.regex_counts or self._after.regex):
            return
        used = {one for one in group.regex_counts if self._is_still_used(one)}
        if self._after.regex:
            used.add(self._after.regex)
        regexes = dict(group.regexes)
        for regex in sorted(set(regexes) - used):
            del regexes[regex]
            out.records.append(tombstone(REGEX_TYPE, group.group_id, regex))
        image, now_ms = self._context.image, self._context.now.wall_ms
        for regex in sorted(used):
            topics = matching_topics(regex, image)
            known = regexes.get(regex)
            if known is None or known.topics != topics or self._is_regex_old():
                regexes[regex] = ResolvedRegex(topics, image.offset, now_ms)
                out.records.append(regex_record(group.group_id, regex, regexes[regex]))
        self._regexes = regexes

    def _is_still_used(self, regex: str) -> bool:
        by_member = self._before is not None and self._before.regex == regex
        return self._group.regex_counts[regex] > by_member

    # Target

    def _is_assignment_due(self) -> bool:
        """Changes that come close together share an assignment (KIP-1263)."""
        last = self._group.target_epoch
        elapsed_ms = self._context.now.wall_ms - last.timestamp_ms
        return (
            last.epoch < 0
            or last.timestamp_ms == 0
            or not 0 <= elapsed_ms < self._context.settings.assignment_interval_ms
        )

    def _assign(self) -> None:
        group, out, image = self._group, self._out, self._context.image
        members = {
            member_id: member
            for member_id, member in group.members.items()
            if member_id != self._replaced_id
        }
        members[self._after.member_id] = self._after
        name = group.preferred_assignor(self._before, self._after)
        if name is None or name not in ASSIGNORS:
            name = self._context.settings.assignors[0]
        old_targets = {**group.targets, self._after.member_id: self._target}
        targets = compute_targets(name, members, old_targets, self._regexes, image)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                out.records.append(target_member_record(group.group_id, member_id, target))
        now_ms = self._context.now.wall_ms
        out.records.append(target_epoch_record(group.group_id, TargetEpoch(self.epoch, now_ms)))
        self._target = targets[self._after.member_id]
        self._target_epoch = self.epoch

    # Reconciliation

    def _reconcile(self, owned: Owned | None, has_changed: bool) -> ConsumerMember:
        group, after = self._group, self._after
        target_epoch = max(self._target_epoch, 0)
        if after.is_reconciled_to(target_epoch) and not has_changed:
            return after

        def is_free(topic_id: TopicId, partition: int) -> bool:
            return not group.is_held_by_other(
                topic_id, partition, after.member_id, self._replaced_id
            )

        moved = reconciled(
            after,
            self._wanted_target(),
            target_epoch,
            is_free=is_free,
            owned=owned,
            has_changed=has_changed,
        )
        if moved != after:
            self._out.records.append(current_assignment_record(group.group_id, moved))
            if moved.classic is None:
                self._watch_revocation(moved)
        return moved

    def _wanted_target(self) -> Target:
        """The target without topics that the member no longer wants, if it is older than that."""
        if self._target_epoch == self.epoch or not self._target:
            return self._target
        names = set(self._after.topics)
        resolved = self._regexes.get(self._after.regex)
        if resolved is not None:
            names |= resolved.topics
        topics = self._context.image.topics
        wanted = {topics[name].topic_id.bytes for name in names if name in topics}
        return {one: partitions for one, partitions in self._target.items() if one in wanted}

    def _watch_revocation(self, member: ConsumerMember) -> None:
        deadline_ms = None
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            deadline_ms = self._context.now.monotonic_ms + member.rebalance_timeout_ms
        self._out.timers.append(
            TimerChange(TimerKind.REBALANCE, member.member_id, deadline_ms, member.epoch)
        )


def compute_targets(
    assignor: str,
    members: Mapping[str, ConsumerMember],
    old_targets: Mapping[str, Target],
    regexes: Mapping[str, ResolvedRegex],
    image: MetadataImage,
) -> dict[str, Target]:
    """What each member shall have, as `assignor` sees it."""
    ids: dict[tuple[frozenset[str], str], frozenset[TopicId]] = {}
    sizes: dict[TopicId, int] = {}
    specs = {}
    for member_id, member in members.items():
        wish = (member.topics, member.regex)
        topic_ids = ids.get(wish)
        if topic_ids is None:
            resolved = regexes.get(wish[1])
            names = wish[0] if resolved is None else wish[0] | resolved.topics
            topic_ids = ids[wish] = _topic_ids(names, image, sizes)
        specs[member_id] = MemberSpec(
            member.instance_id, topic_ids, old_targets.get(member_id, NO_TARGET)
        )
    return ASSIGNORS[assignor](specs, sizes)


def _topic_ids(
    names: Iterable[str], image: MetadataImage, sizes: dict[TopicId, int]
) -> frozenset[TopicId]:
    found = []
    for name in names:
        topic = image.topics.get(name)
        if topic is not None:
            raw_id = topic.topic_id.bytes
            sizes[raw_id] = len(topic.partitions)
            found.append(raw_id)
    return frozenset(found)
