"""`ottla storage`: format log directories, and say what they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.errors import CliError, ExitCode
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_rows
from ottla.cli.params import KEY_VALUE, output_option, pairs_to_dict
from ottla.cli.properties_file import config_option, read_config

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_INFO_COLUMNS = columns("log_dir", "state", "cluster_id", "node_id", wide=("directory_id",))


@click.group(
    cls=ExampleGroup,
    examples=(
        "ottla storage random-uuid",
        "ottla storage format -t $(ottla storage random-uuid) -c server.properties",
        "ottla storage info -c server.properties",
    ),
)
def storage() -> None:
    """Format log directories and look at them."""


@storage.command("random-uuid", examples=("ottla storage random-uuid",))
def random_uuid() -> None:
    """Print a new id for a cluster."""
    from ottla.metadata.formatting import random_cluster_id
    from ottla.runtime.real import RealRandom

    click.echo(random_cluster_id(RealRandom()))


@storage.command(
    "format",
    examples=(
        "ottla storage format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties",
        "ottla storage format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties --standalone",
        "ottla storage format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties --ignore-formatted",
    ),
)
@click.option("-t", "--cluster-id", required=True, help="The id of the cluster; see random-uuid.")
@config_option
@click.option("--standalone", is_flag=True, help="Make this node the only voter of its quorum.")
@click.option("--ignore-formatted", is_flag=True, help="Leave formatted directories alone.")
@click.option(
    "--feature",
    "features",
    type=KEY_VALUE,
    multiple=True,
    help="A feature level to start with, such as group.version=1. Repeatable.",
)
def format_directories(
    *,
    cluster_id: str,
    config_file: Path,
    standalone: bool,
    ignore_formatted: bool,
    features: Sequence[tuple[str, str]],
) -> None:
    """Make the log directories of a properties file those of one node of a cluster.

    A controller whose file has no controller.quorum.voters and names itself alone as
    controller.quorum.bootstrap.servers becomes the only voter of its quorum.
    """
    from ottla.cli.serving import plain_errors
    from ottla.metadata.formatting import format_storage
    from ottla.runtime.real import real_runtime
    from ottla.server.single_node import standalone_endpoints

    config = read_config(config_file)
    endpoints = standalone_endpoints(config) if stands_alone(config, asked=standalone) else []
    with plain_errors(config):
        result = format_storage(
            real_runtime(),
            log_dirs=config.log_dirs,
            metadata_log_dir=config.metadata_log_dir,
            node_id=config.node_id,
            cluster_id=cluster_id,
            standalone_endpoints=endpoints,
            features=_levels(features),
            ignore_formatted=ignore_formatted,
        )
    for directory in result.formatted:
        note(f"Formatted {directory} for node {config.node_id} of cluster {cluster_id}.")
    if endpoints and not standalone and config.metadata_log_dir in result.formatted:
        note(f"Node {config.node_id} is the only voter of its quorum (--standalone).")
    for directory in result.skipped:
        note(f"Left {directory} as it is.")


@storage.command(
    examples=(
        "ottla storage info -c server.properties",
        "ottla storage info -c f.properties -o json",
    )
)
@config_option
@output_option()
def info(*, config_file: Path, output: str) -> None:
    """Show which cluster and node the log directories belong to."""
    from ottla.cli.serving import plain_errors

    config = read_config(config_file)
    with plain_errors(config):
        rows = _info_rows(config)
    print_rows(rows, _INFO_COLUMNS, output)
    unusable = [row for row in rows if row["state"] != "formatted"]
    if unusable:
        raise CliError(
            f"{unusable[0]['log_dir']} is {unusable[0]['state']}; "
            "'ottla storage format' makes it usable.",
            ExitCode.NOT_FOUND,
        )


def stands_alone(config: BrokerConfig, *, asked: bool) -> bool:
    """Whether formatting makes this node the only voter.

    Kafka wants to be told so on every controller without `controller.quorum.voters`. Where the
    file names one controller there is nothing to choose; where it names several, a second node
    that was formatted in the same way would be a second cluster.
    """
    if "controller" not in config.process_roles:
        if asked:
            raise CliError("Only a controller can stand alone; add 'controller' to process.roles.")
        return False
    if asked:
        return True
    if config.controller_quorum_voters:
        return False
    if len(config.controller_quorum_bootstrap_servers) > 1:
        raise CliError(
            "controller.quorum.bootstrap.servers names several controllers, and this version runs "
            "a quorum of one; --standalone makes this node the only voter."
        )
    return True


def _info_rows(config: BrokerConfig) -> list[dict[str, object]]:
    from ottla.metadata.formatting import read_meta_properties
    from ottla.protocol import uuids
    from ottla.runtime.real import real_runtime

    runtime = real_runtime()
    rows: list[dict[str, object]] = []
    for directory in dict.fromkeys([*config.log_dirs, config.metadata_log_dir]):
        found = read_meta_properties(runtime, directory)
        exists = runtime.disk.is_dir(directory)
        directory_id = found.directory_id if found else None
        rows.append(
            {
                "log_dir": directory,
                "state": "formatted" if found else "not formatted" if exists else "missing",
                "cluster_id": found.cluster_id if found else None,
                "node_id": found.node_id if found else None,
                "directory_id": uuids.encode(directory_id) if directory_id else None,
            }
        )
    return rows


def _levels(features: Sequence[tuple[str, str]]) -> dict[str, int]:
    levels = {}
    for name, level in pairs_to_dict(features).items():
        if not level.isdecimal():
            raise click.UsageError(f"--feature {name} wants a number, not '{level}'.")
        levels[name] = int(level)
    return levels
