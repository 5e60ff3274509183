"""`ottla produce`: records from standard input to a topic."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, Any, cast

import click

from ottla.cli.client import Admin, Troubles, client_settings, error_of, translated_errors
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import is_terminal, note, progress, to_json
from ottla.cli.params import KEY_VALUE, cluster_options, topic_argument
from ottla.cli.record_format import (
    FormatError,
    InputFormat,
    TextRecord,
    from_json_object,
    split_records,
    to_json_object,
)
from ottla.cli.settings import Connection

if TYPE_CHECKING:
    import confluent_kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Far above any sensible max.message.bytes; keeps a wrong delimiter from filling the memory.
RECORD_BYTES_MAX = 256 * 1024 * 1024
_READ_BYTES = 64 * 1024
_FLUSH_PIECE_S = 0.2


@click.command(
    cls=ExampleCommand,
    examples=(
        "echo hello | ottla produce orders",
        "echo hello | ottla produce orders -k customer-1 -H source=shop",
        r"printf 'k1\tv1\nk2\tv2\n' | ottla produce orders -f '%k\t%v\n'",
        "ottla consume orders -e -o jsonl | ottla produce copy --input jsonl",
    ),
)
@topic_argument()
@click.option("-k", "--key", help="The key of every record.")
@click.option(
    "-H", "--header", "headers", type=KEY_VALUE, multiple=True, help="On every record. Repeatable."
)
@click.option(
    "-p", "--partition", metavar="N", type=click.IntRange(min=0), help="Write to this partition."
)
@click.option(
    "-f",
    "--format",
    "format_text",
    help=r"How records are read: %k key, %v value, %h headers, %p partition, %d timestamp; "
    r"%k{hex}, %v{base64}; \n \t \xHH.  [default: %v\n]",
)
@click.option(
    "--input",
    "input_kind",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="jsonl reads what 'consume -o jsonl' prints.",
)
@click.option("--keep-partitions", is_flag=True, help="With jsonl, write to the same partitions.")
@click.option("-Z", "--tombstone", is_flag=True, help="An empty value is null: a tombstone.")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Compress batches with this.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Which replicas must have a record.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["none", "jsonl"]),
    default="none",
    show_default=True,
    help="jsonl prints where each record went.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say how many were written.")
@cluster_options
def produce(connection: Connection, *, topic: str, **options: Any) -> None:
    """Write records from standard input to a topic."""
    defaults = TextRecord(
        key=None if options["key"] is None else options["key"].encode(),
        headers=tuple((name, value.encode()) for name, value in options["headers"]),
        partition=options["partition"],
    )
    source = StandardInput()
    records = _completed(_input_records(options, source), defaults, options)
    Admin(connection).metadata()  # says at once and in words that nobody is there
    writer = Writer(connection, topic, options, is_listing=options["output"] == "jsonl")
    unread: FormatError | None = None
    # Where a terminal lists the records, they show how far it is.
    is_shown = not options["quiet"] and not (options["output"] == "jsonl" and is_terminal())
    try:
        with progress("produce", source.length, is_shown=is_shown) as advance:
            source.advance = advance
            for record in records:
                writer.write(record)
    except FormatError as error:
        unread = error
    except KeyboardInterrupt:
        writer.finish()
        raise
    writer.finish()
    if not options["quiet"]:
        note(f"Wrote {_records(writer.written)} to '{topic}'.")
    writer.raise_if_failed()
    if unread is not None:
        raise CliError(f"Stopped: {unread}.") from unread


class StandardInput:
    """What is piped or typed in, and how much of a file has been read."""

    def __init__(self) -> None:
        self.advance: Callable[[int], None] = lambda _count: None
        self.length = 0  # of a file; nobody knows how much a pipe will bring
        try:
            found = os.fstat(sys.stdin.fileno())
        except (OSError, ValueError):
            return  # replaced by something without a descriptor
        if stat.S_ISREG(found.st_mode):
            self.length = found.st_size

    def piece(self) -> bytes:
        """What has arrived, so that typed lines are sent while more are awaited."""
        found = cast("BufferedReader", sys.stdin.buffer).read1(_READ_BYTES)
        self.advance(len(found))
        return found


def _input_records(options: dict[str, Any], source: StandardInput) -> Iterator[TextRecord]:
    if options["input_kind"] == "jsonl":
        if options["format_text"] is not None:
            raise click.UsageError("-f belongs to --input text; jsonl needs no format.")
        return _read_jsonl(source)
    try:
        layout = InputFormat.parse(options["format_text"] or r"%v\n")
    except FormatError as error:
        raise click.UsageError(f"-f: {error}.") from error
    return _read_text(layout, source)


def _read_text(layout: InputFormat, source: StandardInput) -> Iterator[TextRecord]:
    chunks = split_records(source.piece, layout.terminator, record_bytes_max=RECORD_BYTES_MAX)
    for number, chunk in enumerate(chunks, 1):
        yield layout.read(chunk, number)


def _read_jsonl(source: StandardInput) -> Iterator[TextRecord]:
    chunks = split_records(source.piece, b"\n", record_bytes_max=RECORD_BYTES_MAX)
    for number, chunk in enumerate(chunks, 1):
        if not chunk.strip():
            continue
        try:
            document = json.loads(chunk)
        except ValueError as error:
            raise FormatError(f"line {number} is not JSON") from error
        yield from_json_object(document, number)


def _completed(
    records: Iterator[TextRecord], defaults: TextRecord, options: dict[str, Any]
) -> Iterator[TextRecord]:
    """Each record with the key, headers and partition that flags give."""
    is_partition_kept = options["input_kind"] == "text" or options["keep_partitions"]
    for record in records:
        value = None if options["tombstone"] and not record.value else record.value
        yield TextRecord(
            key=defaults.key if record.key is None else record.key,
            value=value,
            headers=(*record.headers, *defaults.headers),
            timestamp_ms=record.timestamp_ms,
            partition=_first(defaults.partition, record.partition if is_partition_kept else None),
        )


def _first(*candidates: int | None) -> int | None:
    return next((candidate for candidate in candidates if candidate is not None), None)


class Writer:
    """A producer that counts what was acknowledged and what was not."""

    def __init__(
        self, connection: Connection, topic: str, options: dict[str, Any], *, is_listing: bool
    ) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.written = 0
        self.failed = 0
        self.first_error: CliError | None = None
        self._is_listing = is_listing
        self._troubles = Troubles(connection)
        settings = {
            # Java's partitioner, so that a key goes where every other client sends it.
            "partitioner": "murmur2_random",
            "message.timeout.ms": round(connection.timeout_s * 1000),
            "acks": options["acks"],
            **({"compression.type": options["compression"]} if options["compression"] else {}),
            **client_settings(connection, self._troubles),
        }
        with translated_errors(self._troubles):
            self._producer: confluent_kafka.Producer = Producer(settings)

    def write(self, record: TextRecord) -> None:
        """Hand one record over, waiting while the queue is full."""
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        while True:
            try:
                with translated_errors(self._troubles, f"topic '{self.topic}'"):
                    self._producer.produce(
                        self.topic,
                        value=record.value,
                        key=record.key,
                        headers=list[tuple[str, str | bytes | None]](record.headers),
                        on_delivery=self._on_delivery,
                        **optional,
                    )
                break
            except BufferError:
                self._producer.poll(_FLUSH_PIECE_S)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until every record is acknowledged or has failed."""
        # The pieces let Ctrl-C through; message.timeout.ms bounds the whole.
        while self._producer.flush(_FLUSH_PIECE_S):
            pass

    def raise_if_failed(self) -> None:
        """Say how many records were not written, and why the first was not."""
        if self.first_error is not None:
            cause = self.first_error
            code = cause.exit_code if not self.written else ExitCode.ERROR
            lost = f"{_records(self.failed)} {'was' if self.failed == 1 else 'were'}"
            raise CliError(f"{lost} not written: {cause.message}", code)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            if self.first_error is None:
                self.first_error = error_of(error, self._troubles, f"topic '{self.topic}'")
            return
        self.written += 1
        if self._is_listing:
            _, timestamp_ms = message.timestamp()
            placed = TextRecord(
                topic=message.topic(),
                partition=message.partition(),
                offset=message.offset(),
                timestamp_ms=timestamp_ms,
            )
            shown = to_json_object(placed)
            fields = ("topic", "partition", "offset", "timestamp")
            click.echo(to_json({name: shown[name] for name in fields}))


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
