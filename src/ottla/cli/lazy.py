"""How `ottla --help` starts in tens of milliseconds although Ottla is large.

Importing every command would import a Kafka client and the broker. So a group is a table of
names, one-line helps and where the command lives; a command is imported when it is called.
`tests/unit/cli/test_cli_help.py` holds the one-line helps equal to the commands' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click


class LazyCommand(NamedTuple):
    name: str
    module: str
    attribute: str
    help: str


class ExampleCommand(click.Command):
    """A command whose help ends with examples that can be pasted."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples under the options."""
        write_examples(self.examples, formatter)


class ExampleGroup(click.Group):
    """A group whose help ends with examples."""

    command_class = ExampleCommand

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which they were written, which is that of their use."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentences."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one_line(command)) for name, command in self.commands.items()]
            )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples under the commands."""
        write_examples(self.examples, formatter)


class LazyGroup(ExampleGroup):
    """A group that imports a command when it is called, not to list it."""

    def __init__(self, *args: Any, commands_at: Sequence[LazyCommand] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_at = {entry.name: entry for entry in commands_at}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table, which is the order people need them in."""
        return list(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        entry = self.commands_at.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.attribute} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in self.commands_at.values()])


def one_line(command: click.Command) -> str:
    """The first sentence of a command's help."""
    return command.get_short_help_str(limit=90)


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write the block of examples; lines are never wrapped, so that they can be pasted."""
    if examples:
        formatter.write_paragraph()
        formatter.write_heading("Examples")
        for example in examples:
            formatter.write(f"  {example}\n")
