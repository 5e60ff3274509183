"""`ottla broker`: the brokers of a cluster and what each stores."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.client import Admin
from ottla.cli.errors import CliError, ExitCode, sentence
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import (
    columns,
    human_bytes,
    print_data,
    print_fields,
    print_rows,
    print_table,
)
from ottla.cli.params import cluster_options, complete_broker, output_option
from ottla.cli.settings import Connection
from ottla.cli.wire import asked

_LIST_COLUMNS = columns("id", "host", "port", "rack", "controller", "leaders", "replicas")
_DIR_COLUMNS = columns("log_dir", "partitions", "size", "usable", "total", "cordoned", "error")
_REPLICA_COLUMNS = columns("topic", "partition", "size_bytes", "offset_lag", "log_dir", "future")


@click.group(cls=ExampleGroup, examples=("ottla broker list", "ottla broker describe 1"))
def broker() -> None:
    """List brokers and describe what they store."""


@broker.command("list", examples=("ottla broker list", "ottla broker list -o jsonl"))
@output_option()
@cluster_options
def list_brokers(connection: Connection, *, output: str) -> None:
    """List brokers with the partitions that they lead and store."""
    print_rows(_brokers(Admin(connection)), _LIST_COLUMNS, output)


@broker.command(
    examples=(
        "ottla broker describe 1",
        "ottla broker describe 1 -o wide",
        "ottla broker describe 1 -o json",
    )
)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_broker
)
@output_option()
@cluster_options
def describe(connection: Connection, *, broker_id: int, output: str) -> None:
    """Show a broker's address and log directories; -o wide adds every replica."""
    admin = Admin(connection)
    found = next((b for b in _brokers(admin) if b["id"] == broker_id), None)
    if found is None:
        raise CliError(
            f"There is no broker {broker_id}; 'ottla broker list' shows those there are.",
            ExitCode.NOT_FOUND,
        )
    log_dirs = _log_dirs(connection, broker_id)
    if output not in ("table", "wide"):
        print_data({**found, "log_dirs": log_dirs}, output)
        return
    print_fields(
        [
            ("Broker", broker_id),
            ("Address", f"{found['host']}:{found['port']}"),
            ("Rack", found["rack"]),
            ("Controller", found["controller"]),
            ("Leaders", found["leaders"]),
            ("Replicas", found["replicas"]),
        ]
    )
    click.echo()
    print_table([_directory_row(directory) for directory in log_dirs], _DIR_COLUMNS)
    if output == "wide":
        click.echo()
        rows = [
            {"log_dir": directory["log_dir"], **replica}
            for directory in log_dirs
            for replica in directory["replicas"]
        ]
        print_table(rows, _REPLICA_COLUMNS)


def _brokers(admin: Admin) -> list[dict[str, Any]]:
    cluster = admin.result(admin.raw.describe_cluster(**admin.request_timeout))
    partitions = [p for t in admin.metadata().topics.values() for p in t.partitions.values()]
    controller = cluster.controller.id if cluster.controller is not None else None
    return [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
            "leaders": sum(partition.leader == node.id for partition in partitions),
            "replicas": sum(node.id in partition.replicas for partition in partitions),
        }
        for node in sorted(cluster.nodes, key=lambda node: int(node.id))
    ]


def _log_dirs(connection: Connection, broker_id: int) -> list[dict[str, Any]]:
    """The directories with their replicas."""
    from ottla.protocol.api import ApiKey
    from ottla.protocol.errors import ErrorCode
    from ottla.protocol.messages import given

    response = asked(
        connection,
        lambda client: client.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, node_id=broker_id),
    )
    code = ErrorCode(given(response, "error_code", 0))
    if code is not ErrorCode.NONE:
        name = code.name
        raise CliError(sentence(f"The broker does not tell its log directories: {name}"))
    return [
        {
            "log_dir": result.log_dir,
            "error": ErrorCode(result.error_code).name if result.error_code else None,
            "total_bytes": given(result, "total_bytes", -1),
            "usable_bytes": given(result, "usable_bytes", -1),
            "cordoned": given(result, "is_cordoned", False),
            "replicas": [
                {
                    "topic": topic.name,
                    "partition": partition.partition_index,
                    "size_bytes": partition.partition_size,
                    "offset_lag": partition.offset_lag,
                    "future": partition.is_future_key,
                }
                for topic in sorted(result.topics, key=lambda topic: str(topic.name))
                for partition in sorted(topic.partitions, key=lambda p: int(p.partition_index))
            ],
        }
        for result in response.results
    ]


def _directory_row(directory: dict[str, Any]) -> dict[str, Any]:
    sizes = [replica["size_bytes"] for replica in directory["replicas"]]
    return {
        "log_dir": directory["log_dir"],
        "partitions": len(sizes),
        "size": human_bytes(sum(sizes)),
        "usable": human_bytes(max(0, directory["usable_bytes"])),
        "total": human_bytes(max(0, directory["total_bytes"])),
        "cordoned": directory["cordoned"],
        "error": directory["error"],
    }
