"""Where the groups of one shard have got to: committed offsets, and those of open transactions.

An offset that a transaction committed counts only once the transaction does; until then a reader
that asks for stable offsets is told to come back (KIP-447), and nothing expires under it.

Pure. Only `replay` and `replay_marker` change it. Invariant: no empty map is kept, so a group
without offsets has no entry.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.coordinators.group.records import NO_TIMESTAMP, CommittedOffset, OffsetKey
from ottla.protocol.uuids import ZERO

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""

T = TypeVar("T")

NO_OFFSETS: Mapping[Place, CommittedOffset] = {}


class FetchedOffset(NamedTuple):
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    is_unstable: bool = False


NO_FETCHED_OFFSET = FetchedOffset()


class OffsetStore:
    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, CommittedOffset]] = {}
        # What open transactions wrote to a place, by producer id, in the order of the log; None
        # where something that lies later in the log has been committed.
        self._pending: dict[str, dict[Place, dict[int, CommittedOffset | None]]] = {}
        self._touched: dict[int, dict[tuple[str, Place], None]] = {}  # by producer id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetStore):
            return NotImplemented
        return self._groups == other._groups and self._pending == other._pending

    def of(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        return self._groups.get(group_id, NO_OFFSETS)

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._pending

    def is_pending(self, group_id: str, place: Place) -> bool:
        return place in self._pending.get(group_id, ())

    def fetch(
        self, group_id: str, place: Place, *, topic_id: UUID, require_stable: bool
    ) -> FetchedOffset:
        """What a reader is told; an offset of an earlier topic of the same name does not count."""
        if require_stable and self.is_pending(group_id, place):
            return FetchedOffset(is_unstable=True)
        found = self._groups.get(group_id, NO_OFFSETS).get(place)
        if found is None or _differ(found.topic_id, topic_id):
            return NO_FETCHED_OFFSET
        return FetchedOffset(found.offset, found.leader_epoch, found.metadata)

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Every offset of the group, those of open transactions too."""
        places = dict.fromkeys((*self.of(group_id), *self._pending.get(group_id, ())))
        return [OffsetKey(group_id, *place) for place in places]

    def keys_of_topics(self, topics: frozenset[str]) -> list[OffsetKey]:
        """Every offset of these topics, of whichever group."""
        group_ids = dict.fromkeys((*self._groups, *self._pending))
        return [key for one in group_ids for key in self.keys_of(one) if key.topic in topics]

    def replay(self, producer_id: int, key: OffsetKey, value: CommittedOffset | None) -> None:
        group_id, place = key.group_id, (key.topic, key.partition)
        if value is None:
            _drop(self._groups, group_id, place)
            for one in list(self._pending.get(group_id, {}).get(place, ())):
                self._forget_pending(one, group_id, place)
        elif producer_id < 0:
            self._groups.setdefault(group_id, {})[place] = value
            if self._pending:
                self._supersede(group_id, place, None)
        else:
            writers = self._pending.setdefault(group_id, {}).setdefault(place, {})
            writers.pop(producer_id, None)  # so that the order is that of the last ones
            writers[producer_id] = value
            self._touched.setdefault(producer_id, {})[group_id, place] = None

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """End a transaction; the groups whose offsets it moved."""
        moved: dict[str, None] = {}
        for group_id, place in list(self._touched.get(producer_id, ())):
            if is_commit:
                self._supersede(group_id, place, producer_id)
            value = self._forget_pending(producer_id, group_id, place)
            if is_commit:
                moved[group_id] = None
                if value is not None:
                    self._groups.setdefault(group_id, {})[place] = value
        return list(moved)

    def _supersede(self, group_id: str, place: Place, producer_id: int | None) -> None:
        """What others wrote before this producer (all of it if None) no longer counts."""
        writers = self._pending.get(group_id, {}).get(place, {})
        for one in writers:
            if one == producer_id:
                break
            writers[one] = None

    def _forget_pending(
        self, producer_id: int, group_id: str, place: Place
    ) -> CommittedOffset | None:
        writers = self._pending[group_id][place]
        value = writers.pop(producer_id)
        if not writers:
            _drop(self._pending, group_id, place)
        del self._touched[producer_id][group_id, place]
        if not self._touched[producer_id]:
            del self._touched[producer_id]
        return value


def expires_at_ms(committed: CommittedOffset, since_ms: int, retention_ms: int) -> int:
    """From when on the offset may go: as its committer asked, or some time after `since_ms`."""
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return committed.expire_timestamp_ms
    return since_ms + retention_ms


def _differ(one: UUID, other: UUID) -> bool:
    return ZERO not in (one, other) and one != other


def _drop(groups: dict[str, dict[Place, T]], group_id: str, place: Place) -> None:
    places = groups.get(group_id)
    if places is not None:
        places.pop(place, None)
        if not places:
            del groups[group_id]
