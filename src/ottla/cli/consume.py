"""`ottla consume`: records of a topic to standard output.

A look at a topic must leave no trace, so partitions are assigned, never subscribed, and nothing
is committed: no consumer group comes into being. Aborted transactions are shown unless
`--isolation read_committed` asks otherwise, as other inspection tools do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from ottla.cli.client import (
    Admin,
    Troubles,
    client_settings,
    error_of,
    kafka_admin,
    translated_errors,
)
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import is_terminal, progress, to_json
from ottla.cli.params import cluster_options, topic_argument
from ottla.cli.record_format import (
    FormatError,
    TextRecord,
    parse_format,
    parse_timestamp_ms,
    render,
    timestamp_text,
    to_json_object,
)
from ottla.cli.settings import Connection

if TYPE_CHECKING:
    import confluent_kafka

# How long a Ctrl-C may go unheard, and how many records one call may hand over.
_POLL_S = 0.2
_BATCH_RECORDS_MAX = 1000


class StartOffset(click.ParamType["Start"]):
    """`beginning`, `end`, an offset, `-N` for the last N, or `@` with a time."""

    name = "offset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        """Read the place."""
        if isinstance(value, Start):
            return value
        try:
            return parse_start(str(value))
        except ValueError:
            self.fail(
                f"'{value}' is none of: beginning, end, an offset, -N for the last N, "
                "@MILLISECONDS, @2026-01-31T12:00:00",
                param,
                ctx,
            )


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition; exactly one field says it."""

    edge: str | None = None
    offset: int | None = None
    last: int | None = None
    timestamp_ms: int | None = None


def parse_start(text: str) -> Start:
    """Read `--from`."""
    if text in ("beginning", "earliest", "start"):
        return Start(edge="beginning")
    if text in ("end", "latest"):
        return Start(edge="end")
    if text.startswith("@"):
        return Start(timestamp_ms=parse_timestamp_ms(text[1:]))
    if re.fullmatch(r"-\d+", text):
        return Start(last=int(text[1:]))
    if re.fullmatch(r"\d+", text):
        return Start(offset=int(text))
    raise ValueError(text)


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla consume orders",
        "ottla consume orders --from -10 --exit",
        "ottla consume orders --from @2026-01-31T12:00:00 -n 5",
        r"ottla consume orders -f '%p:%o %d{iso} %k=%v\n'",
        "ottla consume orders -e -o jsonl > orders.jsonl",
    ),
)
@topic_argument()
@click.option(
    "--from",
    "start",
    type=StartOffset(),
    default="beginning",
    show_default=True,
    help="beginning, end, an offset, -N for the last N of each partition, @MILLISECONDS or "
    "@TIME (ISO 8601, UTC unless it names a zone).",
)
@click.option(
    "-p",
    "--partition",
    "only",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one. Repeatable.",
)
@click.option(
    "-n", "--count", metavar="N", type=click.IntRange(min=1), help="Leave after that many records."
)
@click.option("-e", "--exit", "is_exit", is_flag=True, help="Leave at the present end.")
@click.option(
    "-f",
    "--format",
    "format_text",
    help=r"How a record is printed: %t topic, %p partition, %o offset, %k key, %v value, "
    r"%h headers, %d timestamp, %K and %V sizes; %k{hex}, %v{base64}, %d{iso}; \n \t \xHH."
    r"  [default: %v\n]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "table", "wide", "json", "jsonl", "yaml"]),
    default="text",
    show_default=True,
    help="text follows -f; jsonl can be read by 'produce --input jsonl'.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are shown.",
)
@cluster_options
def consume(
    connection: Connection,
    *,
    topic: str,
    start: Start,
    only: tuple[int, ...],
    count: int | None,
    is_exit: bool,
    format_text: str | None,
    output: str,
    isolation: str,
) -> None:
    """Read records of a topic, without a consumer group."""
    printer = _printer(output, format_text)
    admin = Admin(connection)
    partitions = _partitions(admin, topic, only)
    places = Places.find(
        admin, topic, partitions, start, is_committed=isolation != "read_uncommitted"
    )
    reader = Reader(connection, topic, places, isolation=isolation, is_exit=is_exit)
    left = count
    try:
        printer.begin()
        # Records on the terminal show how far it is; in a file they do not.
        is_shown = is_exit and not is_terminal()
        with progress("consume", places.records_count, is_shown=is_shown) as advance:
            for records in reader.batches():
                for record in records[:left]:
                    printer.record(record)
                sys.stdout.flush()
                advance(reader.take_progress())
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        break
    finally:
        reader.close()
        printer.end()


def _partitions(admin: Admin, topic: str, only: tuple[int, ...]) -> list[int]:
    there = admin.partitions_of(topic)
    missing = sorted(set(only) - set(there))
    if missing:
        raise CliError(
            f"Topic '{topic}' has no partition {missing[0]}; it has 0 to {there[-1]}.",
            ExitCode.NOT_FOUND,
        )
    return sorted(set(only)) or there


@dataclass(frozen=True, slots=True)
class Places:
    """For each partition, where reading begins and where the log ended when it began."""

    first: dict[int, int]
    end: dict[int, int]

    @property
    def records_count(self) -> int:
        """How many offsets lie between; compaction may have left fewer records."""
        return sum(max(0, end - self.first[p]) for p, end in self.end.items())

    @classmethod
    def find(
        cls, admin: Admin, topic: str, partitions: list[int], start: Start, *, is_committed: bool
    ) -> Places:
        """Ask the leaders for the offsets."""
        spec = kafka_admin().OffsetSpec

        def ask(what: Any) -> dict[int, int]:
            wanted = {(topic, partition): what for partition in partitions}
            found = admin.offsets(wanted, is_committed=is_committed)
            return {partition: offset for (_, partition), offset in found.items()}

        end = ask(spec.latest())
        if start.edge == "end":
            return cls(dict(end), end)
        log_start = ask(spec.earliest())
        if start.timestamp_ms is not None:
            at_time = ask(spec.for_timestamp(start.timestamp_ms))
            return cls({p: end[p] if o < 0 else o for p, o in at_time.items()}, end)
        if start.last is not None:
            return cls({p: max(log_start[p], end[p] - start.last) for p in partitions}, end)
        if start.offset is not None:
            # Within the log: an offset that retention took means the oldest record there is.
            return cls({p: max(log_start[p], start.offset) for p in partitions}, end)
        return cls(log_start, end)


class Reader:
    """A consumer with assigned partitions and no group."""

    def __init__(
        self, connection: Connection, topic: str, places: Places, *, isolation: str, is_exit: bool
    ) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._topic = topic
        self._is_exit = is_exit
        self._end = places.end
        self._next = dict(places.first)  # the offset that is expected next, by partition
        self._passed = 0
        self._unfinished = {p for p in places.end if not is_exit or places.first[p] < places.end[p]}
        self._troubles = Troubles(connection)
        settings = {
            **client_settings(connection, self._troubles),
            "group.id": "ottla-cli-never-joins",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
        }
        with translated_errors(self._troubles):
            self._consumer: confluent_kafka.Consumer = Consumer(settings)
            self._consumer.assign(
                [TopicPartition(topic, p, places.first[p]) for p in sorted(self._unfinished)]
            )

    def batches(self) -> Iterator[list[TextRecord]]:
        """Records as they come; ends only where `is_exit` found the end of every partition.

        A broker that restarts is waited for; one that stays away for the timeout is an error.
        """
        while self._unfinished:
            messages = self._next_messages()
            records = [self._on_message(message) for message in messages]
            yield [record for record in records if record is not None]
            if not messages:
                self._troubles.forget_if_back()

    def take_progress(self) -> int:
        """How many offsets of those that were there at the start were passed since it was asked."""
        passed, self._passed = self._passed, 0
        return passed

    def close(self) -> None:
        """Let go of the cluster."""
        self._consumer.close()

    def _pass(self, partition: int, next_offset: int) -> None:
        next_offset = min(next_offset, self._end[partition])
        self._passed += max(0, next_offset - self._next[partition])
        self._next[partition] = max(self._next[partition], next_offset)

    def _next_messages(self) -> list[Any]:
        """One message as soon as there is one, with all that have arrived behind it."""
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(_BATCH_RECORDS_MAX, timeout=0)]

    def _on_message(self, message: Any) -> TextRecord | None:
        partition = message.partition()
        error = message.error()
        if error is not None:
            if error.name() == "_PARTITION_EOF":
                if self._is_exit:
                    self._finish(partition)
                return None
            raise error_of(error, self._troubles, f"topic '{self._topic}'")
        offset = message.offset()
        self._pass(partition, offset + 1)
        if self._is_exit:
            if offset >= self._end[partition] - 1:
                self._finish(partition)
            if offset >= self._end[partition]:
                return None
        _, timestamp_ms = message.timestamp()
        return TextRecord(
            topic=message.topic(),
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )

    def _finish(self, partition: int) -> None:
        from confluent_kafka import TopicPartition

        if partition in self._unfinished:
            self._unfinished.discard(partition)
            self._pass(partition, self._end[partition])
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])


class Printer(Protocol):
    """A way to print a stream of records; the caller flushes after each batch."""

    def begin(self) -> None: ...

    def record(self, record: TextRecord) -> None: ...

    def end(self) -> None: ...


def _printer(output: str, format_text: str | None) -> Printer:
    if format_text is not None and output != "text":
        raise click.UsageError(f"-f belongs to -o text, not -o {output}.")
    if output in ("table", "wide"):
        return TablePrinter(is_wide=output == "wide")
    if output != "text":
        return DocumentPrinter(output)
    try:
        return TextPrinter(format_text if format_text is not None else r"%v\n")
    except FormatError as error:
        raise click.UsageError(f"-f: {error}.") from error


class TextPrinter:
    """Raw bytes by a format string."""

    def __init__(self, format_text: str) -> None:
        self._pieces = parse_format(format_text)

    def begin(self) -> None:
        """Nothing stands before the first record."""

    def record(self, record: TextRecord) -> None:
        """Print one record as bytes, which need not be text."""
        sys.stdout.buffer.write(render(self._pieces, record))

    def end(self) -> None:
        """Nothing stands after the last record."""


class TablePrinter:
    """Columns of fixed width, for a stream cannot be measured before it is printed."""

    def __init__(self, *, is_wide: bool) -> None:
        self._is_wide = is_wide

    def begin(self) -> None:
        """Print the header."""
        header = f"{'PARTITION':>9}  {'OFFSET':>10}  {'TIMESTAMP':<24}  {'KEY':<16}  "
        click.secho(header + (f"{'HEADERS':<24}  " if self._is_wide else "") + "VALUE", bold=True)

    def record(self, record: TextRecord) -> None:
        """Print one line."""
        when = timestamp_text(record.timestamp_ms, is_iso=True)
        line = (
            f"{record.partition:>9}  {record.offset:>10}  {when:<24}  {printable(record.key):<16}  "
        )
        if self._is_wide:
            headers = ",".join(f"{name}={printable(value)}" for name, value in record.headers)
            line += f"{headers or '-':<24}  "
        _write(line + printable(record.value) + "\n")

    def end(self) -> None:
        """Nothing stands after the last record."""


class DocumentPrinter:
    """JSON lines, one JSON array, or a YAML list, written as the records come."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._count = 0

    def begin(self) -> None:
        """Open the array."""
        if self._output == "json":
            _write("[")

    def record(self, record: TextRecord) -> None:
        """Print one element."""
        document = to_json_object(record)
        if self._output == "yaml":
            import yaml

            _write(yaml.safe_dump([document], sort_keys=False, allow_unicode=True))
        elif self._output == "json":
            _write(("," if self._count else "") + "\n  " + to_json(document))
        else:
            _write(to_json(document) + "\n")
        self._count += 1

    def end(self) -> None:
        """Close the array."""
        if self._output == "json":
            _write("\n]\n" if self._count else "]\n")


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode())


def printable(data: bytes | None) -> str:
    """Bytes for one cell of a table: control characters escaped, null as a dash."""
    if data is None:
        return "-"
    text = data.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
