"""One run: workers, faults, the wait until all transactions have ended, and the last reading.

Each worker performs its plans one after another in a thread of its own and writes down what it
asked and was told. When the time is over the faults stop, every transaction that was left open
must end by its timeout, and two clients read everything from offset 0.
"""

import contextlib
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BrokerProcess
from bench.brokers import Kind as BrokerKind
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from exactly_once import clients
from exactly_once.checker import Verdict, check
from exactly_once.clients import Client, Identity, LibrdkafkaClient
from exactly_once.faults import Nemesis
from exactly_once.history import Assign, Key, Operation, Outcome, Poll, Send, Step, Subscribe
from exactly_once.java_client import JavaClient, JavaProcess
from exactly_once.stable import Place, await_stable
from exactly_once.workload import (
    KEYS,
    PARTITIONS_PER_TOPIC,
    TOPICS,
    Kind,
    Plan,
    partition_of,
    plans,
    topic_of,
)

LIBRDKAFKA_WORKERS = 4
# Beside two of librdkafka's, so that each reads what the other wrote.
JAVA_WORKERS = 2
GROUP = "history"
OPEN_RETRY_S = 0.2
JOIN_S_MAX = 120.0
SAID_CHARACTERS_MAX = 150
SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Segments are rolled every few seconds, so that what a start finds lies in several.
TOPIC_CONFIG = {"internal.segment.bytes": "8000"}
OVERRIDES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.segment.bytes": str(1 << 20),
    "transaction.state.log.num.partitions": "3",
}
# Nothing that is done to the broker here may make it answer with these.
NEVER_SAID = ("UNKNOWN_SERVER_ERROR", "UnknownServerException", "OFFSET_OUT_OF_RANGE", "CORRUPT")

Open = Callable[[Identity], Client]


class Recorder:
    """The history as it grows, and the numbers of processes."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._processes = itertools.count()

    def new_process(self) -> int:
        return next(self._processes)

    def add(
        self,
        process: int,
        steps: tuple[Step, ...],
        outcome: Outcome,
        began: int,
        error: str = "",
        *,
        is_transaction: bool = False,
    ) -> None:
        ended = time.monotonic_ns()
        self.operations.append(
            Operation(process, steps, outcome, began, ended, error, is_transaction)
        )


class Worker:
    def __init__(
        self, number: int, seed: int, bootstrap: str, open_client: Open, recorder: Recorder
    ) -> None:
        self._name = f"history-{seed}-{number}"
        self._is_member = number % 2 == 0  # half of them subscribe, all in one group
        self._bootstrap = bootstrap
        self._plans: Iterator[Plan] = plans(seed, number)
        self._open_client, self._recorder = open_client, recorder
        self._positions: dict[Key, int] = dict.fromkeys(range(KEYS), 0)
        self._assigned: tuple[Key, ...] = tuple(range(KEYS))
        self.failure: Exception | None = None

    def _assigned_positions(self) -> dict[Key, int]:
        return {key: self._positions[key] for key in self._assigned}

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self._live(stop)
        except Exception as error:  # noqa: BLE001 - raised again by whoever joins the thread
            self.failure = error
            stop.set()

    def _live(self, stop: threading.Event) -> None:
        """One process, from its birth to the first break.

        Each has a transactional id of its own. With an id of many, a client that tries to
        start somewhere in the background fences the next one after its commit, whose answer may
        have been lost: then being fenced would not mean that nothing happened.
        """
        process = self._recorder.new_process()
        name = f"{self._name}-{process}"
        positions = None if self._is_member else self._assigned_positions()
        group = GROUP if self._is_member else self._name
        try:
            client = self._open_client(
                Identity(self._bootstrap, name, self._name, group, positions)
            )
        except (KafkaException, ConnectionError):
            stop.wait(OPEN_RETRY_S)  # the broker may be down: that is the point
            return
        try:
            self._perform_plans(client, process, stop)
        finally:
            client.close()

    def _perform_plans(self, client: Client, process: int, stop: threading.Event) -> None:
        self._recorder.add(process, (self._begin(),), Outcome.OK, time.monotonic_ns())
        while not stop.is_set():
            plan = next(self._plans)
            if plan.kind is Kind.ASSIGN:
                self._assigned = plan.keys
            began = time.monotonic_ns()
            done = client.perform(plan, self._assigned_positions())
            for one in done.parts or (done,):
                self._recorder.add(
                    process,
                    (self._begin(),) if plan.kind is Kind.ASSIGN else one.steps,
                    one.outcome,
                    began,
                    one.error,
                    is_transaction=plan.kind is Kind.TRANSACTION,
                )
            if plan.rival is not None:  # which never tries to commit
                sent = (Send(plan.rival.key, plan.rival.value),)
                rival = self._recorder.new_process()
                self._recorder.add(rival, sent, Outcome.FAIL, began, "rival", is_transaction=True)
            if done.outcome is Outcome.OK:
                for step in done.steps:
                    if isinstance(step, Poll):
                        self._advance(step.pairs)
            if done.ends_process or done.outcome is Outcome.INFO:
                return

    def _begin(self) -> Step:
        return Subscribe() if self._is_member else Assign(self._assigned)

    def _advance(self, pairs: Mapping[Key, tuple[tuple[int, int], ...]]) -> None:
        for key, got in pairs.items():
            self._positions[key] = got[-1][0] + 1


@dataclass
class Result:
    operations: list[Operation]
    faults: Counter[str]
    verdict: Verdict
    stuck: dict[Place, tuple[int, int]]  # last stable offset and end of what never became stable

    def said(self) -> Counter[str]:
        """How often clients were told what; numbers are left out, so that like meets like."""
        return Counter(
            re.sub(r"\d+", "#", f"{one.outcome}: {one.error}")[:SAID_CHARACTERS_MAX]
            for one in self.operations
            if one.error
        )

    def never_said(self) -> list[str]:
        return [said for said in self.said() if any(word in said for word in NEVER_SAID)]

    def summary(self) -> str:
        outcomes = Counter(one.outcome.value for one in self.operations)
        transactions = sum(one.is_transaction for one in self.operations)
        sends = [s for one in self.operations for got in one.sends().values() for s in got]
        acknowledged = sum(
            len(got)
            for one in self.operations
            if one.outcome is Outcome.OK
            for got in one.sends().values()
        )
        lines = [
            f"{len(self.operations):,} operations {dict(outcomes)}, {transactions:,} of them "
            f"transactions; {len(sends):,} sends, {acknowledged:,} acknowledged",
            f"faults: {dict(self.faults)}",
            *(f"  {count:>6} {said}" for said, count in self.said().most_common(25)),
            str(self.verdict),
        ]
        if self.stuck:
            lines.append(f"never stable: {self.stuck}")
        return "\n".join(lines)


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics(
        [NewTopic(topic, PARTITIONS_PER_TOPIC, 1, config=TOPIC_CONFIG) for topic in TOPICS]
    ).values():
        future.result(30)


def _join(thread: threading.Thread, what: str) -> None:
    thread.join(JOIN_S_MAX)
    if thread.is_alive():
        raise TimeoutError(f"{what} did not end within {JOIN_S_MAX:.0f} s")


def run(kind: BrokerKind, directory: Path, *, seed: int, seconds: float, with_java: bool) -> Result:
    """Raises Missing where this machine has no Java, or no broker of this kind."""
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(kind, directory, OVERRIDES, SMALL_JVM))
        broker.format()
        broker.start()
        _create_topics(broker.bootstrap)
        java: JavaProcess | None = None
        openers: list[Open] = [LibrdkafkaClient] * LIBRDKAFKA_WORKERS
        if with_java:
            process = java = stack.enter_context(
                JavaProcess(broker.bootstrap, directory / "java.log")
            )
            openers[JAVA_WORKERS:] = [lambda one: JavaClient(process, one)] * JAVA_WORKERS
        workers = [
            Worker(number, seed, broker.bootstrap, opener, recorder)
            for number, opener in enumerate(openers, start=1)
        ]
        nemesis = Nemesis(broker, seed)
        _work_under_faults(workers, nemesis, seconds)
        stuck = await_stable(
            broker.bootstrap, [(topic_of(k), partition_of(k)) for k in range(KEYS)]
        )
        readings = [clients.read_everything(broker.bootstrap, range(KEYS))]
        if java is not None:
            readings.append(java.read_everything(range(KEYS)))
        for polls in readings:
            process_number = recorder.new_process()
            for poll in polls:
                recorder.add(process_number, (poll,), Outcome.OK, time.monotonic_ns())
    faults = Counter({fault.value: count for fault, count in nemesis.counts.items()})
    return Result(recorder.operations, faults, check(recorder.operations), stuck)


def _work_under_faults(workers: list[Worker], nemesis: Nemesis, seconds: float) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=one.run, args=(stop,), daemon=True) for one in workers]
    faults = threading.Thread(target=nemesis.run, args=(stop,), daemon=True)
    for thread in (*threads, faults):
        thread.start()
    stop.wait(seconds)
    stop.set()
    _join(faults, "the faults")
    for thread in threads:
        _join(thread, "a worker")
    for failure in (nemesis.failure, *(one.failure for one in workers)):
        if failure is not None:
            raise failure
