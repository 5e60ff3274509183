"""The checkpoint files: short tables of text that a crash must leave old or new.

`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint` and `cleaner-offset-checkpoint` of a log directory hold lines of
"topic partition offset"; `leader-epoch-checkpoint` of a partition holds lines of
"epoch startOffset". Before them stand the version, which is 0, and the number of lines.

Pure: bytes in, bytes out. An empty file is an empty table, as Kafka creates files before it
writes them.
"""

from collections.abc import Iterable, Mapping

from ottla.protocol.ids import Epoch, Offset, TopicPartition
from ottla.storage.core.leader_epochs import EpochEntry
from ottla.storage.files.malformed import MalformedFileError, parse_int, text_of

VERSION = 0

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

_LINES_BEFORE_ENTRIES = 2


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return _encode([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    """The offsets by partition, in the order of the file."""
    offsets: dict[TopicPartition, Offset] = {}
    for line, (topic, partition, offset) in _entries(data, path, columns=3):
        topic_partition = TopicPartition(topic, parse_int(partition, path, line=line))
        offsets[topic_partition] = Offset(parse_int(offset, path, line=line))
    return offsets


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_leader_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """The entries in the order of the file."""
    return [
        EpochEntry(
            Epoch(parse_int(epoch, path, line=line)),
            Offset(parse_int(start_offset, path, line=line)),
        )
        for line, (epoch, start_offset) in _entries(data, path, columns=2)
    ]


def _encode(lines: list[str]) -> bytes:
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode("utf-8")


def _entries(data: bytes, path: str, *, columns: int) -> Iterable[tuple[int, list[str]]]:
    lines = text_of(data, path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    version = parse_int(lines[0].rstrip("\r"), path, line=1)
    if version != VERSION:
        raise MalformedFileError(path, f"version {version} is not {VERSION}", line=1)
    if len(lines) == 1:
        return []
    expected = parse_int(lines[1].rstrip("\r"), path, line=2)
    found = len(lines) - _LINES_BEFORE_ENTRIES
    if found != expected:
        raise MalformedFileError(path, f"{expected} entries announced, {found} found", line=2)
    entries = [
        (number, text.split())
        for number, text in enumerate(lines[_LINES_BEFORE_ENTRIES:], _LINES_BEFORE_ENTRIES + 1)
    ]
    for number, parts in entries:
        if len(parts) != columns:
            raise MalformedFileError(
                path, f"{columns} columns expected, {len(parts)} found", line=number
            )
    return entries
