"""confluent-kafka (librdkafka) as a client of the suite."""

import time
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from compat.drivers import program
from compat.drivers.program import STEP_S_MAX, Step


def _headers(headers: Any) -> list[list[str]]:
    return [[name, value.decode()] for name, value in headers or []]


class Confluent:
    def __init__(self, bootstrap: str, topic: str) -> None:
        library = confluent_kafka.libversion()[0]
        self.name = f"confluent-kafka {confluent_kafka.__version__} (librdkafka {library})"
        self._bootstrap, self._topic = bootstrap, topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        pass

    def _partitions_known(self) -> int:
        known = self._admin.list_topics(timeout=10).topics.get(self._topic)
        return len(known.partitions) if known is not None and known.error is None else 0

    def create_topic(self, step: Step) -> bool:
        new = NewTopic(self._topic, step["partitions"], 1, config=step["configs"])
        self._admin.create_topics([new], operation_timeout=10)[self._topic].result(20)
        return program.until(lambda: self._partitions_known() == step["partitions"])

    def describe_topic(self, _step: Step) -> int:
        names = confluent_kafka.TopicCollection([self._topic])
        description = self._admin.describe_topics(names)[self._topic].result(20)
        return len([part for part in description.partitions if part.leader is not None])

    def produce(self, step: Step) -> int:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": step["acks"],
                "compression.type": step["codec"],
                "enable.idempotence": step["idempotent"],
                "message.timeout.ms": 15_000,
                "linger.ms": 20,
            }
        )
        errors: list[Any] = []
        delivered: list[int] = []

        def on_delivery(error: Any, message: Any) -> None:
            errors.append(error) if error else delivered.append(message.offset())

        for record in step["records"]:
            producer.produce(
                self._topic,
                partition=record["partition"],
                key=program.raw(record["key"]),
                value=program.raw(record["value"]),
                headers=[(name, value.encode()) for name, value in record["headers"]],
                timestamp=record["timestamp"],
                on_delivery=on_delivery,
            )
        producer.flush(STEP_S_MAX)
        if errors:
            raise confluent_kafka.KafkaException(errors[0])
        return len(delivered)

    def _consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self._topic}-unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                **settings,
            }
        )

    def _read(self, consumer: Consumer, count: int) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + STEP_S_MAX
        while len(records) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                raise confluent_kafka.KafkaException(message.error())
            records.append(
                {
                    "partition": message.partition(),
                    "offset": message.offset(),
                    "timestamp": message.timestamp()[1],
                    "key": program.text(message.key()),
                    "value": program.text(message.value()),
                    "headers": _headers(message.headers()),
                }
            )
        return program.in_log_order(records)

    def consume(self, step: Step) -> list[dict[str, Any]]:
        consumer = self._consumer()
        consumer.assign(
            [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in range(step["partitions"])]
        )
        try:
            return self._read(consumer, step["count"])
        finally:
            consumer.close()

    def group_consume(self, step: Step) -> list[dict[str, Any]]:
        consumer = self._consumer(**{"group.id": step["group"]})
        consumer.subscribe([self._topic])
        try:
            records = self._read(consumer, step["count"])
            consumer.commit(asynchronous=False)
            parts = [TopicPartition(self._topic, p) for p in range(step["partitions"])]
            committed = sum(part.offset for part in consumer.committed(parts, timeout=10))
            if committed != step["count"]:
                raise RuntimeError(f"committed {committed} of {step['count']}")
            return records
        finally:
            consumer.close()

    def list_offsets(self, step: Step) -> dict[str, list[int]]:
        consumer = self._consumer()
        try:
            return {
                str(p): list(consumer.get_watermark_offsets(TopicPartition(self._topic, p), 10))
                for p in range(step["partitions"])
            }
        finally:
            consumer.close()

    def seek_by_time(self, step: Step) -> dict[str, int]:
        consumer = self._consumer()
        try:
            wanted = [
                TopicPartition(self._topic, p, step["timestamp"]) for p in range(step["partitions"])
            ]
            found = {}
            for part in consumer.offsets_for_times(wanted, timeout=10):
                consumer.assign([part])
                found[str(part.partition)] = self._read(consumer, 1)[0]["offset"]
            return found
        finally:
            consumer.close()

    def alter_configs(self, step: Step) -> bool:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in step["configs"].items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self._topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(20)
        return program.until(
            lambda: self.describe_configs({"names": list(step["configs"])}) == step["configs"]
        )

    def describe_configs(self, step: Step) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        entries = self._admin.describe_configs([resource])[resource].result(20)
        return {name: entries[name].value for name in step["names"]}

    def add_partitions(self, step: Step) -> int:
        new = NewPartitions(self._topic, step["count"])
        self._admin.create_partitions([new])[self._topic].result(20)
        program.until(lambda: self._partitions_known() == step["count"])
        return self._partitions_known()

    def delete_records(self, step: Step) -> int:
        part = TopicPartition(self._topic, step["partition"], step["offset"])
        done = self._admin.delete_records([part])[part].result(20)
        low: int = done.low_watermark
        return low

    def delete_topic(self, _step: Step) -> bool:
        self._admin.delete_topics([self._topic], operation_timeout=10)[self._topic].result(20)
        return not program.until(
            lambda: self._topic not in self._admin.list_topics(timeout=10).topics
        )


if __name__ == "__main__":
    program.run(Confluent)
