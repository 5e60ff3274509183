"""`ottla config`: settings of topics, brokers, groups, client metrics and loggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from ottla.cli.config_client import (
    DEFAULT,
    RESOURCE_TYPES,
    Change,
    Entity,
    Entry,
    Operation,
    check_exists,
    described,
    listed,
)
from ottla.cli.config_client import (
    alter as alter_entity,
)
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_rows
from ottla.cli.params import (
    KEY_VALUE,
    cluster_options,
    complete_config_key,
    complete_config_name,
    output_option,
)
from ottla.cli.settings import Connection
from ottla.cli.wire import wire_client

_COLUMNS = columns("name", "value", "source", wide=("type", "read_only", "sensitive", "synonyms"))
_LIST_COLUMNS = columns("entity", "name")
_ENTITIES = click.Choice(list(RESOURCE_TYPES))


@click.group(
    cls=ExampleGroup,
    examples=(
        "ottla config describe topic orders",
        "ottla config describe broker 1 --all",
        "ottla config alter broker default -c log.cleaner.threads=2",
    ),
)
def config() -> None:
    """Describe and alter settings of topics, brokers and groups."""


@config.command(
    "list",
    examples=("ottla config list client-metrics", "ottla config list group topic -o jsonl"),
)
@click.argument("entities", type=_ENTITIES, nargs=-1, required=True, metavar="ENTITY...")
@output_option()
@cluster_options
def list_entities(connection: Connection, *, entities: tuple[str, ...], output: str) -> None:
    """List what has settings: topics, brokers, and groups and client metrics with some."""
    with wire_client(connection) as client:
        found = client.retrying(lambda: listed(client, list(dict.fromkeys(entities))))
    print_rows([{"entity": one.kind, "name": one.name} for one in found], _LIST_COLUMNS, output)


@config.command(
    examples=(
        "ottla config describe topic orders",
        "ottla config describe topic orders retention.ms --docs",
        "ottla config describe broker 1 --all -o wide",
        "ottla config describe broker default",
        "ottla config describe group billing --all",
    )
)
@click.argument("entity", type=_ENTITIES)
@click.argument("name", shell_complete=complete_config_name)
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=complete_config_key)
@click.option("-a", "--all", "is_all", is_flag=True, help="Also show what nobody has set.")
@click.option("--docs", "with_docs", is_flag=True, help="Say of each what it does.")
@output_option()
@cluster_options
def describe(
    connection: Connection,
    *,
    entity: str,
    name: str,
    keys: tuple[str, ...],
    is_all: bool,
    with_docs: bool,
    output: str,
) -> None:
    """Show settings; without --all, those that somebody has set.

    Name a broker by its number, or 'default' for what is set for all brokers at once.
    """
    asked = _entity(entity, name)
    with wire_client(connection) as client:
        check_exists(client, asked)
        entries = client.retrying(lambda: described(client, asked, with_documentation=with_docs))
    unknown = sorted(set(keys) - {entry.name for entry in entries})
    if unknown:
        raise CliError(
            f"There is no setting '{unknown[0]}' of {asked}; --all lists those there are.",
            ExitCode.NOT_FOUND,
        )
    shown = [
        entry
        for entry in entries
        if (entry.name in keys if keys else is_all or entry.is_set_on(entity))
    ]
    is_text = output in ("table", "wide")
    if not shown and is_text:
        hint = "" if asked.is_default else "; --all shows the defaults"
        note(f"Nothing is set on {asked}{hint}.")
    elif with_docs and is_text:
        click.echo("\n\n".join(_explained(entry) for entry in shown))
    else:
        print_rows([_row(entry, with_docs=with_docs) for entry in shown], _COLUMNS, output)


@config.command(
    examples=(
        "ottla config alter topic orders -c retention.ms=3600000",
        "ottla config alter topic orders --delete-config retention.ms",
        "ottla config alter broker 1 -c log.cleaner.threads=2 --dry-run",
        "ottla config alter broker default -c num.replica.fetchers=2",
        "ottla config alter broker-logger 1 -c ottla.server.broker=DEBUG",
    )
)
@click.argument("entity", type=_ENTITIES)
@click.argument("name", shell_complete=complete_config_name)
@click.option(
    "-c",
    "--config",
    "configs",
    type=KEY_VALUE,
    multiple=True,
    shell_complete=complete_config_key,
    help="Set this. Repeatable.",
)
@click.option(
    "--append",
    "appended",
    type=KEY_VALUE,
    multiple=True,
    shell_complete=complete_config_key,
    help="Add to a list. Repeatable.",
)
@click.option(
    "--subtract",
    "subtracted",
    type=KEY_VALUE,
    multiple=True,
    shell_complete=complete_config_key,
    help="Remove from a list.",
)
@click.option(
    "--delete-config",
    "deleted",
    metavar="KEY",
    multiple=True,
    shell_complete=complete_config_key,
    help="Back to the default.",
)
@click.option("--dry-run", is_flag=True, help="Let the cluster check the request, change nothing.")
@cluster_options
def alter(
    connection: Connection,
    *,
    entity: str,
    name: str,
    configs: Sequence[tuple[str, str]],
    appended: Sequence[tuple[str, str]],
    subtracted: Sequence[tuple[str, str]],
    deleted: Sequence[str],
    dry_run: bool,
) -> None:
    """Change settings; those not named stay as they are.

    Name a broker by its number, or 'default' to set something for all brokers at once.
    """
    changes = list(config_changes(configs, deleted, appended, subtracted))
    if not changes:
        raise click.UsageError("Nothing to change; give -c, --append, --subtract, --delete-config.")
    asked = _entity(entity, name)
    with wire_client(connection) as client:
        check_exists(client, asked)
        client.retrying(lambda: alter_entity(client, asked, changes, validate_only=dry_run))
    verb = "can be changed" if dry_run else "are changed"
    note(f"The settings of {asked} {verb}.")


def config_changes(
    configs: Sequence[tuple[str, str]],
    deleted: Sequence[str],
    appended: Sequence[tuple[str, str]] = (),
    subtracted: Sequence[tuple[str, str]] = (),
) -> Iterator[Change]:
    """What the options ask for; the last of a repeated key wins."""
    for key, value in dict(configs).items():
        yield key, Operation.SET, value
    for key in dict.fromkeys(deleted):
        yield key, Operation.DELETE, None
    for key, value in appended:
        yield key, Operation.APPEND, value
    for key, value in subtracted:
        yield key, Operation.SUBTRACT, value


def _entity(kind: str, name: str) -> Entity:
    asked = Entity(kind, name)
    if kind in ("broker", "broker-logger") and not asked.is_default and not name.isdecimal():
        choice = f" or by '{DEFAULT}'" if kind == "broker" else ""
        raise click.UsageError(f"A broker is named by its number{choice}, not '{name}'.")
    return asked


def _shown_value(entry: Entry) -> str | None:
    return "(hidden)" if entry.is_sensitive else entry.value


def _row(entry: Entry, *, with_docs: bool) -> dict[str, Any]:
    row = {
        "name": entry.name,
        "value": _shown_value(entry),
        "source": entry.source,
        "type": entry.type,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": {} if entry.is_sensitive else entry.synonyms,
    }
    return {**row, "documentation": entry.documentation} if with_docs else row


def _explained(entry: Entry) -> str:
    """One setting as a paragraph."""
    value = _shown_value(entry)
    kind = "" if entry.type == "UNKNOWN" else f", {entry.type.lower()}"
    fixed = ", read-only" if entry.is_read_only else ""
    head = f"{entry.name} = {'-' if value in (None, '') else value}  ({entry.source}{kind}{fixed})"
    text = entry.documentation or "The broker does not say what it does."
    return head + "\n" + click.wrap_text(text, 96, initial_indent="    ", subsequent_indent="    ")
