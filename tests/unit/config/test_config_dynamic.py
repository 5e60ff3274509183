"""Altering configs: the outcome of a request and whether it may be."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import (
    apply_logger_changes,
    check_logger_resource,
    parse_match,
    validate,
)
from ottla.config.resources import ConfigChange, ConfigOperation, ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER, METRICS, GROUP = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)
NODE = BrokerConfig.from_properties(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
    }
)


@pytest.mark.parametrize(
    ("resource_type", "name", "settings"),
    [
        (TOPIC, "t", {"retention.ms": "-1"}),
        (BROKER, "1", {"log.retention.ms": "7000"}),
        (BROKER, "", {"log.retention.ms": "8000"}),
        (BROKER, "9", {"log.retention.ms": "8000"}),
        (BROKER, "1", {"some.plugin.key": "3"}),
        (BROKER, "1", {"listener.name.plaintext.max.connections": "5"}),
        (BROKER, "", {"listener.name.plaintext.max.connections": "5"}),
        (BROKER, "1", {"listener.name.plaintext.ssl.keystore.location": "/k"}),
        (BROKER, "1", {"leader.replication.throttled.rate": "500"}),
        (BROKER, "1", {"metric.reporters": ""}),
        (METRICS, "m", {"interval.ms": "100", "metrics": "*", "match": "client_id=a.*"}),
        (GROUP, "g", {"consumer.session.timeout.ms": "50000"}),
        (GROUP, "g", {"share.auto.offset.reset": "by_duration:P1DT2H"}),
        (GROUP, "g", {"share.isolation.level": "read_committed"}),
        (GROUP, "g", {"streams.num.standby.replicas": "2"}),
    ],
)
def test_what_kafka_accepts_is_accepted(
    resource_type: ConfigResourceType, name: str, settings: dict[str, str]
) -> None:
    validate(resource_type, name, settings, broker=NODE)


INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("resource_type", "name", "settings", "code", "sentence"),
    [
        (TOPIC, "", {"retention.ms": "1"}, INVALID_REQUEST, "a topic must be named"),
        (TOPIC, "t", {"retention.ms": "x"}, INVALID_CONFIG, "an integer of 64 bits"),
        (TOPIC, "t", {"nope": "x"}, INVALID_CONFIG, "unknown key 'nope'"),
        (BROKER, "x", {}, INVALID_REQUEST, "named by its id, not 'x'"),
        (BROKER, "1", {"node.id": "3"}, INVALID_REQUEST, "only a restart can change node.id"),
        (BROKER, "1", {"listeners": "A://:1"}, INVALID_REQUEST, "only a restart can change"),
        (BROKER, "", {"cordoned.log.dirs": "*"}, INVALID_REQUEST, "only a single broker"),
        (BROKER, "", {"listener.name.a.ssl.protocol": "T"}, INVALID_REQUEST, "only a single"),
        (BROKER, "1", {"ssl.key.password": "x"}, INVALID_REQUEST, "the prefix listener.name"),
        (BROKER, "1", {"num.io.threads": "0"}, INVALID_REQUEST, "must be at least 1, not '0'"),
        (BROKER, "9", {"num.io.threads": "0"}, INVALID_REQUEST, "must be at least 1, not '0'"),
        (BROKER, "1", {"log.retention.ms": "0"}, INVALID_REQUEST, "log.retention.ms must be"),
        (BROKER, "", {"log.retention.ms": "0"}, INVALID_REQUEST, "log.retention.ms must be"),
        (BROKER, "1", {"leader.replication.throttled.rate": "-1"}, INVALID_REQUEST, "at least 0"),
        (BROKER, "1", {"listener.name.p.max.connections": "x"}, INVALID_REQUEST, "32 bits"),
        (METRICS, "", {}, INVALID_REQUEST, "subscription must be named"),
        (METRICS, "m", {"nope": "1"}, INVALID_REQUEST, "'nope' is none of interval.ms"),
        (METRICS, "m", {"interval.ms": "99"}, INVALID_REQUEST, "between 100 and 3600000"),
        (METRICS, "m", {"interval.ms": "3600001"}, INVALID_REQUEST, "between 100 and 3600000"),
        (METRICS, "m", {"match": "foo=.*"}, INVALID_CONFIG, "match must be a list"),
        (METRICS, "m", {"match": "client_id=["}, INVALID_CONFIG, "match must be a list"),
        (METRICS, "m", {"match": "client_id"}, INVALID_CONFIG, "match must be a list"),
        (GROUP, "", {}, INVALID_REQUEST, "a group must be named"),
        (GROUP, "g", {"nope": "1"}, INVALID_CONFIG, "unknown key 'nope'"),
        (GROUP, "g", {"consumer.session.timeout.ms": "5"}, INVALID_CONFIG, "which is 45000"),
        (GROUP, "g", {"consumer.heartbeat.interval.ms": "60000"}, INVALID_CONFIG, "is 15000"),
        (GROUP, "g", {"share.delivery.count.limit": "50"}, INVALID_CONFIG, "which is 10"),
        (GROUP, "g", {"streams.num.standby.replicas": "5"}, INVALID_CONFIG, "which is 2"),
        (GROUP, "g", {"share.auto.offset.reset": "by_duration:x"}, INVALID_CONFIG, "by_duration"),
        (GROUP, "g", {"share.isolation.level": "READ"}, INVALID_CONFIG, "must be one of"),
        (ConfigResourceType.BROKER_LOGGER, "x", {}, INVALID_REQUEST, "cannot be altered"),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(
    resource_type: ConfigResourceType,
    name: str,
    settings: dict[str, str],
    code: ErrorCode,
    sentence: str,
) -> None:
    with pytest.raises(KafkaError) as refused:
        validate(resource_type, name, settings, broker=NODE)
    assert refused.value.code is code
    assert sentence in str(refused.value)


def test_a_heartbeat_must_come_before_the_session_ends() -> None:
    node = BrokerConfig.from_properties(
        dict(NODE.static) | {"group.consumer.min.session.timeout.ms": "6000"}
    )
    settings = {"consumer.session.timeout.ms": "7000", "consumer.heartbeat.interval.ms": "7000"}
    with pytest.raises(KafkaError, match="must be less than"):
        validate(GROUP, "g", settings, broker=node)


def test_altering_the_default_is_judged_beneath_this_brokers_own() -> None:
    node = NODE.with_dynamic(default={}, broker={"log.cleaner.max.compaction.lag.ms": "100"})
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms must not be more"):
        validate(BROKER, "", {"log.cleaner.min.compaction.lag.ms": "101"}, broker=node)
    validate(BROKER, "", {"log.cleaner.min.compaction.lag.ms": "100"}, broker=node)


def test_match_patterns_are_compiled_by_name() -> None:
    patterns = parse_match(["client_id=a.*", "client_source_port=90[0-9]+"])
    assert patterns["client_id"].fullmatch("abc")
    assert not patterns["client_source_port"].fullmatch("90x")


def test_levels_of_loggers_are_set_and_removed() -> None:
    levels = {"root": "INFO", "ottla.storage": "DEBUG"}
    changes = [
        ConfigChange("root", SET, "WARN"),
        ConfigChange("ottla.storage", DELETE, None),
    ]
    assert apply_logger_changes(levels, changes) == {"root": "WARN", "ottla.storage": None}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ConfigChange("root", SET, "debug"), INVALID_CONFIG),
        (ConfigChange("absent", SET, "DEBUG"), INVALID_CONFIG),
        (ConfigChange("root", DELETE, None), INVALID_REQUEST),
        (ConfigChange("root", APPEND, "DEBUG"), INVALID_REQUEST),
        (ConfigChange("root", 77, "DEBUG"), INVALID_REQUEST),
    ],
)
def test_a_level_that_cannot_be_is_refused(change: ConfigChange, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        apply_logger_changes({"root": "INFO"}, [change])
    assert refused.value.code is code


def test_loggers_belong_to_one_broker() -> None:
    check_logger_resource("1", 1)
    with pytest.raises(KafkaError, match="cannot speak for"):
        check_logger_resource("", 1)
