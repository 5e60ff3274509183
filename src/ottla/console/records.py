"""One record as the console handles it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.console.numbers import OFFSET_MAX, PARTITION_MAX


class Record(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int  # -1: none
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


Position = dict[int, int]  # partition -> offset
Predicate = Callable[[Record], bool]

# More than these are counted rather than named.
PARTITIONS_TOLD = 12
_DIGITS_MAX = 19


def format_position(position: Position) -> str:
    """`0:17,1:4`: a place in a topic, for an address."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(position.items()))


def parse_position(text: str) -> Position:
    """The place in a topic that `format_position` wrote; ValueError for anything else."""
    position: Position = {}
    for part in filter(None, text.split(",")):
        partition, colon, offset = part.partition(":")
        if not (colon and _is_number(partition, PARTITION_MAX) and _is_number(offset, OFFSET_MAX)):
            raise ValueError(f"'{part[:40]}' is not PARTITION:OFFSET")
        position[int(partition)] = int(offset)
    return position


def _is_number(text: str, most: int) -> bool:
    # The length first: Python refuses, with an error of its own, to read thousands of digits.
    return len(text) <= _DIGITS_MAX and text.isdecimal() and int(text) <= most


def tell_troubles(troubles: Mapping[int, str]) -> str:
    """Which partitions cannot be read and why, in a line; one reason is told once."""
    by_reason: dict[str, list[int]] = {}
    for partition, reason in sorted(troubles.items()):
        by_reason.setdefault(reason, []).append(partition)
    return " ".join(
        f"Partition{'' if len(partitions) == 1 else 's'} {_listed(partitions)}: {reason}"
        for reason, partitions in by_reason.items()
    )


def _listed(partitions: list[int]) -> str:
    shown = ", ".join(map(str, partitions[:PARTITIONS_TOLD]))
    more = len(partitions) - PARTITIONS_TOLD
    return f"{shown} and {more} more" if more > 0 else shown
