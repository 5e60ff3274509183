"""What one node was told by its server.properties and by later changes of broker configs. Pure.

A mapping of texts is checked once, at the start, and from then on read as typed attributes:
`config.log_segment_bytes` cannot be misspelt past mypy, and no request parses text. Apache
Kafka ignores keys that it does not know, so a misspelt one silently leaves its default in
force; here it is refused with the name that was probably meant.

An attribute is what the node shall do, where several keys decide together: `log_retention_ms`
has looked at minutes and hours too, `log_dirs` at log.dir, `advertised_listeners` at
`listeners`. `get(name)` is the plain value of one key.

Invariant: a BrokerConfig never changes; `with_dynamic` returns another one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from ottla.config.broker_checks import check_listener_names, check_quorum, check_values
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.definitions import (
    REQUIRED,
    SHOWN_CHARACTERS_MAX,
    ConfigError,
    ConfigSource,
    ConfigValue,
    UpdateMode,
    nearest_name,
)
from ottla.config.listeners import (
    HOST,
    NON_ROUTABLE_HOST,
    Endpoint,
    Listener,
    Voter,
    parse_endpoint,
    parse_listeners,
    parse_pairs,
    parse_voter,
    security_protocols,
)
from ottla.config.resource_tables import THROTTLE_TABLE

MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000

_SYNONYM_GROUPS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
# Kafka opens and closes listeners at run time, Ottla at its start only.
FIXED_AT_START: Final = frozenset(("listeners", "listener.security.protocol.map"))
CLUSTER_WIDE_LISTENER_KEYS: Final = frozenset(
    ("max.connections", "max.connection.creation.rate", "num.network.threads")
)
LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.+)")

# Keys that Kafka hands to plugins, or that repeat another key for one listener.
_PASSED_THROUGH: Final = re.compile(
    LISTENER_KEY.pattern + r"|config\.providers\..+|rsm\.config\..+|rlmm\.config\..+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    advertised_listeners: tuple[Listener, ...]
    auto_create_topics_enable: bool
    background_threads: int
    broker_rack: str | None
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    connections_max_idle_ms: int
    controller_listener_names: tuple[str, ...]
    controller_quorum_bootstrap_servers: tuple[Endpoint, ...]
    controller_quorum_voters: tuple[Voter, ...]
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_append_linger_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    inter_broker_listener_name: str
    listener_security_protocol_map: Mapping[str, str]
    listeners: tuple[Listener, ...]
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_delete_retention_ms: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_threads: int
    log_cleanup_policy: frozenset[str]
    log_dirs: tuple[str, ...]
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_initial_task_delay_ms: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_ms: int
    log_roll_jitter_ms: int
    log_roll_ms: int
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    metadata_log_dir: str
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    min_insync_replicas: int
    node_id: int
    num_partitions: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: frozenset[str]
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    request_timeout_ms: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int
    unclean_leader_election_enable: bool
    unstable_api_versions_enable: bool

    advertised_controller_listeners: tuple[Listener, ...]
    values: Mapping[str, ConfigValue]  # of every key, after dynamic changes
    static: Mapping[str, str]  # as given in server.properties
    dynamic_default: Mapping[str, str]  # as altered for all brokers
    dynamic: Mapping[str, str]  # as altered for this broker

    @classmethod
    def from_properties(cls, mapping: Mapping[str, str]) -> "BrokerConfig":
        """The config of a node that starts with these texts, or ConfigError."""
        for name in mapping:
            _check_known(name)
        static = dict(mapping)
        if "broker.id" in static:
            static.setdefault("node.id", static["broker.id"])
        elif "node.id" in static:
            static["broker.id"] = static["node.id"]
        return _build(static, {}, {})

    def altered(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> "BrokerConfig":
        """The same node with these broker configs altered, or ConfigError if it cannot be."""
        return _build(
            dict(self.static),
            _dynamic(default, per_broker=False),
            _dynamic(broker, per_broker=True),
        )

    def with_dynamic(
        self, *, default: Mapping[str, str], broker: Mapping[str, str]
    ) -> "BrokerConfig":
        """The same node with what the metadata log says of the broker default and this broker.

        A value that is refused here is left out instead of stopping the node: another
        version may have written it, and it was checked before it was written.
        """
        try:
            return self.altered(default=default, broker=broker)
        except ConfigError:
            return self._with_what_is_accepted(default, broker)

    def _with_what_is_accepted(
        self, default: Mapping[str, str], broker: Mapping[str, str]
    ) -> "BrokerConfig":
        accepted_default: dict[str, str] = {}
        accepted: dict[str, str] = {}
        config = self.altered(default={}, broker={})
        for source, target in ((default, accepted_default), (broker, accepted)):
            for name, text in sorted(source.items()):
                target[name] = text
                try:
                    config = self.altered(default=accepted_default, broker=accepted)
                except ConfigError:
                    del target[name]
        return config

    def get(self, name: str) -> ConfigValue:
        """The value of one key that Kafka knows; KeyError otherwise."""
        return self.values[name]

    def source_of(self, name: str) -> ConfigSource:
        if name in self.dynamic:
            return ConfigSource.DYNAMIC_BROKER_CONFIG
        if name in self.dynamic_default:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        if name in self.static:
            return ConfigSource.STATIC_BROKER_CONFIG
        return ConfigSource.DEFAULT_CONFIG

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(item for item in self.listeners if item.name in self.controller_listener_names)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        return tuple(
            item for item in self.listeners if item.name not in self.controller_listener_names
        )

    def warnings(self) -> tuple[str, ...]:
        """What the operator should read at the start; nothing if Ottla obeys every given key."""
        unused = sorted(
            name
            for name in self.static
            if name not in BROKER_TABLE.keys or not BROKER_TABLE.keys[name].used
        )
        if not unused:
            return ()
        return (f"Ottla knows but does not obey yet: {', '.join(unused)}.",)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The keys that decide together with `name`, the one that counts first in front."""
    for group in _SYNONYM_GROUPS:
        if name in group:
            return group
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    prefixed = LISTENER_KEY.fullmatch(name)
    return (name, prefixed[1]) if prefixed else (name,)


def _check_known(name: str) -> None:
    if name in BROKER_TABLE.keys or _PASSED_THROUGH.fullmatch(name):
        return
    nearest = nearest_name(name, BROKER_TABLE.keys)
    hint = f": did you mean '{nearest}'?" if nearest else ""
    raise ConfigError(f"unknown key '{name[:SHOWN_CHARACTERS_MAX]}' in server.properties{hint}")


def _dynamic(overrides: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """Without what only a restart may change, or what only one broker may have."""
    return {
        name: text
        for name, text in overrides.items()
        if update_mode(name) is UpdateMode.CLUSTER_WIDE
        or (per_broker and update_mode(name) is UpdateMode.PER_BROKER)
    }


def update_mode(name: str) -> UpdateMode:
    """How a key may be altered at run time; unknown keys belong to plugins, which may."""
    if name in FIXED_AT_START:
        return UpdateMode.READ_ONLY
    key = BROKER_TABLE.keys.get(name) or THROTTLE_TABLE.keys.get(name)
    if key is not None:
        return key.update_mode
    prefixed = LISTENER_KEY.fullmatch(name)
    if prefixed and prefixed[1] not in CLUSTER_WIDE_LISTENER_KEYS:
        return UpdateMode.PER_BROKER
    return UpdateMode.CLUSTER_WIDE


def _parse_values(texts: Mapping[str, str]) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {}
    for name, key in BROKER_TABLE.keys.items():
        if name in texts:
            values[name] = key.parse(texts[name])
        elif key.default is REQUIRED:
            raise ConfigError(f"{name} is missing in server.properties and has no default")
        else:
            values[name] = key.default
    return values


def _build(
    static: dict[str, str], dynamic_default: dict[str, str], dynamic: dict[str, str]
) -> BrokerConfig:
    altered = {**dynamic_default, **dynamic}
    # Minutes from the file must not outlive milliseconds that were altered, so a key that
    # was altered takes the place of all that mean the same.
    replaced = {other for name in altered for other in broker_synonyms(name)}
    texts = {name: text for name, text in static.items() if name not in replaced} | altered
    values = _parse_values(texts)
    decided: dict[str, Any] = {
        key.attribute: values[name] for name, key in BROKER_TABLE.keys.items()
    }
    decided |= _decide_times(values)
    decided["log_dirs"] = values["log.dirs"] or values["log.dir"]
    decided["metadata_log_dir"] = values["metadata.log.dir"] or decided["log_dirs"][0]
    decided["process_roles"] = frozenset(decided["process_roles"])
    decided["log_cleanup_policy"] = frozenset(decided["log_cleanup_policy"])
    decided["max_connections_per_ip_overrides"] = _decide_connection_limits(decided)
    decided["controller_quorum_voters"] = tuple(
        map(parse_voter, decided["controller_quorum_voters"])
    )
    decided["controller_quorum_bootstrap_servers"] = tuple(
        parse_endpoint("controller.quorum.bootstrap.servers", text)
        for text in decided["controller_quorum_bootstrap_servers"]
    )
    decided |= _decide_listeners(decided, texts)
    decided |= {
        "values": MappingProxyType(values),
        "static": MappingProxyType(static),
        "dynamic_default": MappingProxyType(dynamic_default),
        "dynamic": MappingProxyType(dynamic),
    }
    check_values(decided)
    check_quorum(decided)
    check_listener_names(decided)
    return BrokerConfig(**{item.name: decided[item.name] for item in fields(BrokerConfig)})


def _decide_times(values: Mapping[str, ConfigValue]) -> dict[str, int]:
    """Milliseconds go before minutes and those before hours."""

    def first(*candidates: tuple[str, int]) -> int:
        for name, unit_ms in candidates:
            value = values[name]
            if isinstance(value, int):
                return value * unit_ms
        raise ConfigError(f"{candidates[-1][0]} must have a value")

    retention_ms = first(
        ("log.retention.ms", 1),
        ("log.retention.minutes", MS_PER_MINUTE),
        ("log.retention.hours", MS_PER_HOUR),
    )
    return {
        "log_retention_ms": retention_ms if retention_ms >= 0 else -1,
        "log_roll_ms": first(("log.roll.ms", 1), ("log.roll.hours", MS_PER_HOUR)),
        "log_roll_jitter_ms": first(
            ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", MS_PER_HOUR)
        ),
        "log_flush_interval_ms": first(
            ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)
        ),
    }


def _decide_connection_limits(decided: Mapping[str, Any]) -> Mapping[str, int]:
    key = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for host, text in parse_pairs(key, decided["max_connections_per_ip_overrides"]).items():
        if HOST.fullmatch(host) is None:
            raise ConfigError(f"{key} must name hosts, not '{host[:SHOWN_CHARACTERS_MAX]}'")
        if not (text.isascii() and text.isdigit()):
            raise ConfigError(f"{key} must give '{host}' a number of connections, not '{text}'")
        limits[host] = int(text)
    return MappingProxyType(limits)


def _decide_listeners(decided: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    controller_names: tuple[str, ...] = decided["controller_listener_names"]
    protocols = security_protocols(
        decided["listener_security_protocol_map"],
        is_given="listener.security.protocol.map" in texts,
        listener_texts=decided["listeners"],
        controller_listener_names=controller_names,
    )
    listeners = parse_listeners("listeners", decided["listeners"], protocols, distinct_ports=True)
    given = decided["advertised_listeners"]
    advertised = (
        listeners
        if given is None
        else parse_listeners("advertised.listeners", given, protocols, distinct_ports=False)
    )
    # A controller listener that is not advertised is reached where it listens, if that is a
    # place at all, and else under the node's own name.
    reachable = [
        item._replace(host="") if item.host == NON_ROUTABLE_HOST else item for item in listeners
    ]
    advertised_by_name = {item.name: item for item in (*reachable, *(advertised if given else ()))}
    return {
        "listener_security_protocol_map": MappingProxyType(protocols),
        "listeners": listeners,
        "advertised_listeners": tuple(
            item for item in advertised if item.name not in controller_names
        ),
        "advertised_controller_listeners": tuple(
            advertised_by_name[name] for name in controller_names if name in advertised_by_name
        ),
        "inter_broker_listener_name": _decide_inter_broker_name(decided, texts, protocols),
    }


def _decide_inter_broker_name(
    decided: Mapping[str, Any], texts: Mapping[str, str], protocols: Mapping[str, str]
) -> str:
    name: str | None = decided["inter_broker_listener_name"]
    if name is None:
        protocol: str = decided["security_inter_broker_protocol"]
        return protocol
    if "security.inter.broker.protocol" in texts:
        raise ConfigError(
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be given"
        )
    if name.upper() not in protocols:
        raise ConfigError(
            f"inter.broker.listener.name names {name[:SHOWN_CHARACTERS_MAX]}, which has no "
            "security protocol in listener.security.protocol.map"
        )
    return name.upper()
