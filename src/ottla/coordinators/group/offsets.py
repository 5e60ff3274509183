"""Where the groups of one shard have got to: committed offsets, and those of open transactions.

An offset that a transaction committed counts only once the transaction does; until then a reader
that asks for stable offsets is told to come back (KIP-447), and nothing expires under it.

Pure. Only `replay` and `replay_marker` change it. Invariant: no empty map is kept, so a group
without offsets has no entry.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.coordinators.group.records import (
    NO_TIMESTAMP,
    ZERO_UUID,
    CommittedOffset,
    OffsetKey,
)

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
        # By producer id; None where an offset outside the transaction came after it.
        self._pending: dict[int, dict[str, dict[Place, CommittedOffset | None]]] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetStore):
            return NotImplemented
        return self._groups == other._groups and self._pending == other._pending

    def of(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        return self._groups.get(group_id, NO_OFFSETS)

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def has_open_transaction(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self._pending.values())

    def is_pending(self, group_id: str, place: Place) -> bool:
        return any(place in groups.get(group_id, ()) for groups in self._pending.values())

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
        places = dict.fromkeys(self.of(group_id))
        for groups in self._pending.values():
            places.update(dict.fromkeys(groups.get(group_id, ())))
        return [OffsetKey(group_id, *place) for place in places]

    def keys_of_topics(self, topics: frozenset[str]) -> list[OffsetKey]:
        """Every offset of these topics, of whichever group."""
        group_ids = dict.fromkeys(self._groups)
        for groups in self._pending.values():
            group_ids.update(dict.fromkeys(groups))
        return [key for one in group_ids for key in self.keys_of(one) if key.topic in topics]

    def replay(self, producer_id: int, key: OffsetKey, value: CommittedOffset | None) -> None:
        place = (key.topic, key.partition)
        if value is None:
            _drop(self._groups, key.group_id, place)
            for groups in self._pending.values():
                _drop(groups, key.group_id, place)
            self._pending = {one: groups for one, groups in self._pending.items() if groups}
        elif producer_id < 0:
            self._groups.setdefault(key.group_id, {})[place] = value
            for groups in self._pending.values():
                if place in groups.get(key.group_id, ()):
                    groups[key.group_id][place] = None  # what was committed last counts
        else:
            groups = self._pending.setdefault(producer_id, {})
            groups.setdefault(key.group_id, {})[place] = value

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """End a transaction; the groups whose offsets it moved."""
        groups = self._pending.pop(producer_id, {})
        if not is_commit:
            return []
        for group_id, places in groups.items():
            moved = {place: value for place, value in places.items() if value is not None}
            if moved:
                self._groups.setdefault(group_id, {}).update(moved)
        return list(groups)


def expires_at_ms(committed: CommittedOffset, since_ms: int, retention_ms: int) -> int:
    """From when on the offset may go: as its committer asked, or some time after `since_ms`."""
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return committed.expire_timestamp_ms
    return since_ms + retention_ms


def _differ(one: UUID, other: UUID) -> bool:
    return ZERO_UUID not in (one, other) and one != other


def _drop(groups: dict[str, dict[Place, T]], group_id: str, place: Place) -> None:
    places = groups.get(group_id)
    if places is not None:
        places.pop(place, None)
        if not places:
            del groups[group_id]
