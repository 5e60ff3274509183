"""What a node makes of its server.properties."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigError, ConfigSource
from ottla.config.listeners import Endpoint, Listener, Voter

COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
BROKER = COMBINED | {"process.roles": "broker", "listeners": "PLAINTEXT://h:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://h:9093"}


def config(base: dict[str, str] = COMBINED, /, **changes: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        base | {name.replace("_", "."): text for name, text in changes.items()}
    )


def refusal(mapping: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(mapping)
    return str(refused.value)


def test_defaults_are_kafkas() -> None:
    broker = config()
    assert broker.node_id == 1
    assert broker.process_roles == {"broker", "controller"}
    assert broker.log_dirs == ("/tmp/kafka-logs",)
    assert broker.metadata_log_dir == "/tmp/kafka-logs"
    assert broker.log_retention_ms == 7 * 24 * 3600 * 1000
    assert broker.log_roll_ms == 7 * 24 * 3600 * 1000
    assert broker.log_flush_interval_ms == 2**63 - 1
    assert broker.inter_broker_listener_name == "PLAINTEXT"
    assert broker.controller_quorum_bootstrap_servers == (Endpoint("localhost", 9093),)
    assert broker.get("num.network.threads") == 3
    assert broker.warnings() == ()


def test_a_misspelt_key_is_answered_with_the_nearest() -> None:
    assert refusal(COMBINED | {"log.retntion.ms": "1"}) == (
        "unknown key 'log.retntion.ms' in server.properties: did you mean 'log.retention.ms'?"
    )
    assert refusal(COMBINED | {"zookeeper.connect": "h"}) == (
        "unknown key 'zookeeper.connect' in server.properties"
    )


def test_given_keys_without_effect_are_named_in_one_sentence() -> None:
    broker = config(num_io_threads="4", listener_name_plaintext_ssl_client_auth="none")
    assert broker.warnings() == (
        "Ottla knows but does not obey: "
        "listener.name.plaintext.ssl.client.auth (for plugins, or for one listener); "
        "num.io.threads (a thread, queue, plugin or metric of Kafka's JVM).",
    )


@pytest.mark.parametrize("name", ["node.id", "process.roles", "controller.listener.names"])
def test_a_required_key_is_asked_for(name: str) -> None:
    mapping = {key: text for key, text in COMBINED.items() if key != name}
    assert refusal(mapping) == f"{name} is missing in server.properties and has no default"


def test_broker_id_is_another_name_of_node_id() -> None:
    mapping = {key: text for key, text in COMBINED.items() if key != "node.id"}
    assert BrokerConfig.from_properties(mapping | {"broker.id": "7"}).node_id == 7
    assert "broker.id must equal node.id" in refusal(COMBINED | {"broker.id": "7"})


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-5"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_counts(given: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.from_properties(COMBINED | given).log_retention_ms == retention_ms


def test_log_dirs_go_before_log_dir() -> None:
    assert config(log_dir="/a").log_dirs == ("/a",)
    both = config(log_dir="/a", log_dirs="/b,/c")
    assert (both.log_dirs, both.metadata_log_dir) == (("/b", "/c"), "/b")
    assert config(log_dirs="/b", metadata_log_dir="/m").metadata_log_dir == "/m"


def test_listeners_are_parsed_and_divided_by_role() -> None:
    broker = config(
        listeners="plaintext://[::1]:9092,CONTROLLER://0.0.0.0:9093",
        advertised_listeners="PLAINTEXT://kafka.example:19092",
    )
    assert broker.broker_listeners == (Listener("PLAINTEXT", "::1", 9092, "PLAINTEXT"),)
    assert broker.controller_listeners == (Listener("CONTROLLER", "0.0.0.0", 9093, "PLAINTEXT"),)
    assert [str(item) for item in broker.advertised_listeners] == [
        "PLAINTEXT://kafka.example:19092"
    ]
    assert [str(item) for item in broker.advertised_controller_listeners] == ["CONTROLLER://:9093"]
    assert str(broker.listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_one_port_serves_an_ipv4_and_an_ipv6_listener() -> None:
    broker = config(listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092")
    assert {item.port for item in broker.listeners} == {9092}


def test_port_zero_may_repeat() -> None:
    assert len(config(listeners="PLAINTEXT://:0,CONTROLLER://:0").listeners) == 2


def test_voters_are_parsed() -> None:
    broker = config(controller_quorum_voters="1@a:9093,2@[::1]:9094")
    assert broker.controller_quorum_voters == (Voter(1, "a", 9093), Voter(2, "::1", 9094))


def test_connection_limits_of_hosts_are_parsed() -> None:
    broker = config(max_connections_per_ip_overrides="10.0.0.1:5, ::1:6")
    assert broker.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 6}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names must name listeners"),
        ({"listeners": "PLAINTEXT://:9,CONTROLLER://:9"}, "listeners gives port 9 to"),
        ({"listeners": "A://:1,CONTROLLER://:2"}, "listeners names the listener A, which has no"),
        ({"listeners": "CONTROLLER://:2"}, "listeners must contain one that is not in"),
        ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:2"}, "listeners must be a list of NAME"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1,CONTROLLER://:2"}, "must not tell clients 0.0.0.0"),
        ({"listeners": "SSL://:1,CONTROLLER://:2"}, "asks for SSL on the listener SSL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "must not tell clients 0.0.0.0"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name must be one of"),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name names X, which has no"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "must map 'PLAINTEXT' to one of"),
        ({"controller.quorum.voters": "2@h:1"}, "controller.quorum.voters must contain node.id 1"),
        ({"controller.quorum.bootstrap.servers": ""}, "controller.quorum.bootstrap.servers or"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be at least 1, or -1"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be at least 1"),
        ({"log.cleaner.threads": "0"}, "log.cleaner.dedupe.buffer.size must be more than"),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.socket.timeout.ms must be at least"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes must be at least"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be 0 only with"),
        ({"connections.max.idle.ms": "100"}, "connection.failed.authentication.delay.ms must be"),
        ({"group.consumer.session.timeout.ms": "5"}, "group.consumer.session.timeout.ms must lie"),
        ({"group.consumer.assignors": "range,com.acme.MyAssignor"}, "not com.acme.MyAssignor"),
        ({"offsets.topic.compression.codec": "5"}, "offsets.topic.compression.codec must be"),
        ({"log.segment.bytes": "1"}, "log.segment.bytes must be at least 1048576, not '1'"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, str], sentence: str) -> None:
    assert sentence in refusal(COMBINED | changes)


def test_a_broker_alone_has_no_controller_listener() -> None:
    assert BrokerConfig.from_properties(BROKER).controller_listeners == ()
    assert "must not be in controller.listener.names" in refusal(
        BROKER | {"listeners": COMBINED["listeners"]}
    )
    assert "must not contain node.id 1" in refusal(BROKER | {"controller.quorum.voters": "1@h:1"})


def test_a_controller_alone_has_no_broker_listener() -> None:
    assert BrokerConfig.from_properties(CONTROLLER).broker_listeners == ()
    assert "listeners of a controller must all be in controller.listener.names" in refusal(
        CONTROLLER | {"listeners": COMBINED["listeners"]}
    )


def test_tls_may_be_mapped_while_no_listener_uses_it() -> None:
    broker = config(listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:SSL")
    assert broker.listener_security_protocol_map["X"] == "SSL"


def test_altered_keys_go_before_given_ones() -> None:
    broker = config(log_retention_minutes="1", num_partitions="3")
    altered = broker.with_dynamic(
        default={"log.retention.ms": "7", "message.max.bytes": "8"},
        broker={"log.retention.ms": "9"},
    )
    assert (altered.log_retention_ms, altered.message_max_bytes) == (9, 8)
    assert altered.num_partitions == 3
    assert altered.source_of("log.retention.ms") is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert altered.source_of("message.max.bytes") is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert altered.source_of("num.partitions") is ConfigSource.STATIC_BROKER_CONFIG
    assert altered.source_of("log.segment.bytes") is ConfigSource.DEFAULT_CONFIG
    assert broker.log_retention_ms == 60_000
    assert altered.with_dynamic(default={}, broker={}).log_retention_ms == 60_000


def test_what_only_a_restart_changes_is_not_altered() -> None:
    broker = config().with_dynamic(
        default={"num.partitions": "5", "listeners": "PLAINTEXT://:1"},
        broker={"node.id": "4", "listeners": "PLAINTEXT://:1"},
    )
    assert (broker.num_partitions, broker.node_id) == (1, 1)
    assert [item.port for item in broker.listeners] == [9092, 9093]


def test_a_stored_value_that_is_refused_is_left_out_alone() -> None:
    broker = config().with_dynamic(
        default={"log.retention.ms": "0", "log.segment.bytes": "x", "message.max.bytes": "8"},
        broker={"log.retention.ms": "5"},
    )
    assert broker.log_retention_ms == 5
    assert broker.message_max_bytes == 8
    assert broker.log_segment_bytes == 2**30
    assert "log.segment.bytes" not in broker.dynamic_default


def test_limits_that_are_switched_off_contradict_nothing() -> None:
    assert config(connections_max_idle_ms="-1").connections_max_idle_ms == -1
    assert config(queued_max_request_bytes="0").get("queued.max.request.bytes") == 0
