"""The broker is killed with kill -9 and restarted under a group of consumers.

Clients of two kinds share one group: librdkafka in two processes, Java in one. They commit what
they read and say what was acknowledged. After the restart no acknowledged offset may be lost or
moved back, every consumer must read again within its session timeout, nobody's records may be
skipped. OTTLA_GROUP_CONSUMERS=50 is the full size; the times are printed, not judged.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, java_command, quiet_environment, start_fresh
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

CONSUMERS = int(os.environ.get("OTTLA_GROUP_CONSUMERS", "8"))
KILLS = int(os.environ.get("OTTLA_GROUP_KILLS", "1"))
BROKER = Kind(os.environ.get("OTTLA_GROUP_BROKER", "ottla"))
SESSION_TIMEOUT_S = 45.0  # the clients' default, and what the workers ask for
JOIN_S_MAX = 60.0 + 2 * CONSUMERS  # JVM and fifty clients on two cores
PARTITIONS = 2 * CONSUMERS
SUPPORT = Path(__file__).parent.parent / "support"
TOPIC, GROUP = "orders", "readers"
# Heartbeats as often as by default: librdkafka takes the interval for its patience with an answer,
# and does not ask again for the assignment that a late one brought.
SETTINGS = {"offsets.topic.num.partitions": "4", "group.consumer.session.timeout.ms": "45000"}


class Ledger:
    """What every worker said, in the order in which it arrived."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.acknowledged: dict[int, int] = {}  # by partition: the highest committed offset
        self.read: dict[int, set[int]] = {}
        self.first_read_at: dict[str, float] = {}  # by consumer, since `forget_reads`
        self.errors: list[str] = []

    def on_line(self, line: str) -> None:
        said = json.loads(line)
        with self._changed:
            if said["kind"] == "batch":
                offsets = self.read.setdefault(said["partition"], set())
                offsets.update(range(said["first"], said["last"] + 1))
                self.first_read_at.setdefault(said["name"], time.monotonic())
            elif said["kind"] == "commit":
                for partition, offset in said["offsets"].items():
                    highest = self.acknowledged.get(int(partition), 0)
                    self.acknowledged[int(partition)] = max(highest, offset)
            else:
                self.errors.append(f"{said['name']}: {said['error']}")
            self._changed.notify_all()

    def wait(self, is_done: Callable[[], bool], timeout_s: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(is_done, timeout_s):
                done = f"{len(self.first_read_at)} have read, {len(self.acknowledged)} offsets"
                errors = f"{len(self.errors)} errors, the last: {self.errors[-5:]}"
                raise AssertionError(f"after {timeout_s:.0f} s not: {what}; {done}; {errors}")

    def forget_reads(self) -> None:
        with self._changed:
            self.first_read_at.clear()

    def is_settled(self) -> bool:
        """Everyone has read, and every partition has an offset."""
        return len(self.first_read_at) == CONSUMERS and len(self.acknowledged) == PARTITIONS

    def snapshot(self) -> dict[int, int]:
        with self._changed:
            return dict(self.acknowledged)


def commands(broker: BrokerProcess, protocol: str) -> list[tuple[list[str], int]]:
    """Who consumes: half of them with Java where it is there, the others in two processes."""
    arguments = [broker.bootstrap, GROUP, TOPIC, protocol]
    java = CONSUMERS // 2
    try:
        command = java_command(str(SUPPORT / "GroupWorker.java"), jvm=("-Xmx512m",))
    except Missing as reason:
        print(f"without Java's consumers: {reason}")
        java = 0
    found = [([*command, *arguments, "java", str(java)], java)] if java else []
    python = [sys.executable, str(SUPPORT / "group_worker.py"), *arguments]
    for number in range(2):
        count = (CONSUMERS - java + number) // 2
        found.append(([*python, f"librdkafka-{number}", str(count)], count))
    return found


@contextmanager
def worker(command: list[str], ledger: Ledger, log: Path) -> Iterator[None]:
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=quiet_environment(),
        )
    assert process.stdout is not None
    lines = process.stdout

    def follow() -> None:
        for line in lines:
            if line.startswith("{"):
                ledger.on_line(line)

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        reader.join(20)
        lines.close()


@contextmanager
def steady_producer(bootstrap: str) -> Iterator[None]:
    """Records for every partition, without a pause, through the restart."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    ending = threading.Event()

    def produce() -> None:
        number = 0
        while not ending.wait(0.1):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"%d" % number, partition=partition)
                number += 1
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        producer.flush(30)


def committed(bootstrap: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    request = [ConsumerGroupTopicPartitions(GROUP)]
    found = admin.list_consumer_group_offsets(request, request_timeout=30)[GROUP].result()
    return {one.partition: one.offset for one in found.topic_partitions if one.offset >= 0}


def assert_kept(before: dict[int, int], after: dict[int, int]) -> None:
    moved = {p: (o, after.get(p)) for p, o in before.items() if after.get(p, -1) < o}
    assert not moved, f"offsets lost or moved back, as (acknowledged, found): {moved}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_offset_is_lost_and_all_read_again_within_the_session_timeout(
    protocol: str, tmp_path: Path
) -> None:
    ledger = Ledger()
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(start_fresh(BROKER, tmp_path / "b", overrides=SETTINGS))
        except Missing as reason:
            pytest.skip(str(reason))
        with broker.connect() as connection:
            connection.create_topic(TOPIC, partitions=PARTITIONS)
        stack.enter_context(steady_producer(broker.bootstrap))
        began = time.monotonic()
        for number, (command, _) in enumerate(commands(broker, protocol)):
            log = tmp_path / f"worker-{number}.log"
            stack.enter_context(worker(command, ledger, log))
        ledger.wait(ledger.is_settled, JOIN_S_MAX, "all consumers read")
        print(f"\n{protocol}: {CONSUMERS} consumers read after {time.monotonic() - began:.1f} s")
        for _ in range(KILLS):
            _kill_once(broker, ledger, protocol)
        kept = ledger.snapshot()
        assert_kept(kept, committed(broker.bootstrap))
    # What was committed had been read, every offset of it, by someone.
    for partition, offset in kept.items():
        missed = set(range(offset)) - ledger.read[partition]
        assert not missed, f"{TOPIC}-{partition}: {sorted(missed)[:10]} were skipped"


def _kill_once(broker: BrokerProcess, ledger: Ledger, protocol: str) -> None:
    broker.kill()
    killed = time.monotonic()
    time.sleep(0.2)  # acknowledgements that had left the broker are still being read
    before = ledger.snapshot()
    broker.start()
    restarted = time.monotonic()
    ledger.forget_reads()
    assert_kept(before, committed(broker.bootstrap))
    ledger.wait(
        ledger.is_settled,
        SESSION_TIMEOUT_S,
        f"all {CONSUMERS} consumers read again within the session timeout",
    )
    times = sorted(ledger.first_read_at.values())
    figures: dict[str, Any] = {
        "down s": restarted - killed,
        "all reading again after s": times[-1] - restarted,
        "errors told to clients": len(ledger.errors),
    }
    told = ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
    print(f"{protocol}: {CONSUMERS} consumers, {told}")
