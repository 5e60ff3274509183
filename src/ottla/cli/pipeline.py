"""`ottla pipeline`: run Spark pipelines, supervised, and see how they do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_data, print_fields, print_rows, print_table

if TYPE_CHECKING:
    from ottla.spark.pipelines.definition import Definition
    from ottla.spark.pipelines.run_directory import RunDirectory

_STOP_WAIT_S = 45.0
_LOG_LINES = 20

_OUTPUT = click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print.",
)


@click.group(
    cls=ExampleGroup,
    examples=(
        "ottla pipeline run examples/word_count/pipeline.toml",
        "ottla pipeline run orders.toml --master spark://host:7077",
        "ottla pipeline list",
        "ottla pipeline stop word-count",
    ),
)
def pipeline() -> None:
    """Run pipelines on Spark, and see how they do."""


@pipeline.command("run", examples=("ottla pipeline run orders.toml", "ottla pipeline run job.py"))
@click.argument("file")
@click.option("--master", help="The Spark cluster to run on.  [default: this machine]")
@click.option("--once", is_flag=True, help="Process what is there and end.")
@click.option("--check", is_flag=True, help="Say what is wrong with it, and start nothing.")
@click.option("--fresh", is_flag=True, help="Forget the checkpoints of earlier runs first.")
@click.option("--detach", is_flag=True, help="Return at once; the pipeline goes on.")
@click.option(
    "--metrics-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Where metrics are told, on this machine only; 0 takes a free port.",
)
def run(
    *,
    file: str,
    master: str | None,
    once: bool,
    check: bool,
    fresh: bool,
    detach: bool,
    metrics_port: int,
) -> None:
    """Run a pipeline from a TOML or Python file until it is stopped."""
    definition = _checked(file, creates=not check)
    if check:
        click.echo(f"{definition.name}: nothing is wrong with it.")
        return
    directory = _directory(definition.name)
    if directory.is_running():
        raise CliError(
            f"The pipeline {definition.name} runs already; see 'ottla pipeline describe "
            f"{definition.name}'."
        )
    if fresh:
        _check_removable(definition, directory)
    if detach:
        _detach(file, master, once, fresh, metrics_port, definition.name)
        return
    _supervise(file, definition, directory, master, once, fresh, metrics_port)


@pipeline.command("list", examples=("ottla pipeline list", "ottla pipeline list -o json"))
@_OUTPUT
def list_(*, output: str) -> None:
    """List the pipelines of this machine."""
    from ottla.spark.pipelines.run_directory import all_pipelines, home_directory

    statuses = [found.read_status() for found in all_pipelines(home_directory(os.environ))]
    known = [status for status in statuses if status is not None]
    if output != "table":
        print_data(known, output)
        return
    rows = [_summary(status) for status in known]
    print_rows(rows, columns("name", "state", "rows", "rows_per_s", "lag", "restarts"), "table")


@pipeline.command("describe", examples=("ottla pipeline describe word-count",))
@click.argument("name")
@_OUTPUT
def describe(*, name: str, output: str) -> None:
    """Show a pipeline's queries, rates, lag and last error."""
    status = _status(name)
    if output != "table":
        print_data(status, output)
        return
    error = status["last_error"]
    print_fields(
        [
            ("Name", status["name"]),
            ("State", status["state"]),
            ("Definition", status["definition"]),
            ("Master", status["master"]),
            ("Restarts", status["restarts"]),
            ("Metrics", status["metrics_url"]),
            ("Log", _directory(name).log_path),
            ("Last error", error["message"] if error else None),
        ]
    )
    click.echo()
    edges = [" -> ".join(label.partition(":")[2] for label in edge) for edge in _paths(status)]
    for edge in edges:
        click.echo(f"  {edge}")
    click.echo()
    shown = columns(
        "name", "batch_id", "rows_total", "processed_rows_per_second", "batch_duration_ms", "lag"
    )
    print_table(status["queries"], shown)


@pipeline.command("stop", examples=("ottla pipeline stop word-count",))
@click.argument("name")
def stop(*, name: str) -> None:
    """Stop a pipeline. A micro-batch under way is given up, and done again at the next start."""
    import signal
    import time

    directory = _directory(name)
    status = _status(name)
    if not directory.is_running():
        note(f"The pipeline {name} does not run.")
        return
    os.kill(int(status["pid"]), signal.SIGTERM)
    deadline = time.monotonic() + _STOP_WAIT_S
    while directory.is_running():
        if time.monotonic() > deadline:
            raise CliError(f"The pipeline {name} did not stop in time; its pid is {status['pid']}.")
        time.sleep(0.2)
    click.echo(f"Stopped {name}.")


@pipeline.command("logs", examples=("ottla pipeline logs word-count",))
@click.argument("name")
@click.option("--lines", "-n", default=_LOG_LINES, show_default=True, help="How many lines.")
def logs(*, name: str, lines: int) -> None:
    """Show the end of a pipeline's log."""
    _status(name)
    for line in _directory(name).log_tail(lines):
        click.echo(line)


def _checked(file: str, *, creates: bool) -> Definition:
    """The definition, with everything checked that can be without Spark."""
    from ottla.spark.pipelines.load import load_pipeline, placed
    from ottla.spark.pipelines.session import JavaMissing, check_java
    from ottla.spark.pipelines.toml_file import PipelineError
    from ottla.spark.pipelines.topics import prepare_topics

    try:
        definition = load_pipeline(file, os.environ)
        if problems := prepare_topics(definition, creates=creates):
            raise PipelineError(placed(file, problems))
        check_java()
    except PipelineError as error:
        raise CliError("; ".join(error.messages) + ".", ExitCode.USAGE) from error
    except JavaMissing as error:
        raise CliError(str(error)) from error
    return definition


def _check_removable(definition: Definition, directory: RunDirectory) -> None:
    from ottla.spark.pipelines.run_directory import NotRemoved, checkpoints_of

    try:
        checkpoints_of(definition, directory)
    except NotRemoved as error:
        raise CliError(str(error)) from error


def _supervise(
    file: str,
    definition: Definition,
    directory: RunDirectory,
    master: str | None,
    once: bool,
    fresh: bool,
    metrics_port: int,
) -> None:
    import signal

    from ottla.spark.pipelines.run_directory import AlreadyRunning
    from ottla.spark.pipelines.supervisor import Supervisor

    supervisor = Supervisor(
        file,
        definition,
        directory,
        master=master,
        trigger="available_now" if once else None,
        is_fresh=fresh,
        metrics_port=metrics_port,
        on_change=_print_change,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.stop())
    try:
        status = supervisor.run()
    except AlreadyRunning as error:
        raise CliError(f"The pipeline {definition.name} runs already.") from error
    if status["state"] == "failed":
        raise CliError(f"The pipeline {definition.name} cannot go on: {_last_error(status)}")


def _detach(
    file: str, master: str | None, once: bool, fresh: bool, metrics_port: int, name: str
) -> None:
    import sys

    from ottla.spark.pipelines.supervisor import start_detached

    command = [sys.argv[0], "pipeline", "run", file, "--metrics-port", str(metrics_port)]
    command += ["--master", master] if master else []
    command += ["--once"] if once else []
    command += ["--fresh"] if fresh else []
    start_detached(command)
    click.echo(f"Started {name}; see 'ottla pipeline describe {name}'.")


def _print_change(event: str, status: dict[str, Any]) -> None:
    if event == "progress":
        for query in status["queries"]:
            lag = sum(query["lag"].values())
            click.echo(
                f"{query['name']}: batch {query['batch_id']}, {query['rows_total']} rows, "
                f"{query['processed_rows_per_second']:.0f} rows/s, "
                f"{query['batch_duration_ms']} ms, lag {lag}"
            )
    elif event == "error":
        note(f"{status['name']}: {_last_error(status)}")
    elif event == "restarting":
        note(f"{status['name']}: starting again, for the {status['restarts']}. time.")
    else:
        note(f"{status['name']}: {event}.")


def _last_error(status: dict[str, Any]) -> str:
    error = status["last_error"]
    return error["message"] if error else "no reason is known"


def _summary(status: dict[str, Any]) -> dict[str, Any]:
    queries = status["queries"]
    return {
        "name": status["name"],
        "state": status["state"],
        "rows": sum(query["rows_total"] for query in queries),
        "rows_per_s": round(sum(query["processed_rows_per_second"] for query in queries)),
        "lag": sum(sum(query["lag"].values()) for query in queries),
        "restarts": status["restarts"],
    }


def _paths(status: dict[str, Any]) -> list[list[str]]:
    edges: list[list[str]] = status["graph"]["edges"]
    return edges


def _status(name: str) -> dict[str, Any]:
    status = _directory(name).read_status()
    if status is None:
        raise CliError(
            f"There is no pipeline {name}; see 'ottla pipeline list'.", ExitCode.NOT_FOUND
        )
    return status


def _directory(name: str) -> RunDirectory:
    from ottla.spark.pipelines.run_directory import RunDirectory, home_directory

    return RunDirectory(home_directory(os.environ), name)
