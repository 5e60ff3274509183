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
        "ottla server server.properties --http-host 0.0.0.0 --http-port 9644",
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
@click.option(
    "--http-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help="Tell metrics and health on this port; 0 takes a free one.",
)
@click.option(
    "--http-host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The interface for --http-port; 0.0.0.0 is all. There is no login.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What is logged to stderr.",
)
def server(
    *,
    config_file: Path,
    overrides: Sequence[tuple[str, str]],
    http_port: int | None,
    http_host: str,
    log_level: str,
) -> None:
    """Run a broker from a properties file."""
    from ottla.cli.serving import serve

    config = read_config(config_file, pairs_to_dict(overrides))
    for warning in config.warnings():
        note(f"Warning: {warning}")

    def on_ready(broker: Broker) -> None:
        names = [listener.name for listener in config.broker_listeners]  # clients want no others
        listening = ", ".join("{}://{}:{}".format(name, *broker.listeners[name]) for name in names)
        metrics = f"; {metrics_url(broker)}" if broker.http_address else ""
        note(f"Broker {config.node_id} is ready at {listening}{metrics}.")

    http_address = None if http_port is None else (http_host, http_port)
    serve(config, on_ready, http_address=http_address, log_level=log_level)


def metrics_url(broker: Broker) -> str:
    """Where the broker tells its metrics."""
    if broker.http_address is None:
        return "-"
    host, port = broker.http_address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
