"""What interrupted work left in a partition's directory, and how it is settled.

A suffix says how far the work got. `.deleted` files were about to be removed. `.cleaned`
files were being written and are worthless. `.swap` files are complete and were about to
replace the segments in their range, which may or may not be gone already; unless a `.cleaned`
file with a lower or equal offset shows that the replacement was still being made. A `.swap`
index without its log is of a replacement that was given up, or is built anew.

Runs before anything of the partition is in use. Repeating it after a crash is harmless, as every
step is durable before the next one builds upon it.
"""

from ottla.runtime.interfaces import Disk
from ottla.storage.batch_headers import CorruptSegmentError, iter_headers
from ottla.storage.files.names import FileKind, FileState, SegmentFileName, parse_segment_file_name

_NO_OFFSET = 1 << 63


def settle_leftovers(disk: Disk, directory: str) -> list[SegmentFileName]:
    """Remove or complete what was interrupted; the live files, by name."""
    names = [name for name in map(parse_segment_file_name, disk.listdir(directory)) if name]
    if all(name.state is FileState.LIVE for name in names):
        return names
    cleaned_from = min(
        (name.offset for name in names if name.state is FileState.CLEANED), default=_NO_OFFSET
    )
    complete = {
        name.offset
        for name in names
        if name.state is FileState.SWAP and name.kind is FileKind.LOG and name.offset < cleaned_from
    }
    swaps: list[SegmentFileName] = []
    for name in names:
        if name.state is FileState.SWAP and name.offset in complete:
            swaps.append(name)
        elif name.state is not FileState.LIVE:
            disk.remove(_path(directory, name))
    live = [name for name in names if name.state is FileState.LIVE]
    if swaps:
        live = _complete_swap(disk, directory, live, swaps)
    # A name that came back later would undo what has happened since.
    disk.sync_dir(directory)
    return sorted(live, key=lambda name: (name.offset, name.kind.value))


def _complete_swap(
    disk: Disk, directory: str, live: list[SegmentFileName], swaps: list[SegmentFileName]
) -> list[SegmentFileName]:
    """Remove what the swap files replace and give them their names."""
    logs = [name for name in swaps if name.kind is FileKind.LOG]
    start = min((name.offset for name in logs), default=_NO_OFFSET)
    end = max((_next_offset(disk, directory, name) for name in logs), default=-1)
    kept = []
    for name in live:
        if start <= name.offset < end:
            disk.remove(_path(directory, name))
        else:
            kept.append(name)
    for name in sorted(swaps, key=lambda name: name.kind is FileKind.LOG):
        if name.kind is FileKind.LOG:
            # Replaced and replacement together would hold the same offsets twice.
            disk.sync_dir(directory)
        settled = name._replace(state=FileState.LIVE)
        disk.rename(_path(directory, name), _path(directory, settled))
        if settled not in kept:
            kept.append(settled)
    return kept


def _next_offset(disk: Disk, directory: str, name: SegmentFileName) -> int:
    file = disk.open(_path(directory, name), writable=False)
    next_offset = int(name.offset)
    try:
        for _, header in iter_headers(lambda: file, 0, file.size()):
            next_offset = header.next_offset
    except CorruptSegmentError:
        pass  # recovery will cut it; it replaces what it can read
    finally:
        file.close()
    return next_offset


def _path(directory: str, name: SegmentFileName) -> str:
    return f"{directory}/{name.offset:020d}{name.kind.value}{name.state.value}"
