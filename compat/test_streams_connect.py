"""What Apache Kafka builds on its clients: Streams' word count and Connect's file connectors.

Both use consumer groups with payloads of their own, internal topics that they create and compact,
and, exactly once, transactions. Each program runs as Kafka's scripts start it; what it wrote is
read back with another client.
"""

import json
import signal
import subprocess
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, free_port, java_command, start_fresh
from bench.brokers import quiet_environment as quiet_java
from confluent_kafka import Consumer, Producer, TopicPartition

from compat.allow_list import Judge
from compat.conftest import SMALL_JVM
from compat.toolchains import streams_connect_jars

SETTLE_S_MAX = 90.0  # a JVM that starts, joins and restores, on a busy machine
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
STREAMS, CONNECT = "kafka-streams", "kafka-connect"
WORD_COUNT = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
FIRST_LINES = ("all streams lead to kafka", "hello kafka streams")
MORE_LINES = ("join kafka summit", "hello again")
# The services that jars declare; to look through every class of Kafka takes a minute.
WORKER = {
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        return streams_connect_jars()
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def own_broker(
    broker_kind: Kind, jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of its own: the word count's topics have fixed names."""
    folder = tmp_path_factory.mktemp("streams")
    with start_fresh(broker_kind, folder, overrides={"num.partitions": "2"}, jvm=SMALL_JVM) as one:
        yield one


class Program:
    """A Java program that runs until it is ended."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> None:
        """Ask for an orderly end, as Ctrl-C and SIGTERM do."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(SETTLE_S_MAX)

    def until(self, is_done: Callable[[], bool]) -> None:
        """Wait for what the program is to bring about; its log is the error if it does not."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while not is_done():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                what = "took too long" if ended is None else f"ended with {ended}"
                lines = [line for line in self._log.read_text().splitlines() if "\tat " not in line]
                raise AssertionError(f"the program {what}: {' / '.join(lines[-12:])[-1500:]}")
            time.sleep(0.2)


@contextmanager
def running(main_class: str, *arguments: str, jars: Path, log: Path) -> Iterator[Program]:
    command = java_command(main_class, *arguments, jvm=JVM, classpath=f"{jars}/*")
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=quiet_java("warn"), cwd=log.parent
        )
    program = Program(process, log)
    try:
        yield program
    finally:
        program.kill()


def properties(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def produce(broker: BrokerProcess, topic: str, lines: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for line in lines:
        producer.produce(topic, line.encode())
    assert producer.flush(30) == 0


class Tail:
    """What committed records a topic gets from now on, or has had from its beginning."""

    def __init__(self, broker: BrokerProcess, topic: str, *, is_whole: bool = False) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "never-joins",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        places = []
        self.offset_sum = 0
        for number in partitions:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            self.offset_sum += end
            places.append(TopicPartition(topic, number, 0 if is_whole else end))
        self._consumer.assign(places)
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def read(self) -> list[tuple[bytes | None, bytes | None]]:
        for message in self._consumer.consume(500, timeout=0.5):
            assert message.error() is None, message.error()
            self.records.append((message.key(), message.value()))
        return self.records

    def counts(self) -> dict[str, int]:
        """The newest count of each word."""
        return {
            key.decode(): int.from_bytes(value, "big")
            for key, value in self.read()
            if key is not None and value is not None
        }

    def close(self) -> None:
        self._consumer.close()


def everything(broker: BrokerProcess, topic: str) -> list[str]:
    """The values of a topic that has no transactions in it."""
    tail = Tail(broker, topic, is_whole=True)
    while len(tail.read()) < tail.offset_sum:
        pass
    tail.close()
    return [value.decode() for _, value in tail.records if value is not None]


def word_counts(*lines: str) -> dict[str, int]:
    return dict(Counter(word for line in lines for word in line.split()))


@pytest.fixture(scope="module")
def words(own_broker: BrokerProcess) -> BrokerProcess:
    """The broker with the word count's topics and its first lines."""
    with own_broker.connect() as connection:
        connection.create_topic(INPUT, partitions=2)
        connection.create_topic(OUTPUT, partitions=2)
    produce(own_broker, INPUT, FIRST_LINES)
    return own_broker


def streams_settings(broker: BrokerProcess, folder: Path, **more: str) -> str:
    settings = {
        "application.id": f"word-count-{uuid.uuid4().hex[:8]}",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(folder / "state"),
        "commit.interval.ms": "100",
        "statestore.cache.max.bytes": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
    }
    return properties(folder / "streams.properties", {**settings, **more})


def test_word_count_counts_and_goes_on_where_it_was_killed(
    words: BrokerProcess, jars: Path, tmp_path: Path, judge: Judge
) -> None:
    path = streams_settings(words, tmp_path)
    tail = Tail(words, OUTPUT)
    with (
        judge.judging(STREAMS, "word count"),
        running(WORD_COUNT, path, jars=jars, log=tmp_path / "first.log") as program,
    ):
        program.until(lambda: tail.counts() == word_counts(*FIRST_LINES))
        program.kill()
    with judge.judging(STREAMS, "word count after kill -9"):
        # Without its files, the state must come back from the changelog topic.
        (tmp_path / "state").rename(tmp_path / "lost")
        produce(words, INPUT, MORE_LINES)
        with running(WORD_COUNT, path, jars=jars, log=tmp_path / "second.log") as program:
            expected = word_counts(*FIRST_LINES, *MORE_LINES)
            program.until(lambda: tail.counts() == expected)
            program.stop()
    tail.close()


def test_word_count_counts_exactly_once(
    words: BrokerProcess, jars: Path, tmp_path: Path, judge: Judge
) -> None:
    path = streams_settings(words, tmp_path, **{"processing.guarantee": "exactly_once_v2"})
    lines = everything(words, INPUT)
    tail = Tail(words, OUTPUT)
    with (
        judge.judging(STREAMS, "word count exactly once"),
        running(WORD_COUNT, path, jars=jars, log=tmp_path / "once.log") as program,
    ):
        expected = word_counts(*lines)
        program.until(lambda: tail.counts() == expected)
        program.stop()
        # One record for each step of each count, and not one more.
        steps = [key for key, _ in tail.read() if key is not None]
        assert Counter(key.decode() for key in steps) == expected
    tail.close()


def file_source(topic: str, path: Path) -> dict[str, str]:
    return {
        "name": f"source-{topic}",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(path),
        "topic": topic,
    }


def file_sink(topic: str, path: Path) -> dict[str, str]:
    return {
        "name": f"sink-{topic}",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "file": str(path),
        "topics": topic,
    }


def has_lines(path: Path, lines: Sequence[str]) -> bool:
    """Whether the file has these lines, in any order: a topic has several partitions."""
    return path.exists() and sorted(path.read_text().splitlines()) == sorted(lines)


def append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_connect_standalone_copies_a_file_through_a_topic(
    own_broker: BrokerProcess, jars: Path, tmp_path: Path, judge: Judge
) -> None:
    topic = f"connect-{uuid.uuid4().hex[:8]}"
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    worker = {
        "bootstrap.servers": own_broker.bootstrap,
        **WORKER,
        "offset.storage.file.filename": str(tmp_path / "connect.offsets"),
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.path": str(jars),
    }
    arguments = (
        properties(tmp_path / "worker.properties", worker),
        properties(tmp_path / "source.properties", file_source(topic, source)),
        properties(tmp_path / "sink.properties", file_sink(topic, sink)),
    )
    main_class = "org.apache.kafka.connect.cli.ConnectStandalone"
    append(source, FIRST_LINES)
    with (
        judge.judging(CONNECT, "standalone file source and sink"),
        running(main_class, *arguments, jars=jars, log=tmp_path / "connect.log") as program,
    ):
        program.until(lambda: has_lines(sink, FIRST_LINES))
        append(source, MORE_LINES)
        program.until(lambda: has_lines(sink, (*FIRST_LINES, *MORE_LINES)))


def ask(address: str, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"http://{address}{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read()
    return json.loads(text) if text else None


def test_connect_distributed_keeps_connectors_over_a_restart(
    own_broker: BrokerProcess, jars: Path, tmp_path: Path, judge: Judge
) -> None:
    topic = f"connect-{uuid.uuid4().hex[:8]}"
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    address = f"127.0.0.1:{free_port()}"
    internal = {
        f"{kind}.storage.{what}": value
        for kind in ("offset", "config", "status")
        for what, value in (("topic", f"{topic}-{kind}s"), ("replication.factor", "1"))
    }
    worker = {
        "bootstrap.servers": own_broker.bootstrap,
        "group.id": f"{topic}-workers",
        **WORKER,
        **internal,
        "offset.storage.partitions": "2",
        # A worker that was killed is missed soon, and its work handed on without delay.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "consumer.session.timeout.ms": "6000",
        "consumer.heartbeat.interval.ms": "1000",
        "status.storage.partitions": "1",
        "listeners": f"http://{address}",
        "plugin.path": str(jars),
    }
    path = properties(tmp_path / "worker.properties", worker)
    main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
    log = tmp_path / "connect.log"
    append(source, FIRST_LINES)

    def connectors() -> list[str] | None:
        """Their names, or None while the worker is on its way up."""
        try:
            return sorted(ask(address, "GET", "/connectors"))
        except OSError:
            return None

    with (
        judge.judging(CONNECT, "distributed file source and sink"),
        running(main_class, path, jars=jars, log=log) as program,
    ):
        program.until(lambda: connectors() == [])
        for settings in (file_source(topic, source), file_sink(topic, sink)):
            ask(address, "POST", "/connectors", {"name": settings["name"], "config": settings})
        program.until(lambda: has_lines(sink, FIRST_LINES))
        time.sleep(1.0)  # twice the interval at which the source's offset is flushed
        program.kill()
    with judge.judging(CONNECT, "distributed after kill -9"):
        append(source, MORE_LINES)
        with running(main_class, path, jars=jars, log=log) as program:
            wanted = {*FIRST_LINES, *MORE_LINES}
            program.until(lambda: wanted <= set(sink.read_text().splitlines()))
            program.until(lambda: connectors() == [f"sink-{topic}", f"source-{topic}"])
