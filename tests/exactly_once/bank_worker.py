"""`python -m exactly_once.bank_worker BOOTSTRAP NAME`: one worker of the bank, until it is killed.

Consume, process, produce: requests from the group's partitions, legs and offsets in one
transaction. Whatever goes wrong before the commit, the transaction is aborted and the consumer
goes back to what is committed. What cannot be aborted ends the process; its keeper starts it again.
Every group of requests that was done is told on standard error, in case one is done twice.
"""

import random
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from exactly_once import bank
from exactly_once.clients import KEEP_BROKERS

BATCH_MAX = 20
CALL_S_MAX = 8.0
# Work takes time, in which a worker may fall asleep; its partitions then go to another.
WORK_S_MAX = 0.1


class Worker:
    def __init__(self, bootstrap: str, name: str) -> None:
        shared = {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": 3_000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            **KEEP_BROKERS,
            "log_level": 0,
        }
        self._producer = Producer(
            {
                **shared,
                "transactional.id": name,
                "transaction.timeout.ms": 6_000,
                "message.timeout.ms": 5_000,
                "retry.backoff.ms": 50,
                "linger.ms": 1,
            }
        )
        self._consumer = Consumer(
            {
                **shared,
                "group.id": bank.GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                # Never "earliest": librdkafka 2.16 takes an offset that an open transaction is
                # about to move for none at all when its assignment changes meanwhile.
                "auto.offset.reset": "error",
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        self._is_moved = False
        self._membership: Any = None
        self._chance = random.Random(name)

    def run(self) -> None:
        self._producer.init_transactions(60)
        self._consumer.subscribe(
            [bank.REQUESTS],
            on_assign=self._on_assigned,
            on_revoke=self._on_revoked,
            on_lost=self._on_revoked,
        )
        while True:
            batch = self._gather()
            if batch:
                self._apply(batch)

    def _on_assigned(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Remember as whom the partitions are read.

        Asked for later, it may be that of nobody: a worker that slept has lost its membership,
        and offsets that nobody in particular commits are not fenced (KIP-447).
        """
        self._is_moved = True
        self._membership = consumer.consumer_group_metadata()

    def _on_revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._is_moved = True

    def _gather(self) -> list[Message]:
        """Requests read under one assignment: what came before a rebalance is not ours any more."""
        batch: list[Message] = []
        self._is_moved = False
        message = self._consumer.poll(0.5)
        while message is not None:
            if self._is_moved:
                batch, self._is_moved = [], False
            if message.error() is not None:
                raise KafkaException(message.error())
            batch.append(message)
            if len(batch) >= BATCH_MAX:
                break
            message = self._consumer.poll(0)
        return [] if self._is_moved else batch

    def _apply(self, batch: list[Message]) -> None:
        ends = {(m.topic(), m.partition()): m.offset() + 1 for m in batch}
        offsets = [TopicPartition(topic, part, end) for (topic, part), end in ends.items()]
        self._producer.begin_transaction()
        try:
            for message in batch:
                for leg in bank.decode_transfer(message.value()).legs():
                    where = leg.ledger_partition
                    self._producer.produce(bank.LEDGER, leg.encode(), partition=where)
                    self._producer.produce(bank.BOOK, leg.encode(), partition=0)
            time.sleep(self._chance.random() * WORK_S_MAX)
            self._producer.send_offsets_to_transaction(offsets, self._membership, CALL_S_MAX)
            self._commit()
            _tell(batch, "done")
        except KafkaException as error:
            _tell(batch, f"abort: {error.args[0]}")
            self._producer.abort_transaction(CALL_S_MAX)
            self._rewind()

    def _commit(self) -> None:
        """A commit that timed out is tried again, as librdkafka asks for: it may have happened."""
        while True:
            try:
                self._producer.commit_transaction(CALL_S_MAX)
            except KafkaException as error:
                if error.args[0].retriable():
                    continue
                raise
            return

    def _rewind(self) -> None:
        for place in self._consumer.committed(self._consumer.assignment(), CALL_S_MAX):
            if place.error is not None:  # such as an end of the transaction that is on its way
                raise KafkaException(place.error)
            self._consumer.seek(TopicPartition(place.topic, place.partition, place.offset))


def _tell(batch: list[Message], what: str) -> None:
    numbers = [bank.decode_transfer(message.value()).number for message in batch]
    print(f"{time.time():.3f} {what} {numbers}", file=sys.stderr, flush=True)


def main() -> None:
    bootstrap, name = sys.argv[1:]
    Worker(bootstrap, name).run()


if __name__ == "__main__":
    main()
