"""Spark, a broker and what was written, for tests of the sink and of pipelines."""

import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, Ports, free_port
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.spark.pipelines.session import LOCAL, TUNED
from support.fault_proxy import FaultProxy

STARTS_MAX = 5
BROKER_KIND = Kind(os.environ.get("OTTLA_SPARK_BROKER", "ottla"))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
SPARK_SETTINGS = {
    **TUNED,
    **LOCAL,
    "spark.master": "local[2,4]",
    "spark.sql.shuffle.partitions": "2",
}


def spark_session(master: str | None = None) -> Any:
    """The one session of this test process."""
    from pyspark.sql import SparkSession

    from ottla.spark import register

    builder = SparkSession.builder
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    if master is not None:
        builder = builder.config("spark.master", master)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


def patiently(run: Callable[[], Any]) -> Any:
    """Spark gives a Python process of its own ten seconds to start; a busy machine may not."""
    from pyspark.errors import PySparkException

    for _ in range(STARTS_MAX - 1):
        try:
            return run()
        except (PySparkException, AssertionError) as error:
            if "failed to connect back" not in str(error):
                raise
    return run()


@contextmanager
def broker(directory: Path, *, proxy: FaultProxy | None = None) -> Iterator[BrokerProcess]:
    """A broker process, at its own address or behind a proxy."""
    ports = Ports(free_port(), free_port())
    overrides = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    if proxy is not None:
        proxy.target = ("127.0.0.1", ports.client)
        overrides["advertised.listeners"] = (
            f"PLAINTEXT://127.0.0.1:{proxy.port},CONTROLLER://127.0.0.1:{ports.controller}"
        )
    with BrokerProcess(BROKER_KIND, directory, overrides, ports=ports) as process:
        try:
            process.format()
        except Missing as reason:
            pytest.skip(str(reason))
        process.start()
        yield process


def create_topic(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([topic])[name].result(30)


def produce(
    bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(30) == 0


def read_topic(bootstrap: str, topic: str, *, is_committed: bool = True) -> list[Any]:
    """Every record of a topic up to its end now, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"read-{socket.gethostname()}-{os.getpid()}",
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        described = consumer.list_topics(topic, 30).topics[topic]
        assert described.error is None, f"{topic}: {described.error}"
        partitions = described.partitions
        assert partitions, f"{topic} has no partitions"
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Any] = []
        # A transaction is decided a moment before its markers let readers pass.
        left = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1]
            for number in partitions
        }
        while left:
            message = consumer.poll(30)
            assert message is not None, f"{topic} is not readable to its end: {left}"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                if message.offset() >= left.get(message.partition(), 0):
                    left.pop(message.partition(), None)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str) -> Counter[bytes | None]:
    return Counter(message.value() for message in read_topic(bootstrap, topic))
