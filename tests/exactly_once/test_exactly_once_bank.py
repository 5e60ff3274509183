"""The bank loses and makes no money while its broker and its workers die and come back.

OTTLA_BANK_S says for how long (45 s in `make test`), OTTLA_SEED when what dies,
OTTLA_HISTORY_BROKER=kafka which broker.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.brokers import ROOT, BrokerProcess, Kind, Missing
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from exactly_once import bank
from exactly_once.bank import Books, Leg, Transfer
from exactly_once.clients import KEEP_BROKERS
from exactly_once.conftest import Report
from exactly_once.run import OVERRIDES, SMALL_JVM, TOPIC_CONFIG
from exactly_once.stable import await_stable
from ottla.protocol.batches import iter_batches, iter_records, parse_control_key
from ottla.protocol.ids import Offset
from ottla.storage.core.transaction_index import TransactionIndex

SECONDS = float(os.environ.get("OTTLA_BANK_S", "45"))
SEED = int(os.environ.get("OTTLA_SEED", "1"))
BROKER = Kind(os.environ.get("OTTLA_HISTORY_BROKER", Kind.OTTLA))
WORKERS = 3
TRANSFERS_PER_S = 150
DRAIN_S_MAX = 120.0
AUDITS_MIN = 5
# What befalls them, and how often.
FAULTS = {
    "kill broker": 20,
    "restart broker": 10,
    "kill worker": 30,
    "pause worker": 30,
    "pause broker": 10,
}
BANK_OVERRIDES = {**OVERRIDES, "group.min.session.timeout.ms": "500"}


class Customers:
    """Sends requests until told to stop; knows which the broker has accepted."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self.asked: dict[int, Transfer] = {}
        self.acknowledged: set[int] = set()
        self.refused: Counter[str] = Counter()
        self._chance = chance
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
                "socket.timeout.ms": 3_000,
                "reconnect.backoff.max.ms": 300,
                **KEEP_BROKERS,
                "linger.ms": 2,
                "log_level": 0,
            }
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(1 / TRANSFERS_PER_S):
            number = len(self.asked)
            source, target = self._chance.sample(range(bank.ACCOUNTS), 2)
            transfer = Transfer(number, source, target, self._chance.randint(1, 50))
            self.asked[number] = transfer
            self._producer.produce(
                bank.REQUESTS,
                transfer.encode(),
                partition=number % bank.PARTITIONS[bank.REQUESTS],
                on_delivery=lambda error, _, n=number: self._on_delivery(error, n),
            )
            self._producer.poll(0)
        self._producer.flush(90)

    def _on_delivery(self, error: KafkaError | None, number: int) -> None:
        if error is None:
            self.acknowledged.add(number)
        else:
            self.refused[error.name()] += 1


class Auditor:
    """Reads the book as it grows; whenever it has all there is, the money must add up."""

    def __init__(self, bootstrap: str) -> None:
        self.audits = 0
        self.complaints: list[str] = []
        self.failure: Exception | None = None
        self._bootstrap = bootstrap

    def run(self, stop: threading.Event) -> None:
        books = Books()
        with reader(self._bootstrap) as consumer:
            consumer.assign([TopicPartition(bank.BOOK, 0, OFFSET_BEGINNING)])
            while not stop.is_set():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    books.add(bank.decode_leg(message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.audits += 1
                    self.complaints += books.complaints_now()
                else:
                    self.failure = KafkaException(error)
                    return


class Bookmarks:
    """Asks for the group's offsets all the time: none may be lost or go back.

    Workers alone would not tell: one that is told of no offset ends, and is replaced.
    """

    def __init__(self, bootstrap: str) -> None:
        self.looks = 0
        self.complaints: list[str] = []
        self._admin = _admin(bootstrap)
        self._before = dict.fromkeys(range(bank.PARTITIONS[bank.REQUESTS]), 0)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            try:
                offsets = committed(self._admin)
            except (KafkaException, TimeoutError):
                continue  # the broker is away, or its coordinator is not ready
            self.looks += 1
            for place in offsets:
                if place.error is None and place.offset < self._before[place.partition]:
                    self.complaints.append(f"{place}, after {self._before[place.partition]}")
                self._before[place.partition] = max(place.offset, self._before[place.partition])


def committed(admin: AdminClient) -> list[TopicPartition]:
    """Where the group goes on, as far as transactions that have ended say."""
    places = [TopicPartition(bank.REQUESTS, p) for p in range(bank.PARTITIONS[bank.REQUESTS])]
    group = ConsumerGroupTopicPartitions(bank.GROUP, places)
    found = admin.list_consumer_group_offsets([group])[bank.GROUP].result(20)
    return list(found.topic_partitions)


@contextlib.contextmanager
def reader(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 300,
            **KEEP_BROKERS,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


class Staff:
    """The worker processes; who dies is replaced at once."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.replaced = 0

    def __enter__(self) -> "Staff":
        self._processes = [self._hire(number) for number in range(WORKERS)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait(30)

    def _hire(self, number: int) -> "subprocess.Popen[bytes]":
        with (self._folder / f"worker-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "exactly_once.bank_worker",
                    self._bootstrap,
                    f"bank-{number}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
            )

    def signal(self, number: int, what: signal.Signals) -> None:
        self._processes[number].send_signal(what)

    def replace_the_dead(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self.replaced += 1
                self._processes[number] = self._hire(number)

    def said(self) -> Counter[str]:
        """What workers aborted transactions for, or died of."""
        lines = [
            line
            for path in self._folder.glob("worker-*.log")
            for line in path.read_text(errors="replace").splitlines()
        ]
        errors = [line[line.index("KafkaError{") :] for line in lines if "KafkaError{" in line]
        return Counter(line[:150] for line in errors)

    def told_of(self, number: int) -> list[str]:
        """What workers said of one transfer."""
        told = re.compile(rf"[\[ ]{number}[,\]]")
        return [
            f"{path.stem}: {line}"
            for path in sorted(self._folder.glob("worker-*.log"))
            for line in path.read_text(errors="replace").splitlines()
            if told.search(line)
        ]


class Misfortune:
    """kill -9 and SIGSTOP, of the broker and of workers, and restarts in order."""

    def __init__(self, broker: BrokerProcess, staff: Staff, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.failure: Exception | None = None
        self._broker, self._staff, self._chance = broker, staff, chance

    def run(self, stop: threading.Event) -> None:
        try:
            self._befall("kill broker", stop)
            self._befall("restart broker", stop)
            while not stop.wait(self._chance.uniform(0.5, 3.0)):
                self._befall(self._chance.choices(list(FAULTS), list(FAULTS.values()))[0], stop)
                self._staff.replace_the_dead()
        except Exception as error:  # noqa: BLE001 - raised again by whoever joins the thread
            self.failure = error
            stop.set()

    def _befall(self, what: str, stop: threading.Event) -> None:
        number = self._chance.randrange(WORKERS)
        if what in ("kill broker", "restart broker"):
            stop.wait(2.0)
            if self._broker.exit_code() is not None:
                raise RuntimeError(f"the broker ended by itself: {self._broker.exit_code()}")
            self._broker.kill() if what == "kill broker" else self._broker.stop()
            self._broker.start()
        elif what == "kill worker":
            self._staff.signal(number, signal.SIGKILL)
        elif what == "pause worker":
            # Longer than its session: when it wakes up, its partitions are another's.
            self._staff.signal(number, signal.SIGSTOP)
            stop.wait(self._chance.uniform(2.0, 4.0))
            self._staff.signal(number, signal.SIGCONT)
        else:
            os.kill(self._broker.pid, signal.SIGSTOP)
            stop.wait(self._chance.uniform(0.5, 4.0))
            os.kill(self._broker.pid, signal.SIGCONT)
        self.counts[what] += 1


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 300,
            **KEEP_BROKERS,
            "log_level": 0,
        }
    )


def _open_bank(bootstrap: str) -> AdminClient:
    admin = _admin(bootstrap)
    topics = [
        NewTopic(name, count, 1, config=TOPIC_CONFIG) for name, count in bank.PARTITIONS.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    _commit_beginnings(admin)
    return admin


def _commit_beginnings(admin: AdminClient) -> None:
    """Whoever comes to a partition finds where to go on: none has a reason to start anew."""
    places = [TopicPartition(bank.REQUESTS, p, 0) for p in range(bank.PARTITIONS[bank.REQUESTS])]
    group = ConsumerGroupTopicPartitions(bank.GROUP, places)
    deadline = time.monotonic() + DRAIN_S_MAX
    while True:  # the group's coordinator may not be there yet
        done = admin.alter_consumer_group_offsets([group])[bank.GROUP].result(30)
        errors = [place.error for place in done.topic_partitions if place.error is not None]
        if not errors:
            return
        assert time.monotonic() < deadline, errors
        time.sleep(0.1)


def _remaining(admin: AdminClient) -> int:
    """Requests whose offsets are not committed yet."""
    places = [TopicPartition(bank.REQUESTS, p) for p in range(bank.PARTITIONS[bank.REQUESTS])]
    ends = admin.list_offsets({place: OffsetSpec.latest() for place in places})
    done: int = sum(max(place.offset, 0) for place in committed(admin))
    total: int = sum(future.result(20).offset for future in ends.values())
    return total - done


def _drain(admin: AdminClient, staff: Staff) -> int:
    deadline = time.monotonic() + DRAIN_S_MAX
    while True:
        left = _remaining(admin)
        if not left or time.monotonic() > deadline:
            return left
        staff.replace_the_dead()
        time.sleep(0.3)


def _read_all(bootstrap: str, topic: str) -> Books:
    books = Books()
    with reader(bootstrap) as consumer:
        missing = set(range(bank.PARTITIONS[topic]))
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in missing])
        while missing:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {topic}, partitions {missing}"
            error = message.error()
            if error is None:
                books.add(bank.decode_leg(message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                missing.discard(message.partition())
            else:
                raise KafkaException(error)
    return books


def _story(leg: Leg, broker: BrokerProcess, staff: Staff) -> list[str]:
    """Where a leg lies that was written twice, how each of its transactions ended, and by whom."""
    lines = [f"{leg}:", *staff.told_of(leg.number)]
    directory = broker.data / f"{bank.LEDGER}-{leg.ledger_partition}"
    open_ones: dict[int, str] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for at, header in iter_batches(data):
            who = f"producer {header.producer_id} epoch {header.producer_epoch}"
            for record in iter_records(data[at : at + header.size_bytes]):
                if not header.is_control:
                    if record.value == leg.encode():
                        open_ones[header.producer_id] = f"{header.base_offset} in {path.name}"
                elif header.producer_id in open_ones:
                    end = parse_control_key(record.key)
                    begun = open_ones.pop(header.producer_id)
                    lines.append(f"{begun}, {who}: {end} at {header.base_offset} in {path.name}")
    lines += [f"{where}: open" for where in open_ones.values()]
    for path in sorted(directory.glob("*.txnindex")):
        index = TransactionIndex(Offset(int(path.stem)), path.read_bytes())
        lines += [f"{path.name}: {one}" for one in index.transactions]
    return lines


def _join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive()


@pytest.mark.timeout(SECONDS + 500)
def test_no_money_is_lost_or_made_when_broker_and_workers_are_killed(
    tmp_path: Path, report: Report
) -> None:
    chance = random.Random(f"bank/{SEED}")
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(BROKER, tmp_path, BANK_OVERRIDES, SMALL_JVM))
        try:
            broker.format()
            broker.start()
        except Missing as reason:
            pytest.skip(str(reason))
        admin = _open_bank(broker.bootstrap)
        staff = stack.enter_context(Staff(broker.bootstrap, tmp_path))
        customers = Customers(broker.bootstrap, random.Random(chance.random()))
        auditor = Auditor(broker.bootstrap)
        misfortune = Misfortune(broker, staff, chance)
        stop, closed = threading.Event(), threading.Event()
        working = [
            threading.Thread(target=one.run, args=(stop,)) for one in (customers, misfortune)
        ]
        bookmarks = Bookmarks(broker.bootstrap)
        watching = [
            threading.Thread(target=one.run, args=(closed,)) for one in (auditor, bookmarks)
        ]
        for thread in (*working, *watching):
            thread.start()
        try:
            stop.wait(SECONDS)
        finally:
            stop.set()
            _join(*working)
        try:
            left = _drain(admin, staff)
            places = [
                (name, p) for name in (bank.LEDGER, bank.BOOK) for p in range(bank.PARTITIONS[name])
            ]
            held = await_stable(broker.bootstrap, places)
            before_last = auditor.audits
        finally:
            closed.set()
            _join(*watching)
        ledger, book = (_read_all(broker.bootstrap, topic) for topic in (bank.LEDGER, bank.BOOK))
        facts: dict[str, Any] = {
            "transfers": len(customers.asked),
            "acknowledged": len(customers.acknowledged),
            "refused": dict(customers.refused),
            "audits": before_last,
            "looks at offsets": bookmarks.looks,
            "faults": dict(misfortune.counts),
            "workers replaced": staff.replaced,
            "left undone": left,
            "held back": held,
        }
        said = [f"  {count:>5} {line}" for line, count in staff.said().most_common(12)]
        first = f"seed {SEED}, {SECONDS:.0f} s: {facts}"
        twice = sorted(leg for leg, count in ledger.legs.items() if count > 1)[:1]
        stories = [line for leg in twice for line in _story(leg, broker, staff)]
        report(f"bank-{BROKER}-{SEED}", "\n".join([first, *said, *stories]))
    assert misfortune.failure is None, misfortune.failure
    assert auditor.failure is None, auditor.failure
    assert not auditor.complaints, auditor.complaints[:20]
    assert not bookmarks.complaints, bookmarks.complaints[:20]
    assert bookmarks.looks >= AUDITS_MIN
    assert not left, f"{left} requests are not done after {DRAIN_S_MAX:.0f} s"
    assert not held, f"transactions that never ended hold back {held}"
    assert not ledger.complaints_at_the_end(customers.asked, customers.acknowledged)
    assert not book.complaints_at_the_end(customers.asked, customers.acknowledged)
    assert auditor.audits >= AUDITS_MIN
    assert len(customers.acknowledged) > SECONDS


def test_books_complain_of_half_a_transfer_and_of_money_from_nowhere() -> None:
    books = Books()
    debit, credit = Transfer(7, 1, 2, 30).legs()
    books.add(debit)
    assert books.complaints_now() == ["transfer 7 is half done", "99970 instead of 100000"]
    books.add(credit)
    assert books.complaints_now() == []


def test_books_complain_of_a_transfer_done_twice_lost_or_never_asked_for() -> None:
    asked = {n: Transfer(n, 1, 2, 30) for n in range(3)}
    books = Books()
    for leg in (*asked[0].legs(), *asked[0].legs(), *Transfer(9, 3, 4, 5).legs()):
        books.add(leg)
    complaints = books.complaints_at_the_end(asked, {0, 1})
    assert sum("2 times" in one for one in complaints) == 2
    assert sum("lost" in one for one in complaints) == 2
    assert sum("nobody asked for" in one for one in complaints) == 2
    assert len(complaints) == 6


def test_books_do_not_ask_for_what_was_never_acknowledged() -> None:
    books = Books()
    for leg in Transfer(0, 1, 2, 30).legs():
        books.add(leg)
    asked = {0: Transfer(0, 1, 2, 30), 1: Transfer(1, 1, 2, 30)}
    assert books.complaints_at_the_end(asked, set()) == []
