"""The `.snapshot` files of one partition: written on roll and close, read on open.

A snapshot is a shortcut, never the truth: the log is. So it is written without waiting for
the disk, a torn one is recognised by its CRC and deleted, and a missing one costs a scan.

Owned by the PartitionLog. `offsets` mirrors the directory.
"""

from collections.abc import Iterable

from ottla.protocol.ids import Offset
from ottla.runtime.interfaces import Disk
from ottla.storage.core.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
    outside,
    strays,
)
from ottla.storage.core.producer_state import ProducerState
from ottla.storage.files.names import FileKind, FileState, segment_file_name


class ProducerSnapshotFiles:
    __slots__ = ("_directory", "_disk", "_unsynced", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self._unsynced: set[Offset] = set()
        self.offsets: set[Offset] = set(offsets)

    @property
    def latest(self) -> Offset | None:
        return max(self.offsets, default=None)

    @property
    def has_unsynced(self) -> bool:
        return bool(self._unsynced)

    def path(self, offset: Offset, state: FileState = FileState.LIVE) -> str:
        return f"{self._directory}/{segment_file_name(offset, FileKind.SNAPSHOT, state)}"

    def take(self, producers: ProducerState) -> None:
        """Write the state at its end offset, unless that snapshot exists."""
        offset = producers.end_offset
        if offset == 0 or offset in self.offsets:
            return
        file = self._disk.open(self.path(offset), create=True)
        try:
            if file.size():
                file.truncate(0)
            file.pwrite(encode_snapshot(producers.entries()), 0)
        finally:
            file.close()
        self.offsets.add(offset)
        self._unsynced.add(offset)

    def replace(self, producers: ProducerState) -> None:
        """Write the state at its end offset, whatever a snapshot there said."""
        self.offsets.discard(producers.end_offset)
        self.take(producers)

    def take_unsynced(self) -> list[str]:
        """Paths whose content is not durable yet; the caller syncs them."""
        paths = [self.path(offset) for offset in sorted(self._unsynced)]
        self._unsynced.clear()
        return paths

    def put_back_unsynced(self, paths: Iterable[str]) -> None:
        """The caller did not come to sync these after all."""
        known = set(paths)
        self._unsynced |= {offset for offset in self.offsets if self.path(offset) in known}

    def load_latest(
        self, producers: ProducerState, *, log_start_offset: int, end_offset: int, now_ms: int
    ) -> None:
        """Make `producers` what the newest sound snapshot in the range says.

        Snapshots outside the range contradict the log and are deleted. `producers.end_offset`
        says from where the log must be replayed.
        """
        for offset in outside(
            self.offsets,
            log_start_offset=Offset(log_start_offset),
            log_end_offset=Offset(end_offset),
        ):
            self.remove(offset)
        while (latest := self.latest) is not None:
            try:
                entries = decode_snapshot(self._disk.read_bytes(self.path(latest)))
            except (CorruptSnapshotError, FileNotFoundError):
                self.remove(latest)
                continue
            producers.reload(entries, latest, now_ms=now_ms)
            return
        producers.reload((), Offset(log_start_offset), now_ms=now_ms)

    def remove(self, offset: Offset) -> None:
        """Delete one snapshot at once; nobody reads them but the log itself."""
        self.offsets.discard(offset)
        self._unsynced.discard(offset)
        path = self.path(offset)
        if self._disk.exists(path):
            self._disk.remove(path)

    def remove_strays(self, segment_base_offsets: Iterable[int]) -> None:
        """Delete what belongs to no segment, but for a clean shutdown's."""
        bases = [Offset(base_offset) for base_offset in segment_base_offsets]
        for offset in strays(self.offsets, bases):
            self.remove(offset)

    def remove_all(self) -> None:
        for offset in sorted(self.offsets):
            self.remove(offset)
