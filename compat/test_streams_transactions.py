"""Kafka Streams with exactly_once_v2 while its broker is killed: every step of every sum, once.

The program keeps running sums of what comes in, through a repartition topic, a changelog and an
output topic, all in transactions. Its output is a ledger of its own: the n-th record of a key
says that n numbers were added. One that is missing, repeated or wrong shows.
"""

import random
import time
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh
from confluent_kafka import Consumer, Producer, TopicPartition

from compat import toolchains
from compat.allow_list import Judge
from compat.conftest import SMALL_JVM
from compat.test_streams_connect import Program, running

PARTITIONS = 2
KEYS = 7
NUMBERS = 600
KILLS = 2
OVERRIDES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
# librdkafka forgets its only broker otherwise, and connects again late.
CLIENT = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 300,
    "metadata.recovery.strategy": "none",
    "enable.sparse.connections": False,
}


@pytest.fixture(scope="module")
def classes() -> Path:
    """The program's classes, and Kafka Streams' jars: two folders of one class path."""
    try:
        jars = toolchains.streams_connect_jars()
        source = toolchains.COMPAT / "java" / "RunningSums.java"
        return Path(f"{toolchains.compile_java(source, classpath=f'{jars}/*')}:{jars}")
    except Missing as reason:
        pytest.skip(str(reason))


class Sums:
    """The committed output, by key, in order."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "never-joins", **CLIENT}
        self._consumer = Consumer(
            {**settings, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self.steps: dict[str, list[str]] = defaultdict(list)

    def count(self) -> int:
        for message in self._consumer.consume(500, timeout=0.2):
            assert message.error() is None, message.error()
            self.steps[message.key().decode()].append(message.value().decode())
        return sum(len(steps) for steps in self.steps.values())

    def close(self) -> None:
        self._consumer.close()


def expected_steps(numbers: list[tuple[int, int]]) -> dict[str, list[str]]:
    """Every running sum of every key; a key's numbers keep their order within a partition."""
    found: dict[str, list[str]] = defaultdict(list)
    sums: dict[int, int] = defaultdict(int)
    for key, number in numbers:
        sums[key] += number
        found[f"sum-of-{key}"].append(f"{len(found[f'sum-of-{key}']) + 1}:{sums[key]}")
    return dict(found)


def _feed_and_kill(
    broker: BrokerProcess, topic: str, numbers: list[tuple[int, int]], program: Program, sums: Sums
) -> None:
    """Send all numbers; kill the broker whenever another part of the sums has come out."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, **CLIENT})
    chance = random.Random(1)
    part = len(numbers) // (KILLS + 1)
    for start in range(0, len(numbers), part):
        for key, number in numbers[start : start + part]:
            partition = key % PARTITIONS
            producer.produce(topic, str(number).encode(), str(key).encode(), partition=partition)
        producer.poll(0)
        program.until(lambda seen=start + part // 4: sums.count() >= seen)
        if start + part < len(numbers):
            time.sleep(chance.random())  # the moment of the kill is the point of the test
            broker.kill()
            broker.start()
    assert producer.flush(60) == 0


def test_streams_counts_exactly_once_while_its_broker_is_killed(
    broker_kind: Kind, classes: Path, tmp_path: Path, judge: Judge
) -> None:
    name = f"sums-{uuid.uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    chance = random.Random(2)
    numbers = [(chance.randrange(KEYS), chance.randrange(1_000)) for _ in range(NUMBERS)]
    folder = tmp_path / "broker"
    with (
        judge.judging("kafka-streams", "exactly_once_v2 through kill -9 of the broker"),
        start_fresh(broker_kind, folder, overrides=OVERRIDES, jvm=SMALL_JVM) as broker,
    ):
        with broker.connect() as connection:
            connection.create_topic(source, partitions=PARTITIONS)
            connection.create_topic(target, partitions=PARTITIONS)
        sums = Sums(broker, target)
        arguments = (broker.bootstrap, name, source, target, str(tmp_path / "state"))
        log = tmp_path / "streams.log"
        with running("RunningSums", *arguments, jars=classes, log=log) as program:
            _feed_and_kill(broker, source, numbers, program, sums)
            program.until(lambda: sums.count() >= NUMBERS)
            program.stop()
        sums.count()
        sums.close()
        assert dict(sums.steps) == expected_steps(numbers)
