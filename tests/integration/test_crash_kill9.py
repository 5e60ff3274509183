"""kill -9 at any moment under load: nothing that was acknowledged is lost, no half batch is served.

OTTLA_KILLS says how often (3 in `make test`, 100 in `make crash`). The topic has flush.messages=1,
so an acknowledgement means that the record is on the platter.
"""

import os
import random
import threading
import time
from pathlib import Path

from bench.brokers import BrokerProcess, Kind
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KILLS = int(os.environ.get("OTTLA_KILLS", "3"))
SEED = int(os.environ.get("OTTLA_SEED", "1"))
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Load:
    """Numbered records until told to stop; remembers which were acknowledged, and where."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.next_number = 0
        self._chance = chance
        self._bootstrap = bootstrap

    def run(self, stop: threading.Event) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": self._chance.random() < 0.5,
                "compression.type": self._chance.choice(CODECS),
                "linger.ms": 1,
                "message.timeout.ms": 2000,
                "log_level": 0,
            }
        )
        while not stop.is_set():
            number = self.next_number
            self.next_number += 1
            producer.produce(
                "crash",
                value=b"%d:" % number + bytes(self._chance.randint(0, 3000)),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, n=number: self._on_delivery(error, message, n),
            )
            producer.poll(0.001)
        producer.flush(5)

    def _on_delivery(self, error: object, message: Message, number: int) -> None:
        if error is None:
            self.acknowledged[number] = (message.partition(), message.offset())


def read_all(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """Every record, by its number, with where it lies; librdkafka checks each CRC."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: dict[int, list[tuple[int, int]]] = {}
    try:
        for partition in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(
                TopicPartition("crash", partition), timeout=30
            )
            assert low == 0
            consumer.assign([TopicPartition("crash", partition, 0)])
            expected = 0
            while expected < high:
                message = consumer.poll(30)
                assert message is not None, f"nothing at {partition}@{expected} of {high}"
                assert message.error() is None, message.error()
                assert message.offset() == expected
                expected += 1
                number = int(message.value().split(b":", 1)[0])
                found.setdefault(number, []).append((partition, message.offset()))
    finally:
        consumer.close()
    return found


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with BrokerProcess(
        Kind.OTTLA,
        tmp_path,
        {"log.segment.bytes": "1048576", "log.flush.interval.messages": "1"},
    ) as broker:
        broker.format()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topic = NewTopic("crash", PARTITIONS, 1, config={"flush.messages": "1"})
        admin.create_topics([topic])["crash"].result(30)
        load = Load(broker.bootstrap, chance)
        for _ in range(KILLS):
            stop = threading.Event()
            thread = threading.Thread(target=load.run, args=(stop,))
            before = len(load.acknowledged)
            thread.start()
            while len(load.acknowledged) < before + 20:
                time.sleep(0.01)  # a poll of what librdkafka's thread reports
            time.sleep(chance.random())  # the moment of the kill is the point of the test
            broker.kill()
            stop.set()
            thread.join()
            broker.start()
            found = read_all(broker.bootstrap)
            lost = {n: at for n, at in load.acknowledged.items() if at not in found.get(n, [])}
            assert not lost, f"seed {SEED}: {len(lost)} acknowledged records are gone: {lost}"
    assert len(load.acknowledged) >= 20 * KILLS
