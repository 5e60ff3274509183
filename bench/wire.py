"""The few requests that a measurement needs before any client library is loaded.

Timing "exec to first acknowledged record" with a client library would measure the
library: its back-off, its metadata cache, its own start. So this module writes frames by
hand, in the newest versions that are not flexible, and reads the answers to them. It is
also the neutral judge in the suites: it shares no code with Ottla nor with a client.

Blocking sockets, one connection, no retries: callers decide how often to ask again.
"""

import binascii
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

PRODUCE, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS = 19, 20

NONE = 0
TOPIC_ALREADY_EXISTS = 36
# Metadata may name a leader a moment before that broker knows of it.
LEADER_NOT_READY = (3, 5, 6)
LEADER_READY_S_MAX = 30.0

# The body of a Metadata request of version 4 for every topic, none of them to be created.
METADATA_VERSION = 4
ALL_TOPICS = struct.pack(">i?", -1, False)

FRAME_BYTES_MAX = 64 << 20  # Metadata of 10,000 partitions is under 1 MB.

_CRC32C_POLYNOMIAL = 0x82F63B78


class WireError(Exception):
    """The broker answered with an error code, or not in the way the protocol says."""

    def __init__(self, what: str, error_code: int = -1) -> None:
        super().__init__(f"{what}: error {error_code}")
        self.error_code = error_code


class TopicPartitions(NamedTuple):
    name: str
    leaders: tuple[int, ...]  # -1 where a partition has none


class Reader:
    """A cursor over one response."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, form: str, size: int) -> int:
        value: int = struct.unpack_from(form, self._data, self._position)[0]
        self._position += size
        return value

    def int8(self) -> int:
        return self._take(">b", 1)

    def int16(self) -> int:
        return self._take(">h", 2)

    def int32(self) -> int:
        return self._take(">i", 4)

    def int64(self) -> int:
        return self._take(">q", 8)

    def string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        self._position += length
        return self._data[self._position - length : self._position].decode()


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


def crc32c(data: bytes) -> int:
    """CRC-32C, slow and without a dependency: batches here are a hundred bytes."""
    table = _crc32c_table()
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """One batch of format v2 with one record that has no key and no headers."""
    body = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    record = _varint(len(body)) + body
    times = (timestamp_ms, timestamp_ms)
    after_crc = struct.pack(">hiqqqhii", 0, 0, *times, -1, -1, -1, 1) + record
    head = struct.pack(">qiibI", 0, len(after_crc) + 9, -1, 2, crc32c(after_crc))
    return head + after_crc


class Connection:
    """One connection that asks one question at a time."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, api_version: int, body: bytes) -> Reader:
        """Send one request with header v1 and return a reader placed at the response's body."""
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, api_version, self._correlation_id)
        frame = header + _string("ottla-bench") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read_exactly(4))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise WireError(f"a response announces {size} bytes")
        reader = Reader(self._read_exactly(size))
        if reader.int32() != self._correlation_id:
            raise WireError("the response carries another correlation id")
        return reader

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return bytes(data)

    def api_versions(self) -> dict[int, tuple[int, int]]:
        reader = self.ask(API_VERSIONS, 0, b"")
        error_code = reader.int16()
        if error_code != NONE:
            raise WireError("ApiVersions", error_code)
        keys = [(reader.int16(), reader.int16(), reader.int16()) for _ in range(reader.int32())]
        return {key: (low, high) for key, low, high in keys}

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Sequence[tuple[str, str]] = (),
        timeout_ms: int = 30_000,
        exist_ok: bool = True,
    ) -> None:
        body = struct.pack(">i", 1) + _string(name) + struct.pack(">ihi", partitions, 1, 0)
        body += struct.pack(">i", len(configs))
        for key, value in configs:
            body += _string(key) + _string(value)
        reader = self.ask(CREATE_TOPICS, 4, body + struct.pack(">i?", timeout_ms, False))
        reader.int32()
        reader.int32()
        reader.string()
        error_code = reader.int16()
        if error_code != NONE and not (exist_ok and error_code == TOPIC_ALREADY_EXISTS):
            raise WireError(f"CreateTopics of {name}: {reader.string()}", error_code)

    def delete_topic(self, name: str, *, timeout_ms: int = 30_000) -> None:
        body = struct.pack(">i", 1) + _string(name) + struct.pack(">i", timeout_ms)
        reader = self.ask(DELETE_TOPICS, 3, body)
        reader.int32(), reader.int32(), reader.string()
        error_code = reader.int16()
        if error_code != NONE:
            raise WireError(f"DeleteTopics of {name}", error_code)

    def topics(self, names: Sequence[str] | None = None) -> list[TopicPartitions]:
        """What Metadata says of these topics, or of all of them."""
        body = struct.pack(">i", -1 if names is None else len(names))
        body += b"".join(_string(name) for name in names or ())
        reader = self.ask(METADATA, METADATA_VERSION, body + b"\0")
        reader.int32()
        for _ in range(reader.int32()):  # brokers
            reader.int32(), reader.string(), reader.int32(), reader.string()
        reader.string(), reader.int32()  # cluster id, controller
        found = []
        for _ in range(reader.int32()):
            error_code, name = reader.int16(), reader.string() or ""
            reader.int8()
            leaders = dict(self._partition(reader) for _ in range(reader.int32()))
            if error_code == NONE:
                ordered = tuple(leaders[index] for index in sorted(leaders))
                found.append(TopicPartitions(name, ordered))
        return found

    @staticmethod
    def _partition(reader: Reader) -> tuple[int, int]:
        reader.int16()
        index, leader = reader.int32(), reader.int32()
        for _ in range(2):  # replicas, ISR
            for _ in range(reader.int32()):
                reader.int32()
        return index, leader

    def produce(
        self,
        topic: str,
        value: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        timestamp_ms: int | None = None,
    ) -> int:
        """Append one record, created now unless told otherwise, and return its offset."""
        batch = record_batch(value, timestamp_ms or int(time.time() * 1000))
        body = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        reader = self.ask(PRODUCE, 7, body)
        reader.int32(), reader.string(), reader.int32(), reader.int32()
        error_code = reader.int16()
        if error_code != NONE:
            raise WireError(f"Produce to {topic}-{partition}", error_code)
        return reader.int64()

    def fill(self, topic: str, values: Sequence[bytes], *, partition: int = 0) -> list[int]:
        """Append records one by one, waiting for a leader that was elected just now.

        Each is a millisecond younger than the one before, so that times tell them apart.
        """
        first_ms = int(time.time() * 1000)
        offsets: list[int] = []
        deadline = time.monotonic() + LEADER_READY_S_MAX
        while len(offsets) < len(values):
            try:
                index = len(offsets)
                offset = self.produce(
                    topic, values[index], partition=partition, timestamp_ms=first_ms + index
                )
                offsets.append(offset)
            except WireError as error:
                if error.error_code not in LEADER_NOT_READY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        return offsets

    def end_offset(self, topic: str, *, partition: int = 0) -> int:
        body = struct.pack(">ibi", -1, 0, 1) + _string(topic)
        reader = self.ask(LIST_OFFSETS, 2, body + struct.pack(">iiq", 1, partition, -1))
        reader.int32(), reader.int32(), reader.string(), reader.int32(), reader.int32()
        error_code = reader.int16()
        if error_code != NONE:
            raise WireError(f"ListOffsets of {topic}-{partition}", error_code)
        reader.int64()
        return reader.int64()


def first_acknowledged(address: tuple[str, int], topic: str, *, deadline: float) -> float:
    """Ask until a record is acknowledged by all in-sync replicas; return the monotonic time of it.

    A broker that starts refuses connections, then answers that it has no leader, no replicas
    or no controller yet. Each of these means "ask again"; the deadline says when to give up.
    """
    last: Exception = TimeoutError("never connected")
    created = False
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            with Connection(address, timeout_s=max(0.1, left_s)) as connection:
                while time.monotonic() < deadline:
                    try:
                        if not created:
                            connection.create_topic(topic, timeout_ms=5_000)
                            created = True
                        connection.produce(topic, binascii.hexlify(b"first"))
                        return time.monotonic()
                    except WireError as error:
                        last = error
                        time.sleep(0.005)
        except (OSError, struct.error) as error:
            last = error
            time.sleep(0.005)
    raise TimeoutError(f"{address[0]}:{address[1]} acknowledged nothing: {last}")
