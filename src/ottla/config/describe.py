"""What DescribeConfigs shows: each value, where it comes from and what lies beneath it. Pure.

A value alone does not tell an operator what happens when it is deleted; the synonyms do. They
are the candidates for the value in the order in which they count: the resource's own setting,
then the broker key altered for this broker, altered for all, given in server.properties, and
its default, where several broker keys (milliseconds, minutes, hours) may stand in each row.

Like Apache Kafka, the candidates before the key's own name are dropped: a broker that has
only log.roll.hours shows segment.ms with the right value, no synonyms and DEFAULT_CONFIG.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, broker_synonyms, update_mode
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.definitions import (
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigType,
    ConfigValue,
    UpdateMode,
    render,
)
from ottla.config.dynamic import check_logger_resource, find_key, group_values
from ottla.config.resource_tables import CLIENT_METRICS_TABLE, GROUP_TABLE
from ottla.config.resources import ConfigResourceType
from ottla.config.topic import topic_defaults
from ottla.config.topic_table import TOPIC_TABLE
from ottla.protocol.errors import ErrorCode, KafkaError


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


class Descriptions:
    """The resources as one broker config lets them be seen.

    Most topics have no settings of their own and look alike, and a broker has hundreds of keys;
    what depends on the broker config alone is worked out once.
    """

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker

    def describe(
        self,
        resource_type: ConfigResourceType,
        resource_name: str,
        *,
        settings: Mapping[str, str],
        names: Collection[str] | None = None,
        logger_levels: Mapping[str, str] | None = None,
    ) -> Sequence[ConfigEntry]:
        """The entries in order of their names, only of `names` where any are given; or KafkaError.

        `settings` are those of the resource in the metadata; those of the broker itself are in
        its config already. That a topic exists is for the caller to know.
        """
        if resource_type is ConfigResourceType.TOPIC:
            entries = self.topic(settings)
        elif resource_type is ConfigResourceType.BROKER:
            entries = self._broker_resource(resource_name, settings)
        elif resource_type is ConfigResourceType.BROKER_LOGGER:
            check_logger_resource(resource_name, self._broker.node_id)
            entries = describe_loggers(logger_levels or {})
        elif resource_type is ConfigResourceType.CLIENT_METRICS:
            _require_name(resource_name, "a client metrics subscription")
            entries = describe_client_metrics(settings)
        else:
            _require_name(resource_name, "a group")
            entries = describe_group(settings, self._broker)
        if names:
            wanted = frozenset(names)
            return [entry for entry in entries if entry.name in wanted]
        return entries

    def topic(self, settings: Mapping[str, str]) -> Sequence[ConfigEntry]:
        """A topic with these settings; the very same sequence for all that have none."""
        return describe_topic(settings, self._broker) if settings else self._plain_topic

    @cached_property
    def _plain_topic(self) -> Sequence[ConfigEntry]:
        return tuple(describe_topic({}, self._broker))

    @cached_property
    def _this_broker(self) -> Sequence[ConfigEntry]:
        return tuple(describe_broker(self._broker))

    def _broker_resource(
        self, resource_name: str, settings: Mapping[str, str]
    ) -> Sequence[ConfigEntry]:
        if resource_name == "":
            return describe_broker_default(settings)
        if resource_name != str(self._broker.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"broker {self._broker.node_id} can describe itself or the default, not another "
                "broker",
            )
        return self._this_broker


def _require_name(resource_name: str, noun: str) -> None:
    if resource_name == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{noun} must be named")


def _in_order(entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    return sorted(entries, key=lambda entry: entry.name)


def _entry(
    key: ConfigKey,
    value: ConfigValue,
    synonyms: tuple[Synonym, ...],
    *,
    name: str | None = None,
    is_read_only: bool = False,
) -> ConfigEntry:
    return ConfigEntry(
        name=name or key.name,
        value=None if key.is_sensitive else render(value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=is_read_only,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        type=key.type,
        documentation=key.documentation,
    )


def _parsed(key: ConfigKey, text: str) -> ConfigValue:
    """The value, or the text itself where another version wrote what is refused here."""
    try:
        return key.parse(text)
    except ConfigError:
        return text


def broker_candidates(
    name: str, broker: BrokerConfig, *, is_sensitive: bool
) -> tuple[Synonym, ...]:
    """Where the value of a broker key may come from, what counts first in front."""
    group = broker_synonyms(name)
    found: list[Synonym] = []
    for texts, source in (
        (broker.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    ):
        found += [
            Synonym(other, None if is_sensitive else texts[other], source)
            for other in group
            if other in texts
        ]
    for other in group:
        key = BROKER_TABLE.keys.get(other)
        if key is not None and isinstance(key.default, bool | int | float | str | tuple):
            default = None if is_sensitive else render(key.default)
            found.append(Synonym(other, default, ConfigSource.DEFAULT_CONFIG))
    for position, synonym in enumerate(found):
        if synonym.name == name:
            return tuple(found[position:])
    return ()


def describe_topic(settings: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    defaults = topic_defaults(broker)
    entries = []
    for name, key in TOPIC_TABLE.keys.items():
        if key.internal and name not in settings:
            continue
        beneath: tuple[Synonym, ...] = ()
        if key.synonyms:
            beneath = broker_candidates(key.synonyms[0], broker, is_sensitive=False)
        if name in settings:
            value = _parsed(key, settings[name])
            own = Synonym(name, render(value), ConfigSource.TOPIC_CONFIG)
            entries.append(_entry(key, value, (own, *beneath)))
        else:
            entries.append(_entry(key, defaults[name], beneath))
    return _in_order(entries)


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """Every key that is not internal, and whatever else was given or altered."""
    given = broker.static.keys() | broker.dynamic_default.keys() | broker.dynamic.keys()
    shown = {name for name, key in BROKER_TABLE.keys.items() if not key.internal} | given
    return _in_order(_describe_broker_key(name, broker) for name in shown)


def _describe_broker_key(name: str, broker: BrokerConfig) -> ConfigEntry:
    key = find_key(ConfigResourceType.BROKER, name)
    is_read_only = update_mode(name) is UpdateMode.READ_ONLY
    if key is None:
        # Whether it is a secret is not known, so it is treated as one.
        return _unknown_entry(name, broker_candidates(name, broker, is_sensitive=True))
    candidates = broker_candidates(name, broker, is_sensitive=key.is_sensitive)
    if name in BROKER_TABLE.keys:
        return _entry(key, broker.get(name), candidates, is_read_only=is_read_only)
    text = candidates[0].value if candidates else None
    value = None if text is None else _parsed(key, text)
    if name != key.name:
        return _entry(key, value, candidates, name=name, is_read_only=True)._replace(
            documentation=None
        )
    return _entry(key, value, candidates, is_read_only=is_read_only)


def _unknown_entry(name: str, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=None,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=True,
        is_sensitive=True,
        synonyms=synonyms,
        type=ConfigType.UNKNOWN,
        documentation=None,
    )


def describe_broker_default(settings: Mapping[str, str]) -> list[ConfigEntry]:
    """Only what was altered for all brokers together."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, text in settings.items():
        key = find_key(ConfigResourceType.BROKER, name)
        if key is None:
            entries.append(_unknown_entry(name, (Synonym(name, None, source),)))
            continue
        own = Synonym(name, None if key.is_sensitive else text, source)
        is_read_only = name != key.name or update_mode(name) is UpdateMode.READ_ONLY
        value = _parsed(key, text)
        entries.append(_entry(key, value, (own,), name=name, is_read_only=is_read_only))
    return _in_order(entries)


def describe_loggers(levels: Mapping[str, str]) -> list[ConfigEntry]:
    return _in_order(
        ConfigEntry(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_read_only=False,
            is_sensitive=False,
            synonyms=(),
            type=ConfigType.UNKNOWN,
            documentation="",
        )
        for name, level in levels.items()
    )


def describe_client_metrics(settings: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, key in CLIENT_METRICS_TABLE.keys.items():
        if name in settings:
            value = _parsed(key, settings[name])
            own = Synonym(name, render(value), ConfigSource.CLIENT_METRICS_CONFIG)
            entries.append(_entry(key, value, (own,)))
        else:
            entries.append(_entry(key, key.default_value, ()))
    return _in_order(entries)


def describe_group(settings: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    defaults = group_values({}, broker)
    entries = []
    for name, key in GROUP_TABLE.keys.items():
        if key.synonyms:
            beneath = broker_candidates(key.synonyms[0], broker, is_sensitive=False)
        else:
            default = render(key.default_value)
            beneath = (Synonym(name, default, ConfigSource.DEFAULT_CONFIG),)
        if name in settings:
            value = _parsed(key, settings[name])
            own = Synonym(name, render(value), ConfigSource.GROUP_CONFIG)
            entries.append(_entry(key, value, (own, *beneath)))
        else:
            entries.append(_entry(key, defaults[name], beneath))
    return _in_order(entries)
