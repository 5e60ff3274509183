"""Compacted topics of a real broker: they shrink, and say the same afterwards.

Apache Kafka's dump tool and an Apache Kafka broker read what Ottla has compacted, and the other
way round, where Java and Kafka's jars are there.
"""

import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, kafka_jars, run_java, start_fresh
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "table"
KEYS = 100
ROUNDS = 40
SEGMENT_BYTES = 1 << 20
WAIT_S_MAX = 100.0
OVERRIDES = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
}
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "600000",
}


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_done():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.1)


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=TOPIC_CONFIG)
    admin.create_topics([new])[topic].result(30)


def value_of(key: int, number: int) -> bytes:
    return b"%d/%d " % (key, number) * 60


def write(broker: BrokerProcess, topic: str, *, first: int, rounds: int, codec: str) -> None:
    """Every key once a round; key 0 is deleted in the last one."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": "20"}
    )
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number in range(first, first + rounds):
        for key in range(KEYS):
            is_deleted = key == 0 and number == first + rounds - 1
            producer.produce(
                topic,
                None if is_deleted else value_of(key, number),
                b"key-%d" % key,
                on_delivery=on_delivery,
            )
        producer.poll(0)
    producer.flush(60)
    assert not failures


def read(broker: BrokerProcess, topic: str) -> tuple[dict[bytes, bytes | None], int]:
    """The last value of each key, and how many records there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: dict[bytes, bytes | None] = {}
    count = 0
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        key = message.key()
        assert isinstance(key, bytes)
        values[key] = message.value()
        count += 1
    consumer.close()
    return values, count


def expected(last: int) -> dict[bytes, bytes | None]:
    values: dict[bytes, bytes | None] = {
        b"key-%d" % key: value_of(key, last) for key in range(1, KEYS)
    }
    values[b"key-0"] = None
    return values


def log_bytes(broker: BrokerProcess, topic: str) -> int:
    return sum(path.stat().st_size for path in (broker.data / f"{topic}-0").glob("*.log"))


def is_compacted(broker: BrokerProcess, topic: str) -> bool:
    """Nothing is left but the last values and the active segment."""
    names = [path.name for path in (broker.data / f"{topic}-0").iterdir()]
    if any(name.endswith((".cleaned", ".swap")) for name in names):
        return False
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return False
    found = re.search(rf"^{topic} 0 (\d+)$", checkpoint.read_text(), re.MULTILINE)
    active = max(int(name[:20]) for name in names if name.endswith(".log"))
    return found is not None and int(found[1]) == active


def test_a_compacted_topic_shrinks_and_keeps_the_last_values(tmp_path: Path) -> None:
    with start_fresh(Kind.OTTLA, tmp_path / "broker", overrides=OVERRIDES) as broker:
        create(broker, TOPIC)
        write(broker, TOPIC, first=0, rounds=ROUNDS, codec="none")
        write(broker, TOPIC, first=ROUNDS, rounds=ROUNDS, codec="lz4")
        write(broker, TOPIC, first=2 * ROUNDS, rounds=ROUNDS, codec="none")
        wait_until(lambda: is_compacted(broker, TOPIC), "the log is clean")
        values, count = read(broker, TOPIC)
        assert values == expected(3 * ROUNDS - 1)
        assert count < 2 * KEYS * ROUNDS
        check_keyless_records_are_refused(broker)
        broker.kill()
        broker.start()
        assert read(broker, TOPIC) == (values, count)


def check_keyless_records_are_refused(broker: BrokerProcess) -> None:
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(TOPIC, b"no key", on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert [error.code() for error in refused if error] == [KafkaError.INVALID_RECORD]


def test_the_offsets_topic_shrinks_and_groups_go_on_after_kill_9(tmp_path: Path) -> None:
    groups, partitions = 2, 50
    with start_fresh(Kind.OTTLA, tmp_path / "broker", overrides=OVERRIDES) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        new = NewTopic("input", num_partitions=partitions, replication_factor=1)
        admin.create_topics([new])["input"].result(30)
        consumers = [
            Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": f"group-{number}",
                    "enable.auto.commit": False,
                }
            )
            for number in range(groups)
        ]
        offset = 0
        sizes: list[int] = []

        def commit() -> bool:
            nonlocal offset
            for _ in range(40):
                offset += 1
                for consumer in consumers:
                    consumer.commit(
                        offsets=[TopicPartition("input", n, offset) for n in range(partitions)],
                        asynchronous=False,
                    )
            sizes.append(log_bytes(broker, "__consumer_offsets"))
            return any(later < earlier for earlier, later in pairwise(sizes))

        wait_until(commit, "__consumer_offsets shrinks")
        broker.kill()
        broker.start()
        for consumer in consumers:
            wanted = [TopicPartition("input", n) for n in range(partitions)]
            found = consumer.committed(wanted, timeout=60)
            assert [one.offset for one in found] == [offset] * partitions
            consumer.close()


@pytest.mark.parametrize(("first", "second"), [(Kind.OTTLA, Kind.KAFKA), (Kind.KAFKA, Kind.OTTLA)])
def test_either_broker_goes_on_with_what_the_other_has_compacted(
    tmp_path: Path, first: Kind, second: Kind
) -> None:
    try:
        kafka_jars()
    except Missing as reason:
        pytest.skip(str(reason))
    jvm = ("-Xmx256m", "-XX:TieredStopAtLevel=1")
    with start_fresh(first, tmp_path / "broker", overrides=OVERRIDES, jvm=jvm) as broker:
        create(broker, TOPIC)
        write(broker, TOPIC, first=0, rounds=ROUNDS, codec="none")
        write(broker, TOPIC, first=ROUNDS, rounds=ROUNDS, codec="gzip")
        write(broker, TOPIC, first=2 * ROUNDS, rounds=ROUNDS, codec="none")
        wait_until(lambda: is_compacted(broker, TOPIC), "the log is clean")
        read_first = read(broker, TOPIC)
        broker.stop()
        check_kafka_reads_the_files(broker.data / f"{TOPIC}-0")
    with broker.on_same_data(second) as other:
        other.start()
        assert read(other, TOPIC) == read_first
        write(other, TOPIC, first=3 * ROUNDS, rounds=2 * ROUNDS, codec="none")
        wait_until(lambda: is_compacted(other, TOPIC), "the log is clean again")
        values, _ = read(other, TOPIC)
        assert values == expected(5 * ROUNDS - 1)
        other.stop()
        check_kafka_reads_the_files(other.data / f"{TOPIC}-0")


def check_kafka_reads_the_files(directory: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    files = ",".join(str(path) for path in [*logs, *indexes] if path.exists())
    dumped = run_java(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files
    )
    assert dumped.returncode == 0, dumped.stderr
    assert "isvalid: false" not in dumped.stdout
    for complaint in ("Mismatches", "mismatch", "rror"):
        assert complaint not in dumped.stdout, dumped.stdout[-2000:]
