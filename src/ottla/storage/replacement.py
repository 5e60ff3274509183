"""Putting a cleaned segment in the place of those it was made of, so that a crash is harmless.

Its files are complete and durable when this begins, under the suffix `.cleaned`. They become
`.swap`; the files that they replace become `.deleted`, and the suffix is taken off the new index
files; then off the log file. A file system may lose any of these renames in a power cut and
keep later ones, so each of the three steps is made durable before the next: otherwise both the
old and the new could be gone, or both be there. What recovery makes of each state is in
`leftovers`: before the first sync the old segments count, after it the new one.

Renames are quick and happen on the event loop, between two requests; a directory is synced
in a thread meanwhile. The log serves from the old segments until they are renamed, and from then
on from the new one, whatever its files are called.

Owned by the PartitionLog. `settle` is for those who cannot wait, as a truncation must not be
undone by a `.swap` file that it did not know of.
"""

from collections.abc import Sequence
from enum import Enum, auto

from ottla.runtime.interfaces import Disk
from ottla.storage.files.names import FileKind, FileState
from ottla.storage.segment import Segment
from ottla.storage.segment_indexes import INDEX_KINDS


class Stage(Enum):
    SWAP = auto()  # the files are `.swap`; the old segments serve
    ADOPTED = auto()  # the old files are `.deleted`; the new segment serves
    SETTLED = auto()


class Replacement:
    __slots__ = ("_directory", "_disk", "replaced", "segment", "stage")

    def __init__(
        self, disk: Disk, directory: str, replaced: Sequence[Segment], segment: Segment
    ) -> None:
        """`segment` is in the state `.swap`; its files are still `.cleaned`."""
        self._disk = disk
        self._directory = directory
        self.replaced = list(replaced)
        self.segment = segment
        # The log first: recovery takes index files without it for worthless.
        for kind in (FileKind.LOG, *INDEX_KINDS):
            cleaned = segment.path(kind, FileState.CLEANED)
            if disk.exists(cleaned):
                disk.rename(cleaned, segment.path(kind, FileState.SWAP))
        self.stage = Stage.SWAP

    def concerns(self, segments: Sequence[Segment]) -> bool:
        """Whether one of these is being replaced, or replaces."""
        return any(one is self.segment or one in self.replaced for one in segments)

    def name_log(self) -> None:
        """The old names are durably gone: take the suffix off the log file."""
        self.segment.rename_log(FileState.LIVE)
        self.stage = Stage.SETTLED

    def settle(self) -> None:
        """Undo it where the old segments still serve, complete it where they do not."""
        if self.stage is Stage.SWAP:
            for kind in (FileKind.LOG, *INDEX_KINDS):
                path = self.segment.path(kind, FileState.SWAP)
                if self._disk.exists(path):
                    self._disk.remove(path)
            self._disk.sync_dir(self._directory)
            self.segment.log.retire()
        if self.stage is Stage.ADOPTED:
            self._disk.sync_dir(self._directory)
            self.name_log()
            self._disk.sync_dir(self._directory)
        self.stage = Stage.SETTLED
