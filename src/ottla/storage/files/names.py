"""How the files of a partition and the directories of partitions are named, both ways.

A segment's files bear its base offset in 20 digits, so that they list in order. While it is
replaced or deleted a file wears a second suffix, from which recovery tells how far that got.
A partition's directory is `topic-partition`; one that awaits deletion or is moved here wears a
unique id and a suffix as well, so that the topic may be created again at once.

Pure.
"""

from enum import Enum
from re import compile as compile_pattern
from typing import NamedTuple

from ottla.protocol.ids import Offset, TopicPartition

# Every file system in use takes names of 255 bytes; topic names are ASCII.
NAME_LENGTH_MAX = 255
OFFSET_MAX = 2**63 - 1


class FileKind(Enum):
    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class FileState(Enum):
    LIVE = ""
    DELETED = ".deleted"  # to be removed once no reader can hold it
    CLEANED = ".cleaned"  # being written; worthless after a crash
    SWAP = ".swap"  # complete, and about to take the place of what it replaces


class DirectoryState(Enum):
    LIVE = ""
    DELETE = "-delete"
    FUTURE = "-future"  # being copied from another log directory of this broker
    STRAY = "-stray"  # no longer assigned to this broker


class SegmentFileName(NamedTuple):
    offset: Offset
    kind: FileKind
    state: FileState


class PartitionDirectoryName(NamedTuple):
    topic_partition: TopicPartition  # a deleted topic's name may be cut
    state: DirectoryState


_FILE = compile_pattern(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(|\.deleted|\.cleaned|\.swap)"
)
_DIRECTORY = compile_pattern(r"(\S+)-([0-9]{1,10})")
_MARKED_DIRECTORY = compile_pattern(r"(\S+)-([0-9]{1,10})\.([^\s.]+)(-delete|-future|-stray)")
_PARTITION_MAX = 2**31 - 1


def segment_file_name(offset: Offset, kind: FileKind, state: FileState = FileState.LIVE) -> str:
    if not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"offset {offset} cannot name a file")
    return f"{offset:020d}{kind.value}{state.value}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """What a file in a partition directory is, None if it is none of a segment's."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return SegmentFileName(Offset(int(match[1])), FileKind(match[2]), FileState(match[3]))


def partition_directory_name(
    topic_partition: TopicPartition,
    state: DirectoryState = DirectoryState.LIVE,
    *,
    unique_id: str = "",
) -> str:
    """The directory's name; every state but LIVE needs `unique_id`, a UUID's 32 hex digits."""
    if state is DirectoryState.LIVE:
        return f"{topic_partition.topic}-{topic_partition.partition}"
    if not unique_id:
        raise ValueError(f"a directory marked {state.value} needs a unique id")
    suffix = f"-{topic_partition.partition}.{unique_id}{state.value}"
    if state is DirectoryState.FUTURE:
        return topic_partition.topic + suffix  # it becomes live by its name: never cut
    return topic_partition.topic[: NAME_LENGTH_MAX - len(suffix)] + suffix


def parse_partition_directory_name(name: str) -> PartitionDirectoryName | None:
    """Whose directory this is, None if it is no partition's."""
    for state in (DirectoryState.DELETE, DirectoryState.FUTURE, DirectoryState.STRAY):
        if name.endswith(state.value):
            break
    else:
        state = DirectoryState.LIVE
    pattern = _DIRECTORY if state is DirectoryState.LIVE else _MARKED_DIRECTORY
    match = pattern.fullmatch(name)
    if match is None or int(match[2]) > _PARTITION_MAX:
        return None
    return PartitionDirectoryName(TopicPartition(match[1], int(match[2])), state)
