"""`ottla server`: a broker from a properties file, in the foreground."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import note
from ottla.cli.params import KEY_VALUE, pairs_to_dict
from ottla.cli.properties_file import config_argument, read_config

if TYPE_CHECKING:
    from ottla.server.broker import Broker


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla server server.properties",
        "ottla server server.properties --override log.retention.hours=1",
    ),
)
@config_argument
@click.option(
    "--override",
    "overrides",
    type=KEY_VALUE,
    multiple=True,
    help="Use this instead of what the file says. Repeatable.",
)
def server(*, config_file: Path, overrides: Sequence[tuple[str, str]]) -> None:
    """Run a broker from a properties file."""
    from ottla.cli.serving import serve

    config = read_config(config_file, pairs_to_dict(overrides))

    def on_ready(broker: Broker) -> None:
        listening = ", ".join(
            f"{name}://{host}:{port}" for name, (host, port) in broker.listeners.items()
        )
        note(f"Broker {config.node_id} is ready at {listening}.")

    serve(config, on_ready)
