"""Writes single records, as a form or the API asks for them, with librdkafka.

One producer for the console, made on first use. Partitions are chosen as Java's clients choose
them, so that a record with a key lands where the application would have put it. Shell.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError

DELIVERY_MS_MAX = 10_000
_POLL_S = 0.02


class Delivered(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int


class RecordProducer:
    """A producer that is polled while somebody waits."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = {
            **properties,
            "client.id": "ottla-console",
            "acks": "all",
            "partitioner": "murmur2_random",
            "message.timeout.ms": str(DELIVERY_MS_MAX),
            "linger.ms": "0",
            "log_level": "0",
        }
        self._producer: Any = None
        self._lock = threading.Lock()

    async def produce(
        self,
        topic: str,
        *,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Delivered:
        """Write one record; where it lies once every replica has it."""
        return await asyncio.to_thread(self._produce, topic, partition, key, value, headers)

    def _produce(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Delivered:
        delivered: Future[Delivered] = Future()

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                delivered.set_exception(_refused(error))
            else:
                _, timestamp_ms = message.timestamp()
                delivered.set_result(Delivered(message.partition(), message.offset(), timestamp_ms))

        module = import_module("confluent_kafka")
        with self._lock:
            if self._producer is None:
                self._producer = module.Producer(self._properties)
        arguments: dict[str, Any] = {"on_delivery": on_delivery, "headers": list(headers)}
        if partition is not None:
            arguments["partition"] = partition
        try:
            self._producer.produce(topic, value, key, **arguments)
        except module.KafkaException as error:
            raise _refused(error.args[0]) from error
        except BufferError as error:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The queue is full.") from error
        while not delivered.done():
            self._producer.poll(_POLL_S)
        return delivered.result()


def _refused(error: Any) -> KafkaError:
    code = error.code()
    known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(known, error.str())
