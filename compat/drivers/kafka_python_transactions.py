"""kafka-python's transactions; compat/transactions.py says what is asked."""

import time
from typing import Any

import kafka  # type: ignore[import-untyped]  # it ships no types
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError  # type: ignore[import-untyped]  # it ships no types
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]  # it ships no types

from compat.drivers import program
from compat.drivers.program import STEP_S_MAX, Step
from compat.transactions import PARTITIONS


class KafkaPythonTransactions:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.name = f"kafka-python {kafka.__version__}"
        self._bootstrap, self._topic = bootstrap, topic

    def close(self) -> None:
        """Nothing is kept between steps."""

    def _producer(self, transactional_id: str, timeout_ms: int = 15_000) -> KafkaProducer:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        producer.init_transactions()
        return producer

    def _consumer(self, *topics: str, **settings: Any) -> KafkaConsumer:
        return KafkaConsumer(
            *topics,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )

    def _send(self, producer: KafkaProducer, records: list[list[Any]]) -> int:
        futures = [
            producer.send(self._topic, value.encode(), partition=partition)
            for value, partition in records
        ]
        producer.flush(STEP_S_MAX)
        for future in futures:
            future.get(STEP_S_MAX)
        return len(records)

    def _write(self, step: Step, *, commit: bool) -> int:
        producer = self._producer(step["transactional_id"])
        try:
            producer.begin_transaction()
            sent = self._send(producer, step["records"])
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            return sent
        finally:
            producer.close()

    def commit(self, step: Step) -> int:
        return self._write(step, commit=True)

    def abort(self, step: Step) -> int:
        return self._write(step, commit=False)

    def read(self, step: Step) -> dict[str, list[str]]:
        level = "read_committed" if step["committed"] else "read_uncommitted"
        consumer = self._consumer(group_id=None, isolation_level=level)
        parts = [TopicPartition(self._topic, p) for p in range(PARTITIONS)]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        found: dict[str, list[str]] = {str(p): [] for p in range(PARTITIONS)}
        missing = set(step["until"])
        deadline = time.monotonic() + STEP_S_MAX
        try:
            while missing and time.monotonic() < deadline:
                for messages in consumer.poll(timeout_ms=200).values():
                    for message in messages:
                        value = message.value.decode()
                        found[str(message.partition)].append(value)
                        missing.discard(value)
        finally:
            consumer.close()
        if missing:
            raise TimeoutError(f"{missing} did not come after {found}")
        return found

    def transform(self, step: Step) -> list[str]:
        group = {"group_id": step["group"], "isolation_level": "read_committed"}
        consumer = self._consumer(step["source"], **group)
        producer = self._producer(step["transactional_id"])
        try:
            taken: list[Any] = []
            deadline = time.monotonic() + STEP_S_MAX
            while len(taken) < step["count"] and time.monotonic() < deadline:
                wanted = step["count"] - len(taken)
                for messages in consumer.poll(timeout_ms=200, max_records=wanted).values():
                    taken += messages
            values = [message.value.decode() for message in taken]
            producer.begin_transaction()
            self._send(producer, [[f"{step['prefix']}{value}", 0] for value in values])
            end = OffsetAndMetadata(taken[-1].offset + 1, "", -1)
            places = {TopicPartition(step["source"], 0): end}
            producer.send_offsets_to_transaction(places, consumer.group_metadata())
            if step["commit"]:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            return values
        finally:
            consumer.close()
            producer.close()

    def fence(self, step: Step) -> str:
        zombie = self._producer(step["transactional_id"])
        zombie.begin_transaction()
        self._send(zombie, [step["zombie"]])
        heir = self._producer(step["transactional_id"])
        heir.begin_transaction()
        self._send(heir, [step["heir"]])
        told = self._told(zombie)
        heir.commit_transaction()
        return told

    def time_out(self, step: Step) -> str:
        late = self._producer(step["transactional_id"], step["timeout_ms"])
        late.begin_transaction()
        self._send(late, [step["late"]])
        self.commit({"transactional_id": f"{self._topic}-after", "records": [step["after"]]})
        self.read({"committed": True, "until": [step["after"][0]]})
        return self._told(late)

    def _told(self, producer: KafkaProducer) -> str:
        """The error of a commit that must fail, or nothing."""
        try:
            producer.commit_transaction()
        except KafkaError as error:
            return f"{type(error).__name__}: {error}"
        return ""


if __name__ == "__main__":
    program.run(KafkaPythonTransactions)
