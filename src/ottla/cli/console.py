"""`ottla console`: the web console for a cluster, Ottla's or Apache Kafka's."""

from __future__ import annotations

from collections.abc import Callable

import click

from ottla.cli.errors import CliError, sentence
from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import note, print_fields
from ottla.cli.params import cluster_options
from ottla.cli.settings import Connection

DEFAULT_PORT = 9680
# What the extra `console` brings along.
_MODULES = ("starlette", "uvicorn", "jinja2")


def what_is_missing() -> str | None:
    """Why there can be no console here, in a sentence, or None."""
    from importlib.util import find_spec

    missing = [name for name in _MODULES if find_spec(name) is None]
    if not missing:
        return None
    return f"The console needs {missing[0]}; install it with: pip install 'ottla[console]'"


def with_bootstrap(function: Callable[..., None]) -> Callable[..., None]:
    """The options of any cluster, where --bootstrap is another word for --brokers."""
    return cluster_options(function, "--bootstrap")


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla console",
        "ottla console --bootstrap kafka.example:9092 --port 9680",
        "ottla console --read-only",
    ),
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Where the browser connects; 0 takes a free port.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The interface to listen on. There is no login: keep it on this machine or behind one.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="A host name by which browsers may reach the console. Repeatable.",
)
@click.option("--read-only", "is_read_only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--pipelines",
    "pipelines_directory",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False),
    envvar="OTTLA_PIPELINES",
    help="Where Spark pipelines publish their state.  [env: OTTLA_PIPELINES]",
)
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    help="How often to look at the cluster.",
)
@with_bootstrap
def console(
    connection: Connection,
    *,
    port: int,
    host: str,
    allowed_hosts: tuple[str, ...],
    is_read_only: bool,
    pipelines_directory: str | None,
    interval_s: float,
) -> None:
    """Serve the web console for a cluster."""
    if (why := what_is_missing()) is not None:
        raise CliError(why)
    from ottla.console.server import serve
    from ottla.console.settings import ConsoleSettings
    from ottla.protocol.errors import KafkaError

    settings = ConsoleSettings(
        client=connection.client,
        host=host,
        port=port,
        is_read_only=is_read_only,
        allowed_hosts=allowed_hosts,
        pipelines_directory=pipelines_directory,
        sample_interval_s=interval_s,
    )

    def on_ready(address: str) -> None:
        print_fields([("Console", address), ("Cluster", connection.brokers)])
        note("\nCtrl-C stops it.")

    try:
        serve(settings, on_ready)
    except KafkaError as error:
        raise CliError(sentence(str(error))) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CliError(sentence(f"{host}:{port} cannot be listened on: {reason}")) from error
