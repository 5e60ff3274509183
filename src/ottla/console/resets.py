"""Where a group's offsets would be after a reset. Pure.

The plan is made, shown and only then committed as it was shown, so that nobody commits what they
did not see. Every new offset lies within what the partition holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.console.errors import BadRequestError
from ottla.console.kafka.model import TopicPartition
from ottla.console.numbers import PARTITION_MAX, integer

# What one form carries; more than any group that is reset by hand reads.
PARTITIONS_MAX = 10_000
STRATEGIES = ("earliest", "latest", "offset", "shift", "time")


class Move(NamedTuple):
    topic: str
    partition: int
    before: int | None  # None: nothing was committed
    after: int
    end_offset: int

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.after - self.before

    @property
    def lag(self) -> int:
        return self.end_offset - self.after


def plan(
    strategy: str,
    amount: int,
    partitions: Iterable[TopicPartition],
    *,
    committed: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> list[Move]:
    """The moves of a reset; partitions whose ends are not known now are left alone.

    `amount` is the offset or the shift. `at_time` holds the offsets of the time asked for, -1 where
    nothing is that new.
    """
    moves = []
    for key in sorted(set(partitions)):
        if key not in starts or key not in ends:
            continue
        start, end = starts[key], ends[key]
        before = committed.get(key)
        if strategy == "earliest":
            wanted = start
        elif strategy == "latest":
            wanted = end
        elif strategy == "offset":
            wanted = amount
        elif strategy == "shift":
            if before is None:
                continue
            wanted = before + amount
        elif strategy == "time":
            found = at_time.get(key, -1)
            wanted = end if found < 0 else found
        else:
            raise BadRequestError(f"A reset goes to one of {', '.join(STRATEGIES)}.")
        moves.append(Move(*key, before, min(max(wanted, start), end), end))
    return moves


def format_move(move: Move) -> str:
    """`12 3 orders`: offset, partition and topic, as a form carries it."""
    return f"{move.after} {move.partition} {move.topic}"


def parse_moves(texts: Iterable[str]) -> dict[TopicPartition, int]:
    """The offsets of a plan that a form carried back."""
    offsets: dict[TopicPartition, int] = {}
    for text in texts:
        offset, _, rest = text.partition(" ")
        partition, _, topic = rest.partition(" ")
        if not topic:
            raise BadRequestError("The plan of the reset cannot be read.")
        number = integer(partition, "A partition of the plan", most=PARTITION_MAX)
        offsets[topic, number] = integer(offset, "An offset of the plan")
    if not offsets:
        raise BadRequestError("There is nothing to reset.")
    if len(offsets) > PARTITIONS_MAX:
        raise BadRequestError(f"That is more than {PARTITIONS_MAX:,} partitions.")
    return offsets
