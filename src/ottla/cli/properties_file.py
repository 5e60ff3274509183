"""A server.properties file as a command is given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from ottla.cli.errors import CliError, sentence

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

P = ParamSpec("P")
R = TypeVar("R")

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def config_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add -c; the command receives `config_file`."""
    return click.option(
        "-c",
        "--config",
        "config_file",
        required=True,
        type=_FILE,
        help="The server's properties file.",
    )(function)


def config_argument(function: Callable[P, R]) -> Callable[P, R]:
    """Take the file as an argument; the command receives `config_file`."""
    return click.argument("config_file", metavar="FILE", type=_FILE)(function)


def read_config(path: Path, overrides: Mapping[str, str] | None = None) -> BrokerConfig:
    """The config of a node, or one sentence that names the file."""
    from ottla.config import properties

    try:
        # Java reads properties as Latin-1, and so must whoever shares the file with it.
        given = properties.read(path.read_text(encoding="latin-1"))
    except ValueError as error:
        raise CliError(f"{path}: {sentence(str(error))}") from error
    return checked_config({**given, **(overrides or {})}, str(path))


def checked_config(given: Mapping[str, str], where: str) -> BrokerConfig:
    """The config, or one sentence that says what is wrong `where`."""
    from ottla.config.broker import BrokerConfig
    from ottla.config.definitions import ConfigError

    try:
        return BrokerConfig.from_properties(given)
    except ConfigError as error:
        raise CliError(f"{where}: {sentence(str(error))}") from error
