"""The options that many commands share, spelled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import click
from click.core import ParameterSource

from ottla.cli import settings

P = ParamSpec("P")
R = TypeVar("R")

FORMATS = ("table", "wide", "json", "jsonl", "yaml")


class KeyValue(click.ParamType[tuple[str, str]]):
    """`key=value`; the value may be empty and may hold more equal signs."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split at the first equal sign."""
        if isinstance(value, tuple):
            return cast("tuple[str, str]", value)
        key, equals, rest = str(value).partition("=")
        if not key or not equals:
            self.fail(f"'{value}' is not of the form key=value", param, ctx)
        return key, rest


KEY_VALUE = KeyValue()


def pairs_to_dict(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The pairs as a dict; the last of a repeated key wins."""
    return dict(pairs)


def cluster_options(function: Callable[..., R], *brokers_aliases: str) -> Callable[..., R]:
    """Add -b, --context, -X and --timeout; the command receives one `connection`."""

    @wraps(function)
    def with_connection(
        *args: Any,
        brokers: str | None,
        context_name: str | None,
        client_settings: Sequence[tuple[str, str]],
        timeout_s: float,
        **kwargs: Any,
    ) -> R:
        ctx = click.get_current_context()
        connection = connection_from(ctx.params | {"brokers": brokers}, ctx)
        return function(*args, connection=connection, **kwargs)

    options = (
        click.option(
            "-b",
            "--brokers",
            *brokers_aliases,
            "brokers",
            metavar="HOST:PORT,...",
            envvar="OTTLA_BROKERS",
            help="Brokers to ask first.  [env: OTTLA_BROKERS; "
            f"default: {settings.DEFAULT_BROKERS}]",
        ),
        click.option(
            "--context",
            "context_name",
            metavar="NAME",
            envvar="OTTLA_CONTEXT",
            shell_complete=complete_context,
            help="A cluster that 'ottla context create' named.  [env: OTTLA_CONTEXT]",
        ),
        click.option(
            "-X",
            "client_settings",
            metavar="KEY=VALUE",
            type=KEY_VALUE,
            multiple=True,
            help="A librdkafka setting, such as security.protocol=ssl. Repeatable.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            metavar="SECONDS",
            envvar="OTTLA_TIMEOUT",
            type=click.FloatRange(min=0.1, max=3600),
            default=settings.DEFAULT_TIMEOUT_S,
            help="How long to wait for an answer.  "
            f"[env: OTTLA_TIMEOUT; default: {settings.DEFAULT_TIMEOUT_S:g}]",
        ),
    )
    decorated: Callable[..., R] = with_connection
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def connection_from(params: Mapping[str, Any], ctx: click.Context) -> settings.Connection:
    """Settle how to reach the cluster from a command's parameters."""

    def choice(name: str) -> settings.Choice:
        source = ctx.get_parameter_source(name)
        return settings.Choice(params.get(name), source is ParameterSource.COMMANDLINE)

    return settings.resolve(
        settings.load(settings.config_path()),
        brokers=choice("brokers"),
        context=choice("context_name"),
        overrides=pairs_to_dict(params.get("client_settings") or ()),
        timeout_s=params.get("timeout_s") or settings.DEFAULT_TIMEOUT_S,
    )


def output_option(
    default: str = "table", extra: Sequence[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add -o; the command receives `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([*extra, *FORMATS]),
        default=default,
        show_default=True,
        help="How to print.",
    )


def yes_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add --yes; the command receives `yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal; without one, refuse and name the flag."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to confirm; add --yes if you are sure.")
    click.confirm(question, abort=True, err=True)


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(function_name: str) -> Completer:
    """What the shell offers, from a function of `completion`, which is imported only then."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from ottla.cli import completion

        found: list[str] = getattr(completion, function_name)(ctx, incomplete)
        return [f"{key}=" for key in found] if param.type is KEY_VALUE else found

    return complete


complete_topic = _completer("topic_names")
complete_group = _completer("group_names")
complete_broker = _completer("broker_ids")
complete_context = _completer("context_names")
complete_transactional_id = _completer("transactional_ids")
complete_config_name = _completer("config_names")
complete_config_key = _completer("config_keys")
complete_topic_config_key = _completer("topic_config_keys")


def topic_argument(
    name: str = "topic", *, nargs: int = 1, required: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A topic's name, completed from the cluster."""
    return click.argument(
        name,
        nargs=nargs,
        required=required,
        metavar=("TOPIC" if required else "[TOPIC]") + ("..." if nargs != 1 else ""),
        shell_complete=complete_topic,
    )


def group_argument(
    name: str = "groups", *, nargs: int = -1, required: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A group's name, completed from the cluster."""
    return click.argument(
        name,
        nargs=nargs,
        required=required,
        metavar=("GROUP" if required else "[GROUP]") + ("..." if nargs != 1 else ""),
        shell_complete=complete_group,
    )
