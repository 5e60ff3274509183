"""Which brokers get the replicas of new partitions.

Replicas are dealt to racks in turn and inside a rack to brokers in turn, each partition starting
one further, so that racks, brokers and leaders all get an even share (Kafka's striped placement).
Fenced brokers are taken only when the unfenced ones of a rack run out, and never lead.

Pure: randomness is handed in. Invariants: no partition gets a broker twice; the first replica of
each is on an unfenced broker.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")


class Chance(Protocol):
    def randint(self, low: int, high: int) -> int: ...


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


class _Brokers:
    """Brokers of one kind in one rack, handed out in turn, each once per round."""

    def __init__(self, broker_ids: Iterable[int], chance: Chance) -> None:
        self.broker_ids = sorted(broker_ids)
        count = len(self.broker_ids)
        self._offset = chance.randint(0, count - 1) if count else 0
        self._taken = 0
        self._round = 0

    def next(self, round_number: int) -> int | None:
        count = len(self.broker_ids)
        if count == 0:
            return None
        if self._round != round_number:
            self._round = round_number
            self._taken = 0
            self._offset = (self._offset + 1) % count
        if self._taken >= count:
            return None
        broker_id = self.broker_ids[(self._taken + self._offset) % count]
        self._taken += 1
        return broker_id


class _Rack:
    def __init__(self, brokers: Sequence[UsableBroker], chance: Chance) -> None:
        self.fenced = _Brokers((b.broker_id for b in brokers if b.fenced), chance)
        self.unfenced = _Brokers((b.broker_id for b in brokers if not b.fenced), chance)

    def next(self, round_number: int) -> int | None:
        broker_id = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker_id is None else broker_id


class StripedPlacer:
    """Places partition after partition of one topic."""

    def __init__(self, brokers: Iterable[UsableBroker], chance: Chance) -> None:
        self._chance = chance
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        ordered = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_rack[name], chance) for name in ordered]
        self._brokers_count = sum(map(len, by_rack.values()))
        self._unfenced_count = sum(len(rack.unfenced.broker_ids) for rack in self._racks)
        self._offset = chance.randint(0, len(self._racks) - 1) if self._racks else 0
        self._round = 0

    def check(self, replication_factor: int) -> None:
        """Whether one partition with so many replicas can be placed at all."""
        if replication_factor <= 0:
            problem = f"Replication factor {replication_factor} is not positive"
        elif self._unfenced_count == 0:
            problem = "Every broker is fenced, or has all its log directories cordoned"
        elif replication_factor > self._brokers_count:
            problem = (
                f"Replication factor {replication_factor} is larger than the"
                f" {self._brokers_count} registered brokers"
            )
        else:
            return
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)

    def place(self, replication_factor: int) -> tuple[int, ...]:
        self.check(replication_factor)
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()  # every leader had its turn; avoid repeating the same sets
            self._round = 0
        racks = self._racks
        if self._offset == len(racks):
            self._offset = 0
        leader_rack, leader = self._place_leader()
        placed = [leader]
        rack_index = self._offset
        while len(placed) < replication_factor:
            found = None
            if rack_index == leader_rack:
                leader_rack = -1  # its turn was taken by the leader, once
            else:
                found = racks[rack_index].next(self._round)
            rack_index = (rack_index + 1) % len(racks)
            if found is not None:
                placed.append(found)
        self._round += 1
        self._offset += 1
        return tuple(placed)

    def _place_leader(self) -> tuple[int, int]:
        rack_index = self._offset
        while True:  # ends, as check() has seen an unfenced broker and a round takes each once
            leader = self._racks[rack_index].unfenced.next(self._round)
            if leader is not None:
                return rack_index, leader
            rack_index = (rack_index + 1) % len(self._racks)

    def _shuffle(self) -> None:
        shuffle(self._racks, self._chance)
        for rack in self._racks:
            shuffle(rack.fenced.broker_ids, self._chance)
            shuffle(rack.unfenced.broker_ids, self._chance)


def shuffle(items: list[T], chance: Chance) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = chance.randint(0, last)
        items[last], items[other] = items[other], items[last]
