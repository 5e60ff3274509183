"""aiokafka's transactions; compat/transactions.py says what is asked."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiokafka  # type: ignore[import-untyped]  # it ships no types
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # it ships no types

from compat.drivers import program
from compat.drivers.program import STEP_S_MAX, Step
from compat.transactions import PARTITIONS

T = TypeVar("T")


class AioTransactions:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.name = f"aiokafka {aiokafka.__version__}"
        self._bootstrap, self._topic = bootstrap, topic

    def close(self) -> None:
        """Nothing is kept between steps."""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(asyncio.wait_for(work, 2 * STEP_S_MAX))

    @asynccontextmanager
    async def _producer(
        self, transactional_id: str, timeout_ms: int = 15_000
    ) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    @asynccontextmanager
    async def _consumer(self, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    async def _send(self, producer: AIOKafkaProducer, records: list[list[Any]]) -> int:
        for value, partition in records:
            await producer.send_and_wait(self._topic, value.encode(), partition=partition)
        return len(records)

    def commit(self, step: Step) -> int:
        return self._run(self._write(step, commit=True))

    def abort(self, step: Step) -> int:
        return self._run(self._write(step, commit=False))

    async def _write(self, step: Step, *, commit: bool) -> int:
        async with self._producer(step["transactional_id"]) as producer:
            await producer.begin_transaction()
            sent = await self._send(producer, step["records"])
            await (producer.commit_transaction() if commit else producer.abort_transaction())
            return sent

    def read(self, step: Step) -> dict[str, list[str]]:
        return self._run(self._read(step))

    async def _read(self, step: Step) -> dict[str, list[str]]:
        level = "read_committed" if step["committed"] else "read_uncommitted"
        found: dict[str, list[str]] = {str(p): [] for p in range(PARTITIONS)}
        missing = set(step["until"])
        async with self._consumer(group_id=None, isolation_level=level) as consumer:
            consumer.assign([TopicPartition(self._topic, p) for p in range(PARTITIONS)])
            while missing:
                message = await asyncio.wait_for(consumer.getone(), STEP_S_MAX)
                value = message.value.decode()
                found[str(message.partition)].append(value)
                missing.discard(value)
        return found

    def transform(self, step: Step) -> list[str]:
        return self._run(self._transform(step))

    async def _transform(self, step: Step) -> list[str]:
        group = {"group_id": step["group"], "isolation_level": "read_committed"}
        async with (
            self._consumer(step["source"], **group) as consumer,
            self._producer(step["transactional_id"]) as producer,
        ):
            taken = [
                await asyncio.wait_for(consumer.getone(), STEP_S_MAX) for _ in range(step["count"])
            ]
            values = [message.value.decode() for message in taken]
            await producer.begin_transaction()
            await self._send(producer, [[f"{step['prefix']}{value}", 0] for value in values])
            end = {TopicPartition(step["source"], 0): taken[-1].offset + 1}
            await producer.send_offsets_to_transaction(end, step["group"])
            commit = step["commit"]
            await (producer.commit_transaction() if commit else producer.abort_transaction())
            return values

    def fence(self, step: Step) -> str:
        return self._run(self._fence(step))

    async def _fence(self, step: Step) -> str:
        async with self._producer(step["transactional_id"]) as zombie:
            await zombie.begin_transaction()
            await self._send(zombie, [step["zombie"]])
            async with self._producer(step["transactional_id"]) as heir:
                await heir.begin_transaction()
                await self._send(heir, [step["heir"]])
                told = await self._told(zombie)
                await heir.commit_transaction()
            return told

    def time_out(self, step: Step) -> str:
        return self._run(self._time_out(step))

    async def _time_out(self, step: Step) -> str:
        async with self._producer(step["transactional_id"], step["timeout_ms"]) as late:
            await late.begin_transaction()
            await self._send(late, [step["late"]])
            after = {"transactional_id": f"{self._topic}-after", "records": [step["after"]]}
            await self._write(after, commit=True)
            await self._read({"committed": True, "until": [step["after"][0]]})
            return await self._told(late)

    async def _told(self, producer: AIOKafkaProducer) -> str:
        """The error of a commit that must fail, or nothing."""
        try:
            await producer.commit_transaction()
        except KafkaError as error:
            return f"{type(error).__name__}: {error}"
        return ""


if __name__ == "__main__":
    program.run(AioTransactions)
