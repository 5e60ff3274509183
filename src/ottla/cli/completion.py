"""`ottla completion`: scripts for shells, and the names of topics and groups that they ask for.

A shell asks while a person holds the tab key down: whatever goes wrong (no broker, bad context,
slow network) means no suggestions, at once and without a word.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

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


def topic_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Topics of the cluster that begin with what was typed; none if it cannot be asked."""
    from ottla.cli.client import Admin

    try:
        names = Admin(_quick(ctx)).metadata().topics
    except CliError:
        return []
    # Internal topics are offered only to who begins to type their underscores.
    return sorted(
        name
        for name in names
        if name.startswith(incomplete) and (incomplete or not name.startswith("__"))
    )


def group_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Groups of the cluster that begin with what was typed; none if it cannot be asked."""
    from ottla.cli.client import Admin
    from ottla.cli.group_client import GroupAdmin

    try:
        names = GroupAdmin(Admin(_quick(ctx))).ids()
    except CliError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _quick(ctx: click.Context) -> Connection:
    found = connection_from(ctx.params, ctx)
    return Connection(found.client, min(found.timeout_s, COMPLETION_TIMEOUT_S))
