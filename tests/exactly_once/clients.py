"""How a plan is performed, and how what came of it is judged: did it happen, or not, or who knows?

The rules are those of Jepsen's queue workload. A transaction that failed before its commit was
tried did not happen. One whose commit failed did not happen if the client could then abort it,
or if the broker said that the producer was fenced or out of order; after a timeout nobody knows.
So a broker that says OUT_OF_ORDER_SEQUENCE_NUMBER, PRODUCER_FENCED or INVALID_PRODUCER_EPOCH of
what it has stored will be found out. NOT_LEADER_OR_FOLLOWER, timeouts, lost connections and
UNKNOWN_SERVER_ERROR say nothing (KAFKA-13574).

An operation that did not succeed puts its consumer back to where it was before. A consumer that
subscribes goes back to what its group has committed, and drops what it read while its partitions
changed hands: within one operation it is not moved.

Owned by one worker's thread each.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from exactly_once.history import Key, Outcome, Pair, Poll, Send, Step
from exactly_once.workload import (
    TOPICS,
    Kind,
    Plan,
    PlannedSend,
    key_of,
    partition_of,
    topic_of,
)

# Short, so that pauses and restarts outlast them and leave outcomes unknown.
TRANSACTION_TIMEOUT_MS = 4_000
DELIVERY_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 1_500
CALL_S_MAX = 6.0
COMMIT_S_MAX = 2.5
POLL_S = 0.1
POLL_RECORDS_MAX = 200
LEAVE_POLLS = 3
FINAL_READ_S_MAX = 60.0

# By default librdkafka 2.16 forgets the only broker when it goes away, and then waits for ever in
# send_offsets_to_transaction: the group's coordinator that it remembers is no more. Without that
# it does not connect again on its own, unless it is to hold connections to all brokers.
KEEP_BROKERS = {"metadata.recovery.strategy": "none", "enable.sparse.connections": False}

MEMBER = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "partition.assignment.strategy": "range",
}

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED})
# Definite, and the end of the producer.
DEFINITE_AND_FATAL = FENCED | {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER}
DEFINITE = DEFINITE_AND_FATAL | {
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True)
class Identity:
    """Who a process is to the broker, and where its consumer starts."""

    bootstrap: str
    transactional_id: str
    worker: str
    group: str
    positions: Mapping[Key, int] | None  # none for a member of the group, which is told


@dataclass(frozen=True)
class Completion:
    outcome: Outcome
    steps: tuple[Step, ...] = ()
    error: str = ""
    ends_process: bool = False
    parts: "tuple[Completion, ...]" = ()  # of a pipeline: one for each send


class Client(Protocol):
    def perform(self, plan: Plan, positions: Mapping[Key, int]) -> Completion:
        """Do it; `positions` is where each assigned partition stands if it fails."""
        ...

    def close(self) -> None: ...


class NotDelivered(Exception):
    """librdkafka said nothing of a record for longer than it may."""


class Moved(Exception):
    """Partitions changed hands in the middle of a transaction."""


def error_of(error: BaseException) -> KafkaError | None:
    found = error.args[0] if error.args else None
    return found if isinstance(found, KafkaError) else None


def describe(error: BaseException) -> str:
    kafka = error_of(error)
    return kafka.name() if kafka is not None else type(error).__name__


def _settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 300,
        **KEEP_BROKERS,
        "log_level": 0,
    }


def make_producer(bootstrap: str, transactional_id: str | None = None, **more: Any) -> Producer:
    settings = _settings(bootstrap)
    settings.update(
        {
            "enable.idempotence": True,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "retry.backoff.ms": 50,
            "linger.ms": 0,
            **more,
        }
    )
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
        settings["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
    return Producer(settings)


def make_consumer(bootstrap: str, group: str, **more: Any) -> Consumer:
    settings = _settings(bootstrap)
    settings.update(
        {
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 50,
            "check.crcs": True,
            **more,
        }
    )
    return Consumer(settings)


def partitions(positions: Mapping[Key, int]) -> list[TopicPartition]:
    return [TopicPartition(topic_of(k), partition_of(k), at) for k, at in positions.items()]


def leave(consumer: Consumer) -> None:
    """Leave the group and hear of it: librdkafka hangs in close() if an assignment comes then."""
    consumer.unsubscribe()
    quiet, deadline = 0, time.monotonic() + CALL_S_MAX
    while quiet < LEAVE_POLLS and time.monotonic() < deadline:
        consumer.consume(POLL_RECORDS_MAX, POLL_S)
        quiet = 0 if consumer.assignment() else quiet + 1


def send(producer: Producer, key: Key, value: int) -> int:
    """Produce one record and wait for its offset."""
    outcome: list[tuple[KafkaError | None, int]] = []
    producer.produce(
        topic_of(key),
        str(value).encode(),
        partition=partition_of(key),
        on_delivery=lambda error, message: outcome.append((error, message.offset())),
    )
    deadline = time.monotonic() + CALL_S_MAX
    while not outcome:
        if time.monotonic() > deadline:
            raise NotDelivered(f"{value} of partition {key}")
        producer.poll(0.05)
    error, offset = outcome[0]
    if error is not None:
        raise KafkaException(error)
    return offset


@dataclass
class LibrdkafkaClient:
    identity: Identity
    _steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        bootstrap, positions = self.identity.bootstrap, self.identity.positions
        self._plain = make_producer(bootstrap)
        self._pipelined = make_producer(bootstrap, **{"batch.num.messages": 1})
        self._producer = make_producer(bootstrap, self.identity.transactional_id)
        self._producer.init_transactions(CALL_S_MAX)
        self._is_moved = False
        self._membership: Any = None
        if positions is None:
            self._consumer = make_consumer(bootstrap, self.identity.group, **MEMBER)
            self._subscribe()
        else:
            self._consumer = make_consumer(bootstrap, self.identity.group)
            self._consumer.assign(partitions(positions))

    def close(self) -> None:
        for producer in (self._producer, self._pipelined, self._plain):
            with contextlib.suppress(KafkaException):
                producer.purge()
        if self.identity.positions is None:
            leave(self._consumer)
        self._consumer.close()

    def perform(self, plan: Plan, positions: Mapping[Key, int]) -> Completion:
        self._steps = []
        is_member = self.identity.positions is None
        if plan.kind is Kind.ASSIGN:
            if is_member:
                self._subscribe()
            else:
                self._consumer.assign(partitions(positions))
            return Completion(Outcome.OK)
        if plan.kind is Kind.PIPELINE:
            return self._pipeline(plan)
        self._is_moved = False
        perform = self._transaction if plan.kind is Kind.TRANSACTION else self._alone
        completion = perform(plan)
        if completion.outcome is Outcome.OK or completion.ends_process:
            return completion
        if not is_member:
            self._consumer.assign(partitions(positions))
            return completion
        try:
            self._rewind()
        except KafkaException:
            return replace(completion, ends_process=True)
        return completion

    # A member of a group

    def _subscribe(self) -> None:
        self._consumer.unsubscribe()
        self._consumer.subscribe(
            list(TOPICS),
            on_assign=self._on_assigned,
            on_revoke=self._on_revoked,
            on_lost=self._on_revoked,
        )

    def _on_assigned(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        # Asked for later, it may be that of nobody, and then nobody is fenced (KIP-447).
        self._membership = consumer.consumer_group_metadata()
        self._is_moved = True

    def _on_revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._is_moved = True

    def _rewind(self) -> None:
        """Go back to what is committed, or to the start."""
        for at in self._consumer.committed(self._consumer.assignment(), CALL_S_MAX):
            self._consumer.seek(TopicPartition(at.topic, at.partition, max(at.offset, 0)))

    # Operations

    def _pipeline(self, plan: Plan) -> Completion:
        """Send all without waiting, each in a batch of its own."""
        told: dict[int, tuple[KafkaError | None, int]] = {}
        sends = [step for step in plan.steps if isinstance(step, PlannedSend)]
        for step in sends:

            def on_delivery(error: Any, message: Any, value: int = step.value) -> None:
                told[value] = (error, message.offset())

            try:
                self._pipelined.produce(
                    topic_of(step.key),
                    str(step.value).encode(),
                    partition=partition_of(step.key),
                    on_delivery=on_delivery,
                )
            except KafkaException as error:
                told[step.value] = (error.args[0], -1)  # it was not even queued
        deadline = time.monotonic() + CALL_S_MAX
        while len(told) < len(sends) and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):  # fatal: each record is told why it failed
                self._pipelined.poll(0.05)
        parts = tuple(self._judged(step, told.get(step.value)) for step in sends)
        worst = max((one.outcome for one in parts), key=list(Outcome).index)
        return Completion(worst, ends_process=any(one.ends_process for one in parts), parts=parts)

    def _judged(self, step: PlannedSend, told: tuple[KafkaError | None, int] | None) -> Completion:
        if told is None:
            return Completion(Outcome.INFO, (Send(step.key, step.value),), "NotDelivered", True)
        error, offset = told
        if error is None:
            return Completion(Outcome.OK, (Send(step.key, step.value, offset),))
        is_definite = error.code() in DEFINITE
        return Completion(
            Outcome.FAIL if is_definite else Outcome.INFO,
            (Send(step.key, step.value),),
            error.name(),
            not is_definite or error.code() in DEFINITE_AND_FATAL,
        )

    def _ended(
        self, outcome: Outcome, error: BaseException | str = "", *, ends: bool
    ) -> Completion:
        text = error if isinstance(error, str) else describe(error)
        return Completion(outcome, tuple(self._steps), text, ends)

    def _alone(self, plan: Plan) -> Completion:
        (step,) = plan.steps
        try:
            self._step(self._plain, step)
        except NotDelivered as error:
            return self._ended(Outcome.INFO, error, ends=True)
        except Moved as error:
            return self._ended(Outcome.FAIL, error, ends=False)
        except KafkaException as error:
            kafka = error_of(error)
            code = kafka.code() if kafka is not None else None
            if not isinstance(step, PlannedSend) or code in DEFINITE:
                return self._ended(Outcome.FAIL, error, ends=code in DEFINITE_AND_FATAL)
            return self._ended(Outcome.INFO, error, ends=True)
        return self._ended(Outcome.OK, ends=False)

    def _step(self, producer: Producer, step: object) -> None:
        """Perform one step; a send is remembered before it is known to have worked."""
        if not isinstance(step, PlannedSend):
            self._steps.append(self._poll())
            return
        self._steps.append(Send(step.key, step.value))
        self._steps[-1] = Send(step.key, step.value, send(producer, step.key, step.value))

    def _poll(self) -> Poll:
        pairs: dict[Key, list[Pair]] = {}
        for message in self._consumer.consume(POLL_RECORDS_MAX, POLL_S):
            if message.error() is not None:
                raise KafkaException(message.error())
            key = key_of(message.topic(), message.partition())
            pairs.setdefault(key, []).append((message.offset(), int(message.value())))
        if self._is_moved:
            raise Moved
        return Poll({key: tuple(got) for key, got in pairs.items()})

    def _transaction(self, plan: Plan) -> Completion:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            return self._ended(Outcome.FAIL, error, ends=True)
        try:
            for index, step in enumerate(plan.steps):
                if plan.abort_before == index:
                    return self._abort("intended")
                self._step(self._producer, step)
            if plan.abort_before is not None:
                return self._abort("intended")
            self._send_offsets()
            rival = self._overtaken_by(plan.rival) if plan.rival is not None else None
        except (KafkaException, NotDelivered, Moved) as error:
            kafka = error_of(error)
            if kafka is not None and kafka.code() in DEFINITE_AND_FATAL:
                return self._ended(Outcome.FAIL, error, ends=True)
            return self._abort(describe(error))
        completion = self._commit(is_overtaken=rival is not None)
        if rival is not None:
            with contextlib.suppress(KafkaException):  # its time runs out if it cannot abort
                rival.abort_transaction(CALL_S_MAX)
        return completion

    def _overtaken_by(self, planned: PlannedSend) -> Producer:
        """Another producer of the same transactional id, with a transaction of its own."""
        rival = make_producer(self.identity.bootstrap, self.identity.transactional_id)
        rival.init_transactions(CALL_S_MAX)
        rival.begin_transaction()
        send(rival, planned.key, planned.value)
        return rival

    def _send_offsets(self) -> None:
        ends = {
            key: pairs[-1][0] + 1
            for step in self._steps
            if isinstance(step, Poll)
            for key, pairs in step.pairs.items()
        }
        if ends:
            metadata = self._membership or self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(partitions(ends), metadata, CALL_S_MAX)

    def _abort(self, why: str) -> Completion:
        """Its commit was not tried, so it did not happen, even if the abort fails."""
        try:
            self._producer.abort_transaction(CALL_S_MAX)
        except KafkaException as error:
            return self._ended(Outcome.FAIL, f"{why}, abort {describe(error)}", ends=True)
        return self._ended(Outcome.FAIL, why, ends=False)

    def _commit(self, *, is_overtaken: bool) -> Completion:
        try:
            self._producer.commit_transaction(COMMIT_S_MAX)
        except KafkaException as error:
            kafka = error_of(error)
            if kafka is None:
                return self._ended(Outcome.INFO, error, ends=True)
            why = "overtaken, " if is_overtaken else ""
            if kafka.code() in DEFINITE_AND_FATAL:
                return self._ended(Outcome.FAIL, f"{why}commit {kafka.name()}", ends=True)
            if not kafka.txn_requires_abort():
                return self._ended(Outcome.INFO, f"{why}commit {kafka.name()}", ends=True)
            try:
                self._producer.abort_transaction(CALL_S_MAX)
            except KafkaException as failed:
                is_definite = kafka.code() == KafkaError.INVALID_TXN_STATE
                outcome = Outcome.FAIL if is_definite else Outcome.INFO
                what = f"{why}commit {kafka.name()}, abort {describe(failed)}"
                return self._ended(outcome, what, ends=True)
            return self._ended(Outcome.FAIL, f"{why}commit {kafka.name()}", ends=False)
        return self._ended(Outcome.OK, ends=is_overtaken)


def read_everything(bootstrap: str, keys: Sequence[Key]) -> list[Poll]:
    """All that a read_committed consumer finds from offset 0, in polls as they came."""
    consumer = make_consumer(bootstrap, "final-reader", **{"enable.partition.eof": True})
    consumer.assign(partitions(dict.fromkeys(keys, 0)))
    polls: list[Poll] = []
    missing = set(keys)
    deadline = time.monotonic() + FINAL_READ_S_MAX
    try:
        while missing:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the end of partitions {sorted(missing)} was not reached")
            pairs: dict[Key, list[Pair]] = {}
            for message in consumer.consume(POLL_RECORDS_MAX, POLL_S):
                key = key_of(message.topic(), message.partition())
                error = message.error()
                if error is None:
                    pairs.setdefault(key, []).append((message.offset(), int(message.value())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    missing.discard(key)
                else:
                    raise KafkaException(error)
            if pairs:
                polls.append(Poll({key: tuple(got) for key, got in pairs.items()}))
    finally:
        consumer.close()
    return polls
