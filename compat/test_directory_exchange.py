"""A data directory that one broker wrote is opened by the other, and goes back again.

Ottla keeps Apache Kafka's formats on disk, so that a user can walk in from Kafka and walk out
again: with records, topics, configs and the state of idempotent producers, after a clean stop and
after kill -9. The judge is librdkafka, which reads every record before and after.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from bench.brokers import BrokerProcess, Kind, Missing, kafka_jars, run_java
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from compat.allow_list import Judge
from compat.conftest import SMALL_JVM

TOPIC = "moved"
PARTITIONS = 2
RETENTION_MS = "987654321"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 60
READ_S_MAX = 60.0
# A broker that was killed is let in again once its old session is over.
OVERRIDES = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}

ENDINGS: dict[str, Callable[[BrokerProcess], object]] = {
    "stop": lambda broker: broker.stop(),
    "kill": lambda broker: broker.kill(),
}


class Stored(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes


def _write(broker: BrokerProcess, *, prefix: str, idempotent: bool) -> int:
    """Records of every codec, large enough that segments roll; returns how many."""
    errors: list[Any] = []
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "compression.type": codec,
                "message.timeout.ms": 30_000,
            }
        )
        for number in range(RECORDS_PER_CODEC):
            value = f"{prefix}-{codec}-{number}-".encode() + bytes(range(256)) * 40
            producer.produce(
                TOPIC,
                key=f"{prefix}-{number}".encode(),
                value=value,
                partition=number % PARTITIONS,
                on_delivery=lambda error, _message: errors.append(error) if error else None,
            )
        assert producer.flush(30) == 0, f"{codec}: not everything was acknowledged"
        assert not errors, f"{codec}: {errors[0]}"
    return len(CODECS) * RECORDS_PER_CODEC


def _read(broker: BrokerProcess, count: int) -> list[Stored]:
    """Every record of the topic; fails when there are more or fewer than `count`."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "check.crcs": True}
    )
    parts = [TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
    try:
        ends = sum(consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts)
        assert ends == count, f"the log ends after {ends} records instead of {count}"
        consumer.assign(parts)
        records: list[Stored] = []
        deadline = time.monotonic() + READ_S_MAX
        while len(records) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=1.0):
                if message.error():
                    raise confluent_kafka.KafkaException(message.error())
                records.append(_stored(message))
        return sorted(records)
    finally:
        consumer.close()


def _stored(message: Any) -> Stored:
    return Stored(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
    )


def _description(broker: BrokerProcess) -> list[str]:
    """The topic's id, partition count and configs as kafka-topics prints them."""
    asked = ("--bootstrap-server", broker.bootstrap, "--describe", "--topic", TOPIC)
    done = run_java("org.apache.kafka.tools.TopicCommand", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout.splitlines()[0].replace("Configs: ", "")
    return sorted(part.strip() for part in first.replace(",", "\t").split("\t") if part.strip())


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("starts_with_kafka", [False, True])
def test_data_directory_moves_to_the_other_broker_and_back(
    broker_kind: Kind, starts_with_kafka: bool, ending: str, tmp_path: Path, judge: Judge
) -> None:
    try:
        kafka_jars()
    except Missing as reason:
        pytest.skip(str(reason))
    here, there = (Kind.KAFKA, broker_kind) if starts_with_kafka else (broker_kind, Kind.KAFKA)
    case = f"{here} to {there} after {ending}"
    with judge.judging("directory-exchange", case):
        _move(BrokerProcess(here, tmp_path, OVERRIDES, SMALL_JVM), there, ENDINGS[ending])


def _move(first: BrokerProcess, there: Kind, end: Callable[[BrokerProcess], object]) -> None:
    first.format()
    with first:
        first.start()
        configs = (("retention.ms", RETENTION_MS), ("segment.bytes", "1048576"))
        with first.connect() as connection:
            connection.create_topic(TOPIC, partitions=PARTITIONS, configs=configs)
        count = _write(first, prefix="here", idempotent=True)
        written, described = _read(first, count), _description(first)
        end(first)
    second = first.on_same_data(there)
    with second:
        second.start()
        assert _description(second) == described
        assert f"retention.ms={RETENTION_MS}" in described
        assert _read(second, count) == written, "the other broker shows other records"
        count += _write(second, prefix="there", idempotent=True)
        written = _read(second, count)
        end(second)
    back = second.on_same_data(first.kind)
    with back:
        back.start()
        assert _description(back) == described
        assert _read(back, count) == written, "the first broker shows other records on return"
        count += _write(back, prefix="back", idempotent=True)
        assert len(_read(back, count)) == count
