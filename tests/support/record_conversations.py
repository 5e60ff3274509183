"""What producers and consumers say to a broker: records, offsets, epochs, sessions."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    ControlType,
    Record,
    build_batch,
    control_batch,
    write_crc,
)
from ottla.protocol.codecs import Codec
from support.conversations import Talk

NOBODY = UUID(int=77)
EARLY_MS = 1_000_000  # records of known age; nothing is deleted for its age
RECORD_COUNT_AT = HEADER_BYTES - 4
SEQUENCE_MAX = (1 << 31) - 1


def batch(
    *values: bytes | None,
    at_ms: int | None = None,
    key: bytes | None = b"key",
    **more: Any,
) -> bytearray:
    stamp = int(time.time() * 1000) if at_ms is None else at_ms
    records = [Record(number, stamp + number, key, value) for number, value in enumerate(values)]
    return build_batch(records, **more)


GOOD = bytes(batch(b"one", b"two", at_ms=EARLY_MS))


def produce_fields(
    name: str | None,
    topic_id: UUID | None,
    *partitions: tuple[int, bytes | None],
    acks: int = -1,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [
            {
                "name": name,
                "topic_id": topic_id,
                "partition_data": [
                    {"index": index, "records": None if records is None else bytes(records)}
                    for index, records in partitions
                ],
            }
        ],
    }


class Producer:
    """Asks Produce in one version, about one topic unless told otherwise."""

    def __init__(self, talk: Talk, version: int, topic: str, topic_id: UUID) -> None:
        self._talk = talk
        self._version = version
        self._topic = talk.name(topic)
        self._topic_id = topic_id

    def __call__(
        self, records: bytes | None, partition: int = 0, acks: int = -1, **more: Any
    ) -> Any:
        return self.many((partition, records), acks=acks, **more)

    def many(self, *partitions: tuple[int, bytes | None], **more: Any) -> Any:
        fields = produce_fields(self._topic, self._topic_id, *partitions, **more)
        return self._talk.ask(ApiKey.PRODUCE, self._version, **fields)

    def without_answer(self, records: bytes | None, partition: int = 0) -> None:
        """With acks 0 there is no answer; whoever erred is hung up on."""
        fields = produce_fields(self._topic, self._topic_id, (partition, records), acks=0)
        self._talk.send(ApiKey.PRODUCE, self._version, **fields)
        self._talk.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[4])


def changed(records: bytearray, at: int, value: bytes, *, renew_crc: bool = True) -> bytearray:
    records[at : at + len(value)] = value
    if renew_crc:
        write_crc(records, 0)
    return records


def produce(talk: Talk, version: int) -> None:
    """Good and bad batches to a plain topic, and where they went.

    Null records are not among them: Apache Kafka 4.3.1 never answers.
    """
    topic_id = talk.topic("p", 2)
    ask = Producer(talk, version, "p", topic_id)
    ask(batch(b"one", b"two"))
    ask(batch(b"one"), acks=1)
    ask.without_answer(batch(b"zero"))
    ask.without_answer(batch(b"zero"), partition=9)
    for acks in (2, -2):
        ask(batch(b"one"), acks=acks)
    ask(batch(b"one"), partition=9)
    ask(batch(b"one"), partition=-1)
    ask.many((0, batch(b"one")), (1, batch(b"two", b"three")), (9, batch(b"four")))
    stranger = produce_fields(talk.name("none"), NOBODY, (0, batch(b"one")))
    talk.ask(ApiKey.PRODUCE, version, **stranger)
    talk.ask(ApiKey.PRODUCE, version, **produce_fields("", None, (0, batch(b"one"))))
    talk.ask(ApiKey.PRODUCE, version, **produce_fields("bad name", None, (0, batch(b"one"))))
    talk.ask(ApiKey.PRODUCE, version, **{**stranger, "topic_data": []})
    ask(b"")
    ask(b"\0" * 10)
    for codec in Codec:
        ask(batch(b"one", b"two", b"three", codec=codec))
    _produce_broken(ask)
    _produce_timed(ask)
    look_at_log(talk, talk.name("p"))


def _produce_broken(ask: Producer) -> None:
    ask(changed(batch(b"one"), CRC_AT, b"\1\2\3\4", renew_crc=False))
    for magic in (b"\0", b"\1", b"\3"):
        ask(changed(batch(b"one"), MAGIC_AT, magic))
    for count in (0, 1, 3, -1):
        ask(changed(batch(b"one", b"two"), RECORD_COUNT_AT, count.to_bytes(4, "big", signed=True)))
    for delta in (0, 5, -1):
        value = delta.to_bytes(4, "big", signed=True)
        ask(changed(batch(b"one", b"two"), LAST_OFFSET_DELTA_AT, value))
    ask(changed(batch(b"one"), LENGTH_AT, b"\x7f\0\0\0", renew_crc=False))
    ask(changed(batch(b"one"), LENGTH_AT, b"\0\0\0\1", renew_crc=False))
    ask(batch(b"one")[:-3])
    ask(batch(b"one") + b"tail")
    ask(batch())
    ask(batch(b"one") + batch(b"two"))
    ask(batch(b"one", is_control=True))
    ask(batch(b"one", is_transactional=True))
    transactional = {"is_transactional": True, "producer_id": 4, "producer_epoch": 0}
    ask(batch(b"one", **transactional, base_sequence=0))
    ask(
        control_batch(
            ControlType.COMMIT,
            producer_id=4,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=EARLY_MS,
        )
    )
    ask(changed(batch(b"one"), ATTRIBUTES_AT, b"\0\x08"))  # says that it has log append time
    ask(changed(batch(b"one"), ATTRIBUTES_AT, b"\x01\x00"))  # an attribute that nobody knows
    ask(batch(b"one", base_offset=0, leader_epoch=7))
    ask(batch(b"x" * 1_100_000))
    ask(batch(b"x" * 1_100_000, codec=Codec.GZIP))
    ask(batch(b"one", key=None))
    ask(batch(None, key=None))


def _produce_timed(ask: Producer) -> None:
    now_ms = int(time.time() * 1000)
    for at_ms in (EARLY_MS, 0, -1, -2, now_ms + 7_200_000, now_ms + 1_800_000):
        ask(batch(b"one", at_ms=at_ms))
        ask(batch(b"one", b"two", at_ms=at_ms, codec=Codec.LZ4))


def produce_to_special_topics(talk: Talk, version: int) -> None:
    compacted = Producer(talk, version, "c", talk.topic("c", 1, {"cleanup.policy": "compact"}))
    for codec in (Codec.NONE, Codec.ZSTD):
        compacted(batch(b"one", b"two", key=None, codec=codec))
        compacted(batch(b"one", codec=codec))
        compacted(batch(b"one", key=b"", codec=codec))
    stamped = Producer(
        talk, version, "s", talk.topic("s", 1, {"message.timestamp.type": "LogAppendTime"})
    )
    for codec in (Codec.NONE, Codec.SNAPPY):
        stamped(batch(b"one", b"two", codec=codec))
        stamped(batch(b"one", at_ms=-1, codec=codec))
        stamped(changed(batch(b"one"), ATTRIBUTES_AT, b"\0\x08"))
        stamped(batch(b"one", at_ms=int(time.time() * 1000) + 7_200_000, codec=codec))
    bounds = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
    bounded = Producer(talk, version, "b", talk.topic("b", 1, bounds))
    for codec in (Codec.NONE, Codec.GZIP):
        for at_ms in (None, EARLY_MS, int(time.time() * 1000) + 100_000, -1):
            bounded(batch(b"one", b"two", at_ms=at_ms, codec=codec))
    squeezed = Producer(talk, version, "z", talk.topic("z", 1, {"compression.type": "zstd"}))
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        squeezed(batch(b"one", b"two", codec=codec))
    small = Producer(talk, version, "m", talk.topic("m", 1, {"max.message.bytes": "200"}))
    small(batch(b"x" * 300))
    small(batch(b"x" * 3000, codec=Codec.GZIP))
    small(batch(b"x" * 100))
    small(batch(b"x" * 100) + batch(b"y" * 100))
    tiny = Producer(
        talk,
        version,
        "g",
        talk.topic("g", 1, {"segment.bytes": "1048576", "max.message.bytes": "3000000"}),
    )
    tiny(batch(b"x" * 1_048_576))
    tiny(batch(b"x" * 1_000_000))
    lonely = Producer(talk, version, "l", talk.topic("l", 1, {"min.insync.replicas": "2"}))
    for acks in (-1, 1):
        lonely(batch(b"one"), acks=acks)
    for name in "csbmgl":
        look_at_log(talk, talk.name(name))


def produce_idempotently(talk: Talk, version: int) -> None:
    topic_id = talk.topic("i", 3)
    ask = Producer(talk, version, "i", topic_id)

    def send(sequence: int, *values: bytes, epoch: int = 0, who: int = 1000, at: int = 0) -> None:
        ask(
            batch(
                *(values or (b"one",)),
                producer_id=who,
                producer_epoch=epoch,
                base_sequence=sequence,
                at_ms=EARLY_MS,
            ),
            at,
        )

    send(0, b"one", b"two")
    send(0, b"one", b"two")
    send(0, b"one")
    send(1)
    send(2)
    send(5)
    send(2)
    for sequence in range(3, 9):
        send(sequence)
    send(0, b"one", b"two")
    send(3)
    send(4)
    send(5, epoch=1)
    send(0, epoch=1)
    send(0, epoch=0)
    send(1, epoch=0)
    send(1, epoch=2)
    send(0, epoch=2)
    send(7, who=1001)
    send(8, who=1001)
    send(7, who=1001)
    send(-1, who=1002)
    send(0, who=1002, epoch=-1)
    send(0, who=-1, epoch=0)
    send(-1, who=-1, epoch=-1)
    send(SEQUENCE_MAX - 1, b"one", b"two", b"three", who=1003, at=1)
    send(1, who=1003, at=1)
    send(2, who=1003, at=1)
    send(SEQUENCE_MAX - 1, b"one", b"two", b"three", who=1003, at=1)
    two = [
        batch(b"one", producer_id=1004, producer_epoch=0, base_sequence=number, at_ms=EARLY_MS)
        for number in (0, 1)
    ]
    ask(two[0] + two[1], 2)
    ask(two[0], 2)
    ask(two[1], 2)

    fields = {"topics": [{"name": talk.name("i"), "partition_indexes": [0, 1, 2, 9]}]}
    talk.ask(ApiKey.DESCRIBE_PRODUCERS, 0, **fields)
    nowhere = {"topics": [{"name": talk.name("none"), "partition_indexes": [0]}]}
    talk.ask(ApiKey.DESCRIBE_PRODUCERS, 0, **nowhere)
    bad = {"topics": [{"name": "bad name", "partition_indexes": [0]}]}
    talk.ask(ApiKey.DESCRIBE_PRODUCERS, 0, **bad)
    look_at_log(talk, talk.name("i"))


def look_at_log(talk: Talk, topic: str) -> None:
    """Where the log ends and what lies in it, however it came there."""
    offsets = [{"partition_index": 0, "timestamp": timestamp} for timestamp in (-2, -1)]
    for one in offsets:
        topics = [{"name": topic, "partitions": [one]}]
        talk.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
    fields = fetch_fields([(topic, None, [0])], partition_bytes=10_000_000)
    talk.ask(ApiKey.FETCH, 12, **fields)


def init_producers(talk: Talk, version: int) -> None:
    def ask(**more: Any) -> Any:
        fields = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            **more,
        }
        return talk.ask(ApiKey.INIT_PRODUCER_ID, version, **fields)

    _await_producer_ids(talk)
    ask()
    ask(transaction_timeout=-1)
    ask(transaction_timeout=0)
    ask(transactional_id="")
    if version >= 3:
        ask(producer_id=5, producer_epoch=0)
        ask(producer_id=5, producer_epoch=-1)
        ask(producer_id=-1, producer_epoch=3)
        ask(producer_id=5, producer_epoch=32767)


def _await_producer_ids(talk: Talk) -> None:
    """Kafka fetches its first block of ids when it is first asked for one."""
    deadline = time.monotonic() + 30
    fields = {"transactional_id": None, "transaction_timeout": 60_000}
    while talk.quietly(ApiKey.INIT_PRODUCER_ID, 4, **fields).error_code != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # a poll: the protocol has no way to be told


def fill(talk: Talk, name: str, partitions: int = 1, batches: int = 3) -> UUID:
    """A topic whose first partition has batches of two records, 100 ms apart, of EARLY_MS on."""
    topic_id = talk.topic(name, partitions)
    for number in range(batches):
        records = batch(b"one", b"two", at_ms=EARLY_MS + 100 * number)
        fields = produce_fields(talk.name(name), None, (0, records))
        answer = talk.quietly(ApiKey.PRODUCE, 9, **fields)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return topic_id


def list_offsets(talk: Talk, version: int) -> None:
    fill(talk, "o", 2)
    topic = talk.name("o")

    def ask(*partitions: Any, name: str = topic, isolation: int = 0, replica: int = -1) -> None:
        asked = [
            {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
            for index, timestamp, epoch in partitions
        ]
        talk.ask(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=replica,
            isolation_level=isolation,
            topics=[{"name": name, "partitions": asked}],
            timeout=1_000,
        )

    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0):
        for isolation in (0, 1) if version >= 2 else (0,):
            ask((0, timestamp, -1), (1, timestamp, -1), isolation=isolation)
    for after in (-1, 0, 1, 2, 100, 101, 150, 201, 202, 10_000):
        ask((0, EARLY_MS + after, -1))
    ask((9, -1, -1), (0, -1, -1), (-1, -2, -1))
    ask((0, -1, -1), name=talk.name("none"))
    ask((0, -1, -1), name="bad name")
    ask((0, -1, -1), (0, -2, -1))
    ask((0, -1, -1), (0, -1, -1), (1, -1, -1))
    ask((0, -1, -1), replica=5)
    ask((0, -1, -1), replica=-2)
    if version >= 4:
        for epoch in (0, 1, 99, -2):
            ask((0, -1, epoch), (1, -1, epoch))
    talk.ask(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[], timeout=1_000)
    trim = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}]
    talk.ask(ApiKey.DELETE_RECORDS, 2, topics=trim, timeout=10_000)
    for timestamp in (-1, -2, -3, 0, EARLY_MS, EARLY_MS + 101):
        ask((0, timestamp, -1))


def offsets_for_epochs(talk: Talk, version: int) -> None:
    fill(talk, "e", 2)

    def ask(*partitions: tuple[int, int, int], name: str, replica: int = -1) -> None:
        asked = [
            {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
            for index, current, epoch in partitions
        ]
        talk.ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            version,
            replica_id=replica,
            topics=[{"topic": name, "partitions": asked}],
        )

    topic = talk.name("e")
    for current in (-1, 0, 1, -2):
        for epoch in (-1, 0, 1, 99, -2):
            ask((0, current, epoch), (1, current, epoch), name=topic)
    ask((9, -1, 0), (-1, -1, 0), name=topic)
    ask((0, -1, 0), name=talk.name("none"))
    ask((0, -1, 0), name="bad name")
    ask((0, -1, 0), (0, -1, 1), name=topic)
    for replica in (-2, 1, 5):
        ask((0, -1, 0), name=topic, replica=replica)


def delete_records(talk: Talk, version: int) -> None:
    fill(talk, "d", 3)

    def ask(*partitions: tuple[int, int], name: str = talk.name("d")) -> None:
        asked = [{"partition_index": index, "offset": offset} for index, offset in partitions]
        topics = [{"name": name, "partitions": asked}]
        talk.ask(ApiKey.DELETE_RECORDS, version, topics=topics, timeout=10_000)

    ask((0, 0))
    ask((0, 1))
    ask((0, 1))
    ask((0, 0))
    ask((0, 3), (1, 0), (2, 1), (9, 0))
    ask((0, -2), (1, -1))
    ask((0, 99))
    ask((0, 4), (0, 5))
    ask((0, -1))
    ask((0, 0), name=talk.name("none"))
    ask((0, 0), name="bad name")
    talk.ask(ApiKey.DELETE_RECORDS, version, topics=[], timeout=10_000)
    look_at_log(talk, talk.name("d"))


FetchTopics = Sequence[tuple[str | None, UUID | None, Sequence[Any]]]


def fetch_fields(
    topics: FetchTopics,
    *,
    partition_bytes: int = 100_000,
    forgotten: FetchTopics = (),
    **more: Any,
) -> dict[str, Any]:
    """Each partition is a number, or a dict of what is special about it."""
    asked = []
    for name, topic_id, partitions in topics:
        entries = [
            {
                "fetch_offset": 0,
                "current_leader_epoch": -1,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": partition_bytes,
                **(one if isinstance(one, dict) else {"partition": one}),
            }
            for one in partitions
        ]
        asked.append({"topic": name, "topic_id": topic_id, "partitions": entries})
    gone = [
        {"topic": name, "topic_id": topic_id, "partitions": list(partitions)}
        for name, topic_id, partitions in forgotten
    ]
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 10_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": asked,
        "forgotten_topics_data": gone,
        "rack_id": "",
        **more,
    }


def fetch(talk: Talk, version: int) -> None:
    topic_id = fill(talk, "f", 2)
    topic = talk.name("f")

    def ask(*partitions: Any, **more: Any) -> None:
        fields = fetch_fields([(topic, topic_id, partitions)], **more)
        talk.ask(ApiKey.FETCH, version, **fields)

    def at(offset: int, partition: int = 0, **more: Any) -> dict[str, Any]:
        return {"partition": partition, "fetch_offset": offset, **more}

    ask(0, 1)
    ask(0, 1, isolation_level=1)
    for offset in (1, 2, 5, 6, 7, 99, -1, -2):
        ask(at(offset))
    for size in (0, 1, 100, 200):
        ask(0, partition_bytes=size)
        ask(0, 1, max_bytes=size)
        ask(at(2, partition_max_bytes=size), at(0, 1), min_bytes=0)
    ask(0, min_bytes=1_000_000, max_wait=1)
    ask(at(6), min_bytes=0, max_wait=0)
    ask(at(6), min_bytes=-1, max_wait=-1)
    ask(9, 0, -1)
    ask(0, 0)
    ask()
    talk.ask(ApiKey.FETCH, version, **fetch_fields([]))
    talk.ask(ApiKey.FETCH, version, **fetch_fields([(talk.name("none"), NOBODY, [0])]))
    talk.ask(ApiKey.FETCH, version, **fetch_fields([("bad name", None, [0])]))
    mixed: FetchTopics = [(topic, topic_id, [0]), (talk.name("none"), NOBODY, [0])]
    talk.ask(ApiKey.FETCH, version, **fetch_fields(mixed))
    if version >= 9:
        for epoch in (0, 1, 99, -2):
            ask(at(0, current_leader_epoch=epoch), at(0, 1, current_leader_epoch=epoch))
    if version >= 12:
        for epoch in (0, 1, -2):
            ask(at(0, last_fetched_epoch=epoch))
            ask(at(6, last_fetched_epoch=epoch))
    for stranger in (5, 1, -2):
        state = {"replica_id": stranger, "replica_epoch": -1}
        ask(0, replica_id=stranger, replica_state=state)
    if version >= 11:
        ask(0, rack_id="elsewhere")
    trim = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}]
    talk.quietly(ApiKey.DELETE_RECORDS, 2, topics=trim, timeout=10_000)
    for offset in (0, 2, 3):
        ask(at(offset))


def fetch_in_sessions(talk: Talk, version: int) -> None:
    topic_id, other_id = fill(talk, "s", 3), fill(talk, "u", 1)
    topic, other = talk.name("s"), talk.name("u")

    def ask(topics: FetchTopics = (), session: int = 0, epoch: int = 0, **more: Any) -> Any:
        fields = fetch_fields(topics, session_id=session, session_epoch=epoch, **more)
        return talk.ask(ApiKey.FETCH, version, **fields)

    all_of_it: FetchTopics = [(topic, topic_id, [0, 1, 9]), (other, other_id, [0])]
    session = ask(all_of_it).session_id
    end: FetchTopics = [(topic, topic_id, [{"partition": 0, "fetch_offset": 6}])]
    ask((), session, 1)
    ask(end, session, 2)
    ask((), session, 3)
    ask((), session, 3)
    ask((), session, 9)
    ask((), session, 0)
    ask((), session + 1, 1)
    ask((), 0, 1)
    session = ask(all_of_it).session_id
    ask((), session, 1, forgotten=[(other, other_id, [0])])
    ask([(other, other_id, [0])], session, 2)
    ask([(other, other_id, [0])], session, 3, forgotten=[(other, other_id, [0])])
    gone: FetchTopics = [(talk.name("none"), NOBODY, [0])]
    ask(gone, session, 4)
    ask((), session, 5)
    ask((), session, 6, forgotten=gone)
    ask((), session, 7)
    fields = produce_fields(topic, None, (1, batch(b"late", at_ms=EARLY_MS)))
    talk.quietly(ApiKey.PRODUCE, 9, **fields)
    ask((), session, 8)
    ask((), session, 9, max_bytes=1)
    far: FetchTopics = [(topic, topic_id, [{"partition": 1, "fetch_offset": 99}])]
    ask(far, session, 10)
    ask((), session, 11)
    ask((), session, -1)
    ask((), session, 12)
    ask(all_of_it, session, 0)
    ask(all_of_it, 0, -1)
    ask(all_of_it, 12345, -1)
    ask((), 12345, 0)
    ask((), 0, 0)


def produce_to_a_partition_twice(talk: Talk) -> None:
    ask = Producer(talk, 9, "twice", talk.topic("twice"))
    ask.many((0, batch(b"one")), (0, batch(b"again")))


def produce_with_unknown_codecs(talk: Talk) -> None:
    ask = Producer(talk, 9, "codecs", talk.topic("codecs"))
    for codec in (5, 6, 7):
        ask(changed(batch(b"one"), ATTRIBUTES_AT, b"\0" + bytes((codec,))))


def isolate_in_an_unknown_way(talk: Talk) -> None:
    topic_id = fill(talk, "isolated")
    name = talk.name("isolated")
    partition = {"partition_index": 0, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]}]
    talk.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=9, topics=topics)
    for version in (12, 18):
        fields = fetch_fields([(name, topic_id, [0])], isolation_level=9)
        talk.ask(ApiKey.FETCH, version, **fields)


def fetch_less_than_nothing(talk: Talk) -> None:
    topic_id = fill(talk, "less")
    topics: FetchTopics = [(talk.name("less"), topic_id, [0])]
    talk.ask(ApiKey.FETCH, 18, **fetch_fields(topics, partition_bytes=-1))
    talk.ask(ApiKey.FETCH, 18, **fetch_fields(topics, max_bytes=-1))


def produce_malformed_records(talk: Talk, version: int) -> None:
    """Batches whose header and CRC are right and whose records are not."""
    ask = Producer(talk, version, "bad", talk.topic("bad"))
    body = GOOD[HEADER_BYTES:]
    length = body[0] >> 1  # of the first record, in a varint of one byte
    second = body[length + 1 :]
    for records in (
        b"\0" + body[1:],
        b"\1" + body[1:],
        bytes((body[0] + 2,)) + body[1:],
        body + b"\0",
        body + body,
        second + body[: length + 1],
        second + second,
        body[: length + 1] * 2,
        body[:1] + b"\x55" + body[2:],  # attributes of a record
    ):
        ask(with_body(records))
    look_at_log(talk, talk.name("bad"))


def produce_records_with_broken_insides(talk: Talk) -> None:
    """Records that are as long as they say, and do not hold what they say."""
    ask = Producer(talk, 9, "insides", talk.topic("insides"))
    body = GOOD[HEADER_BYTES:]
    ask(with_body(body[:4] + b"\x7f" + body[5:]))  # the length of a key
    ask(with_body(body[:4] + b"\3" + body[5:]))  # a key of a negative length
    ask(with_body(body[:-1] + b"\x7f"))  # the number of headers


def produce_an_endless_number(talk: Talk) -> None:
    ask = Producer(talk, 9, "endless", talk.topic("endless"))
    ask(with_body(b"\xff" * 6 + GOOD[HEADER_BYTES:]))


def with_body(records: bytes) -> bytearray:
    whole = bytearray(GOOD[:HEADER_BYTES] + records)
    whole[LENGTH_AT : LENGTH_AT + 4] = (len(whole) - LENGTH_AT - 4).to_bytes(4, "big")
    write_crc(whole, 0)
    return whole


def produce_to_internal_topics(talk: Talk, version: int) -> None:
    deadline = time.monotonic() + 30
    beat = {"group_id": "warm", "member_id": "nobody", "generation_id": 1}
    while talk.quietly(ApiKey.HEARTBEAT, 3, **beat).error_code != 25:
        talk.quietly(ApiKey.FIND_COORDINATOR, 2, key="warm", key_type=0)
        assert time.monotonic() < deadline
        time.sleep(0.1)  # a poll: the protocol has no way to be told
    topics = [{"name": "__consumer_offsets"}]
    answer = talk.quietly(ApiKey.METADATA, 12, topics=topics, allow_auto_topic_creation=False)
    topic_id = answer.topics[0].topic_id
    fields = produce_fields("__consumer_offsets", topic_id, (0, batch(b"one")))
    talk.ask_filtered(_errors, ApiKey.PRODUCE, version, **fields)
    fields = produce_fields("__cluster_metadata", None, (0, batch(b"one")))
    talk.ask(ApiKey.PRODUCE, version, **fields)


def _errors(answer: Any) -> Any:
    """Without the id of the topic, which each broker made for itself."""
    return tuple(one for topic in answer.responses for one in topic.partition_responses)


def name_a_topic_twice(talk: Talk) -> None:
    """Two entries of one topic, with partitions that differ and that do not."""
    topic_id = fill(talk, "again", 2)
    name = talk.name("again")
    for first, second in ((0, 1), (0, 0)):
        asked: FetchTopics = [(name, topic_id, [first]), (name, topic_id, [second])]
        for version in (12, 18):
            talk.ask(ApiKey.FETCH, version, **fetch_fields(asked))
        offsets = [
            {"name": name, "partitions": [{"partition_index": index, "timestamp": -1}]}
            for index in (first, second)
        ]
        talk.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=offsets)
        epochs = [
            {
                "topic": name,
                "partitions": [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 0}],
            }
            for index in (first, second)
        ]
        talk.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=epochs)
        deletions = [
            {"name": name, "partitions": [{"partition_index": index, "offset": 0}]}
            for index in (first, second)
        ]
        talk.ask(ApiKey.DELETE_RECORDS, 2, topics=deletions, timeout=10_000)
        producers = [{"name": name, "partition_indexes": [index]} for index in (first, second)]
        talk.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=producers)
    several = produce_fields(name, topic_id, (0, batch(b"one")))
    other = produce_fields(name, topic_id, (1, batch(b"two")))
    several["topic_data"] += other["topic_data"]
    for version in (12, 13):
        talk.ask(ApiKey.PRODUCE, version, **several)
