"""What one flush of a log has to sync, prepared on the loop and performed anywhere.

A sync may take the disk a second, in which a broker of one thread would answer nobody. So
the loop collects what is to be synced, with files pinned, a thread performs it, and the loop
then moves the recovery point. Appends go on meanwhile; a truncation makes the result void,
which the generation shows.
"""

from ottla.runtime.interfaces import Disk, File
from ottla.storage.file_pool import PooledFile
from ottla.storage.segment import Segment
from ottla.storage.segment_indexes import INDEX_KINDS


class FlushJob:
    __slots__ = (
        "_disk",
        "_files",
        "_pins",
        "directories",
        "end_offset",
        "generation",
        "paths",
    )

    def __init__(self, disk: Disk, end_offset: int, generation: int) -> None:
        self._disk = disk
        self._files: list[File] = []
        self._pins: list[PooledFile] = []
        self.end_offset = end_offset
        self.generation = generation
        self.paths: list[str] = []
        self.directories: list[str] = []  # whose names changed

    def add_segment(self, segment: Segment, *, with_indexes: bool) -> None:
        """Sync this segment. The active one's indexes need not be: recovery builds them."""
        self._files.append(segment.log.pin())
        self._pins.append(segment.log)
        if with_indexes:
            self.paths += [segment.path(kind) for kind in INDEX_KINDS]

    def run(self) -> None:
        """Sync everything; the caller may be a thread. OSError ends the directory."""
        for file in self._files:
            file.sync()
        for path in self.paths:
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                continue  # never written, or deleted meanwhile with its segment
            try:
                file.sync()
            finally:
                file.close()
        for directory in self.directories:
            self._disk.sync_dir(directory)

    def release(self) -> None:
        """Give the files back; on the loop, once, whatever came of it."""
        for pin in self._pins:
            pin.release()
        self._pins = []
