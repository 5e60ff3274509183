"""confluent-kafka's transactions; compat/transactions.py says what is asked."""

import time
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from compat.drivers import program
from compat.drivers.program import STEP_S_MAX, Step
from compat.transactions import PARTITIONS


class ConfluentTransactions:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.name = f"confluent-kafka {confluent_kafka.__version__}"
        self._bootstrap, self._topic = bootstrap, topic

    def close(self) -> None:
        """Nothing is kept between steps."""

    def _producer(self, transactional_id: str, **settings: Any) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 15_000,
                **settings,
            }
        )
        producer.init_transactions(STEP_S_MAX)
        return producer

    def _consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self._topic}-unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **settings,
            }
        )

    def _send(self, producer: Producer, records: list[list[Any]]) -> int:
        for value, partition in records:
            producer.produce(self._topic, value.encode(), partition=partition)
        if producer.flush(STEP_S_MAX):
            raise RuntimeError("not everything was delivered")
        return len(records)

    def commit(self, step: Step) -> int:
        producer = self._producer(step["transactional_id"])
        producer.begin_transaction()
        sent = self._send(producer, step["records"])
        producer.commit_transaction(STEP_S_MAX)
        return sent

    def abort(self, step: Step) -> int:
        producer = self._producer(step["transactional_id"])
        producer.begin_transaction()
        sent = self._send(producer, step["records"])
        producer.abort_transaction(STEP_S_MAX)
        return sent

    def read(self, step: Step) -> dict[str, list[str]]:
        level = "read_committed" if step["committed"] else "read_uncommitted"
        consumer = self._consumer(**{"isolation.level": level})
        consumer.assign(
            [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
        )
        found: dict[str, list[str]] = {str(p): [] for p in range(PARTITIONS)}
        missing = set(step["until"])
        deadline = time.monotonic() + STEP_S_MAX
        try:
            while missing and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                value = message.value().decode()
                found[str(message.partition())].append(value)
                missing.discard(value)
        finally:
            consumer.close()
        if missing:
            raise TimeoutError(f"{missing} did not come after {found}")
        return found

    def transform(self, step: Step) -> list[str]:
        consumer = self._consumer(**{"group.id": step["group"]})
        consumer.subscribe([step["source"]])
        producer = self._producer(step["transactional_id"])
        try:
            taken: list[Any] = []
            deadline = time.monotonic() + STEP_S_MAX
            while len(taken) < step["count"] and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and not message.error():
                    taken.append(message)
            values = [message.value().decode() for message in taken]
            producer.begin_transaction()
            self._send(producer, [[f"{step['prefix']}{value}", 0] for value in values])
            end = TopicPartition(step["source"], 0, taken[-1].offset() + 1)
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([end], metadata, STEP_S_MAX)
            if step["commit"]:
                producer.commit_transaction(STEP_S_MAX)
            else:
                producer.abort_transaction(STEP_S_MAX)
            return values
        finally:
            consumer.close()

    def fence(self, step: Step) -> str:
        zombie = self._producer(step["transactional_id"])
        zombie.begin_transaction()
        self._send(zombie, [step["zombie"]])
        heir = self._producer(step["transactional_id"])
        heir.begin_transaction()
        self._send(heir, [step["heir"]])
        told = self._told(zombie)
        heir.commit_transaction(STEP_S_MAX)
        return told

    def time_out(self, step: Step) -> str:
        times = {"transaction.timeout.ms": step["timeout_ms"], "message.timeout.ms": 1_000}
        late = self._producer(step["transactional_id"], **times)
        late.begin_transaction()
        self._send(late, [step["late"]])
        self.commit({"transactional_id": f"{self._topic}-after", "records": [step["after"]]})
        self.read({"committed": True, "until": [step["after"][0]]})
        return self._told(late)

    def _told(self, producer: Producer) -> str:
        """The error of a commit that must fail, or nothing."""
        try:
            producer.commit_transaction(STEP_S_MAX)
        except KafkaException as error:
            return str(error.args[0])
        return ""


if __name__ == "__main__":
    program.run(ConfluentTransactions)
