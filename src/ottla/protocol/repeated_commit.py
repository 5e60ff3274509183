"""The offset commit that a consumer sends again and again, recognised without being parsed. Pure.

A consumer commits the same partitions over and over: from one request to the next only the
correlation id, the offsets and their leader epochs change. The first one is kept as bytes with
holes where these are.

Invariant: what is recognised is what the parser would have found; the tests hold them against
each other.
"""

from struct import Struct
from typing import Any

LEADER_EPOCH_FROM = 6  # before, an offset came without one
_PARTITION = Struct(">iqi")
_HOLE = "qi"  # offset and leader epoch
_HOLE_BYTES = 12
_HOLE_IN_PARTITION = 4
_HEAD_AT = 8  # behind API key, version and correlation id


class RepeatedCommit:
    __slots__ = ("_frame", "_kept")

    def __init__(self, frame: bytes, holes: list[int]) -> None:
        """`holes` are the places of offset and leader epoch, in the order of the frame."""
        layout = ">4xi"
        kept = []
        position = _HEAD_AT
        for hole in holes:
            kept.append(frame[position:hole])
            layout += f"{hole - position}s{_HOLE}"
            position = hole + _HOLE_BYTES
        kept.append(frame[position:])
        self._frame = Struct(f"{layout}{len(frame) - position}s")
        self._kept = tuple(kept)

    @classmethod
    def of(cls, version: int, request: Any, frame: memoryview) -> "RepeatedCommit | None":
        """The request in `frame`, as one to expect again; None if it is not of the kind."""
        if version < LEADER_EPOCH_FROM:
            return None
        whole = bytes(frame)
        holes = []
        for topic in request.topics:
            for one in topic.partitions:
                place = _PARTITION.pack(
                    one.partition_index, one.committed_offset, one.committed_leader_epoch
                )
                if whole.count(place) != 1:
                    return None  # which of them is it?
                holes.append(whole.index(place) + _HOLE_IN_PARTITION)
        return cls(whole, holes) if holes else None

    def offsets_in(
        self, buffer: memoryview, start: int, end: int
    ) -> tuple[int, list[tuple[int, int]]] | None:
        """Correlation id, and offset and leader epoch of each partition; None if it is another.

        API key and version have to be the same; they are not looked at.
        """
        if end - start != self._frame.size:
            return None
        correlation_id, *fields = self._frame.unpack_from(buffer, start)
        if tuple(fields[::3]) != self._kept:
            return None
        return correlation_id, list(zip(fields[1::3], fields[2::3], strict=True))
