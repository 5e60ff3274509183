"""kafka-python as a client of the suite."""

import time
from typing import Any

import kafka  # type: ignore[import-untyped]  # it ships no types
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, codec
from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]  # it ships no types

from compat.drivers import program
from compat.drivers.program import STEP_S_MAX, NotOffered, Step

CODEC_PRESENT = {
    "none": lambda: True,
    "gzip": codec.has_gzip,
    "snappy": codec.has_snappy,
    "lz4": codec.has_lz4,
    "zstd": codec.has_zstd,
}


class KafkaPython:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.name = f"kafka-python {kafka.__version__}"
        self._bootstrap, self._topic = bootstrap, topic
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def _partitions_known(self) -> int:
        found = self._admin.describe_topics([self._topic])
        return len(found[0]["partitions"]) if found else 0

    def create_topic(self, step: Step) -> bool:
        options = {
            "num_partitions": step["partitions"],
            "replication_factor": 1,
            "configs": step["configs"],
        }
        self._admin.create_topics({self._topic: options})
        return program.until(lambda: self._partitions_known() == step["partitions"])

    def describe_topic(self, _step: Step) -> int:
        return self._partitions_known()

    def produce(self, step: Step) -> int:
        name = step["codec"]
        if not CODEC_PRESENT[name]():
            raise NotOffered(f"kafka-python needs another package for {name}")
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all" if step["acks"] == "all" else int(step["acks"]),
            compression_type=None if name == "none" else name,
            enable_idempotence=step["idempotent"],
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    self._topic,
                    partition=record["partition"],
                    key=program.raw(record["key"]),
                    value=program.raw(record["value"]),
                    headers=[(k, v.encode()) for k, v in record["headers"]],
                    timestamp_ms=record["timestamp"],
                )
                for record in step["records"]
            ]
            producer.flush(timeout=STEP_S_MAX)
            for future in futures:
                future.get(timeout=STEP_S_MAX)
            return len(futures)
        finally:
            producer.close()

    def _consumer(self, *topics: str, **settings: Any) -> KafkaConsumer:
        return KafkaConsumer(
            *topics,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )

    def _read(self, consumer: KafkaConsumer, count: int) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + STEP_S_MAX
        while len(records) < count and time.monotonic() < deadline:
            for messages in consumer.poll(timeout_ms=500).values():
                records += [
                    {
                        "partition": message.partition,
                        "offset": message.offset,
                        "timestamp": message.timestamp,
                        "key": program.text(message.key),
                        "value": program.text(message.value),
                        "headers": [[k, v.decode()] for k, v in message.headers],
                    }
                    for message in messages
                ]
        return program.in_log_order(records)

    def _parts(self, count: int) -> list[TopicPartition]:
        return [TopicPartition(self._topic, p) for p in range(count)]

    def consume(self, step: Step) -> list[dict[str, Any]]:
        consumer = self._consumer(group_id=None)
        try:
            consumer.assign(self._parts(step["partitions"]))
            return self._read(consumer, step["count"])
        finally:
            consumer.close()

    def group_consume(self, step: Step) -> list[dict[str, Any]]:
        consumer = self._consumer(self._topic, group_id=step["group"])
        try:
            records = self._read(consumer, step["count"])
            consumer.commit()
            committed = sum(consumer.committed(p) or 0 for p in self._parts(step["partitions"]))
            if committed != step["count"]:
                raise RuntimeError(f"committed {committed} of {step['count']}")
            return records
        finally:
            consumer.close()

    def list_offsets(self, step: Step) -> dict[str, list[int]]:
        consumer = self._consumer(group_id=None)
        try:
            parts = self._parts(step["partitions"])
            first, end = consumer.beginning_offsets(parts), consumer.end_offsets(parts)
            return {str(part.partition): [first[part], end[part]] for part in parts}
        finally:
            consumer.close()

    def seek_by_time(self, step: Step) -> dict[str, int]:
        consumer = self._consumer(group_id=None)
        try:
            parts = self._parts(step["partitions"])
            found = {}
            times = consumer.offsets_for_times(dict.fromkeys(parts, step["timestamp"]))
            for part in parts:
                consumer.assign([part])
                consumer.seek(part, times[part].offset)
                found[str(part.partition)] = self._read(consumer, 1)[0]["offset"]
            return found
        finally:
            consumer.close()

    def alter_configs(self, step: Step) -> bool:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic, step["configs"])
        self._admin.alter_configs([resource])
        return program.until(
            lambda: self.describe_configs({"names": list(step["configs"])}) == step["configs"]
        )

    def describe_configs(self, step: Step) -> dict[str, str]:
        names = dict.fromkeys(step["names"])
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic, names)
        found = self._admin.describe_configs([resource], config_filter="all")
        ((_, by_name),) = found.items()
        return {name: by_name[self._topic][name]["value"] for name in step["names"]}

    def add_partitions(self, step: Step) -> int:
        self._admin.create_partitions({self._topic: step["count"]})
        program.until(lambda: self._partitions_known() == step["count"])
        return self._partitions_known()

    def delete_records(self, step: Step) -> int:
        part = TopicPartition(self._topic, step["partition"])
        done = self._admin.delete_records({part: step["offset"]})
        low: int = done[part]["low_watermark"]
        return low

    def delete_topic(self, _step: Step) -> bool:
        self._admin.delete_topics([self._topic])
        return not program.until(lambda: self._topic not in self._admin.list_topics())


if __name__ == "__main__":
    program.run(KafkaPython)
