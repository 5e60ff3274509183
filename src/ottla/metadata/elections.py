"""Who leads a partition when brokers come and go, and what that does to its replica sets.

The leader comes from the in-sync replicas. When the last of them goes, its data is still the best
there is: with eligible leader replicas (KIP-966) it is remembered and may lead alone when it
returns, instead of the partition waiting with a stale in-sync replica. Only a topic that allows
unclean elections takes a leader that may lack committed records, and says so (recovery state 1).

Pure. Invariants of every change: the leader is -1 or in the ISR; ISR and ELR are disjoint; both
are within the replicas.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.features import MIN_INSYNC_REPLICAS, is_elr_enabled
from ottla.metadata.image import (
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.metadata.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class Election(Enum):
    PREFERRED = auto()  # the first replica if it can lead
    ONLINE = auto()  # keep the leader if it can lead, else any that can
    UNCLEAN = auto()  # as ONLINE, but rather a lossy leader than none


class Targets(NamedTuple):
    """What a partition should become; the election then works out the rest."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int | None = None  # None leaves it as it is
    lost_replicas: frozenset[int] = frozenset()  # came back from an unclean shutdown

    @classmethod
    def of(cls, partition: PartitionImage) -> "Targets":
        return cls(
            partition.isr,
            partition.replicas,
            partition.directories,
            partition.removing_replicas,
            partition.adding_replicas,
        )


class _Outcome(NamedTuple):
    leader: int
    is_unclean: bool


class _PartitionElection:
    """One decision about one partition."""

    def __init__(
        self,
        partition: PartitionImage,
        targets: Targets,
        *,
        can_lead: Callable[[int], bool],
        election: Election,
        elr_enabled: bool,
        min_insync_replicas: int,
    ) -> None:
        self.partition = partition
        self.can_lead = can_lead
        self.election = election
        self.elr_enabled = elr_enabled
        self.targets = _complete_reassignment(targets)
        self.isr = self.targets.isr
        self.elr = self._target_elr(min_insync_replicas)

    def _target_elr(self, min_insync_replicas: int) -> tuple[int, ...]:
        if not self.elr_enabled or len(self.isr) >= min_insync_replicas:
            return ()
        candidates = dict.fromkeys((*self.partition.eligible_leader_replicas, *self.partition.isr))
        replicas = set(self.targets.replicas)
        excluded = {*self.isr, *self.targets.lost_replicas}
        return tuple(r for r in candidates if r in replicas and r not in excluded)

    def _is_clean_leader(self, replica: int) -> bool:
        is_eligible = replica in self.isr or (not self.isr and replica in self.elr)
        return is_eligible and self.can_lead(replica)

    def _elect(self) -> _Outcome:
        current = self.partition.leader
        order = [current, *self.targets.replicas]
        if self.election is Election.PREFERRED:
            order.insert(0, self.targets.replicas[0])
        for replica in order:
            if self._is_clean_leader(replica):
                return _Outcome(replica, is_unclean=False)
        if self._may_take_last_known_leader():
            return _Outcome(self.partition.last_known_elr[0], is_unclean=True)
        if self.election is Election.UNCLEAN:
            for replica in self.targets.replicas:
                if self.can_lead(replica):
                    return _Outcome(replica, is_unclean=True)
        return _Outcome(NO_LEADER, is_unclean=False)

    def _may_take_last_known_leader(self) -> bool:
        known = self.partition.last_known_elr
        return (
            self.elr_enabled
            and not self.isr
            and not self.elr
            and len(known) == 1
            and known[0] in self.targets.replicas
            and self.can_lead(known[0])
        )

    def decide(self, topic_id: UUID, partition_id: int) -> PartitionChangeRecord | None:
        partition, targets = self.partition, self.targets
        outcome = self._elect()
        leader = NO_LEADER_CHANGE
        recovery = partition.leader_recovery_state
        if targets.leader_recovery_state is not None:
            recovery = targets.leader_recovery_state
        if outcome.leader != partition.leader:
            leader = outcome.leader
            if outcome.is_unclean:
                self.isr, self.elr = (leader,), ()
                recovery = RECOVERING
            elif leader in self.elr:
                self.isr = (leader,)
                self.elr = tuple(r for r in self.elr if r != leader)
        elif not set(partition.replicas) <= set(targets.replicas):
            leader = partition.leader  # replicas that leave must hear of a new epoch
        isr = self.isr
        if not isr and not self.elr_enabled:
            isr = partition.isr  # without ELR the last in-sync replica stays on record
        record = PartitionChangeRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            isr=_if_changed(isr, partition.isr),
            leader=leader,
            replicas=_if_changed(targets.replicas, partition.replicas),
            removing_replicas=_if_changed(targets.removing_replicas, partition.removing_replicas),
            adding_replicas=_if_changed(targets.adding_replicas, partition.adding_replicas),
            leader_recovery_state=-1 if recovery == partition.leader_recovery_state else recovery,
            directories=(
                None if targets.directories == partition.directories else targets.directories
            ),
            eligible_leader_replicas=_if_changed(self.elr, partition.eligible_leader_replicas),
            last_known_elr=_if_changed(self._last_known(leader), partition.last_known_elr),
        )
        unchanged = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
        return None if record == unchanged else record

    def _last_known(self, leader: int) -> tuple[int, ...]:
        """The leader that a partition lost last; forgotten once it has one again."""
        before = self.partition.leader
        after = before if leader == NO_LEADER_CHANGE else leader
        if not self.elr_enabled or after != NO_LEADER:
            return ()
        return self.partition.last_known_elr if before == NO_LEADER else (before,)


def _if_changed(new: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if new == old else new


def _complete_reassignment(targets: Targets) -> Targets:
    """Drop the replicas to be removed once all that are to stay are in sync."""
    if not targets.adding_replicas and not targets.removing_replicas:
        return targets
    removing = set(targets.removing_replicas)
    isr = tuple(r for r in targets.isr if r not in removing)
    kept = [
        (replica, directory)
        for replica, directory in zip(targets.replicas, targets.directories, strict=True)
        if replica not in removing
    ]
    if not isr or not {replica for replica, _ in kept} <= set(isr):
        return targets
    return targets._replace(
        isr=isr,
        replicas=tuple(replica for replica, _ in kept),
        directories=tuple(directory for _, directory in kept),
        removing_replicas=(),
        adding_replicas=(),
    )


def min_insync_replicas(image: MetadataImage, topic: str) -> int:
    text = image.effective_topic_config(topic, MIN_INSYNC_REPLICAS)
    return int(text) if text is not None else 1


def allows_unclean_election(image: MetadataImage, topic: str) -> bool:
    return image.effective_topic_config(topic, UNCLEAN_LEADER_ELECTION) == "true"


def decide_partition(
    image: MetadataImage,
    topic: TopicImage,
    partition_id: int,
    targets: Targets,
    *,
    can_lead: Callable[[int], bool],
    election: Election | None = None,
) -> PartitionChangeRecord | None:
    """The change that brings a partition to `targets`, with a leader if one can be had.

    A replica in a log directory that is offline cannot lead, whatever `can_lead` says.
    """
    if election is None:
        unclean = allows_unclean_election(image, topic.name)
        election = Election.UNCLEAN if unclean else Election.ONLINE
    return _PartitionElection(
        topic.partitions[partition_id],
        targets,
        can_lead=lambda other: can_lead(other) and _has_online_directory(image, targets, other),
        election=election,
        elr_enabled=is_elr_enabled(image),
        min_insync_replicas=min_insync_replicas(image, topic.name),
    ).decide(topic.topic_id, partition_id)


def _has_online_directory(image: MetadataImage, targets: Targets, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or broker_id not in targets.replicas:
        return True  # nobody said where it lies
    directory = targets.directories[targets.replicas.index(broker_id)]
    return broker.has_online_directory(directory)


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics.values():
        for partition_id, partition in topic.partitions.items():
            yield topic, partition_id, partition


def _is_active(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def changes_when_broker_leaves(
    image: MetadataImage, broker_id: int, *, is_unclean: bool = False
) -> list[PartitionChangeRecord]:
    """Take a broker out of every ISR and lead; after an unclean shutdown out of every ELR too."""
    lost = frozenset({broker_id}) if is_unclean else frozenset()
    return _changes(
        image,
        (
            (topic, partition_id, partition)
            for topic, partition_id, partition in _partitions(image)
            if broker_id in partition.isr
            or partition.leader == broker_id
            or (is_unclean and broker_id in partition.eligible_leader_replicas)
        ),
        can_lead=lambda other: other != broker_id and _is_active(image, other),
        without=broker_id,
        lost=lost,
    )


def changes_when_broker_returns(
    image: MetadataImage, broker_id: int
) -> list[PartitionChangeRecord]:
    """Give a leader to partitions that wait for this broker."""
    return _changes(
        image,
        (
            (topic, partition_id, partition)
            for topic, partition_id, partition in _partitions(image)
            if partition.leader == NO_LEADER and broker_id in partition.replicas
        ),
        can_lead=lambda other: other == broker_id or _is_active(image, other),
    )


def changes_when_directories_fail(
    image: MetadataImage, broker_id: int, directories: Collection[UUID]
) -> list[PartitionChangeRecord]:
    """Take a broker out of the ISR and the lead of what it has in these log directories."""
    return _changes(
        image,
        (
            (topic, partition_id, partition)
            for topic, partition_id, partition in _partitions(image)
            if broker_id in partition.replicas and partition.directory_of(broker_id) in directories
        ),
        can_lead=lambda other: other != broker_id and _is_active(image, other),
        without=broker_id,
    )


def _changes(
    image: MetadataImage,
    partitions: Iterable[tuple[TopicImage, int, PartitionImage]],
    *,
    can_lead: Callable[[int], bool],
    without: int | None = None,
    lost: frozenset[int] = frozenset(),
) -> list[PartitionChangeRecord]:
    records = []
    for topic, partition_id, partition in partitions:
        targets = Targets.of(partition)._replace(
            isr=tuple(replica for replica in partition.isr if replica != without),
            lost_replicas=lost,
        )
        record = decide_partition(image, topic, partition_id, targets, can_lead=can_lead)
        if record is not None:
            records.append(record)
    return records


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in _partitions(image))
