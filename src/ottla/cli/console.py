"""`ottla console`: the web console for a cluster, Ottla's or Apache Kafka's."""

from __future__ import annotations

import click

from ottla.cli.errors import CliError, sentence
from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import note, print_fields
from ottla.cli.params import cluster_options
from ottla.cli.settings import Connection

DEFAULT_PORT = 9680


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla console",
        "ottla console --bootstrap kafka.example:9092 --port 9680",
        "ottla console --read-only",
    ),
)
@click.option(
    "--bootstrap", metavar="HOST:PORT[,...]", help="The cluster's brokers; the same as --brokers."
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
@cluster_options
def console(
    connection: Connection,
    *,
    bootstrap: str | None,
    port: int,
    host: str,
    allowed_hosts: tuple[str, ...],
    is_read_only: bool,
    pipelines_directory: str | None,
    interval_s: float,
) -> None:
    """Serve the web console for a cluster."""
    try:
        from ottla.console.server import serve
        from ottla.console.settings import ConsoleSettings
    except ModuleNotFoundError as error:
        raise CliError(
            f"The console needs {error.name}; install it with: pip install 'ottla[console]'"
        ) from error
    from ottla.protocol.errors import KafkaError

    client = dict(connection.client)
    if bootstrap:
        client["bootstrap.servers"] = bootstrap
    settings = ConsoleSettings(
        client=client,
        host=host,
        port=port,
        is_read_only=is_read_only,
        allowed_hosts=allowed_hosts,
        pipelines_directory=pipelines_directory,
        sample_interval_s=interval_s,
    )

    def on_ready(address: str) -> None:
        print_fields([("Console", address), ("Cluster", client["bootstrap.servers"])])
        note("\nCtrl-C stops it.")

    try:
        serve(settings, on_ready)
    except KafkaError as error:
        raise CliError(sentence(str(error))) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CliError(sentence(f"{host}:{port} cannot be listened on: {reason}")) from error
