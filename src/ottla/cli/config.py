"""`ottla config`: settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ottla.cli.client import Admin, kafka_admin
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_rows
from ottla.cli.params import KEY_VALUE, cluster_options, output_option, pairs_to_dict
from ottla.cli.settings import Connection

_COLUMNS = columns("name", "value", "source", wide=("read_only", "sensitive", "synonyms"))
_ENTITIES = click.Choice(["topic", "broker"])


@click.group(
    cls=ExampleGroup,
    examples=("ottla config describe topic orders", "ottla config describe broker 1 --all"),
)
def config() -> None:
    """Describe and alter the settings of topics and brokers."""


@config.command(
    examples=(
        "ottla config describe topic orders",
        "ottla config describe topic orders retention.ms",
        "ottla config describe broker 1 --all -o wide",
    )
)
@click.argument("entity", type=_ENTITIES)
@click.argument("name")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("-a", "--all", "is_all", is_flag=True, help="Also show what nobody has set.")
@output_option()
@cluster_options
def describe(
    connection: Connection,
    *,
    entity: str,
    name: str,
    keys: tuple[str, ...],
    is_all: bool,
    output: str,
) -> None:
    """Show the settings of a topic or broker; without --all, those that somebody has set."""
    admin = Admin(connection)
    entries = _describe(admin, entity, name)
    unknown = sorted(set(keys) - entries.keys())
    if unknown:
        raise CliError(
            f"There is no {entity} setting '{unknown[0]}'; --all lists those there are.",
            ExitCode.NOT_FOUND,
        )
    rows = [
        _row(entry)
        for key, entry in sorted(entries.items())
        if (key in keys if keys else is_all or not _is_inherited(entry, entity))
    ]
    if not rows and output in ("table", "wide"):
        note(f"Nothing is set on {entity} '{name}'; --all shows the defaults.")
        return
    print_rows(rows, _COLUMNS, output)


@config.command(
    examples=(
        "ottla config alter topic orders -c retention.ms=3600000",
        "ottla config alter topic orders --delete-config retention.ms",
        "ottla config alter broker 1 -c log.cleaner.threads=2 --dry-run",
    )
)
@click.argument("entity", type=_ENTITIES)
@click.argument("name")
@click.option(
    "-c", "--config", "configs", type=KEY_VALUE, multiple=True, help="Set this. Repeatable."
)
@click.option(
    "--append", "appended", type=KEY_VALUE, multiple=True, help="Add to a list. Repeatable."
)
@click.option("--subtract", "subtracted", type=KEY_VALUE, multiple=True, help="Remove from a list.")
@click.option(
    "--delete-config", "deleted", metavar="KEY", multiple=True, help="Back to the default."
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
    """Change settings of a topic or broker; those not named stay as they are."""
    if not (configs or appended or subtracted or deleted):
        raise click.UsageError("Nothing to change; give -c, --append, --subtract, --delete-config.")
    admin = Admin(connection)
    if entity == "topic":
        admin.partitions_of(name)
    resource = config_changes(
        entity,
        name,
        set_to=pairs_to_dict(configs),
        deleted=deleted,
        appended=appended,
        subtracted=subtracted,
    )
    admin.alter_configs(resource, f"{entity} '{name}'", validate_only=dry_run)
    verb = "can be changed" if dry_run else "are changed"
    note(f"The settings of {entity} '{name}' {verb}.")


def config_changes(
    entity: str,
    name: str,
    *,
    set_to: Mapping[str, str],
    deleted: Sequence[str],
    appended: Sequence[tuple[str, str]] = (),
    subtracted: Sequence[tuple[str, str]] = (),
) -> Any:
    """The incremental changes (KIP-339) as one request."""
    module = kafka_admin()
    operation = module.AlterConfigOpType
    changes: list[tuple[str, str | None, Any]] = [
        *((key, value, operation.SET) for key, value in set_to.items()),
        *((key, None, operation.DELETE) for key in deleted),
        *((key, value, operation.APPEND) for key, value in appended),
        *((key, value, operation.SUBTRACT) for key, value in subtracted),
    ]
    kind = module.ResourceType.TOPIC if entity == "topic" else module.ResourceType.BROKER
    return module.ConfigResource(
        kind,
        name,
        incremental_configs=[
            module.ConfigEntry(key, value, incremental_operation=how) for key, value, how in changes
        ],
    )


def _describe(admin: Admin, entity: str, name: str) -> dict[str, Any]:
    if entity == "topic":
        admin.partitions_of(name)
        return admin.topic_configs([name])[name]
    if not name.isdecimal():
        raise click.UsageError(f"A broker is named by its number, not '{name}'.")
    if int(name) not in admin.metadata().brokers:
        raise CliError(
            f"There is no broker {name}; 'ottla broker list' shows those there are.",
            ExitCode.NOT_FOUND,
        )
    module = kafka_admin()
    resource = module.ConfigResource(module.ResourceType.BROKER, name)
    futures = admin.raw.describe_configs([resource], **admin.request_timeout)
    (future,) = futures.values()
    entries: dict[str, Any] = admin.result(future, f"broker {name}")
    return entries


def source_name(entry: Any) -> str:
    """Where a value comes from, by Kafka's name."""
    return str(kafka_admin().ConfigSource(entry.source).name)


def _is_inherited(entry: Any, entity: str) -> bool:
    name = source_name(entry)
    if entity == "topic":
        return name != "DYNAMIC_TOPIC_CONFIG"
    return name == "DEFAULT_CONFIG"


def _row(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": source_name(entry),
        "read_only": bool(entry.is_read_only),
        "sensitive": bool(entry.is_sensitive),
        "synonyms": {
            synonym.name: synonym.value
            for synonym in (entry.synonyms or {}).values()
            if not entry.is_sensitive
        },
    }
