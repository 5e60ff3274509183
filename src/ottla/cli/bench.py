"""`ottla bench`: how fast does this cluster take records and give them back, from here?

Two loads with librdkafka, one after the other: produce, with the time from handing a record over
to its acknowledgement, then consume of what was produced. The figures are those of one Python
process and one connection to each broker, so they are a floor of what the cluster can do; they
compare clusters, networks and settings, not brokers' limits. What is read is what was written:
bytes are compared by count.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from uuid import uuid4

import click

from ottla.cli.client import (
    Admin,
    Troubles,
    client_settings,
    error_of,
    kafka_admin,
    translated_errors,
)
from ottla.cli.errors import CliError, sentence
from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import Column, columns, print_rows, progress
from ottla.cli.params import cluster_options, complete_topic, output_option
from ottla.cli.produce import CODECS
from ottla.cli.settings import Connection

Place = tuple[str, int]

RECORD_BYTES_MAX = 64 * 1024 * 1024
RECORDS_MAX = 100_000_000  # eight bytes of latency each: what a laptop holds
_POLL_S = 0.1
_CONSUME_RECORDS_MAX = 5000
_USUAL_BATCH_BYTES_MAX = 1_000_000  # librdkafka's; a topic's is a little more
_BATCH_OVERHEAD_BYTES = 1024  # headers of the batch and of a record, and what lz4 may add
_COLUMNS = (
    *columns("load", "records", "seconds"),
    Column("records_per_s", "RECORDS/S"),
    Column("mb_per_s", "MB/S"),
    *columns("p50_ms", "p99_ms", "max_ms", wide=("bytes", "errors")),
)


@dataclass(slots=True)
class Measured:
    """What one load did."""

    load: str
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    errors: int = 0
    first_error: str | None = None
    latencies_s: array[float] = field(default_factory=lambda: array("d"))

    def row(self) -> dict[str, Any]:
        """The load as a row; times only where they were taken."""
        seconds = max(self.seconds, 1e-9)
        ordered = sorted(self.latencies_s)
        return {
            "load": self.load,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.bytes / seconds / 1e6, 1),
            "p50_ms": percentile_ms(ordered, 0.50),
            "p99_ms": percentile_ms(ordered, 0.99),
            "max_ms": percentile_ms(ordered, 1.0),
            "errors": self.errors,
        }


def percentile_ms(ordered: list[float], share: float) -> float | None:
    """The time within which `share` of the samples lie; None without samples."""
    if not ordered:
        return None
    index = min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))
    return round(ordered[index] * 1000, 2)


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla bench",
        "ottla bench --records 1000000 --size 100 -z lz4",
        "ottla bench --topic orders --acks 1 -X linger.ms=0 -o json",
    ),
)
@click.option(
    "-n",
    "--records",
    metavar="N",
    type=click.IntRange(1, RECORDS_MAX),
    default=100_000,
    show_default=True,
    help="How many.",
)
@click.option(
    "-s",
    "--size",
    metavar="BYTES",
    type=click.IntRange(0, RECORD_BYTES_MAX),
    default=1000,
    show_default=True,
    help="Bytes in each value.",
)
@click.option(
    "--topic",
    shell_complete=complete_topic,
    help="Write to this topic and keep it, instead of to one that is made and deleted.",
)
@click.option(
    "-p",
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Of the topic that is made.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Which replicas must have a record.",
)
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Compress batches with this.")
@click.option("--produce-only", is_flag=True, help="Do not read the records back.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@output_option()
@cluster_options
def bench(connection: Connection, *, topic: str | None, output: str, **options: Any) -> None:
    """Measure how fast the cluster takes records and gives them back."""
    admin = Admin(connection)
    batch_bytes_max = _batch_bytes_max(options["size"])
    with _topic(admin, topic, options["partitions"], batch_bytes_max) as (name, first):
        measured = [_produce(connection, name, options)]
        if not options["produce_only"]:
            measured.append(_consume(connection, first, _ends(admin, name), options))
    print_rows([one.row() for one in measured], _COLUMNS, output)
    lost = measured[0].errors
    if lost:
        why = measured[0].first_error or ""
        raise CliError(f"{lost} of {options['records']} records were not acknowledged: {why}")


@contextmanager
def _topic(
    admin: Admin, name: str | None, partitions: int, batch_bytes_max: int | None
) -> Iterator[tuple[str, dict[Place, int]]]:
    """The named topic, or one of our own for the length of the block, and where it ends now."""
    if name is not None:
        yield name, _ends(admin, name)
        return
    made = f"ottla-bench-{uuid4().hex[:12]}"
    new = kafka_admin().NewTopic(
        made,
        num_partitions=partitions,
        replication_factor=-1,
        config={"max.message.bytes": str(batch_bytes_max)} if batch_bytes_max else {},
    )
    admin.result(admin.raw.create_topics([new], **admin.options)[made])
    try:
        # Its partitions may have no leaders yet to ask.
        yield made, {(made, partition): 0 for partition in range(partitions)}
    finally:
        admin.result(admin.raw.delete_topics([made], **admin.options)[made])


def _batch_bytes_max(record_bytes: int) -> int | None:
    """The limit that lets records of this size through, where the usual one does not."""
    wanted = record_bytes + _BATCH_OVERHEAD_BYTES
    return wanted if wanted > _USUAL_BATCH_BYTES_MAX else None


def _ends(admin: Admin, topic: str) -> dict[Place, int]:
    latest = kafka_admin().OffsetSpec.latest()
    return admin.offsets({(topic, p): latest for p in admin.partitions_of(topic)})


def _produce(connection: Connection, topic: str, options: dict[str, Any]) -> Measured:
    from confluent_kafka import Producer

    measured = Measured("produce")
    troubles = Troubles(connection)
    settings = {
        "linger.ms": 5,
        "queue.buffering.max.kbytes": 256 * 1024,
        "message.timeout.ms": round(connection.timeout_s * 1000),
        "acks": options["acks"],
        **({"message.max.bytes": limit} if (limit := _batch_bytes_max(options["size"])) else {}),
        **({"compression.type": options["compression"]} if options["compression"] else {}),
        **client_settings(connection, troubles),
    }
    with translated_errors(troubles):
        producer = Producer(settings)
    size, count = options["size"], options["records"]
    value = _value(size)
    with progress("produce", count, is_shown=not options["quiet"]) as advance:

        def on_delivery(error: Any, message: Any) -> None:
            advance(1)
            if error is not None:
                measured.errors += 1
                measured.first_error = measured.first_error or sentence(error.str())
                return
            measured.records += 1
            measured.bytes += size
            measured.latencies_s.append(message.latency())

        began = perf_counter()
        for _ in range(count):
            while True:
                try:
                    with translated_errors(troubles, f"topic '{topic}'"):
                        producer.produce(topic, value, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(_POLL_S)
            producer.poll(0)
        while producer.flush(_POLL_S):
            troubles.raise_if_hopeless()
        measured.seconds = perf_counter() - began
    return measured


def _consume(
    connection: Connection,
    first: dict[Place, int],
    ends: dict[Place, int],
    options: dict[str, Any],
) -> Measured:
    from confluent_kafka import Consumer, TopicPartition

    measured = Measured("consume")
    troubles = Troubles(connection)
    settings = {
        **client_settings(connection, troubles),
        "group.id": "ottla-cli-never-joins",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "error",
        "queued.max.messages.kbytes": 64 * 1024,
    }
    unfinished = {place for place in ends if first[place] < ends[place]}
    total = sum(ends[place] - first[place] for place in unfinished)
    with translated_errors(troubles):
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(*place, first[place]) for place in sorted(unfinished)])
    began = perf_counter()
    try:
        with progress("consume", total, is_shown=not options["quiet"]) as advance:
            while unfinished:
                messages = consumer.consume(_CONSUME_RECORDS_MAX, timeout=_POLL_S)
                for message in messages:
                    found: Any = message  # the stubs allow for fields that a record always has
                    error = found.error()
                    if error is not None:
                        raise error_of(error, troubles)
                    measured.records += 1
                    measured.bytes += len(found.value() or b"")
                    place = (found.topic(), found.partition())
                    if found.offset() >= ends[place] - 1:
                        unfinished.discard(place)
                advance(len(messages))
                if not messages:
                    troubles.forget_if_back()
        measured.seconds = perf_counter() - began
    finally:
        consumer.close()
    return measured


def _value(size: int) -> bytes:
    """Text that compresses as text does, so that -z shows what it would do."""
    words = b"%016x the quick brown fox jumps over the lazy dog; "
    parts = [words % (number * 0x9E3779B97F4A7C15 % 2**64) for number in range(size // 60 + 1)]
    return b"".join(parts)[:size]
