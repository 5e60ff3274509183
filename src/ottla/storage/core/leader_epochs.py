"""Which leader epoch wrote which offsets of one partition log.

A replica that changes leader must find where its log and the new leader's part
ways. Its high watermark cannot tell: it arrives one fetch late, so truncating to
it can lose committed records or leave two different logs (KIP-101).

Pure: no files, clock, locks or logging. Every change returns the Durability that
the shell, which owns the `leader-epoch-checkpoint` file, owes before it acknowledges.

Invariant: along `entries`, epochs and start offsets both strictly increase.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from ottla.protocol.ids import NO_EPOCH, Epoch, Offset


class EpochEntry(NamedTuple):
    epoch: Epoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    epoch: Epoch
    end_offset: Offset  # exclusive


class Durability(Enum):
    UNCHANGED = auto()
    LAZY = auto()  # recovery repeats the truncation, so a crash loses nothing
    BEFORE_ACK = auto()


def _epoch_of(entry: EpochEntry) -> Epoch:
    return entry.epoch


def _start_of(entry: EpochEntry) -> Offset:
    return entry.start_offset


class LeaderEpochs:
    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: Epoch, start_offset: Offset) -> Durability:
        """Record that `epoch` starts at `start_offset`, dropping what contradicts it."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: both must be >= 0")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return Durability.UNCHANGED  # every batch repeats its epoch; the first one counts
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        return Durability.BEFORE_ACK

    def end_of(self, epoch: Epoch, *, log_end_offset: Offset) -> EpochEnd | None:
        """Where `epoch` ends here, or None if this log cannot tell (OffsetForLeaderEpoch)."""
        if epoch == NO_EPOCH or not self._entries:
            return None
        after = bisect_right(self._entries, epoch, key=_epoch_of)
        if after == len(self._entries):
            newest = self._entries[-1].epoch
            return EpochEnd(epoch, log_end_offset) if newest == epoch else None
        next_start = self._entries[after].start_offset
        if after == 0:
            # Older than anything kept: retention took those records. Answering with the
            # first offset held lets the follower restart there instead of failing.
            return EpochEnd(epoch, next_start)
        return EpochEnd(self._entries[after - 1].epoch, next_start)

    def entry_of(self, epoch: Epoch) -> EpochEntry | None:
        """The entry of exactly this epoch."""
        at = bisect_left(self._entries, epoch, key=_epoch_of)
        if at < len(self._entries) and self._entries[at].epoch == epoch:
            return self._entries[at]
        return None

    def previous(self, epoch: Epoch) -> EpochEntry | None:
        """The newest entry older than `epoch`."""
        at = bisect_left(self._entries, epoch, key=_epoch_of)
        return self._entries[at - 1] if at else None

    def next(self, epoch: Epoch) -> EpochEntry | None:
        """The oldest entry newer than `epoch`."""
        at = bisect_right(self._entries, epoch, key=_epoch_of)
        return self._entries[at] if at < len(self._entries) else None

    def epoch_for_offset(self, offset: Offset) -> Epoch | None:
        """The epoch that wrote, or would write, `offset`; None before the first entry."""
        at = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[at - 1].epoch if at else None

    def truncate_tail(self, end_offset: Offset) -> Durability:
        """Forget epochs that start at or after `end_offset`."""
        keep = bisect_left(self._entries, end_offset, key=_start_of)
        if keep == len(self._entries):
            return Durability.UNCHANGED
        del self._entries[keep:]
        return Durability.LAZY

    def truncate_head(self, start_offset: Offset) -> Durability:
        """Forget what lies before `start_offset`; the epoch that covers it now starts there."""
        after = bisect_right(self._entries, start_offset, key=_start_of)
        if after == 0 or (after == 1 and self._entries[0].start_offset == start_offset):
            return Durability.UNCHANGED
        self._entries[:after] = [EpochEntry(self._entries[after - 1].epoch, start_offset)]
        return Durability.LAZY

    def clear(self) -> Durability:
        """Forget everything: the log is to be empty."""
        if not self._entries:
            return Durability.UNCHANGED
        self._entries.clear()
        return Durability.BEFORE_ACK
