"""The entry point of the `ottla` command, and the one place that turns errors into sentences.

Commands raise; nothing else prints an error. A defect is one sentence too, and a traceback only
with OTTLA_DEBUG=1, so that no user reads a stack by surprise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.errors import CliError, ExitCode, sentence
from ottla.cli.lazy import LazyCommand, LazyGroup

COMMANDS = tuple(
    LazyCommand(name, f"ottla.cli.{module}", attribute, text)
    for name, module, attribute, text in (
        ("up", "up", "up", "Start a broker here and now."),
        ("topic", "topic", "topic", "Create, list, describe, alter and delete topics."),
        ("produce", "produce", "produce", "Write records from standard input to a topic."),
        ("consume", "consume", "consume", "Read records of a topic, without a consumer group."),
        ("group", "group", "group", "List, describe, reset and delete consumer groups."),
        (
            "config",
            "config",
            "config",
            "Describe and alter settings of topics, brokers and groups.",
        ),
        ("cluster", "cluster", "cluster", "Describe the cluster, or wait until it answers."),
        ("broker", "broker", "broker", "List brokers and describe what they store."),
        (
            "quorum",
            "quorum",
            "quorum",
            "Describe the quorum that keeps the cluster's metadata.",
        ),
        (
            "transactions",
            "transactions",
            "transactions",
            "List, describe and abort transactions, and find those that hang.",
        ),
        (
            "bench",
            "bench",
            "bench",
            "Measure how fast the cluster takes records and gives them back.",
        ),
        ("console", "console", "console", "Serve the web console for a cluster."),
        ("pipeline", "pipeline", "pipeline", "Run pipelines on Spark, and see how they do."),
        ("context", "context", "context", "Name clusters, and choose the one to talk to."),
        ("server", "server", "server", "Run a broker from a properties file."),
        ("storage", "storage", "storage", "Format log directories and look at them."),
        ("log", "log", "log", "Look inside the files of a log directory."),
        ("completion", "completion", "completion", "Print a completion script for a shell."),
    )
)


class RootGroup(LazyGroup):
    """The root: a reader that closes the pipe early, like `head`, is not an error."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and flush its output while an error can still be told."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = None  # the interpreter skips its last flush
            ctx.exit(ExitCode.OK)
        return result


@click.group(
    "ottla",
    cls=RootGroup,
    commands_at=COMMANDS,
    examples=(
        "ottla up",
        "ottla topic create orders -p 3",
        "echo hello | ottla produce orders",
        "ottla consume orders",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="ottla", message="%(prog)s %(version)s")
@click.option(
    "--debug", is_flag=True, envvar="OTTLA_DEBUG", help="Show tracebacks.  [env: OTTLA_DEBUG]"
)
@click.option(
    "--no-color", is_flag=True, envvar="NO_COLOR", help="Never colour output.  [env: NO_COLOR]"
)
@click.pass_context
def root(ctx: click.Context, *, debug: bool, no_color: bool) -> None:
    """Ottla: an event streaming platform that speaks Apache Kafka's protocol."""
    ctx.ensure_object(dict)["debug"] = debug
    if no_color:
        ctx.color = False


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run the command line; every error is one sentence on stderr and an exit code."""
    state: dict[str, bool] = {"debug": False}
    try:
        result = root.main(args=list(args), prog_name="ottla", standalone_mode=False, obj=state)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as error:
        return _complain(_usage_sentence(error), ExitCode.USAGE)
    except click.ClickException as error:
        return _complain(sentence(error.format_message()), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except CliError as error:
        return _complain(error.message, error.exit_code, debug=state["debug"])
    except OSError as error:
        return _complain(_os_error_sentence(error), ExitCode.ERROR, debug=state["debug"])
    except Exception as error:  # noqa: BLE001  # the last resort: no traceback reaches a user
        return _complain(_defect_sentence(error), ExitCode.ERROR, debug=state["debug"])
    return result if isinstance(result, int) else ExitCode.OK


def _complain(message: str, exit_code: int, *, debug: bool = False) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    click.secho("Error: ", fg="red", nl=False, err=True)
    click.echo(message, err=True)
    return exit_code


def _usage_sentence(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "ottla"
    return f"{sentence(error.format_message())} See '{command} --help'."


def _os_error_sentence(error: OSError) -> str:
    reason = error.strerror or str(error)
    return sentence(f"{error.filename}: {reason}" if error.filename else reason)


def _defect_sentence(error: Exception) -> str:
    cause = f"{type(error).__name__}: {error}".rstrip(": .")
    return f"This is a defect in Ottla ({cause}). Run it again with OTTLA_DEBUG=1 to see where."
