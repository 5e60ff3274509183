"""`ottla topic`: the commands that create, show, change and delete topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.client import Admin, kafka_admin, topic_not_found, uuid_text
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_data, print_fields, print_rows, print_table
from ottla.cli.params import (
    KEY_VALUE,
    cluster_options,
    confirm,
    output_option,
    pairs_to_dict,
    topic_argument,
    yes_option,
)
from ottla.cli.settings import Connection
from ottla.protocol.internal_topics import INTERNAL_TOPICS

# Kafka's own topics; the protocol marks them internal.

_LIST_COLUMNS = columns("topic", "partitions", "replication_factor", wide=("topic_id",))
_PARTITION_COLUMNS = columns("partition", "leader", "replicas", "isr", wide=("leader_address",))
_HEALTH_COLUMNS = columns(
    "topic", "partition", "leader", "replicas", "isr", wide=("leader_address",)
)
_OFFSET_COLUMNS = columns("topic", "partition", "log_start_offset", "log_end_offset", "offsets")


@click.group(
    cls=ExampleGroup,
    examples=("ottla topic create orders -p 3", "ottla topic list", "ottla topic describe orders"),
)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command(
    examples=(
        "ottla topic create orders",
        "ottla topic create orders -p 12 -r 3 -c retention.ms=86400000",
        "ottla topic create state -c cleanup.policy=compact --if-not-exists",
    )
)
@click.argument("name")
@click.option(
    "-p",
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many; the broker's default if none.",
)
@click.option(
    "-r",
    "--replication-factor",
    metavar="N",
    type=click.IntRange(min=1),
    help="Copies of each partition; the broker's default if none.",
)
@click.option(
    "-c", "--config", "configs", type=KEY_VALUE, multiple=True, help="A topic setting. Repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic is there already.")
@click.option("--dry-run", is_flag=True, help="Let the cluster check the request, create nothing.")
@cluster_options
def create(
    connection: Connection,
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[tuple[str, str]],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create a topic."""
    admin = Admin(connection)
    new = kafka_admin().NewTopic(
        name,
        num_partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        config=pairs_to_dict(configs),
    )
    future = admin.raw.create_topics([new], validate_only=dry_run, **admin.options)[name]
    try:
        admin.result(future)
    except CliError as error:
        if "already exists" not in error.message:
            raise
        if not if_not_exists:
            raise CliError(
                f"Topic '{name}' exists already; change it with 'ottla topic alter {name}'."
            ) from error
        note(f"Topic '{name}' exists already.")
        return
    note(f"Topic '{name}' can be created." if dry_run else f"Created topic '{name}'.")


@topic.command(
    "list",
    examples=(
        "ottla topic list",
        "ottla topic list -o json | jq -r '.[].topic'",
        "ottla topic list -q | xargs -n1 ottla topic offsets",
    ),
)
@click.option("--internal", is_flag=True, help="Also list Kafka's own topics.")
@click.option("-q", "--quiet", is_flag=True, help="Print the names alone, one a line.")
@output_option()
@cluster_options
def list_topics(connection: Connection, *, internal: bool, quiet: bool, output: str) -> None:
    """List topics."""
    admin = Admin(connection)
    found = admin.metadata().topics
    names = sorted(name for name in found if internal or name not in INTERNAL_TOPICS)
    if quiet:
        for name in names:
            click.echo(name)
        return
    described = admin.describe_topics(names) if output != "table" else {}
    rows = []
    for name in names:
        partitions = found[name].partitions
        row: dict[str, Any] = {
            "topic": name,
            "partitions": len(partitions),
            "replication_factor": max((len(p.replicas) for p in partitions.values()), default=0),
        }
        if name in described:
            row["topic_id"] = uuid_text(described[name].topic_id)
            row["internal"] = described[name].is_internal
        rows.append(row)
    print_rows(rows, _LIST_COLUMNS, output)


@topic.command(
    examples=(
        "ottla topic describe orders",
        "ottla topic describe --under-replicated",
        "ottla topic describe orders payments -o json",
    )
)
@topic_argument("names", nargs=-1, required=False)
@click.option("--under-replicated", is_flag=True, help="Only partitions that lack a replica.")
@click.option("--under-min-isr", is_flag=True, help="Only partitions that refuse acks=all.")
@click.option("--at-min-isr", is_flag=True, help="Only partitions that may lose no more replicas.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option("--internal", is_flag=True, help="Without names, also describe Kafka's own topics.")
@output_option()
@cluster_options
def describe(
    connection: Connection,
    *,
    names: tuple[str, ...],
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    unavailable: bool,
    internal: bool,
    output: str,
) -> None:
    """Describe topics: partitions, leaders, replicas and settings."""
    admin = Admin(connection)
    topics = _describe(admin, _names_or_all(admin, names, internal=internal))
    wanted = {
        "under_replicated": under_replicated,
        "under_min_isr": under_min_isr,
        "at_min_isr": at_min_isr,
        "unavailable": unavailable,
    }
    if any(wanted.values()):
        rows = [
            {"topic": described["topic"], **partition}
            for described in topics
            for partition in described["partitions"]
            if any(is_wanted and partition[flag] for flag, is_wanted in wanted.items())
        ]
        if not rows and output in ("table", "wide"):
            note("No such partitions.")
            return
        print_rows(rows, _HEALTH_COLUMNS, output)
    elif output in ("table", "wide"):
        for position, described in enumerate(topics):
            if position:
                click.echo()
            _print_topic(described, is_wide=output == "wide")
    else:
        print_data(topics, output)


@topic.command(
    examples=(
        "ottla topic alter orders -p 6",
        "ottla topic alter orders -c retention.ms=3600000",
        "ottla topic alter orders --delete-config retention.ms",
    )
)
@topic_argument("name")
@click.option(
    "-p", "--partitions", metavar="N", type=click.IntRange(min=1), help="The new, higher number."
)
@click.option(
    "-c", "--config", "configs", type=KEY_VALUE, multiple=True, help="Set this. Repeatable."
)
@click.option(
    "--delete-config", "deleted", metavar="KEY", multiple=True, help="Back to the default."
)
@cluster_options
def alter(
    connection: Connection,
    *,
    name: str,
    partitions: int | None,
    configs: Sequence[tuple[str, str]],
    deleted: Sequence[str],
) -> None:
    """Add partitions to a topic, or change its settings."""
    from ottla.cli.config import config_changes

    if partitions is None and not configs and not deleted:
        raise click.UsageError("Nothing to change; give -p, -c or --delete-config.")
    admin = Admin(connection)
    admin.partitions_of(name)
    if configs or deleted:
        resource = config_changes("topic", name, set_to=pairs_to_dict(configs), deleted=deleted)
        admin.alter_configs(resource, f"topic '{name}'")
        note(f"Changed the settings of topic '{name}'.")
    if partitions is not None:
        request = [kafka_admin().NewPartitions(name, partitions)]
        futures = admin.raw.create_partitions(request, **admin.options)
        admin.result(futures[name], f"topic '{name}'")
        note(f"Topic '{name}' has {partitions} partitions now.")


@topic.command(examples=("ottla topic delete orders", "ottla topic delete orders payments --yes"))
@topic_argument("names", nargs=-1)
@yes_option
@cluster_options
def delete(connection: Connection, *, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics and all their records."""
    confirm(f"Delete {', '.join(names)} and all records in them?", yes=yes)
    admin = Admin(connection)
    outcomes = admin.outcomes(admin.raw.delete_topics(list(names), **admin.options))
    for name, outcome in outcomes.items():
        if not isinstance(outcome, CliError):
            note(f"Deleted topic '{name}'.")
    _raise_first(
        {
            name: topic_not_found(name) if outcome.exit_code is ExitCode.NOT_FOUND else outcome
            for name, outcome in outcomes.items()
            if isinstance(outcome, CliError)
        }
    )


@topic.command(
    "delete-records",
    examples=(
        "ottla topic delete-records orders --before 1000 -p 0",
        "ottla topic delete-records orders --before end --yes",
    ),
)
@topic_argument("name")
@click.option(
    "--before",
    required=True,
    metavar="OFFSET",
    help="Delete records below this offset; 'end' deletes all there are.",
)
@click.option(
    "-p",
    "--partition",
    "only",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only there.",
)
@yes_option
@output_option()
@cluster_options
def delete_records(
    connection: Connection,
    *,
    name: str,
    before: str,
    only: tuple[int, ...],
    yes: bool,
    output: str,
) -> None:
    """Delete the oldest records of a topic."""
    from confluent_kafka import OFFSET_END, TopicPartition

    if before != "end" and not before.isdecimal():
        raise click.UsageError(f"--before takes an offset or 'end', not '{before}'.")
    admin = Admin(connection)
    partitions = _chosen_partitions(name, admin.partitions_of(name), only)
    what = "all records" if before == "end" else f"records below offset {before}"
    confirm(f"Delete {what} of '{name}', partitions {partitions}?", yes=yes)
    offset = OFFSET_END if before == "end" else int(before)
    request = [TopicPartition(name, partition, offset) for partition in partitions]
    outcomes = admin.outcomes(admin.raw.delete_records(request, **admin.options))
    rows = [
        {"topic": name, "partition": tp.partition, "log_start_offset": outcome.low_watermark}
        for tp, outcome in outcomes.items()
        if not isinstance(outcome, CliError)
    ]
    if rows:
        print_rows(rows, columns("topic", "partition", "log_start_offset"), output)
    _raise_first(
        {
            f"{name}-{tp.partition}": outcome
            for tp, outcome in outcomes.items()
            if isinstance(outcome, CliError)
        }
    )


@topic.command(examples=("ottla topic offsets orders", "ottla topic offsets orders -o jsonl"))
@topic_argument("name")
@click.option(
    "-p",
    "--partition",
    "only",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this.",
)
@output_option()
@cluster_options
def offsets(connection: Connection, *, name: str, only: tuple[int, ...], output: str) -> None:
    """Show where each partition begins and ends."""
    spec = kafka_admin().OffsetSpec
    admin = Admin(connection)
    partitions = _chosen_partitions(name, admin.partitions_of(name), only)
    first = admin.offsets({(name, p): spec.earliest() for p in partitions})
    end = admin.offsets({(name, p): spec.latest() for p in partitions})
    rows = [
        {
            "topic": name,
            "partition": p,
            "log_start_offset": first[name, p],
            "log_end_offset": end[name, p],
            "offsets": end[name, p] - first[name, p],
        }
        for p in partitions
    ]
    print_rows(rows, _OFFSET_COLUMNS, output)


def _names_or_all(admin: Admin, names: Sequence[str], *, internal: bool) -> list[str]:
    found = admin.metadata().topics
    for name in names:
        if name not in found:
            raise topic_not_found(name)
    if names:
        return list(names)
    return sorted(name for name in found if internal or name not in INTERNAL_TOPICS)


def _describe(admin: Admin, names: list[str]) -> list[dict[str, Any]]:
    described = admin.describe_topics(names)
    configs = admin.topic_configs(names)
    topics = []
    for name in names:
        entries = configs[name]
        min_isr = int(entries["min.insync.replicas"].value)
        partitions = [
            _partition_row(partition, min_isr) for partition in described[name].partitions
        ]
        topics.append(
            {
                "topic": name,
                "topic_id": uuid_text(described[name].topic_id),
                "internal": described[name].is_internal,
                "partition_count": len(partitions),
                "replication_factor": max((len(p["replicas"]) for p in partitions), default=0),
                "configs": {
                    entry.name: entry.value
                    for entry in entries.values()
                    if is_set_on_topic(entry.source)
                },
                "partitions": partitions,
            }
        )
    return topics


def is_set_on_topic(source: Any) -> bool:
    """Whether a config entry was set on the topic itself."""
    known = kafka_admin().ConfigSource
    return bool(known(source) is known.DYNAMIC_TOPIC_CONFIG)


def _partition_row(partition: Any, min_isr: int) -> dict[str, Any]:
    leader = partition.leader
    is_led = leader is not None and leader.id >= 0
    replicas = [node.id for node in partition.replicas]
    isr = [node.id for node in partition.isr]
    return {
        "partition": partition.id,
        "leader": leader.id if is_led else None,
        "leader_address": f"{leader.host}:{leader.port}" if is_led else None,
        "replicas": replicas,
        "isr": isr,
        "under_replicated": len(isr) < len(replicas),
        "under_min_isr": len(isr) < min_isr,
        "at_min_isr": len(isr) == min_isr,
        "unavailable": not is_led,
    }


def _print_topic(described: dict[str, Any], *, is_wide: bool) -> None:
    print_fields(
        [
            ("Topic", described["topic"]),
            ("TopicId", described["topic_id"]),
            ("PartitionCount", described["partition_count"]),
            ("ReplicationFactor", described["replication_factor"]),
            ("Configs", described["configs"]),
        ]
    )
    click.echo()
    shown = [column for column in _PARTITION_COLUMNS if is_wide or not column.is_wide]
    print_table(described["partitions"], shown)


def _chosen_partitions(name: str, there: list[int], only: Sequence[int]) -> list[int]:
    for partition in only:
        if partition not in there:
            raise CliError(
                f"Topic '{name}' has no partition {partition}; it has 0 to {there[-1]}.",
                ExitCode.NOT_FOUND,
            )
    return sorted(set(only)) or there


def _raise_first(errors: dict[str, CliError]) -> None:
    """Report all failures but the first, and leave with the first."""
    if errors:
        first, *others = errors.values()
        for other in others:
            note(f"Error: {other.message}")
        raise first
