"""`ottla cluster`: what the cluster is, and whether it answers."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.client import Admin
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_data, print_fields, print_table
from ottla.cli.params import cluster_options, output_option
from ottla.cli.settings import Connection

_NODE_COLUMNS = columns("id", "host", "port", "rack", "controller")


@click.group(
    cls=ExampleGroup, examples=("ottla cluster describe", "ottla cluster wait --timeout 30")
)
def cluster() -> None:
    """Describe the cluster, or wait until it answers."""


@cluster.command(examples=("ottla cluster describe", "ottla cluster describe -o json"))
@output_option()
@cluster_options
def describe(connection: Connection, *, output: str) -> None:
    """Show the cluster's id, controller and brokers."""
    admin = Admin(connection)
    found = admin.result(admin.raw.describe_cluster(**admin.request_timeout))
    controller = found.controller.id if found.controller is not None else None
    described: dict[str, Any] = {
        "cluster_id": found.cluster_id,
        "controller": controller,
        "brokers": [
            {
                "id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "controller": node.id == controller,
            }
            for node in sorted(found.nodes, key=lambda node: int(node.id))
        ],
    }
    if output not in ("table", "wide"):
        print_data(described, output)
        return
    print_fields(
        [
            ("ClusterId", described["cluster_id"]),
            ("Controller", controller),
            ("Brokers", len(described["brokers"])),
        ]
    )
    click.echo()
    print_table(described["brokers"], _NODE_COLUMNS)


@cluster.command(
    examples=("ottla cluster wait", "ottla cluster wait --timeout 60 && ottla topic list")
)
@cluster_options
def wait(connection: Connection) -> None:
    """Wait until a broker answers, at most --timeout seconds."""
    found = Admin(connection).metadata(is_patient=True)
    count = len(found.brokers)
    note(f"{connection.brokers} is ready: {count} broker{'' if count == 1 else 's'}.")
