"""What a task does with its rows: encode them, and stage them or produce them itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import Any

from ottla.client.metadata import TopicPartition
from ottla.client.transactions import Batch, BatchProducer
from ottla.protocol.errors import KafkaError
from ottla.spark import sink_process
from ottla.spark.encode import BatchEncoder, EncodedBatch
from ottla.spark.sink_errors import SinkError
from ottla.spark.sink_options import SinkOptions
from ottla.spark.stage import StagedOutput, StageWriter
from ottla.spark.worker_process import client_of

_HELD_BYTES_MAX = 8 << 20  # what a task produces at once when it produces itself


def stage_rows(
    options: SinkOptions, directory: Path, name: str, rows: Iterator[Any]
) -> StagedOutput:
    """Leave the rows in a file or, if they are few, in the message itself."""
    writer = StageWriter(directory, name)
    try:
        encode_rows(options, rows, writer.add)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def produce_rows(options: SinkOptions, rows: Iterator[Any]) -> None:
    """Produce the rows from this task: each at least once, more often if the task is repeated."""
    producer = BatchProducer(
        client_of(options.client),
        acks=options.acks,
        delivery_timeout_ms=options.delivery_timeout_ms,
        in_flight_max=options.in_flight_max,
    )
    held: list[Batch] = []
    held_bytes = 0

    def send() -> None:
        nonlocal held_bytes
        producer.produce(held)
        held.clear()
        held_bytes = 0

    def hold(batch: EncodedBatch) -> None:
        nonlocal held_bytes
        held.append(Batch(TopicPartition(*batch.target), memoryview(bytearray(batch.data))))
        held_bytes += len(batch.data)
        if held_bytes >= _HELD_BYTES_MAX:
            send()

    try:
        if options.is_idempotent:
            producer.take_producer_id()
        encode_rows(options, rows, hold)
        send()
    except KafkaError as error:
        raise SinkError(f"{error}.") from error


def encode_rows(
    options: SinkOptions, rows: Iterator[Any], consume: Callable[[EncodedBatch], None]
) -> None:
    """Encode every Arrow batch of the task."""
    encoder = BatchEncoder(
        topic=options.topic,
        partitions_of=lambda topic: sink_process.partitions_of(options.client, topic),
        consume=consume,
        now_ms=lambda: int(time() * 1000),
        partitioning=options.partitioning,
        sticky_start=secrets.randbelow(1 << 16),
        with_headers=True,
        codec=options.codec,
        level=options.codec_level,
        batch_bytes_max=options.batch_bytes_max,
        record_bytes_max=options.request_bytes_max,
    )
    for batch in rows:
        encoder.add(batch)
    encoder.finish()
