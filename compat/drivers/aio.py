"""aiokafka as a client of the suite."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import aiokafka  # type: ignore[import-untyped]  # it ships no types
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete  # type: ignore[import-untyped]  # it ships no types
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]  # it ships no types
from aiokafka.errors import for_code  # type: ignore[import-untyped]  # it ships no types

from compat.drivers import program
from compat.drivers.program import STEP_S_MAX, Step

T = TypeVar("T")


def _raise_for(code: int) -> None:
    if code:
        raise for_code(code)


class Aio:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.name = f"aiokafka {aiokafka.__version__}"
        self._bootstrap, self._topic = bootstrap, topic
        self._runner = asyncio.Runner()
        self._admin: AIOKafkaAdminClient = self._run(self._start_admin())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, 2 * STEP_S_MAX))

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        return admin

    def close(self) -> None:
        self._run(self._admin.close())
        self._runner.close()

    def _partitions_known(self) -> int:
        (found,) = self._run(self._admin.describe_topics([self._topic]))
        return len(found["partitions"]) if not found["error_code"] else 0

    def create_topic(self, step: Step) -> bool:
        new = NewTopic(self._topic, step["partitions"], 1, topic_configs=step["configs"])
        answer = self._run(self._admin.create_topics([new]))
        _raise_for(answer.topic_errors[0][1])
        return program.until(lambda: self._partitions_known() == step["partitions"])

    def describe_topic(self, _step: Step) -> int:
        return self._partitions_known()

    def produce(self, step: Step) -> int:
        return self._run(self._produce(step))

    async def _produce(self, step: Step) -> int:
        name = step["codec"]
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all" if step["acks"] == "all" else int(step["acks"]),
            compression_type=None if name == "none" else name,
            enable_idempotence=step["idempotent"],
            linger_ms=20,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    self._topic,
                    partition=record["partition"],
                    key=program.raw(record["key"]),
                    value=program.raw(record["value"]),
                    headers=[(k, v.encode()) for k, v in record["headers"]],
                    timestamp_ms=record["timestamp"],
                )
                for record in step["records"]
            ]
            await asyncio.gather(*futures)
            return len(futures)
        finally:
            await producer.stop()

    def _consumer(self, *topics: str, **settings: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )

    async def _read(self, consumer: AIOKafkaConsumer, count: int) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STEP_S_MAX
        while len(records) < count and loop.time() < deadline:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
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
        return self._run(self._consume(step))

    async def _consume(self, step: Step) -> list[dict[str, Any]]:
        consumer = self._consumer(group_id=None)
        await consumer.start()
        try:
            consumer.assign(self._parts(step["partitions"]))
            return await self._read(consumer, step["count"])
        finally:
            await consumer.stop()

    def group_consume(self, step: Step) -> list[dict[str, Any]]:
        return self._run(self._group_consume(step))

    async def _group_consume(self, step: Step) -> list[dict[str, Any]]:
        consumer = self._consumer(self._topic, group_id=step["group"])
        await consumer.start()
        try:
            records = await self._read(consumer, step["count"])
            await consumer.commit()
            parts = self._parts(step["partitions"])
            committed = sum([await consumer.committed(part) or 0 for part in parts])
            if committed != step["count"]:
                raise RuntimeError(f"committed {committed} of {step['count']}")
            return records
        finally:
            await consumer.stop()

    def list_offsets(self, step: Step) -> dict[str, list[int]]:
        return self._run(self._list_offsets(step))

    async def _list_offsets(self, step: Step) -> dict[str, list[int]]:
        consumer = self._consumer(group_id=None)
        await consumer.start()
        try:
            parts = self._parts(step["partitions"])
            first = await consumer.beginning_offsets(parts)
            end = await consumer.end_offsets(parts)
            return {str(part.partition): [first[part], end[part]] for part in parts}
        finally:
            await consumer.stop()

    def seek_by_time(self, step: Step) -> dict[str, int]:
        return self._run(self._seek_by_time(step))

    async def _seek_by_time(self, step: Step) -> dict[str, int]:
        consumer = self._consumer(group_id=None)
        await consumer.start()
        try:
            parts = self._parts(step["partitions"])
            times = await consumer.offsets_for_times(dict.fromkeys(parts, step["timestamp"]))
            found = {}
            for part in parts:
                consumer.assign([part])
                consumer.seek(part, times[part].offset)
                found[str(part.partition)] = (await self._read(consumer, 1))[0]["offset"]
            return found
        finally:
            await consumer.stop()

    def alter_configs(self, step: Step) -> bool:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic, step["configs"])
        for answer in self._run(self._admin.alter_configs([resource])):
            _raise_for(answer.resources[0][0])
        return program.until(
            lambda: self.describe_configs({"names": list(step["configs"])}) == step["configs"]
        )

    def describe_configs(self, step: Step) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic)
        (answer,) = self._run(self._admin.describe_configs([resource]))
        code, _, _, _, entries = answer.resources[0]
        _raise_for(code)
        values = {entry[0]: entry[1] for entry in entries}
        return {name: values[name] for name in step["names"]}

    def add_partitions(self, step: Step) -> int:
        new = {self._topic: NewPartitions(step["count"])}
        answer = self._run(self._admin.create_partitions(new))
        _raise_for(answer.topic_errors[0][1])
        program.until(lambda: self._partitions_known() == step["count"])
        return self._partitions_known()

    def delete_records(self, step: Step) -> int:
        part = TopicPartition(self._topic, step["partition"])
        wanted = {part: RecordsToDelete(step["offset"])}
        low: int = self._run(self._admin.delete_records(wanted))[part]
        return low

    def delete_topic(self, _step: Step) -> bool:
        answer = self._run(self._admin.delete_topics([self._topic]))
        _raise_for(answer.topic_error_codes[0][1])
        return not program.until(lambda: self._topic not in self._run(self._admin.list_topics()))


if __name__ == "__main__":
    program.run(Aio)
