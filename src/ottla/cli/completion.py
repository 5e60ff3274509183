"""`ottla completion`: scripts for shells, and the live names that they ask for.

A shell asks while a person holds the tab key down: whatever goes wrong (no broker, bad context,
slow network) means no suggestions, at once and without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click
from click.shell_completion import get_completion_class

from ottla.cli import settings
from ottla.cli.errors import CliError
from ottla.cli.lazy import ExampleCommand
from ottla.cli.params import connection_from
from ottla.cli.settings import Connection

# Longer than a healthy cluster takes, shorter than a person's patience with a tab key.
COMPLETION_TIMEOUT_S = 0.8


@click.command(
    cls=ExampleCommand,
    examples=(
        'eval "$(ottla completion bash)"     # in ~/.bashrc',
        'eval "$(ottla completion zsh)"      # in ~/.zshrc',
        "ottla completion fish > ~/.config/fish/completions/ottla.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    """Print a completion script for a shell."""
    completer = get_completion_class(shell)
    if completer is None:
        raise CliError(f"There is no completion for {shell}; try bash, zsh or fish.")
    template = completer(ctx.find_root().command, {}, "ottla", "_OTTLA_COMPLETE")
    click.echo(template.source_template % template.source_vars())


Suggest = Callable[[click.Context, str], list[str]]


def _quietly(suggest: Suggest) -> Suggest:
    """The same suggestions that begin with what was typed; none where they cannot be had."""

    @wraps(suggest)
    def suggest_or_nothing(ctx: click.Context, incomplete: str) -> list[str]:
        try:
            return [name for name in suggest(ctx, incomplete) if name.startswith(incomplete)]
        except CliError:
            return []

    return suggest_or_nothing


@_quietly
def topic_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Topics of the cluster."""
    from ottla.cli.client import Admin

    names = Admin(_quick(ctx)).metadata().topics
    # Internal topics are offered only to who begins to type their underscores.
    return sorted(name for name in names if incomplete or not name.startswith("__"))


@_quietly
def group_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Groups of the cluster."""
    from ottla.cli.client import Admin
    from ottla.cli.group_client import GroupAdmin

    return GroupAdmin(Admin(_quick(ctx))).ids()


@_quietly
def broker_ids(ctx: click.Context, incomplete: str) -> list[str]:
    """Brokers of the cluster, by their numbers."""
    from ottla.cli.client import Admin

    return [str(broker_id) for broker_id in sorted(Admin(_quick(ctx)).metadata().brokers)]


@_quietly
def context_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Clusters that 'ottla context create' named."""
    return sorted(settings.load(settings.config_path()).named)


@_quietly
def transactional_ids(ctx: click.Context, incomplete: str) -> list[str]:
    """Transactional ids that a coordinator knows."""
    from ottla.cli.transactions_client import listed
    from ottla.cli.wire import wire_client

    with wire_client(_quick(ctx)) as client:
        return [one.transactional_id for one in listed(client)]


@_quietly
def config_names(ctx: click.Context, incomplete: str) -> list[str]:
    """What may be named after the kind of entity that was typed."""
    from ottla.cli.config_client import DEFAULT, listed
    from ottla.cli.wire import wire_client

    kind = ctx.params.get("entity")
    if kind == "topic":
        return topic_names(ctx, incomplete)
    if kind == "group":
        return group_names(ctx, incomplete)
    if kind == "client-metrics":
        with wire_client(_quick(ctx)) as client:
            return [one.name for one in listed(client, [kind])]
    return [*broker_ids(ctx, incomplete), *([DEFAULT] if kind == "broker" else [])]


@_quietly
def config_keys(ctx: click.Context, incomplete: str) -> list[str]:
    """Settings of the entity that was typed."""
    from ottla.cli.config_client import Entity, described
    from ottla.cli.wire import wire_client

    # While the value of an option is missing, click leaves the arguments before it unread.
    kind, name = (ctx.params.get("entity"), ctx.params.get("name")) if not ctx.args else ctx.args
    entity = Entity(str(kind), str(name))
    # What is set for all brokers may be any setting of one of them.
    names = broker_ids(ctx, "") if entity.is_default else [entity.name]
    with wire_client(_quick(ctx)) as client:
        return [one.name for one in described(client, Entity(entity.kind, names[0]))]


@_quietly
def topic_config_keys(ctx: click.Context, incomplete: str) -> list[str]:
    """Settings that any topic may have; no cluster is needed to know them."""
    from ottla.config.topic_table import TOPIC_TABLE

    return [name for name, key in TOPIC_TABLE.keys.items() if not key.internal]


def _quick(ctx: click.Context) -> Connection:
    found = connection_from(ctx.params, ctx)
    return Connection(found.client, min(found.timeout_s, COMPLETION_TIMEOUT_S))
