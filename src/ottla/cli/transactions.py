"""`ottla transactions`: open transactions, and those that nobody will ever end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import Column, note, print_rows, progress
from ottla.cli.params import (
    cluster_options,
    complete_broker,
    complete_topic,
    complete_transactional_id,
    confirm,
    output_option,
    topic_argument,
    yes_option,
)
from ottla.cli.settings import Connection
from ottla.cli.transactions_client import Place, ProducerState
from ottla.cli.wire import asked, wire_client

_MS_PER_MINUTE = 60_000
# Kafka's default of transaction.max.timeout.ms: no coordinator lets one live longer.
_MAX_TIMEOUT_MINUTES = 15

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)

_LIST_COLUMNS = (
    Column("transactional_id", "TransactionalId"),
    Column("coordinator", "Coordinator"),
    Column("producer_id", "ProducerId"),
    Column("transaction_state", "TransactionState"),
)
_DESCRIBE_COLUMNS = (
    Column("coordinator_id", "CoordinatorId"),
    Column("transactional_id", "TransactionalId"),
    Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"),
    Column("transaction_state", "TransactionState"),
    Column("transaction_timeout_ms", "TransactionTimeoutMs"),
    Column("current_transaction_start_time_ms", "CurrentTransactionStartTimeMs"),
    Column("transaction_duration_ms", "TransactionDurationMs"),
    Column("topic_partitions", "TopicPartitions"),
)
_PRODUCER_COLUMNS = (
    Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"),
    Column("latest_coordinator_epoch", "LatestCoordinatorEpoch"),
    Column("last_sequence", "LastSequence"),
    Column("last_timestamp", "LastTimestamp"),
    Column("current_transaction_start_offset", "CurrentTransactionStartOffset"),
)
_HANGING_COLUMNS = (
    Column("topic", "Topic"),
    Column("partition", "Partition"),
    Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"),
    Column("coordinator_epoch", "CoordinatorEpoch"),
    Column("start_offset", "StartOffset"),
    Column("last_timestamp", "LastTimestamp"),
    Column("duration_min", "Duration(min)"),
)


@click.group(
    cls=ExampleGroup,
    examples=("ottla transactions list", "ottla transactions find-hanging"),
)
def transactions() -> None:
    """List, describe and abort transactions, and find those that hang."""


@transactions.command(
    "list",
    examples=(
        "ottla transactions list",
        "ottla transactions list --state Ongoing --longer-than 60000",
    ),
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only in this state. Repeatable.",
)
@click.option(
    "--producer-id", "producer_ids", metavar="ID", type=int, multiple=True, help="Only of this."
)
@click.option(
    "--longer-than",
    "duration_ms",
    metavar="MS",
    type=click.IntRange(min=0),
    default=None,
    help="Only those that run for longer than so many milliseconds.",
)
@output_option()
@cluster_options
def list_transactions(
    connection: Connection,
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_ms: int | None,
    output: str,
) -> None:
    """List transactional ids with their states."""
    from ottla.cli.transactions_client import listed

    found = asked(
        connection,
        lambda client: listed(
            client,
            states=states,
            producer_ids=producer_ids,
            duration_ms=-1 if duration_ms is None else duration_ms,
        ),
    )
    rows = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator,
            "producer_id": one.producer_id,
            "transaction_state": one.state,
        }
        for one in found
    ]
    print_rows(rows, _LIST_COLUMNS, output)


@transactions.command(examples=("ottla transactions describe orders-1 -o yaml",))
@click.argument(
    "transactional_id", metavar="TRANSACTIONAL-ID", shell_complete=complete_transactional_id
)
@output_option()
@cluster_options
def describe(connection: Connection, *, transactional_id: str, output: str) -> None:
    """Describe the transaction of a transactional id."""
    from ottla.cli.transactions_client import described

    try:
        found = asked(connection, lambda client: described(client, transactional_id))
    except CliError as error:
        if error.exit_code is ExitCode.NOT_FOUND:
            raise _unknown_id(transactional_id) from error
        raise
    start = found.start_time_ms
    row = {
        "coordinator_id": found.coordinator,
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transaction_state": found.state,
        "transaction_timeout_ms": found.timeout_ms,
        "current_transaction_start_time_ms": start,
        "transaction_duration_ms": None if start is None else max(0, _now_ms() - start),
        "topic_partitions": [f"{topic}-{partition}" for topic, partition in found.places],
    }
    print_rows([row], _DESCRIBE_COLUMNS, output)


@transactions.command(
    "describe-producers", examples=("ottla transactions describe-producers orders -p 0",)
)
@topic_argument()
@click.option(
    "-p", "--partition", metavar="N", type=click.IntRange(min=0), required=True, help="Which one."
)
@click.option(
    "--broker-id",
    metavar="ID",
    type=int,
    shell_complete=complete_broker,
    help="Ask this replica, not the leader.",
)
@output_option()
@cluster_options
def describe_producers(
    connection: Connection, *, topic: str, partition: int, broker_id: int | None, output: str
) -> None:
    """Show the producers that a partition remembers."""
    from ottla.cli.transactions_client import producers

    places = _places(connection, topic, partition)
    found = asked(connection, lambda client: producers(client, places, node_id=broker_id))
    rows = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "latest_coordinator_epoch": one.coordinator_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp_ms,
            "current_transaction_start_offset": one.start_offset,
        }
        for one in found
    ]
    print_rows(rows, _PRODUCER_COLUMNS, output)


@transactions.command(
    "find-hanging",
    examples=(
        "ottla transactions find-hanging",
        "ottla transactions find-hanging --topic orders --max-timeout 60",
    ),
)
@click.option(
    "--topic", shell_complete=complete_topic, help="Only in this topic, instead of in all."
)
@click.option("-p", "--partition", metavar="N", type=click.IntRange(min=0), help="Only in this.")
@click.option(
    "--broker-id",
    metavar="ID",
    type=int,
    shell_complete=complete_broker,
    help="Only what this broker leads.",
)
@click.option(
    "--max-timeout",
    "minutes",
    metavar="MINUTES",
    type=click.IntRange(min=0),
    default=_MAX_TIMEOUT_MINUTES,
    show_default=True,
    help="The longest that a transaction may take in this cluster.",
)
@output_option()
@cluster_options
def find_hanging(
    connection: Connection,
    *,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: int,
    output: str,
) -> None:
    """Find transactions that are open and that no coordinator will end."""
    from ottla.cli import transactions_client

    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    places = _places(connection, topic, partition, broker_id)
    now_ms = _now_ms()
    before_ms = now_ms - minutes * _MS_PER_MINUTE
    with progress("look", len(places)) as advance:
        found = asked(
            connection,
            lambda client: transactions_client.find_hanging(
                client, places, before_ms=before_ms, node_id=broker_id, advance=advance
            ),
        )
    if not found and output in ("table", "wide"):
        note(f"No hanging transactions in {len(places)} partitions.")
        return
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "start_offset": one.start_offset,
            "last_timestamp": one.last_timestamp_ms,
            "duration_min": (now_ms - one.last_timestamp_ms) // _MS_PER_MINUTE,
        }
        for one in found
    ]
    print_rows(rows, _HANGING_COLUMNS, output)


@transactions.command(
    examples=(
        "ottla transactions abort orders -p 0 --start-offset 1042",
        "ottla transactions abort orders -p 0 --producer-id 7 --producer-epoch 2 "
        "--coordinator-epoch 0 --yes",
    )
)
@topic_argument()
@click.option(
    "-p", "--partition", metavar="N", type=click.IntRange(min=0), required=True, help="Which one."
)
@click.option(
    "--start-offset", metavar="N", type=click.IntRange(min=0), help="Where it begins there."
)
@click.option("--producer-id", metavar="ID", type=click.IntRange(min=0), help="Or whose it is,")
@click.option("--producer-epoch", metavar="N", type=click.IntRange(min=0), help="in which epoch,")
@click.option("--coordinator-epoch", metavar="N", type=int, help="and of which coordinator.")
@yes_option
@cluster_options
def abort(
    connection: Connection,
    *,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    yes: bool,
) -> None:
    """Abort a hanging transaction in one partition."""
    from ottla.cli.transactions_client import abort as abort_at

    whose = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == all(part is None for part in whose):
        raise click.UsageError(
            "Give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch."
        )
    place = _places(connection, topic, partition)[0]
    if start_offset is not None:
        state = _open_at(connection, place, start_offset)
    elif producer_id is None or producer_epoch is None or coordinator_epoch is None:
        raise click.UsageError(
            "--producer-id, --producer-epoch and --coordinator-epoch belong together."
        )
    else:
        state = ProducerState(
            topic, partition, producer_id, producer_epoch, coordinator_epoch, -1, -1, None
        )
    confirm(f"Abort the transaction of producer {state.producer_id} there?", yes=yes)
    asked(connection, lambda client: abort_at(client, state))
    note(f"Aborted the transaction of producer {state.producer_id} in {topic}-{partition}.")


@transactions.command(examples=("ottla transactions terminate orders-1 --yes",))
@click.argument(
    "transactional_id", metavar="TRANSACTIONAL-ID", shell_complete=complete_transactional_id
)
@yes_option
@cluster_options
def terminate(connection: Connection, *, transactional_id: str, yes: bool) -> None:
    """Fence the producer of a transactional id, and abort what it has open."""
    from ottla.cli import transactions_client

    confirm(f"Fence the producer of '{transactional_id}'?", yes=yes)
    asked(connection, lambda client: transactions_client.terminate(client, transactional_id))
    note(f"Fenced the producer of '{transactional_id}'; what it had open is aborted.")


def _open_at(connection: Connection, place: Place, start_offset: int) -> ProducerState:
    from ottla.cli.transactions_client import producers

    found = asked(connection, lambda client: producers(client, [place]))
    for state in found:
        if state.start_offset == start_offset:
            return state
    raise CliError(
        f"No open transaction begins at offset {start_offset} of {place[0]}-{place[1]}; "
        "'ottla transactions describe-producers' shows those that are open.",
        ExitCode.NOT_FOUND,
    )


def _places(
    connection: Connection,
    topic: str | None,
    partition: int | None,
    broker_id: int | None = None,
) -> Sequence[Place]:
    """The partitions that are meant, of one topic or of all; NOT_FOUND if there is none."""
    from ottla.cli.client import topic_not_found

    with wire_client(connection) as client:
        topics = client.retrying(lambda: client.metadata(None)).topics
    if topic is not None and topic not in topics:
        raise topic_not_found(topic)
    found = [
        (name, index)
        for name in ([topic] if topic is not None else sorted(topics))
        for index, one in sorted(topics[name].partitions.items())
        if partition is None or index == partition
        if broker_id is None or one.leader == broker_id
    ]
    if partition is not None and not found:
        raise CliError(f"Topic '{topic}' has no partition {partition}.", ExitCode.NOT_FOUND)
    return found


def _unknown_id(transactional_id: str) -> CliError:
    return CliError(
        f"There is no transactional id '{transactional_id}'; 'ottla transactions list' shows "
        "those there are.",
        ExitCode.NOT_FOUND,
    )


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
