"""Records from given offsets on, without a consumer group.

A librdkafka consumer looks up a group coordinator even when it is only assigned partitions, which
makes a broker create its offsets topic, and takes longer to start than a page may. Here a read is
one Fetch request per leader, with exactly the bytes that are wanted. Nothing is committed and no
group is named, so looking leaves no trace in the cluster.

A broker lets only the first partition of an answer exceed its limit: others come back empty when
their next batch is larger, or when the answer is full. Such a partition is not at its end, and who
asks must ask again (`Chunk.is_starved`).

Blocking shell: a reader owns its connections and belongs to one thread at a time. Invariant: no
answer is left unread on a connection, as the next question would take it for its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.client import (
    EARLIEST,
    LATEST,
    Client,
    ClientConfig,
    Connection,
    TopicPartition,
    Unreachable,
)
from ottla.client.errors import code_of
from ottla.client.fetch_response import (
    TOPIC_ID_VERSION,
    AbortedTransaction,
    FetchedPartition,
    parse_fetch_response,
)
from ottla.client.offsets import list_offsets
from ottla.console.records import Position, Record
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TimestampType,
    iter_records,
    read_header,
)
from ottla.protocol.errors import ErrorCode, KafkaError

# A batch may unpack to more than it weighs; a hostile one to gigabytes.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
FETCH_BYTES_MAX = 16 * 1024 * 1024
_SESSIONLESS_EPOCH = -1


class Chunk(NamedTuple):
    """What one partition answered."""

    records: list[Record]
    next_offset: int  # from where to go on
    end_offset: int  # of what may be read now: the high watermark, or the last stable offset
    is_at_end: bool
    is_starved: bool = False  # nothing came, though more is there: the answer had no room for it


class Fetched(NamedTuple):
    chunks: dict[int, Chunk]
    troubles: dict[int, KafkaError]  # partitions that could not be read now, and why


class Reader:
    """Fetches for one thread."""

    def __init__(self, config: ClientConfig) -> None:
        self._client = Client(config)

    def close(self) -> None:
        self._client.close()

    def fetch(
        self,
        topic: str,
        position: Position,
        *,
        partition_bytes: int,
        answer_bytes: int = FETCH_BYTES_MAX,
        wait_ms: int = 0,
        records_max: int | None = None,
        is_committed: bool = False,
    ) -> Fetched:
        """One answer for each partition, from its offset in `position` on, or why there is none.

        Partitions are asked for in the order of `position`: the first of each leader is never
        starved. OFFSET_OUT_OF_RANGE moves the position to where the log begins or ends now.
        """
        troubles: dict[int, KafkaError] = {}
        sent: list[tuple[Connection, int, Position]] = []
        for leader, wanted in self._by_leader(topic, position, troubles).items():
            try:
                connection = self._client.broker(leader)
                version = connection.version_of(ApiKey.FETCH, highest=TOPIC_ID_VERSION - 1)
                fields = _request(
                    topic, wanted, partition_bytes, answer_bytes, wait_ms, is_committed
                )
                connection.send(ApiKey.FETCH, fields, version=version)
            except KafkaError as error:
                troubles.update(dict.fromkeys(wanted, error))
            else:
                sent.append((connection, version, wanted))
        answers: list[FetchedPartition] = []
        for connection, version, wanted in sent:
            try:
                frame = connection.receive(extra_wait_ms=wait_ms)
                response = parse_fetch_response(version, frame.data, frame.body_start)
                if response.error_code != ErrorCode.NONE:
                    raise KafkaError(
                        code_of(response.error_code), code_of(response.error_code).name
                    )
            except KafkaError as error:
                troubles.update(dict.fromkeys(wanted, error))
                continue
            answers += [
                found
                for answered in response.topics
                if answered.topic == topic
                for found in answered.partitions
                if found.partition in wanted
            ]
        chunks: dict[int, Chunk] = {}
        for found in answers:
            try:
                chunks[found.partition] = self._chunk(
                    topic, found, position[found.partition], records_max, is_committed
                )
            except KafkaError as error:
                troubles[found.partition] = error
        for partition in position.keys() - chunks.keys() - troubles.keys():
            troubles[partition] = Unreachable("Its leader left it out of the answer.")
        if troubles:
            self._client.forget_topic(topic)
        return Fetched(chunks, troubles)

    def ends(self, topic: str, partitions: Iterable[int], *, is_committed: bool) -> Position:
        """Where the given partitions end now; those that nobody leads now are left out."""
        troubles: dict[int, KafkaError] = {}
        by_leader = self._by_leader(topic, dict.fromkeys(partitions, 0), troubles)
        ends: Position = {}
        for wanted in by_leader.values():
            try:
                ends.update(self._offsets(topic, wanted, LATEST, is_committed=is_committed))
            except KafkaError as error:
                troubles.update(dict.fromkeys(wanted, error))
        if troubles:
            self._client.forget_topic(topic)
        return ends

    def _by_leader(
        self, topic: str, position: Position, troubles: dict[int, KafkaError]
    ) -> dict[int, Position]:
        by_leader: dict[int, Position] = defaultdict(dict)
        for partition, offset in position.items():
            try:
                by_leader[self._client.leader(topic, partition)][partition] = offset
            except KafkaError as error:
                troubles[partition] = error
                if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                    # Whom to ask about the others cannot be found out either.
                    troubles.update(dict.fromkeys(position, error))
                    return {}
        return by_leader

    def _offsets(
        self, topic: str, partitions: Iterable[int], at: int, *, is_committed: bool
    ) -> Position:
        wanted = {TopicPartition(topic, partition): at for partition in partitions}
        found = list_offsets(self._client, wanted, is_read_committed=is_committed, timeout_ms=0)
        return {key.partition: answer.offset for key, answer in found.items()}

    def _chunk(
        self,
        topic: str,
        answer: FetchedPartition,
        offset: int,
        records_max: int | None,
        is_committed: bool,
    ) -> Chunk:
        code = code_of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._within_range(topic, answer.partition, offset)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, code.name)
        records: list[Record] = []
        next_offset = offset
        for record, following in read_batches(answer, offset):
            if record is not None:
                if records_max is not None and len(records) >= records_max:
                    break
                records.append(record)
            next_offset = following
        end = answer.last_stable_offset if is_committed else answer.high_watermark
        is_at_end = next_offset >= end
        is_starved = next_offset == offset and not is_at_end
        return Chunk(records, next_offset, end, is_at_end, is_starved)

    def _within_range(self, topic: str, partition: int, offset: int) -> Chunk:
        """Where the log begins or ends now; Kafka tells no offsets with its error."""
        start = self._offsets(topic, [partition], EARLIEST, is_committed=False)[partition]
        end = self._offsets(topic, [partition], LATEST, is_committed=False)[partition]
        moved = min(max(offset, start), end)
        return Chunk([], moved, end, moved == end)


def _request(
    topic: str,
    position: Position,
    partition_bytes: int,
    answer_bytes: int,
    wait_ms: int,
    is_committed: bool,
) -> Mapping[str, object]:
    partitions = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes,
        }
        for partition, offset in position.items()
    ]
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": answer_bytes,
        "isolation_level": int(is_committed),
        "session_id": 0,
        "session_epoch": _SESSIONLESS_EPOCH,
        "topics": [{"topic": topic, "partitions": partitions}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def read_batches(answer: FetchedPartition, offset: int) -> Iterator[tuple[Record | None, int]]:
    """Each record from `offset` on, with the offset after it; None where a batch has none to show.

    Batches of aborted transactions are passed over where the broker listed them, which it does
    for those who read committed records only. Markers are never shown.
    """
    aborted = _Aborted(answer.aborted_transactions)
    view = answer.records
    position = 0
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        end = position + LOG_OVERHEAD_BYTES + header.batch_length
        if end > len(view):
            return
        batch = view[position:end]
        position = end
        if header.is_control:
            aborted.on_marker(header.producer_id)
        elif not aborted.hides(header.producer_id, header.last_offset, header.is_transactional):
            is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            epoch = header.partition_leader_epoch
            for raw in iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                if raw.offset < offset:
                    continue
                headers = tuple(
                    (name.decode(errors="replace") if isinstance(name, bytes) else name, value)
                    for name, value in raw.headers
                )
                record = Record(
                    answer.partition,
                    raw.offset,
                    header.max_timestamp if is_append_time else raw.timestamp_ms,
                    is_append_time,
                    raw.key,
                    raw.value,
                    headers,
                    epoch,
                )
                yield record, raw.offset + 1
        if header.next_offset > offset:
            yield None, header.next_offset


class _Aborted:
    """Which transactional batches belong to aborted transactions, as they are passed in order."""

    def __init__(self, listed: tuple[AbortedTransaction, ...]) -> None:
        self._coming = sorted(listed, key=lambda transaction: transaction.first_offset)
        self._open: set[int] = set()

    def hides(self, producer_id: int, last_offset: int, is_transactional: bool) -> bool:
        while self._coming and self._coming[0].first_offset <= last_offset:
            self._open.add(self._coming.pop(0).producer_id)
        return is_transactional and producer_id in self._open

    def on_marker(self, producer_id: int) -> None:
        self._open.discard(producer_id)
