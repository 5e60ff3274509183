"""A shop whose orders run through a cluster, and a console that watches it.

Tests and the screenshots of the documentation use the same world, so that what is shown is what
is tested.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka
import httpx
from bench.brokers import FIRST_TOPIC, BrokerProcess, Kind, start_fresh
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client import Client, ClientConfig
from ottla.console.digest import DISK_USED_WARN
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch

TOPICS = {
    "orders": 6,
    "payments": 3,
    "shipments": 3,
    "clicks": 12,
    "inventory.changes": 3,
    "audit.log": 1,
}
BIG_NUMBER = 9_007_199_254_740_993  # the first whole number that floating point cannot hold
QUIET = {"log_level": 0}
# Verified, no transaction could be left hanging, and none be shown.
OVERRIDES = {"transaction.partition.verification.enable": "false"}
READY_S_MAX = 30.0


class ConsoleProcess:
    """`ottla console`, started as a person starts it."""

    def __init__(
        self,
        bootstrap: str,
        *options: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        program = Path(sys.executable).with_name("ottla")
        self.process = subprocess.Popen(
            [str(program), "console", "--bootstrap", bootstrap, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=None if environment is None else dict(environment),
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if not first.startswith("Console"):
            raise RuntimeError(f"the console did not start: {first}{self.process.stdout.read()}")
        self.address = first.split()[1]
        self._drain = threading.Thread(target=self._read_rest, daemon=True)
        self.output: list[str] = []
        self._drain.start()

    def _read_rest(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=20)

    def token(self) -> str:
        with self.client() as client:
            token: str = client.get("/api/v1/token").json()["token"]
            return token

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._drain.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def told_when_well() -> tuple[str, str]:
    """What the overview and every page's corner say of a good cluster on this machine's disk."""
    usage = shutil.disk_usage(tempfile.gettempdir())
    if 1 - usage.free / usage.total < DISK_USED_WARN:
        return "All is well", "all is well"
    return "Running, with something to look at", "1 thing to see"


def create_topics(bootstrap: str, topics: Mapping[str, int], **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    futures = admin.create_topics(
        [NewTopic(name, count, 1, config=config) for name, count in topics.items()],
        request_timeout=60,
        operation_timeout=60,
    )
    for future in futures.values():
        future.result(60)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.delete_topics([name], request_timeout=30)[name].result(30)


def order(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "id": BIG_NUMBER + number,
        "customer": {"name": chance.choice(NAMES), "country": chance.choice(COUNTRIES)},
        "amount": round(chance.uniform(4, 480), 2),
        "currency": "EUR",
        "items": [
            {"sku": f"SKU-{chance.randrange(1000):04}", "quantity": chance.randrange(1, 4)}
            for _ in range(chance.randrange(1, 4))
        ],
        "express": chance.random() < 0.2,
        "note": None,
    }


NAMES = ("Ada Novák", "Jan Dvořák", "Marie Curie", "Grace Hopper", "Ottla Davidová", "Max Brod")
COUNTRIES = ("CZ", "DE", "AT", "PL", "FR", "IT")
PAGES = ("/", "/search", "/cart", "/checkout", "/help", "/product/1042", "/product/77")


class Shop:
    """Producers and consumers that keep a cluster busy until closed."""

    def __init__(self, bootstrap: str, *, rate: int = 200, seed: int = 7) -> None:
        self.bootstrap = bootstrap
        self.rate = rate
        self._chance = random.Random(seed)
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pace = {"billing": 1.0, "fraud-detection": 1.0, "warehouse-sync": 0.55}
        self.number = 0

    def fill(self, count: int) -> None:
        """Write records of the past."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        for _ in range(count):
            self._write(producer)
            if producer.poll(0) is None:
                break
        producer.flush(30)

    def start(
        self, groups: Sequence[str] = ("billing", "fraud-detection", "warehouse-sync")
    ) -> None:
        self._begin(self._produce)
        for group in groups:
            self._begin(self._consume, group)

    def _begin(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(15)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, producer: confluent_kafka.Producer) -> None:
        chance = self._chance
        self.number += 1
        number = self.number
        made = order(number, chance)
        customer = f"{made['customer']['country'].lower()}-{chance.randrange(400):03}"
        headers = [("source", chance.choice(("web", "app", "pos"))), ("trace", f"{number:08x}")]
        producer.produce("orders", json.dumps(made, ensure_ascii=False), customer, headers=headers)
        if number % 2:
            payment = {"order": made["id"], "amount": made["amount"], "method": "card"}
            producer.produce("payments", json.dumps(payment), customer)
        if number % 3 == 0:
            producer.produce("shipments", f"order={made['id']} carrier=PPL state=packed", customer)
        for _ in range(2):
            click = {"page": chance.choice(PAGES), "ms": chance.randrange(20, 900)}
            producer.produce("clicks", json.dumps(click), f"v{chance.randrange(5000)}")
        if number % 5 == 0:
            stock = chance.randrange(1000).to_bytes(8, "big")
            value = None if number % 50 == 0 else stock
            producer.produce("inventory.changes", value, f"SKU-{chance.randrange(1000):04}")
        if number % 9 == 0:
            producer.produce("audit.log", f"2026-11-16 user={customer} action=login ok")

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, **QUIET}
        )
        step_s = 0.1
        due = time.monotonic()
        while not self._ending.is_set():
            wave = 1.0 + 0.35 * ((int(time.time()) // 7) % 3 - 1)
            for _ in range(max(1, int(self.rate * step_s * wave / 4))):
                try:
                    self._write(producer)
                except BufferError:
                    break
            producer.poll(0)
            due += step_s
            self._ending.wait(max(0.0, due - time.monotonic()))
        producer.flush(5)

    def _consume(self, group: str) -> None:
        topics = {"billing": ["orders", "payments"], "warehouse-sync": ["orders", "shipments"]}
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "client.id": f"{group}-1",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "session.timeout.ms": 6000,
                **QUIET,
            }
        )
        consumer.subscribe(topics.get(group, ["orders", "clicks"]))
        pace = self._pace.get(group, 1.0)
        while not self._ending.is_set():
            consumer.consume(100 if pace >= 1 else 4, 0.1)
            if pace < 1:
                self._ending.wait(0.12)
        consumer.close()


def commit_once(bootstrap: str, group: str, topic: str, partitions: int, offset: int) -> None:
    """A group that was here and left."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **QUIET}
    )
    consumer.commit(
        offsets=[confluent_kafka.TopicPartition(topic, p, offset) for p in range(partitions)],
        asynchronous=False,
    )
    consumer.close()


def hang(bootstrap: str, topic: str, *, producer_id: int = 4711, age_s: int = 1_000) -> None:
    """A transaction on partition 0 that no coordinator knows; its broker must not verify them."""
    at_ms = int((time.time() - age_s) * 1000)
    batch = build_batch(
        [Record(0, at_ms, b"k", b"v", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    partition = {"index": 0, "records": bytes(batch)}
    fields = {
        "transactional_id": "nobody-knows",
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    with Client(ClientConfig.of(bootstrap)) as client:
        leader = client.broker(client.leader(topic, 0))
        answer = leader.ask(ApiKey.PRODUCE, fields, version=11)
    assert answer.responses[0].partition_responses[0].error_code == 0


def wait_until(condition: Any, what: str, seconds: float = READY_S_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class World:
    """A broker, a shop and a console."""

    def __init__(
        self,
        directory: Path,
        *,
        kind: Kind = Kind.OTTLA,
        rate: int = 200,
        interval_s: float = 2.0,
    ) -> None:
        self._stack = ExitStack()
        self.pipelines = directory / "pipelines"
        self.pipelines.mkdir(parents=True)
        try:
            self.broker: BrokerProcess = self._stack.enter_context(
                start_fresh(kind, directory / "broker", overrides=OVERRIDES)
            )
            create_topics(self.bootstrap, TOPICS)
            delete_topic(self.bootstrap, FIRST_TOPIC)
            self.shop = self._stack.enter_context(Shop(self.bootstrap, rate=rate))
            self.shop.fill(1500)
            commit_once(self.bootstrap, "nightly-report", "payments", 3, 10)
            self.console = self._stack.enter_context(
                ConsoleProcess(
                    self.bootstrap,
                    "--pipelines",
                    str(self.pipelines),
                    "--interval",
                    str(interval_s),
                )
            )
        except BaseException:
            self._stack.close()
            raise

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
