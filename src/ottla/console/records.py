"""One record as the console handles it. Pure."""

from __future__ import annotations

from typing import NamedTuple


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


def format_position(position: Position) -> str:
    """`0:17,1:4`: a place in a topic, for an address."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(position.items()))


def parse_position(text: str) -> Position:
    """The place in a topic that `format_position` wrote; ValueError for anything else."""
    position: Position = {}
    for part in filter(None, text.split(",")):
        partition, colon, offset = part.partition(":")
        if not colon or not partition.isdecimal() or not offset.isdecimal():
            raise ValueError(f"'{part}' is not PARTITION:OFFSET")
        position[int(partition)] = int(offset)
    return position
