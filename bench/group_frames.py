"""The frames of simulated group members: heartbeats of KIP-848, classic joins, offset commits.

Written by hand, with what a member does not say left out, so that the generator spends less than
the broker it loads. Pure: bytes in, bytes out. One version of each API, which Apache Kafka 4.3 and
Ottla both speak.
"""

from dataclasses import dataclass
from struct import Struct, pack, unpack_from

OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_HEARTBEAT = 8, 11, 12, 14, 68
COMMIT_VERSION, JOIN_VERSION, SYNC_VERSION, CONSUMER_HEARTBEAT_VERSION = 9, 9, 5, 1
HEARTBEAT_VERSION = 4
JOINING_EPOCH, LEAVING_EPOCH = 0, -1
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000
NULL = b"\0"

_HEAD = Struct(">ihhi")
Place = tuple[bytes, int]  # topic id and partition


@dataclass(frozen=True, slots=True)
class Beat:
    """What a broker answers to a heartbeat."""

    error_code: int
    member_epoch: int
    interval_ms: int
    assigned: frozenset[Place] | None


@dataclass(frozen=True, slots=True)
class Joined:
    """What a broker answers to a classic join; members only for the leader."""

    error_code: int
    generation: int
    leader: str
    member_id: str
    members: tuple[str, ...]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(data: bytes) -> bytes:
    return varint(len(data) + 1) + data


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A whole request of a flexible version, its length included; the client id is `bench`."""
    head = b"\0\x05bench\0"
    return _HEAD.pack(8 + len(head) + len(body), api_key, version, 1) + head + body


def consumer_heartbeat(
    group: str,
    member_id: str,
    epoch: int,
    *,
    topic: str | None = None,
    owned: frozenset[Place] | None = None,
) -> bytes:
    """ConsumerGroupHeartbeat: everything when joining, else only what has changed."""
    is_joining = epoch == JOINING_EPOCH
    names = NULL if topic is None else varint(2) + compact(topic.encode())
    places = NULL if owned is None else _topic_partitions(owned)
    body = b"".join(
        (
            compact(group.encode()),
            compact(member_id.encode()),
            pack(">i", epoch),
            NULL + NULL,  # instance id, rack
            pack(">i", REBALANCE_TIMEOUT_MS if is_joining else -1),
            names,
            NULL + NULL,  # regex, assignor
            places,
            NULL,  # no tagged fields
        )
    )
    return frame(CONSUMER_HEARTBEAT, CONSUMER_HEARTBEAT_VERSION, body)


def _topic_partitions(owned: frozenset[Place]) -> bytes:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    parts = [varint(len(by_topic) + 1)]
    for topic_id, numbers in by_topic.items():
        parts.append(topic_id + varint(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers))
        parts.append(NULL)
    return b"".join(parts)


class Cursor:
    """Reads a response from its header on."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def number(self, form: str, size: int) -> int:
        (value,) = unpack_from(form, self.data, self.position)
        self.position += size
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes(self) -> bytes:
        size = self.varint() - 1
        start = self.position
        self.position += max(0, size)
        return self.data[start : self.position]

    def text(self) -> str:
        return self.bytes().decode()

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.position += self.varint()


def read_beat(data: bytes) -> Beat:
    """ConsumerGroupHeartbeat's answer, from its correlation id on."""
    cursor = Cursor(data, 4)
    cursor.tags()
    cursor.number(">i", 4)  # throttle time
    error_code = cursor.number(">h", 2)
    cursor.bytes()  # error message
    cursor.bytes()  # member id
    epoch, interval_ms = cursor.number(">i", 4), cursor.number(">i", 4)
    if cursor.number(">b", 1) < 0:
        return Beat(error_code, epoch, interval_ms, None)
    assigned = set()
    for _ in range(cursor.varint() - 1):
        topic_id = cursor.data[cursor.position : cursor.position + 16]
        cursor.position += 16
        for _ in range(cursor.varint() - 1):
            assigned.add((topic_id, cursor.number(">i", 4)))
        cursor.tags()
    return Beat(error_code, epoch, interval_ms, frozenset(assigned))


def offset_commit(
    group: str, member_id: str, epoch: int, topic: str, partition: int, offset: int
) -> bytes:
    """OffsetCommit of one partition."""
    one = pack(">iqi", partition, offset, -1) + NULL + NULL
    body = b"".join(
        (
            compact(group.encode()),
            pack(">i", epoch),
            compact(member_id.encode()),
            NULL,  # instance id
            varint(2) + compact(topic.encode()) + varint(2) + one + NULL,
            NULL,
        )
    )
    return frame(OFFSET_COMMIT, COMMIT_VERSION, body)


def commit_error(data: bytes) -> int:
    """The error code of the one partition in OffsetCommit's answer."""
    cursor = Cursor(data, 4)
    cursor.tags()
    cursor.number(">i", 4)
    cursor.varint()
    cursor.bytes()
    cursor.varint()
    cursor.number(">i", 4)
    return cursor.number(">h", 2)


def join_group(group: str, member_id: str, metadata: bytes) -> bytes:
    """A classic join with one protocol, `range`."""
    body = b"".join(
        (
            compact(group.encode()),
            pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS),
            compact(member_id.encode()),
            NULL,
            compact(b"consumer"),
            varint(2) + compact(b"range") + compact(metadata) + NULL,
            NULL,  # reason
            NULL,
        )
    )
    return frame(JOIN_GROUP, JOIN_VERSION, body)


def read_joined(data: bytes) -> Joined:
    cursor = Cursor(data, 4)
    cursor.tags()
    cursor.number(">i", 4)
    error_code, generation = cursor.number(">h", 2), cursor.number(">i", 4)
    cursor.bytes()  # protocol type
    cursor.bytes()  # protocol name
    leader = cursor.text()
    cursor.number(">b", 1)  # whether the leader may skip the assignment
    member_id = cursor.text()
    members = []
    for _ in range(cursor.varint() - 1):
        members.append(cursor.text())
        cursor.bytes()  # instance id
        cursor.bytes()  # metadata
        cursor.tags()
    return Joined(error_code, generation, leader, member_id, tuple(members))


def sync_group(group: str, member_id: str, generation: int, assignments: dict[str, bytes]) -> bytes:
    parts = [
        compact(name.encode()) + compact(assignment) + NULL
        for name, assignment in assignments.items()
    ]
    body = b"".join(
        (
            compact(group.encode()),
            pack(">i", generation),
            compact(member_id.encode()),
            NULL,
            compact(b"consumer"),
            compact(b"range"),
            varint(len(parts) + 1),
            *parts,
            NULL,
        )
    )
    return frame(SYNC_GROUP, SYNC_VERSION, body)


def read_synced(data: bytes) -> tuple[int, bytes]:
    """The error code and the assignment."""
    cursor = Cursor(data, 4)
    cursor.tags()
    cursor.number(">i", 4)
    error_code = cursor.number(">h", 2)
    cursor.bytes()
    cursor.bytes()
    return error_code, cursor.bytes()


def heartbeat(group: str, member_id: str, generation: int) -> bytes:
    body = compact(group.encode()) + pack(">i", generation) + compact(member_id.encode())
    return frame(HEARTBEAT, HEARTBEAT_VERSION, body + NULL + NULL)


def heartbeat_error(data: bytes) -> int:
    cursor = Cursor(data, 4)
    cursor.tags()
    cursor.number(">i", 4)
    return cursor.number(">h", 2)
