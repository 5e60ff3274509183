"""The tables agree with themselves and with the classes that are read from them."""

from dataclasses import fields

from ottla.config.broker import BrokerConfig
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.definitions import REQUIRED, ConfigType, Elements, UpdateMode, render
from ottla.config.resource_tables import CLIENT_METRICS_TABLE, GROUP_TABLE, THROTTLE_TABLE
from ottla.config.topic import TopicConfig
from ottla.config.topic_table import TOPIC_TABLE

TABLES = (BROKER_TABLE, TOPIC_TABLE, GROUP_TABLE, CLIENT_METRICS_TABLE, THROTTLE_TABLE)
ALL_KEYS = [key for table in TABLES for key in table.keys.values()]

# Other attributes already say what these keys decide.
DECIDED_ELSEWHERE = {
    "broker.id",
    "internal.metadata.log.segment.bytes",
    "log.dir",
    "log.retention.hours",
    "log.retention.minutes",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "security.inter.broker.protocol",
}


def test_the_tables_hold_what_kafka_knows() -> None:
    counts = [len(table.keys) for table in TABLES]
    assert counts == [360, 34, 17, 3, 3]


def test_a_default_is_a_value_that_its_key_accepts() -> None:
    for key in ALL_KEYS:
        if key.default is REQUIRED or key.default is None:
            continue
        text = render(key.default_value)
        assert text is not None, key.name
        assert key.parse(text) == key.default, key.name
        # True == 1 in Python, but not on the wire.
        assert type(key.parse(text)) is type(key.default), key.name


def test_documentation_is_one_sentence() -> None:
    for key in ALL_KEYS:
        assert key.documentation.endswith("."), key.name
        assert ". " not in key.documentation, key.name
        assert len(key.documentation) < 150, key.name


def test_only_lists_are_checked_element_by_element() -> None:
    wrong = [
        key.name
        for key in ALL_KEYS
        if isinstance(key.validator, Elements) and key.type is not ConfigType.LIST
    ]
    assert wrong == []


def test_every_synonym_is_a_broker_key() -> None:
    for key in (*TOPIC_TABLE.keys.values(), *GROUP_TABLE.keys.values()):
        for synonym in key.synonyms:
            assert synonym in BROKER_TABLE.keys


def test_a_topic_key_and_its_broker_key_have_the_same_default() -> None:
    for key in TOPIC_TABLE.keys.values():
        if len(key.synonyms) == 1:
            assert BROKER_TABLE[key.synonyms[0]].default == key.default, key.name


def test_keys_that_kafka_alters_at_run_time_are_counted() -> None:
    modes = [key.update_mode for key in BROKER_TABLE.keys.values()]
    assert modes.count(UpdateMode.PER_BROKER) == 37
    assert modes.count(UpdateMode.CLUSTER_WIDE) == 62


def test_every_obeyed_broker_key_is_an_attribute() -> None:
    attributes = {item.name for item in fields(BrokerConfig)}
    obeyed = {
        key.attribute
        for key in BROKER_TABLE.keys.values()
        if key.used and key.name not in DECIDED_ELSEWHERE
    }
    beyond = {"advertised_controller_listeners", "values", "static", "dynamic_default", "dynamic"}
    assert attributes == obeyed | beyond


def test_every_topic_key_is_an_attribute_with_its_default() -> None:
    assert {item.name for item in fields(TopicConfig)} == {
        key.attribute for key in TOPIC_TABLE.keys.values()
    }
    assert TopicConfig.from_overrides({}, None) == TopicConfig()
