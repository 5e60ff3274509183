"""What one broker that is its own controller needs: properties and a formatted directory.

`ottla up` and `ottla.testing.Cluster` start the same node; only ports and directories differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.raft.control_records import VoterEndpoint
    from ottla.runtime.interfaces import Runtime

HOST = "127.0.0.1"
NODE_ID = 1
# A single node looks for no other controller, but Kafka's config wants an address of one.
_CONTROLLER_PORT = 1


def single_node_properties(
    directory: str, port: int, config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The properties of a node on loopback; what `config` gives wins."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{_CONTROLLER_PORT}",
        "log.dirs": directory,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(config or {}),
    }


def standalone_endpoints(config: BrokerConfig) -> list[VoterEndpoint]:
    """Where a node that is the only voter is reached; this machine, where no host is named."""
    from ottla.raft.control_records import VoterEndpoint

    return [
        VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
        for listener in config.advertised_controller_listeners
    ]


def format_if_needed(runtime: Runtime, config: BrokerConfig) -> str:
    """Format the directories that are not yet; return the id of the cluster."""
    from ottla.metadata.formatting import (
        format_storage,
        random_cluster_id,
        read_meta_properties,
    )

    found = read_meta_properties(runtime, config.metadata_log_dir)
    known = found.cluster_id if found is not None else None
    result = format_storage(
        runtime,
        log_dirs=config.log_dirs,
        metadata_log_dir=config.metadata_log_dir,
        node_id=config.node_id,
        cluster_id=known or random_cluster_id(runtime.random),
        standalone_endpoints=standalone_endpoints(config),
        ignore_formatted=True,
    )
    return result.cluster_id
