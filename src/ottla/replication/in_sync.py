"""Which records of one partition are committed: the in-sync replicas and the high watermark.

A record is committed once every in-sync replica has it. The leader learns a follower's
position from the offset that the follower asks for next: a fetch at N says that all below N
is there. The leader's own log end is one position among the others.

Pure: no files, clock or loop. Owned by `partition.Partition`, which tells it of appends, of
fetches and of metadata changes.

Invariants: within one leader epoch the high watermark never goes back, and it never passes
the position of a replica that is in sync. A replica whose position is not known yet holds it.
"""

from collections.abc import Iterable

from ottla.protocol.ids import BrokerId, Offset

UNKNOWN_POSITION = Offset(-1)
START = Offset(0)


class InSyncReplicas:
    __slots__ = ("_local", "_others", "_positions", "high_watermark", "isr")

    def __init__(self, local: BrokerId, high_watermark: Offset = START) -> None:
        self._local = local
        self.high_watermark = high_watermark
        self.isr: tuple[BrokerId, ...] = ()
        self._others: tuple[BrokerId, ...] = ()
        self._positions: dict[BrokerId, Offset] = {}

    def assign(self, isr: Iterable[BrokerId], *, is_new_epoch: bool) -> None:
        """Take the set that the controller committed; a new epoch forgets all positions."""
        self.isr = tuple(isr)
        self._others = tuple(broker for broker in self.isr if broker != self._local)
        if is_new_epoch:
            self._positions.clear()

    def position_of(self, broker: BrokerId) -> Offset:
        return self._positions.get(broker, UNKNOWN_POSITION)

    def on_follower_fetch(self, broker: BrokerId, fetch_offset: Offset) -> None:
        """A follower has everything below `fetch_offset`."""
        self._positions[broker] = fetch_offset

    def maybe_advance(self, log_end_offset: Offset) -> bool:
        """Raise the high watermark to what all in-sync replicas have; whether it moved."""
        committed = log_end_offset
        for broker in self._others:
            position = self._positions.get(broker, UNKNOWN_POSITION)
            if position < committed:
                committed = position
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def on_truncated(self, log_end_offset: Offset) -> None:
        """The local log lost its tail (a follower that diverged): nothing beyond is committed."""
        if self.high_watermark > log_end_offset:
            self.high_watermark = log_end_offset
