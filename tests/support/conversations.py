"""The same conversation with Ottla and with Apache Kafka, and where their answers differ.

Answers are compared field by field, lists without regard to order. What a broker draws at random
(member ids, topic ids, sessions) is replaced by a name that both share: the one a conversation
gave it, or the order in which it appeared. Sentences meant for people, addresses and clocks may
differ and are left out.
"""

import dataclasses
import datetime
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import HEADER, LENGTH_AT
from ottla.protocol.messages import decode_response, encode_request
from support.wire import Wire

SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Where a member id may end; the rest of it is random.
RANDOM_ID = re.compile(r"-?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
DROPPED = frozenset(
    (
        "batch_index_error_message",
        "cluster_id",
        "documentation",
        "error_message",
        "host",
        "log_dir",
        "port",
        "throttle_time",
        "total_bytes",
        "usable_bytes",
    )
)
# By which field the items of a list are told apart, the first that they have.
KEYS = (
    "topic_name",
    "resource_name",
    "name",
    "topic",
    "topic_id",
    "group_id",
    "member_id",
    "partition_index",
    "partition",
    "index",
    "api_key",
    "broker_id",
)
ABSENT = "absent"
PARTITIONS = ("partitions", "partition_responses")
NUMBERED = frozenset(("session_id", "producer_id"))
POLL_S = 0.02
TIMEOUT_S = 15.0


class Heard(NamedTuple):
    step: str
    asked: str
    answer: Any


class Difference(NamedTuple):
    step: str
    path: str
    kafka: Any
    ottla: Any


class Talk:
    """A connection that remembers what was said; a broker that hangs up is called again."""

    def __init__(self, bootstrap: str, tag: str = "") -> None:
        self._bootstrap = bootstrap
        self._tag = tag
        self.wire = Wire(bootstrap, timeout_seconds=TIMEOUT_S)
        self._names: dict[Any, str] = {}
        self._settled = 0
        self.said: list[Heard] = []

    def close(self) -> None:
        self.wire.socket.close()

    def name(self, name: str) -> str:
        """A name that no other conversation uses."""
        return f"{self._tag}-{name}"

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """The answer, or None if the broker hung up instead."""
        return self.ask_filtered(lambda answer: answer, key, version, **fields)

    def ask_filtered(
        self, keep: Callable[[Any], Any], key: ApiKey, version: int, /, **fields: Any
    ) -> Any:
        """Ask, and compare what `keep` leaves of the answer."""
        try:
            answer = self.wire.ask(key, version, fields)
        except ConnectionError:
            self._hang_up(key, version, fields)
            return None
        self._remember(key, version, fields, self.plain(keep(answer)))
        return answer

    def quietly(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Ask what is not compared."""
        return self.wire.ask(key, version, fields)

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> None:
        """Ask without waiting; `hear` gets the answer."""
        self.wire.send(encode_request(key, version, 0, "wire", fields))

    def send_bytes(self, request: bytes, key: ApiKey, version: int) -> None:
        """Send what no encoder would, and expect an answer in this version."""
        self.wire.send(request)
        self.hear(key, version)

    def hear(self, key: ApiKey, version: int) -> Any:
        frame = self.wire.receive()
        if frame is None:
            self._hang_up(key, version, {})
            return None
        _, answer = decode_response(key, version, memoryview(frame))
        self._remember(key, version, {}, self.plain(answer))
        return answer

    def _hang_up(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
        self.close()
        self.wire = Wire(self._bootstrap, timeout_seconds=TIMEOUT_S)
        self._remember(key, version, fields, "closed the connection")

    def _remember(self, key: ApiKey, version: int, fields: Mapping[str, Any], said: Any) -> None:
        step = f"{len(self.said)} {key.name} v{version}"
        self.said.append(Heard(step, repr(fields)[:600], said))

    def topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> UUID:
        """Create a topic, wait until it can be used, and give its id a name."""
        full = self.name(name)
        topic = {
            "name": full,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        made = self.quietly(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=10_000)
        assert made.topics[0].error_code == 0, made
        asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        deadline = time.monotonic() + 30
        while True:
            answer = self.quietly(
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                topics=[{"name": full, "partitions": asked}],
            )
            if all(one.error_code == 0 for one in answer.topics[0].partitions):
                break
            assert time.monotonic() < deadline
            time.sleep(POLL_S)  # a poll: the protocol has no way to be told
        self._names[made.topics[0].topic_id] = f"id of {name}"
        found: UUID = made.topics[0].topic_id
        return found

    def settle(self) -> None:
        """Wait until the broker knows what the controller decided: records come in order."""
        self._settled += 1
        self.topic(f"settled-{self._settled}")

    def plain(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {
                field.name: self._field(field.name, getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in DROPPED
            }
        if isinstance(value, tuple):
            return sorted((self.plain(item) for item in value), key=repr)
        if isinstance(value, UUID):
            # Ids that a broker drew are large; the small ones a conversation made up.
            return self._names.get(value, str(value) if value.int < 1000 else "an id")
        if isinstance(value, str) and RANDOM_ID.search(value):
            return self._names.setdefault(value, f"random {len(self._names)}")
        if isinstance(value, datetime.datetime):
            return "a time"
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name in NUMBERED and value > 0:
            return self._names.setdefault((name, value), f"{name} {len(self._names)}")
        if name == "records" and value is not None:
            return batches_of(value)
        if name in ("responses", "topics") and value:
            return merged(self.plain(value))
        return self.plain(value)


def merged(topics: list[Any]) -> list[Any]:
    """A topic's partitions together; Kafka's Fetch names a topic anew for those with errors."""
    inner = next((name for name in PARTITIONS if name in topics[0]), None)
    if inner is None:
        return topics
    found: dict[str, Any] = {}
    for topic in topics:
        rest = repr({key: value for key, value in topic.items() if key != inner})
        known = found.setdefault(rest, {**topic, inner: []})
        known[inner] = sorted([*known[inner], *topic[inner]], key=repr)
    return list(found.values())


def batches_of(records: bytes | memoryview) -> list[str]:
    """What the headers of batches say, but for CRC, timestamps and producer ids.

    Kafka fills the space that is left with part of a batch, which clients throw away.
    """
    data, found, pos = bytes(records), [], 0
    while len(data) - pos >= HEADER.size:
        (base, length, epoch, magic, _, attributes, delta, _, _, _, _, sequence, count) = (
            HEADER.unpack_from(data, pos)
        )
        if pos + LENGTH_AT + 4 + length > len(data):
            break
        found.append(
            f"{base}+{delta} {length=} {epoch=} {magic=} {attributes=} {sequence=} {count=}"
        )
        pos += LENGTH_AT + 4 + length
    return found


@contextmanager
def both_brokers(directory: Path, overrides: Mapping[str, str]) -> Iterator[list[BrokerProcess]]:
    """Apache Kafka and Ottla, freshly started with the same properties; skips without Kafka."""
    started: list[BrokerProcess] = []
    try:
        for kind in (Kind.KAFKA, Kind.OTTLA):
            started.append(
                start_fresh(kind, directory / str(kind), overrides=overrides, jvm=SMALL_JVM)
            )
        yield started
    except Missing as reason:
        pytest.skip(str(reason))
    finally:
        for broker in started:
            broker.kill()


def _by_label(items: Sequence[Any]) -> dict[str, Any]:
    """The items of a list under what tells them apart."""
    found: dict[str, Any] = {}
    for item in items:
        label = ""
        if isinstance(item, dict):
            label = next((str(item[key]) for key in KEYS if item.get(key) not in (None, "")), "")
        again = sum(known.partition("#")[0] == label for known in found)
        found[f"{label}#{again}" if again else label] = item
    return found


def differing(kafka: Any, ottla: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The ways to what differs, and what each says there; ABSENT where one says nothing."""
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        pairs, theirs, ours = "{}.{}", kafka, ottla
    elif isinstance(kafka, list) and isinstance(ottla, list) and (kafka or ottla):
        pairs, theirs, ours = "{}[{}]", _by_label(kafka), _by_label(ottla)
    else:
        if kafka != ottla:
            yield path, kafka, ottla
        return
    for name in dict.fromkeys((*theirs, *ours)):
        inner = pairs.format(path, name)
        yield from differing(theirs.get(name, ABSENT), ours.get(name, ABSENT), inner)


def differences(kafka: Sequence[Heard], ottla: Sequence[Heard]) -> list[Difference]:
    """Where two records of one conversation say different things."""
    found = []
    for theirs, ours in zip(kafka, ottla, strict=True):
        assert theirs.step == ours.step
        for difference in differing(theirs.answer, ours.answer):
            found.append(Difference(theirs.step, *difference))
    return found


def converse_with_each(
    bootstraps: Sequence[str], converse: Any, *arguments: Any, tag: str = "", talks: int = 1
) -> list[Difference]:
    """Hold the conversation with Kafka, then with Ottla; what differs."""
    heard = []
    for bootstrap in bootstraps:
        talking = [Talk(bootstrap, tag) for _ in range(talks)]
        try:
            if talks <= 2:
                converse(*talking, *arguments)
            else:
                converse(talking[0], talking[1:], *arguments)
        finally:
            for talk in talking:
                talk.close()
        heard.append([talk.said for talk in talking])
    return [
        difference
        for kafka, ottla in zip(*heard, strict=True)
        for difference in differences(kafka, ottla)
    ]
