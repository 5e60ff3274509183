"""`ottla context`: names for clusters, kept in a file."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ottla.cli import settings
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_rows
from ottla.cli.params import KEY_VALUE, complete_context, output_option, pairs_to_dict

_COLUMNS = columns("current", "name", "brokers", wide=("client",))
# Values of these settings are never printed.
_SECRET_MARKS = ("password", "secret", "pem", "sasl.jaas.config", "oauthbearer.config")


@click.group(
    cls=ExampleGroup,
    examples=(
        "ottla context create prod -b kafka-1:9092 -X security.protocol=ssl",
        "ottla context use prod",
        "ottla topic list --context prod",
    ),
)
def context() -> None:
    """Name clusters, and choose the one to talk to."""


@context.command("list", examples=("ottla context list", "ottla context list -o wide"))
@output_option()
def list_contexts(*, output: str) -> None:
    """List the contexts."""
    contexts = settings.load(settings.config_path())
    if not contexts.named and output in ("table", "wide"):
        note("There are no contexts; 'ottla context create NAME -b HOST:PORT' makes one.")
        return
    is_table = output in ("table", "wide")
    rows = [
        {
            "current": _mark(name == contexts.current) if is_table else name == contexts.current,
            "name": name,
            "brokers": found.brokers,
            "client": {key: _shown(key, value) for key, value in sorted(found.client.items())},
        }
        for name, found in sorted(contexts.named.items())
    ]
    print_rows(rows, _COLUMNS, output)


@context.command(
    examples=(
        "ottla context create local -b 127.0.0.1:9092",
        "ottla context create prod -b k1:9093,k2:9093 -X security.protocol=ssl --use",
    )
)
@click.argument("name")
@click.option("-b", "--brokers", required=True, metavar="HOST:PORT,...", help="Where it listens.")
@click.option(
    "-X",
    "client_settings",
    metavar="KEY=VALUE",
    type=KEY_VALUE,
    multiple=True,
    help="A librdkafka setting. Repeatable.",
)
@click.option("--use", "is_used", is_flag=True, help="Make it the current context.")
def create(
    *, name: str, brokers: str, client_settings: Sequence[tuple[str, str]], is_used: bool
) -> None:
    """Create a context, or replace the one of that name."""
    path = settings.config_path()
    contexts = settings.load(path)
    verb = "Replaced" if name in contexts.named else "Created"
    contexts.named[name] = settings.Context(brokers, pairs_to_dict(client_settings))
    if is_used or contexts.current is None:
        contexts.current = name
    settings.save(path, contexts)
    note(f"{verb} context '{name}'; the current context is '{contexts.current}'.")


@context.command(examples=("ottla context use prod",))
@click.argument("name", shell_complete=complete_context)
def use(*, name: str) -> None:
    """Make a context the current one."""
    path = settings.config_path()
    contexts = settings.load(path)
    contexts.get(name)
    contexts.current = name
    settings.save(path, contexts)
    note(f"The current context is '{name}'.")


@context.command(examples=("ottla context current",))
def current() -> None:
    """Print the name of the current context."""
    contexts = settings.load(settings.config_path())
    if contexts.current is None:
        note(f"There is no current context; commands talk to {settings.DEFAULT_BROKERS}.")
    else:
        click.echo(contexts.current)


@context.command(examples=("ottla context delete prod",))
@click.argument("name", shell_complete=complete_context)
def delete(*, name: str) -> None:
    """Delete a context."""
    path = settings.config_path()
    contexts = settings.load(path)
    contexts.get(name)
    del contexts.named[name]
    if contexts.current == name:
        contexts.current = None
    settings.save(path, contexts)
    note(f"Deleted context '{name}'.")


def _mark(is_current: bool) -> str:
    return "*" if is_current else " "


def _shown(key: str, value: str) -> str:
    return "(hidden)" if any(mark in key for mark in _SECRET_MARKS) else value
