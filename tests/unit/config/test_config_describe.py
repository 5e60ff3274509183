"""DescribeConfigs entries, as Apache Kafka 4.3.1 answered for the same settings."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigSource, ConfigType
from ottla.config.describe import ConfigEntry, Descriptions
from ottla.config.resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC = ConfigSource.TOPIC_CONFIG
DYNAMIC = ConfigSource.DYNAMIC_BROKER_CONFIG
DYNAMIC_DEFAULT = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG

FOR_ALL = {
    "log.retention.ms": "8000",
    "log.segment.bytes": "2000000",
    "follower.replication.throttled.rate": "500",
}
FOR_THIS = {
    "log.retention.ms": "7000",
    "num.io.threads": "3",
    "nope": "3",
    "listener.name.plaintext.max.connections": "5",
    "listener.name.plaintext.nope": "5",
    "leader.replication.throttled.rate": "500",
    "metric.reporters": "",
    "log.cleanup.policy": "delete,compact",
}
NODE = BrokerConfig.from_properties(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:22000,CONTROLLER://127.0.0.1:22001",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:22001",
        "log.dirs": "/logs",
        "log.retention.minutes": "10000",
        "log.roll.hours": "100",
        "num.io.threads": "2",
        "ssl.keystore.password": "secret",
        "listener.name.plaintext.max.connections": "77",
    }
).with_dynamic(default=FOR_ALL, broker=FOR_THIS)


def entries(
    resource_type: ConfigResourceType, name: str, settings: dict[str, str]
) -> dict[str, ConfigEntry]:
    described = Descriptions(NODE).describe(resource_type, name, settings=settings)
    names = [entry.name for entry in described]
    assert names == sorted(set(names))
    return {entry.name: entry for entry in described}


def shown(entry: ConfigEntry) -> tuple[str | None, ConfigSource, list[tuple[str, str | None, int]]]:
    return (
        entry.value,
        entry.source,
        [(item.name, item.value, item.source) for item in entry.synonyms],
    )


def test_a_topic_shows_what_lies_beneath_each_value() -> None:
    settings = {
        "retention.ms": "5000",
        "internal.segment.bytes": "2048",
        "cleanup.policy": "delete,delete",
    }
    topic = entries(ConfigResourceType.TOPIC, "t", settings)
    assert len(topic) == 34
    assert shown(topic["retention.ms"]) == (
        "5000",
        TOPIC,
        [
            ("retention.ms", "5000", TOPIC),
            ("log.retention.ms", "7000", DYNAMIC),
            ("log.retention.ms", "8000", DYNAMIC_DEFAULT),
            ("log.retention.minutes", "10000", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ],
    )
    assert shown(topic["cleanup.policy"]) == (
        "delete",
        TOPIC,
        [
            ("cleanup.policy", "delete", TOPIC),
            ("log.cleanup.policy", "delete,compact", DYNAMIC),
            ("log.cleanup.policy", "delete", DEFAULT),
        ],
    )
    assert shown(topic["segment.bytes"]) == (
        "2000000",
        DYNAMIC_DEFAULT,
        [
            ("log.segment.bytes", "2000000", DYNAMIC_DEFAULT),
            ("log.segment.bytes", "1073741824", DEFAULT),
        ],
    )
    assert shown(topic["segment.ms"]) == ("360000000", DEFAULT, [])
    assert shown(topic["flush.ms"]) == ("9223372036854775807", DEFAULT, [])
    assert shown(topic["remote.storage.enable"]) == ("false", DEFAULT, [])
    assert topic["internal.segment.bytes"].value == "2048"
    assert topic["retention.ms"].type is ConfigType.LONG
    assert not topic["retention.ms"].is_default
    assert not any(entry.is_read_only or entry.is_sensitive for entry in topic.values())


def test_an_internal_key_is_hidden_until_it_is_set() -> None:
    assert "internal.segment.bytes" not in entries(ConfigResourceType.TOPIC, "t", {})


def test_a_broker_shows_every_key_and_whatever_was_given() -> None:
    broker = entries(ConfigResourceType.BROKER, "1", {})
    assert len(broker) == 345
    assert shown(broker["log.retention.ms"]) == (
        "7000",
        DYNAMIC,
        [
            ("log.retention.ms", "7000", DYNAMIC),
            ("log.retention.ms", "8000", DYNAMIC_DEFAULT),
            ("log.retention.minutes", "10000", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ],
    )
    assert shown(broker["log.retention.minutes"]) == (
        None,
        STATIC,
        [("log.retention.minutes", "10000", STATIC), ("log.retention.hours", "168", DEFAULT)],
    )
    assert shown(broker["num.io.threads"])[:2] == ("3", DYNAMIC)
    assert shown(broker["metric.reporters"])[:2] == ("", DYNAMIC)
    assert shown(broker["log.roll.ms"]) == (None, DEFAULT, [])
    assert shown(broker["broker.id"]) == (
        "1",
        STATIC,
        [("broker.id", "1", STATIC), ("broker.id", "-1", DEFAULT)],
    )
    assert broker["node.id"].is_read_only
    assert not broker["num.io.threads"].is_read_only


def test_secrets_and_unknown_keys_are_not_shown() -> None:
    broker = entries(ConfigResourceType.BROKER, "1", {})
    password = broker["ssl.keystore.password"]
    assert password.is_sensitive
    assert shown(password) == (None, STATIC, [("ssl.keystore.password", None, STATIC)])
    unknown = broker["nope"]
    assert (unknown.is_sensitive, unknown.is_read_only) == (True, True)
    assert unknown.type is ConfigType.UNKNOWN
    assert shown(unknown) == (None, DYNAMIC, [("nope", None, DYNAMIC)])


def test_a_listeners_own_key_lies_before_the_common_one() -> None:
    broker = entries(ConfigResourceType.BROKER, "1", {})
    prefixed = broker["listener.name.plaintext.max.connections"]
    assert (prefixed.type, prefixed.is_read_only) == (ConfigType.INT, True)
    assert shown(prefixed) == (
        "5",
        DYNAMIC,
        [
            ("listener.name.plaintext.max.connections", "5", DYNAMIC),
            ("listener.name.plaintext.max.connections", "77", STATIC),
            ("max.connections", "2147483647", DEFAULT),
        ],
    )


def test_the_broker_default_shows_only_what_was_altered() -> None:
    default = entries(ConfigResourceType.BROKER, "", FOR_ALL)
    assert default.keys() == FOR_ALL.keys()
    assert shown(default["log.retention.ms"]) == (
        "8000",
        DYNAMIC_DEFAULT,
        [("log.retention.ms", "8000", DYNAMIC_DEFAULT)],
    )


def test_a_group_falls_back_to_its_broker() -> None:
    group = entries(ConfigResourceType.GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    assert len(group) == 17
    assert shown(group["consumer.session.timeout.ms"]) == (
        "50000",
        ConfigSource.GROUP_CONFIG,
        [
            ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP_CONFIG),
            ("group.consumer.session.timeout.ms", "45000", DEFAULT),
        ],
    )
    assert shown(group["share.auto.offset.reset"]) == (
        "latest",
        DEFAULT,
        [("share.auto.offset.reset", "latest", DEFAULT)],
    )


def test_client_metrics_show_settings_or_defaults() -> None:
    source = ConfigSource.CLIENT_METRICS_CONFIG
    metrics = entries(ConfigResourceType.CLIENT_METRICS, "m", {"interval.ms": "500"})
    assert shown(metrics["interval.ms"]) == ("500", source, [("interval.ms", "500", source)])
    assert shown(metrics["match"]) == ("", DEFAULT, [])


def test_loggers_show_their_levels() -> None:
    (entry,) = Descriptions(NODE).describe(
        ConfigResourceType.BROKER_LOGGER, "1", settings={}, logger_levels={"root": "INFO"}
    )
    assert (entry.name, entry.value) == ("root", "INFO")
    assert entry.source is ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG


def test_only_the_names_asked_for_are_shown() -> None:
    described = Descriptions(NODE).describe(
        ConfigResourceType.TOPIC, "t", settings={}, names=["flush.ms", "absent"]
    )
    assert [entry.name for entry in described] == ["flush.ms"]


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        (ConfigResourceType.BROKER, "2"),
        (ConfigResourceType.BROKER, "x"),
        (ConfigResourceType.BROKER_LOGGER, "2"),
        (ConfigResourceType.GROUP, ""),
        (ConfigResourceType.CLIENT_METRICS, ""),
    ],
)
def test_a_resource_that_cannot_be_described_is_refused(
    resource_type: ConfigResourceType, name: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        Descriptions(NODE).describe(resource_type, name, settings={})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
