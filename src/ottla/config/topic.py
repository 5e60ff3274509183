"""What one topic was told: its own settings first, those of its broker behind them. Pure.

A topic stores only what was set for it, so that a later change of a broker key reaches every
topic that did not choose for itself. The value in force is therefore found anew whenever
either changes: the topic's override, then the broker key that stands for it (altered for
this broker, altered for all, from server.properties), then the default.

The log reads this object on every append, so its fields are plain native values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from ottla.config.broker import MS_PER_HOUR, MS_PER_MINUTE, BrokerConfig
from ottla.config.definitions import LONG_MAX, ConfigError, ConfigValue
from ottla.config.topic_table import TOPIC_TABLE

SYNONYM_UNIT_MS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "log.retention.minutes": MS_PER_MINUTE,
        "log.retention.hours": MS_PER_HOUR,
        "log.roll.hours": MS_PER_HOUR,
        "log.roll.jitter.hours": MS_PER_HOUR,
    }
)
FOLLOW_RETENTION: Final = -2  # of local.retention.*: the same as without tiering


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Built bare, it has Kafka's defaults; nothing is checked then."""

    cleanup_policy: frozenset[str] = frozenset(("delete",))
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = FOLLOW_RETENTION
    local_retention_ms: int = FOLLOW_RETENTION
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824  # internal.segment.bytes, where that is given
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], defaults: BrokerConfig | None) -> Self:
        """The config in force, or ConfigError for an unknown key or a value that is refused."""
        values = resolve_values(overrides, defaults)
        is_tiering_possible = (
            defaults is not None and defaults.get("remote.log.storage.system.enable") is True
        )
        check_values(values, is_tiering_possible=is_tiering_possible)
        native: dict[str, Any] = {TOPIC_TABLE[name].attribute: values[name] for name in values}
        native["cleanup_policy"] = frozenset(native["cleanup_policy"])
        if native["internal_segment_bytes"] is not None:
            native["segment_bytes"] = native["internal_segment_bytes"]
        return cls(**native)

    @classmethod
    def from_stored(cls, overrides: Mapping[str, str], defaults: BrokerConfig | None) -> Self:
        """The config in force of a topic that exists already, for which there is no refusal.

        Its overrides may come from a Kafka cluster of another version. A key that is not
        known here, or a value that is not accepted, counts as not set.
        """
        try:
            return cls.from_overrides(overrides, defaults)
        except ConfigError:
            return cls._from_what_is_accepted(overrides, defaults)

    @classmethod
    def _from_what_is_accepted(
        cls, overrides: Mapping[str, str], defaults: BrokerConfig | None
    ) -> Self:
        accepted: dict[str, str] = {}
        config = cls.from_overrides({}, defaults)
        for name, text in sorted(overrides.items()):
            try:
                config = cls.from_overrides({**accepted, name: text}, defaults)
            except ConfigError:
                continue
            accepted[name] = text
        return config

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy


def resolve_values(
    overrides: Mapping[str, str], defaults: BrokerConfig | None
) -> dict[str, ConfigValue]:
    """The value in force of every topic key, by name."""
    values = topic_defaults(defaults)
    for name, text in overrides.items():
        values[name] = TOPIC_TABLE[name].parse(text)
    return values


def topic_defaults(broker: BrokerConfig | None) -> dict[str, ConfigValue]:
    """What a topic without settings of its own gets from its broker."""
    values = {name: key.default_value for name, key in TOPIC_TABLE.keys.items()}
    if broker is None:
        return values
    for name, key in TOPIC_TABLE.keys.items():
        for synonym in key.synonyms:
            value = broker.get(synonym)
            if value is not None:
                values[name] = in_topic_unit(synonym, value)
                break
    return values


def in_topic_unit(synonym: str, value: ConfigValue) -> ConfigValue:
    """The value of a broker key as the topic key states it, which knows milliseconds only."""
    unit_ms = SYNONYM_UNIT_MS.get(synonym, 1)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    # Any negative retention is for ever; -1 hour must not become a number below -1.
    if value < 0 and synonym in TOPIC_TABLE["retention.ms"].synonyms:
        return -1
    return value * unit_ms


def check_values(values: Mapping[str, ConfigValue], *, is_tiering_possible: bool) -> None:
    """The rules between the keys of one topic, as Apache Kafka has them."""

    def number(name: str) -> int:
        value = values[name]
        return value if isinstance(value, int) else 0

    if number("min.compaction.lag.ms") > number("max.compaction.lag.ms"):
        raise ConfigError(
            f"min.compaction.lag.ms must not be more than max.compaction.lag.ms: "
            f"{number('min.compaction.lag.ms')} is more than {number('max.compaction.lag.ms')}"
        )
    if not values["remote.storage.enable"]:
        return
    if not is_tiering_possible:
        raise ConfigError(
            "remote.storage.enable must be false, as the broker has no tiered storage"
        )
    policy = values["cleanup.policy"]
    if policy not in (("delete",), ()):
        raise ConfigError("remote.storage.enable must be false for a topic that is compacted")
    for subject in ("bytes", "ms"):
        local, whole = number(f"local.retention.{subject}"), number(f"retention.{subject}")
        if local == FOLLOW_RETENTION:
            continue
        if values["remote.log.copy.disable"] and local != whole:
            raise ConfigError(
                f"local.retention.{subject} must equal retention.{subject} "
                "while remote.log.copy.disable is true"
            )
        if whole != -1 and (local == -1 or local > whole):
            raise ConfigError(
                f"local.retention.{subject} must not be more than retention.{subject}: "
                f"{local} is more than {whole}"
            )
