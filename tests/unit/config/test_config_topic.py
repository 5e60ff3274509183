"""Which value of a topic config is in force."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigError
from ottla.config.topic import TopicConfig

PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


def broker(**changes: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        PROPERTIES | {name.replace("_", "."): text for name, text in changes.items()}
    )


def test_an_override_is_a_native_value() -> None:
    topic = TopicConfig.from_overrides(
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": "5000",
            "min.cleanable.dirty.ratio": "0.25",
            "preallocate": "TRUE",
            "leader.replication.throttled.replicas": "0:1,1:2",
        },
        broker(),
    )
    assert topic.cleanup_policy == {"compact", "delete"}
    assert topic.is_compacted
    assert topic.is_deleted_by_retention
    assert topic.retention_ms == 5000
    assert topic.min_cleanable_dirty_ratio == 0.25
    assert topic.preallocate is True
    assert topic.leader_replication_throttled_replicas == ("0:1", "1:2")


def test_neither_deleting_nor_compacting_is_a_policy() -> None:
    topic = TopicConfig.from_overrides({"cleanup.policy": ""}, None)
    assert (topic.is_compacted, topic.is_deleted_by_retention) == (False, False)


@pytest.mark.parametrize(
    ("overrides", "altered", "altered_for_all", "given", "retention_ms"),
    [
        ({"retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"}, {}, 1),
        ({}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"}, {"log_retention_ms": "4"}, 2),
        ({}, {}, {"log.retention.ms": "3"}, {"log_retention_ms": "4"}, 3),
        ({}, {}, {}, {"log_retention_ms": "4", "log_retention_minutes": "5"}, 4),
        ({}, {}, {}, {"log_retention_minutes": "5", "log_retention_hours": "6"}, 300_000),
        ({}, {}, {}, {"log_retention_hours": "6"}, 21_600_000),
        ({}, {}, {}, {"log_retention_hours": "-6"}, -1),
        ({}, {}, {"log.retention.ms": "3"}, {"log_retention_minutes": "5"}, 3),
        ({}, {}, {}, {}, 604_800_000),
    ],
)
def test_the_nearest_setting_counts(
    overrides: dict[str, str],
    altered: dict[str, str],
    altered_for_all: dict[str, str],
    given: dict[str, str],
    retention_ms: int,
) -> None:
    defaults = broker(**given).with_dynamic(default=altered_for_all, broker=altered)
    assert TopicConfig.from_overrides(overrides, defaults).retention_ms == retention_ms


def test_broker_keys_of_other_names_and_units_reach_the_topic() -> None:
    topic = TopicConfig.from_overrides(
        {},
        broker(
            log_roll_hours="2",
            log_roll_jitter_hours="1",
            log_flush_scheduler_interval_ms="9",
            log_index_size_max_bytes="4096",
            log_segment_delete_delay_ms="8",
            message_max_bytes="77",
            log_cleanup_policy="compact",
            unclean_leader_election_enable="true",
        ),
    )
    assert topic.segment_ms == 7_200_000
    assert topic.segment_jitter_ms == 3_600_000
    assert topic.flush_ms == 9
    assert topic.segment_index_bytes == 4096
    assert topic.file_delete_delay_ms == 8
    assert topic.max_message_bytes == 77
    assert topic.cleanup_policy == {"compact"}
    assert topic.unclean_leader_election_enable is True


def test_the_internal_segment_size_goes_below_the_minimum() -> None:
    topic = TopicConfig.from_overrides({"internal.segment.bytes": "2048"}, broker())
    assert topic.segment_bytes == 2048


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"retntion.ms": "1"}, r"unknown key 'retntion.ms'.*did you mean 'retention.ms'"),
        ({"retention.ms": "-2"}, r"^retention.ms must be at least -1, not '-2'$"),
        ({"segment.bytes": "5"}, r"^segment.bytes must be at least 1048576, not '5'$"),
        ({"cleanup.policy": "shred"}, r"^cleanup.policy must be a list out of compact, delete"),
        ({"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "6"}, r"6 is more than 5$"),
        ({"remote.storage.enable": "true"}, r"the broker has no tiered storage$"),
        ({"leader.replication.throttled.replicas": "0"}, r"partition:broker pairs"),
    ],
)
def test_what_kafka_refuses_is_refused(overrides: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        TopicConfig.from_overrides(overrides, broker())


@pytest.mark.parametrize(
    ("overrides", "is_accepted"),
    [
        ({}, True),
        ({"cleanup.policy": "compact"}, False),
        ({"retention.ms": "10", "local.retention.ms": "10"}, True),
        ({"retention.ms": "10", "local.retention.ms": "11"}, False),
        ({"retention.bytes": "10", "local.retention.bytes": "-1"}, False),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "10"}, False),
    ],
)
def test_tiering_has_its_own_rules(overrides: dict[str, str], is_accepted: bool) -> None:
    tiered = overrides | {"remote.storage.enable": "true"}
    defaults = broker(remote_log_storage_system_enable="true")
    if is_accepted:
        assert TopicConfig.from_overrides(tiered, defaults).remote_storage_enable
    else:
        with pytest.raises(ConfigError):
            TopicConfig.from_overrides(tiered, defaults)


def test_settings_of_another_version_do_not_stop_a_stored_topic() -> None:
    stored = {
        "message.format.version": "2.8",
        "retention.ms": "5000",
        "segment.bytes": "14",
        "max.compaction.lag.ms": "5",
        "min.compaction.lag.ms": "6",
    }
    topic = TopicConfig.from_stored(stored, broker())
    assert topic == TopicConfig(retention_ms=5000, max_compaction_lag_ms=5)
    assert TopicConfig.from_stored({"retention.ms": "1"}, None) == TopicConfig(retention_ms=1)
