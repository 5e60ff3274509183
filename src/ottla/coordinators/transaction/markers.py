"""Which markers have to go to which broker, and which transactions have all of theirs.

Ending a transaction means a marker in each of its partitions, on whichever broker leads them,
as often as it takes. Markers are queued for their destination, so that one request can carry many
transactions' and a broker that is away holds up no other.

Pure; the shell in coordinator.py sends what `take` gives and reports each outcome. Invariant: a
partition of a transaction is queued for one destination, under way, or set aside to be tried
again; never two of these. A result for a marker that was given up changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.coordinators.runtime import EndMarker
from ottla.protocol.ids import TopicPartition

LeaderOf = Callable[[TopicPartition], int | None]
"""The broker that leads a partition, -1 for nobody now; None if there is no such partition."""

NO_LEADER = -1


class Owner(NamedTuple):
    """A transaction, by the partition that its coordinator leads and its transactional id."""

    shard: int
    transactional_id: str


class MarkersToSend(NamedTuple):
    owner: Owner
    marker: EndMarker
    partitions: list[TopicPartition]


class _Job:
    __slots__ = ("marker", "remaining")

    def __init__(self, marker: EndMarker, partitions: Iterable[TopicPartition]) -> None:
        self.marker = marker
        self.remaining = set(partitions)


class MarkerQueue:
    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._jobs: dict[Owner, _Job] = {}
        self._queues: dict[int, dict[Owner, list[TopicPartition]]] = {}
        self._set_aside: dict[Owner, list[TopicPartition]] = {}

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._jobs

    @property
    def destinations(self) -> list[int]:
        return [one for one, queue in self._queues.items() if queue]

    @property
    def has_set_aside(self) -> bool:
        return bool(self._set_aside)

    def add(self, owner: Owner, marker: EndMarker, partitions: Iterable[TopicPartition]) -> bool:
        """Queue a transaction's markers; True if there is none to write."""
        self.forget(owner)
        self._jobs[owner] = _Job(marker, partitions)
        return self._queue(owner, sorted(self._jobs[owner].remaining))

    def take(self, destination: int) -> list[MarkersToSend]:
        """What to send there now. Each partition's outcome is to be reported."""
        queue = self._queues.pop(destination, {})
        return [
            MarkersToSend(owner, self._jobs[owner].marker, partitions)
            for owner, partitions in queue.items()
        ]

    def on_written(self, owner: Owner, marker: EndMarker, partition: TopicPartition) -> bool:
        """The partition has its marker; True if it was the last, which ends the job."""
        job = self._jobs.get(owner)
        if job is None or job.marker != marker:
            return False
        job.remaining.discard(partition)
        return self._finish_if_done(owner)

    def on_refused(self, owner: Owner, marker: EndMarker, partition: TopicPartition) -> None:
        """Try again later, perhaps with another leader."""
        job = self._jobs.get(owner)
        if job is not None and job.marker == marker and partition in job.remaining:
            self._set_aside.setdefault(owner, []).append(partition)

    def retry(self) -> list[Owner]:
        """Queue again what was set aside; those that need no marker any more."""
        again, self._set_aside = self._set_aside, {}
        return [owner for owner, partitions in again.items() if self._queue(owner, partitions)]

    def forget(self, owner: Owner) -> None:
        self._jobs.pop(owner, None)
        self._set_aside.pop(owner, None)
        for queue in self._queues.values():
            queue.pop(owner, None)

    def forget_shard(self, shard: int) -> None:
        """Somebody else coordinates this partition of the transaction topic."""
        for owner in [one for one in self._jobs if one.shard == shard]:
            self.forget(owner)

    def _queue(self, owner: Owner, partitions: Iterable[TopicPartition]) -> bool:
        job = self._jobs[owner]
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                job.remaining.discard(partition)  # the topic is gone, and its readers with it
            elif leader == NO_LEADER:
                self._set_aside.setdefault(owner, []).append(partition)
            else:
                self._queues.setdefault(leader, {}).setdefault(owner, []).append(partition)
        return self._finish_if_done(owner)

    def _finish_if_done(self, owner: Owner) -> bool:
        if self._jobs[owner].remaining:
            return False
        self.forget(owner)
        return True
