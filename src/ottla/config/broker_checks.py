"""Whether the values of a broker config fit together. Pure.

Each key alone was valid; these are the rules between keys, the same that Apache Kafka
enforces before it starts. All functions take the decided attributes by name and raise
ConfigError with one sentence.
"""

from collections.abc import Mapping
from typing import Any, Final

from ottla.config.definitions import ConfigError
from ottla.config.listeners import NON_ROUTABLE_HOST

DEDUPE_BYTES_PER_THREAD_MIN: Final = 1024 * 1024
COMPRESSION_CODECS: Final = range(5)
# By name, and by the class that Apache Kafka has for it. Other classes are not there to be loaded.
CONSUMER_ASSIGNORS: Final[Mapping[str, str]] = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigError(sentence)


def check_values(decided: Mapping[str, Any]) -> None:
    """Times, sizes and limits against each other."""
    _require(
        decided["broker_id"] == decided["node_id"],
        f"broker.id must equal node.id: {decided['broker_id']} is not {decided['node_id']}",
    )
    _require(decided["log_roll_ms"] >= 1, "log.roll.ms must be at least 1")
    _require(decided["log_roll_jitter_ms"] >= 0, "log.roll.jitter.ms must be at least 0")
    _require(
        decided["log_retention_ms"] >= 1 or decided["log_retention_ms"] == -1,
        "log.retention.ms must be at least 1, or -1 for ever",
    )
    threads = decided["log_cleaner_threads"]
    _require(
        threads > 0
        and decided["log_cleaner_dedupe_buffer_size"] // threads > DEDUPE_BYTES_PER_THREAD_MIN,
        "log.cleaner.dedupe.buffer.size must be more than 1048576 for each of log.cleaner.threads",
    )
    wait_ms = decided["replica_fetch_wait_max_ms"]
    _require(
        wait_ms <= decided["replica_socket_timeout_ms"],
        "replica.socket.timeout.ms must be at least replica.fetch.wait.max.ms",
    )
    _require(
        wait_ms <= decided["replica_lag_time_max_ms"],
        "replica.lag.time.max.ms must be at least replica.fetch.wait.max.ms",
    )
    queued = decided["queued_max_request_bytes"]
    _require(
        queued <= 0 or queued >= decided["socket_request_max_bytes"],
        "queued.max.request.bytes must be at least socket.request.max.bytes",
    )
    _require(
        decided["max_connections_per_ip"] > 0 or bool(decided["max_connections_per_ip_overrides"]),
        "max.connections.per.ip can be 0 only with max.connections.per.ip.overrides",
    )
    idle_ms = decided["connections_max_idle_ms"]
    _require(
        idle_ms < 0 or decided["connection_failed_authentication_delay_ms"] < idle_ms,
        "connection.failed.authentication.delay.ms must be less than connections.max.idle.ms",
    )
    _require(
        decided["log_cleaner_min_compaction_lag_ms"]
        <= decided["log_cleaner_max_compaction_lag_ms"],
        "log.cleaner.min.compaction.lag.ms must not be more than log.cleaner.max.compaction.lag.ms",
    )
    _check_cordoned_dirs(decided)
    _check_group_bounds(decided)


def _check_cordoned_dirs(decided: Mapping[str, Any]) -> None:
    cordoned = decided["cordoned_log_dirs"]
    if "broker" not in decided["process_roles"]:
        return
    unknown = [path for path in cordoned if path not in decided["log_dirs"]]
    _require(
        not unknown,
        f"cordoned.log.dirs must be * alone or name directories of log.dirs, not {unknown}",
    )


def _check_group_bounds(decided: Mapping[str, Any]) -> None:
    """Each default of a group config lies between its bounds."""
    _require(
        "classic" in decided["group_coordinator_rebalance_protocols"],
        "group.coordinator.rebalance.protocols must contain classic",
    )
    unknown = [one for one in decided["group_consumer_assignors"] if one not in CONSUMER_ASSIGNORS]
    _require(
        not unknown,
        f"group.consumer.assignors must name uniform and range alone, not {', '.join(unknown)}",
    )
    _require(
        decided["offsets_topic_compression_codec"] in COMPRESSION_CODECS,
        "offsets.topic.compression.codec must be 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd",
    )
    _require(
        decided["group_share_max_share_sessions"] >= decided["group_share_max_size"],
        "group.share.max.share.sessions must be at least group.share.max.size",
    )
    for kind in ("consumer", "share", "streams"):
        for subject in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
            _require_ordered(decided, kind, subject)
        session, heartbeat = (
            f"group_{kind}_session_timeout_ms",
            f"group_{kind}_heartbeat_interval_ms",
        )
        _require(
            decided[heartbeat] < decided[session],
            f"{_dotted(heartbeat)} must be less than {_dotted(session)}",
        )
    for subject in (
        "delivery_count_limit",
        "record_lock_duration_ms",
        "partition_max_record_locks",
    ):
        _require_ordered(decided, "share", subject)
    _require(
        decided["group_streams_num_standby_replicas"]
        <= decided["group_streams_max_standby_replicas"],
        "group.streams.num.standby.replicas must not be more than "
        "group.streams.max.standby.replicas",
    )


def _require_ordered(decided: Mapping[str, Any], kind: str, subject: str) -> None:
    low, middle, high = (
        f"group_{kind}_min_{subject}",
        f"group_{kind}_{subject}",
        f"group_{kind}_max_{subject}",
    )
    _require(
        decided[low] <= decided[middle] <= decided[high],
        f"{_dotted(middle)} must lie between {_dotted(low)} and {_dotted(high)}: "
        f"{decided[middle]} is not in {decided[low]} to {decided[high]}",
    )


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")


def check_quorum(decided: Mapping[str, Any]) -> None:
    """The node against the voters that it was told."""
    roles, node_id = decided["process_roles"], decided["node_id"]
    voter_ids = {voter.node_id for voter in decided["controller_quorum_voters"]}
    _require(
        bool(voter_ids) or bool(decided["controller_quorum_bootstrap_servers"]),
        "controller.quorum.bootstrap.servers or controller.quorum.voters must be given",
    )
    if "controller" in roles:
        _require(
            not voter_ids or node_id in voter_ids,
            f"controller.quorum.voters must contain node.id {node_id} of this controller",
        )
        return
    _require(
        node_id not in voter_ids,
        f"controller.quorum.voters must not contain node.id {node_id}, which is only a broker",
    )
    _require(
        not decided["controller_quorum_auto_join_enable"],
        "controller.quorum.auto.join.enable is possible only for a controller",
    )


def check_listener_names(decided: Mapping[str, Any]) -> None:
    """Listeners against the roles of the node and the names given elsewhere."""
    roles = decided["process_roles"]
    controller_names = decided["controller_listener_names"]
    names = [listener.name for listener in decided["listeners"]]
    if "controller" in roles:
        absent = [name for name in controller_names if name not in names]
        _require(
            not absent,
            f"controller.listener.names must name listeners of `listeners`, not {absent}",
        )
    else:
        clashing = [name for name in controller_names if name in names]
        _require(
            not clashing,
            f"listeners of a broker must not be in controller.listener.names: {clashing}",
        )
        unmapped = [
            name
            for name in controller_names
            if name.upper() not in decided["listener_security_protocol_map"]
        ]
        _require(
            not unmapped,
            f"listener.security.protocol.map must contain controller.listener.names: {unmapped}",
        )
    early = [
        name
        for name in decided["early_start_listeners"] or ()
        if name not in (*names, *controller_names)
    ]
    _require(not early, f"early.start.listeners must name listeners of `listeners`, not {early}")
    if "broker" in roles:
        _check_advertised(decided, names)
    else:
        _require(
            decided["inter_broker_listener_name"] not in controller_names,
            "inter.broker.listener.name must not be one of controller.listener.names",
        )
        others = [name for name in names if name not in controller_names]
        _require(
            not others,
            f"listeners of a controller must all be in controller.listener.names, not {others}",
        )
    for listener in (*decided["advertised_listeners"], *decided["advertised_controller_listeners"]):
        _require(
            listener.host != NON_ROUTABLE_HOST,
            f"advertised.listeners must not tell clients {NON_ROUTABLE_HOST}, which leads nowhere: "
            f"give {listener.name} an address that clients can reach",
        )


def _check_advertised(decided: Mapping[str, Any], names: list[str]) -> None:
    advertised = [listener.name for listener in decided["advertised_listeners"]]
    _require(
        bool(advertised),
        "listeners must contain one that is not in controller.listener.names, for clients",
    )
    inter_broker = decided["inter_broker_listener_name"]
    _require(
        inter_broker in advertised,
        f"inter.broker.listener.name must be one of {', '.join(advertised)}, not {inter_broker}",
    )
    absent = [name for name in advertised if name not in names]
    _require(not absent, f"advertised.listeners must name listeners of `listeners`, not {absent}")
