"""`ottla up`: from nothing to a running broker with one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.errors import CliError, sentence
from ottla.cli.lazy import ExampleCommand
from ottla.cli.output import note, print_fields
from ottla.cli.properties_file import checked_config

if TYPE_CHECKING:
    from ottla.console.server import BackgroundConsole
    from ottla.server.broker import Broker
    from ottla.spark.pipelines.demo_process import DemoProcess

DEFAULT_PORT = 9092
DEFAULT_HTTP_PORT = 9644
DEFAULT_CONSOLE_PORT = 9680


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla up",
        "ottla up --port 19092 --data ./data",
        "ottla up --fresh",
        "ottla up --demo",
    ),
)
@click.option(
    "--brokers", metavar="N", default=1, show_default=True, help="How many brokers to start."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="OTTLA_DATA",
    help="Where records are kept.  [env: OTTLA_DATA; default: ~/.local/share/ottla/up]",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Where clients connect; 0 takes a free port.",
)
@click.option(
    "--http-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_HTTP_PORT,
    show_default=True,
    help="Where metrics and health are told; 0 takes a free port.",
)
@click.option(
    "--console-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_CONSOLE_PORT,
    show_default=True,
    help="Where the web console is; a free port is taken if another program has this one.",
)
@click.option("--console/--no-console", default=True, help="Serve the web console, or do not.")
@click.option("--fresh", is_flag=True, help="Delete what an earlier 'up' kept there.")
@click.option("--demo", is_flag=True, help="Make orders, and run a pipeline on Spark with them.")
@click.option("--xdg-data-home", hidden=True, envvar="XDG_DATA_HOME", help="The user's data.")
def up(
    *,
    brokers: int,
    data: Path | None,
    port: int,
    http_port: int,
    console_port: int,
    console: bool,
    fresh: bool,
    demo: bool,
    xdg_data_home: str | None,
) -> None:
    """Start a broker here and now."""
    from ottla.cli.server import metrics_url
    from ottla.cli.serving import plain_errors, serve
    from ottla.runtime.real import real_runtime
    from ottla.server.single_node import HOST, format_if_needed, single_node_properties

    if brokers != 1:
        raise CliError(
            f"This version of Ottla runs one broker, not {brokers}; leave --brokers out."
        )
    directory = (data or default_directory(xdg_data_home)).expanduser().absolute()
    if fresh:
        remove_data(directory)
    properties = single_node_properties(str(directory), port)
    config = checked_config(properties, "The settings")
    with plain_errors(config):
        format_if_needed(real_runtime(), config)

    def on_ready(broker: Broker) -> None:
        host, real_port = broker.listeners["PLAINTEXT"]
        address = f"{host}:{real_port}"
        beside = start_console(address, console_port) if console else None
        if beside is not None:
            started.append(beside)
        print_fields(
            [
                ("Broker", address),
                *([("Console", beside.address)] if beside is not None else []),
                ("Metrics", metrics_url(broker)),
                ("Data", directory),
            ]
        )
        option = "" if real_port == DEFAULT_PORT else f" -b {address}"
        click.echo(f"\nTry it:\n  ottla topic create greetings{option}")
        click.echo(f"  echo hello | ottla produce greetings{option}")
        click.echo(f"  ottla consume greetings{option}")
        click.echo(f"  kcat -b {address} -L")
        note("\nCtrl-C stops it; the records stay.")
        if demo and (process := start_demo(address)) is not None:
            started.append(process)

    started: list[DemoProcess | BackgroundConsole] = []
    try:
        serve(config, on_ready, http_address=(HOST, http_port))
    finally:
        for process in started:
            process.stop()


def start_console(address: str, port: int) -> BackgroundConsole | None:
    """The console beside the broker, or a sentence why there is none."""
    from ottla.cli.console import what_is_missing
    from ottla.console.server import serve_in_background

    if (why := what_is_missing()) is not None:
        note(f"{why}\n")
        return None
    client = {"bootstrap.servers": address}
    try:
        return serve_in_background(client, port=port)
    except OSError:
        return serve_in_background(client, port=0)


def start_demo(address: str) -> DemoProcess | None:
    """Make orders and run the pipeline, or say in a sentence why not and keep the broker."""
    from ottla.spark.pipelines.demo_process import DemoProcess, missing

    if (why := missing()) is not None:
        note(f"\nThe broker runs, but not the pipeline. {why}")
        return None
    note("\nStarting Spark; the first totals come within a minute.\n")
    return DemoProcess(address)


def default_directory(xdg_data_home: str | None) -> Path:
    """The place for a user's data by the XDG rules."""
    home = Path(xdg_data_home) if xdg_data_home else Path("~/.local/share")
    return home / "ottla" / "up"


def remove_data(directory: Path) -> None:
    """Delete a broker's directory; refuse one that holds something else or is in use."""
    from ottla.runtime.real import real_runtime

    if not directory.exists() or not any(directory.iterdir()):
        return
    if not (directory / "meta.properties").exists():
        raise CliError(
            f"{directory} was not made by Ottla, so --fresh does not delete it; "
            "choose another directory."
        )
    disk = real_runtime().disk
    try:
        lock = disk.lock(f"{directory}/.lock")
    except BlockingIOError as error:
        raise CliError(f"Another broker is using {directory}; stop it first.") from error
    try:
        disk.rmtree(str(directory))
    except OSError as error:
        raise CliError(sentence(f"{directory} cannot be deleted: {error.strerror}")) from error
    finally:
        lock.release()
