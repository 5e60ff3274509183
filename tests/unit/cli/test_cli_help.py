"""Every command's help, and what starting it costs in imports."""

import subprocess
import sys

import click
import pytest

from ottla.cli.lazy import ExampleCommand, ExampleGroup, one_line
from ottla.cli.main import COMMANDS, root, run


def all_commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = [("ottla", root)]
    context = click.Context(root)

    def walk(path: str, group: click.Group) -> None:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            found.append((f"{path} {name}", command))
            if isinstance(command, click.Group):
                walk(f"{path} {name}", command)

    walk("ottla", root)
    return found


@pytest.mark.parametrize("path", [path for path, _ in all_commands()])
def test_every_help_ends_with_examples_of_that_command(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path.split()[1:], "--help"]) == 0
    _, _, examples = capsys.readouterr().out.partition("Examples:\n")
    lines = examples.splitlines()
    assert lines
    assert all(line.startswith("  ") for line in lines)
    assert all(path in line for line in lines if path.count(" ") == 2), lines


def test_every_option_and_command_explains_itself() -> None:
    for path, command in all_commands():
        assert command.help, path
        assert isinstance(command, ExampleCommand | ExampleGroup), path
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, (path, param.name)


def test_the_lazy_table_tells_what_the_commands_tell() -> None:
    context = click.Context(root)
    for entry in COMMANDS:
        command = root.get_command(context, entry.name)
        assert command is not None
        assert one_line(command) == entry.help


def test_help_imports_neither_client_nor_broker_nor_tables() -> None:
    code = (
        "import sys; from ottla.cli.main import run; run(['--help']); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'confluent_kafka', 'kio', 'rich', 'asyncio', 'uvloop', 'yaml', 'msgspec'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
