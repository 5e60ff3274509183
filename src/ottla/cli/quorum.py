"""`ottla quorum`: who votes on the cluster's metadata, and how far each copy reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.errors import CliError
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import Column, print_data, print_fields, print_table
from ottla.cli.params import cluster_options, output_option
from ottla.cli.settings import Connection
from ottla.cli.wire import asked

_METADATA_TOPIC = "__cluster_metadata"
_REPLICA_COLUMNS = (
    Column("node_id", "NodeId"),
    Column("directory_id", "DirectoryId"),
    Column("log_end_offset", "LogEndOffset"),
    Column("lag", "Lag"),
    Column("last_fetch_timestamp", "LastFetchTimestamp"),
    Column("last_caught_up_timestamp", "LastCaughtUpTimestamp"),
    Column("status", "Status"),
    Column("endpoints", "Endpoints", is_wide=True),
)


@click.group(cls=ExampleGroup, examples=("ottla quorum describe", "ottla quorum describe -o json"))
def quorum() -> None:
    """Describe the quorum that keeps the cluster's metadata."""


@quorum.command(
    examples=(
        "ottla quorum describe",
        "ottla quorum describe --replication -o wide",
        "ottla quorum describe -o json | jq .max_follower_lag",
    )
)
@click.option("--status", "view", flag_value="status", help="Leader, epoch and high watermark.")
@click.option("--replication", "view", flag_value="replication", help="Each replica of the log.")
@output_option()
@cluster_options
def describe(connection: Connection, *, view: str | None, output: str) -> None:
    """Show leader, epoch, voters and observers; both views unless one is asked for."""
    found = _describe(connection)
    if output not in ("table", "wide"):
        print_data(found["replicas"] if view == "replication" else found, output)
        return
    if view != "replication":
        print_fields(_status_fields(found))
    if view is None:
        click.echo()
    if view != "status":
        shown = [column for column in _REPLICA_COLUMNS if output == "wide" or not column.is_wide]
        print_table(found["replicas"], shown)


def _describe(connection: Connection) -> dict[str, Any]:
    from ottla.client import Client
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey
    from ottla.protocol.messages import given

    fields = {"topics": [{"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}

    def ask(client: Client) -> tuple[Any, str | None]:
        response = client.ask(ApiKey.DESCRIBE_QUORUM, fields)
        what = "The quorum cannot be described"
        raise_for(response.error_code, what, given(response, "error_message", None))
        found = response.topics[0].partitions[0]
        raise_for(found.error_code, what, given(found, "error_message", None))
        return response, client.metadata([]).cluster_id

    response, cluster_id = asked(connection, ask)
    found = response.topics[0].partitions[0]
    nodes: Sequence[Any] = given(response, "nodes", ())
    endpoints = {
        int(node.node_id): [f"{one.name}://{one.host}:{one.port}" for one in node.listeners]
        for node in nodes
    }
    return quorum_rows(found, endpoints, cluster_id)


def quorum_rows(
    found: Any, endpoints: dict[int, list[str]], cluster_id: str | None
) -> dict[str, Any]:
    """The answer as one object: what --status shows, and a row for each replica."""
    leader = next((v for v in found.current_voters if v.replica_id == found.leader_id), None)
    if leader is None:
        raise CliError("The quorum has no leader now; ask again in a moment.")
    replicas = [
        *[_replica(one, leader, "Leader", endpoints) for one in (leader,)],
        *[
            _replica(one, leader, "Follower", endpoints)
            for one in found.current_voters
            if one is not leader
        ],
        *[_replica(one, leader, "Observer", endpoints) for one in found.observers],
    ]
    voters = [row for row in replicas if row["status"] != "Observer"]
    furthest = max(voters, key=lambda row: int(row["lag"]))
    return {
        "cluster_id": cluster_id,
        "leader_id": int(found.leader_id),
        "leader_epoch": int(found.leader_epoch),
        "high_watermark": int(found.high_watermark),
        "max_follower_lag": furthest["lag"],
        "max_follower_lag_time_ms": _lag_time_ms(voters[0], furthest),
        "replicas": replicas,
    }


def _lag_time_ms(leader: dict[str, Any], furthest: dict[str, Any]) -> int:
    """How long ago the furthest follower was where the leader is; -1 where nobody knows."""
    if furthest["lag"] == 0:
        return 0
    times = (leader["last_caught_up_timestamp"], furthest["last_caught_up_timestamp"])
    return -1 if -1 in times else int(times[0] - times[1])


def _replica(one: Any, leader: Any, status: str, endpoints: dict[int, list[str]]) -> dict[str, Any]:
    from ottla.protocol import uuids
    from ottla.protocol.messages import given

    directory = given(one, "replica_directory_id", None)
    return {
        "node_id": int(one.replica_id),
        "directory_id": None if directory is None else uuids.encode(directory),
        "log_end_offset": int(one.log_end_offset),
        "lag": int(leader.log_end_offset - one.log_end_offset),
        "last_fetch_timestamp": int(given(one, "last_fetch_timestamp", -1)),
        "last_caught_up_timestamp": int(given(one, "last_caught_up_timestamp", -1)),
        "status": status,
        "endpoints": endpoints.get(int(one.replica_id), []),
    }


def _status_fields(found: dict[str, Any]) -> list[tuple[str, Any]]:
    voters = [r["node_id"] for r in found["replicas"] if r["status"] != "Observer"]
    observers = [r["node_id"] for r in found["replicas"] if r["status"] == "Observer"]
    return [
        ("ClusterId", found["cluster_id"]),
        ("LeaderId", found["leader_id"]),
        ("LeaderEpoch", found["leader_epoch"]),
        ("HighWatermark", found["high_watermark"]),
        ("MaxFollowerLag", found["max_follower_lag"]),
        ("MaxFollowerLagTimeMs", found["max_follower_lag_time_ms"]),
        ("CurrentVoters", voters),
        ("CurrentObservers", observers),
    ]
