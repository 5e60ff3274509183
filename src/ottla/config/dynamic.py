"""Which settings a topic, broker, group or subscription may be given at run time. Pure.

A change must be judged by its outcome: a value can be fine alone and contradict another that was
set last year. So `validate` judges the settings as they would be, as a whole, against the
broker that they would act on. What a request makes of them is the controller's to decide.

The error codes are those of Apache Kafka, which differ by kind of resource: brokers and
most of client metrics answer INVALID_REQUEST where topics and groups answer INVALID_CONFIG.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ottla.config.broker import LISTENER_KEY, BrokerConfig, update_mode
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.definitions import (
    SHOWN_CHARACTERS_MAX,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigValue,
    UpdateMode,
)
from ottla.config.resource_tables import CLIENT_METRICS_TABLE, GROUP_TABLE, THROTTLE_TABLE
from ottla.config.resources import ConfigChange, ConfigOperation, ConfigResourceType
from ottla.config.topic import TopicConfig
from ottla.config.topic_table import TOPIC_TABLE
from ottla.protocol.errors import ErrorCode, KafkaError

LOG_LEVELS: Final = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
ROOT_LOGGER: Final = "root"

METRICS_INTERVAL_MS_MIN: Final = 100
METRICS_INTERVAL_MS_MAX: Final = 3_600_000
METRICS_MATCH_NAMES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
# Patterns are compiled for every client that connects; none needs more.
METRICS_PATTERN_CHARACTERS_MAX: Final = 1000

# Certificates may differ between listeners, so these want the prefix listener.name.<name>.
_PER_LISTENER_ONLY: Final = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)

_THREAD_POOLS: Final = frozenset(
    (
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    )
)


_TABLES: Final[Mapping[ConfigResourceType, ConfigTable]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: TOPIC_TABLE,
        ConfigResourceType.BROKER: BROKER_TABLE,
        ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_TABLE,
        ConfigResourceType.GROUP: GROUP_TABLE,
    }
)


def find_key(resource_type: ConfigResourceType, name: str) -> ConfigKey | None:
    """The definition that governs `name`, also behind a listener's prefix."""
    table = _TABLES.get(resource_type)
    if table is None:
        return None
    key = table.keys.get(name)
    if key is None and resource_type is ConfigResourceType.BROKER:
        prefixed = LISTENER_KEY.fullmatch(name)
        base = prefixed[1] if prefixed else name
        key = BROKER_TABLE.keys.get(base) or THROTTLE_TABLE.keys.get(base)
    return key


def _check_changes(changes: Sequence[ConfigChange]) -> None:
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "each config must appear once in a request")
    empty = [
        change.name
        for change in changes
        if change.value is None and change.operation != ConfigOperation.DELETE
    ]
    if empty:
        shown = ", ".join(empty)[:SHOWN_CHARACTERS_MAX]
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a value must be given for {shown}")


def validate(
    resource_type: ConfigResourceType,
    resource_name: str,
    settings: Mapping[str, str],
    *,
    broker: BrokerConfig,
) -> None:
    """Return if the resource may have these settings, all of them together; else KafkaError.

    That the topic exists, or the topic's and group's names are well formed, is not asked here.
    """
    if resource_type is ConfigResourceType.TOPIC:
        _require(resource_name != "", "a topic must be named: topics have no common default")
        TopicConfig.from_overrides(settings, broker)
    elif resource_type is ConfigResourceType.BROKER:
        _validate_broker(resource_name, settings, broker)
    elif resource_type is ConfigResourceType.CLIENT_METRICS:
        _require(resource_name != "", "a client metrics subscription must be named")
        _validate_client_metrics(settings)
    elif resource_type is ConfigResourceType.GROUP:
        _require(resource_name != "", "a group must be named: groups have no common default")
        _validate_group(settings, broker)
    else:
        _require(False, f"configs of {resource_type.name} cannot be altered this way")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, sentence)


def _validate_broker(resource_name: str, settings: Mapping[str, str], broker: BrokerConfig) -> None:
    is_default = resource_name == ""
    if not is_default:
        _require(
            resource_name.isascii() and resource_name.isdigit(),
            f"a broker must be named by its id, not '{resource_name[:SHOWN_CHARACTERS_MAX]}'",
        )
    modes = {name: update_mode(name) for name in settings}
    fixed = sorted(name for name, mode in modes.items() if mode is UpdateMode.READ_ONLY)
    _require(not fixed, f"only a restart can change {', '.join(fixed)}")
    unprefixed = sorted(_PER_LISTENER_ONLY & settings.keys())
    _require(
        not unprefixed,
        f"the prefix listener.name.<name>. is needed to alter {', '.join(unprefixed)}",
    )
    per_broker = sorted(name for name, mode in modes.items() if mode is UpdateMode.PER_BROKER)
    _require(
        not is_default or not per_broker,
        f"only a single broker, by its id, can be given {', '.join(per_broker)}",
    )
    try:
        for name, text in settings.items():
            key = find_key(ConfigResourceType.BROKER, name)
            if key is not None:
                value = key.parse(text)
                if name in _THREAD_POOLS and not _is_set(name, text, broker):
                    _check_pool_size(name, _number(value), _number(broker.get(name)))
        if is_default:
            broker.altered(default=settings, broker=broker.dynamic)
        elif resource_name == str(broker.node_id):
            broker.altered(default=broker.dynamic_default, broker=settings)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None


def _is_set(name: str, text: str, broker: BrokerConfig) -> bool:
    return text in (broker.dynamic.get(name), broker.dynamic_default.get(name))


def _check_pool_size(name: str, wanted: int, current: int) -> None:
    """Kafka lets a pool of threads at most double or halve in one step."""
    if not current // 2 <= wanted <= current * 2:
        raise ConfigError(
            f"{name} is {current}: it can be changed to {current // 2} at least and"
            f" {current * 2} at most, not {wanted}"
        )


def _validate_client_metrics(settings: Mapping[str, str]) -> None:
    for name, text in settings.items():
        key = CLIENT_METRICS_TABLE.keys.get(name)
        _require(
            key is not None,
            f"'{name[:SHOWN_CHARACTERS_MAX]}' is none of {', '.join(CLIENT_METRICS_TABLE.keys)}",
        )
        value = CLIENT_METRICS_TABLE[name].parse(text)
        if name == "interval.ms":
            _require(
                isinstance(value, int)
                and METRICS_INTERVAL_MS_MIN <= value <= METRICS_INTERVAL_MS_MAX,
                f"interval.ms must be between {METRICS_INTERVAL_MS_MIN} and "
                f"{METRICS_INTERVAL_MS_MAX}, not {value}",
            )
        elif name == "match" and isinstance(value, tuple):
            parse_match(value)


def parse_match(patterns: Iterable[str]) -> dict[str, "re.Pattern[str]"]:
    """Which clients a subscription means, as patterns by the client's property."""
    compiled: dict[str, re.Pattern[str]] = {}
    for text in patterns:
        name, equals, pattern = text.partition("=")
        refusal = ConfigError(
            f"match must be a list of name=pattern with names out of "
            f"{', '.join(METRICS_MATCH_NAMES)}, not '{text[:SHOWN_CHARACTERS_MAX]}'"
        )
        if not equals or name.strip() not in METRICS_MATCH_NAMES:
            raise refusal
        if len(pattern) > METRICS_PATTERN_CHARACTERS_MAX:
            raise refusal
        try:
            compiled[name.strip()] = re.compile(pattern.strip())
        except (re.error, OverflowError, RecursionError):
            raise refusal from None
    return compiled


def group_values(settings: Mapping[str, str], broker: BrokerConfig) -> dict[str, ConfigValue]:
    """The value in force of every group config; settings of other versions are left out."""
    values: dict[str, ConfigValue] = {}
    for name, key in GROUP_TABLE.keys.items():
        if name in settings:
            values[name] = key.parse(settings[name])
        elif key.synonyms:
            values[name] = broker.get(key.synonyms[0])
        else:
            values[name] = key.default_value
    return values


def _validate_group(settings: Mapping[str, str], broker: BrokerConfig) -> None:
    for name in settings:
        GROUP_TABLE[name]
    values = group_values(settings, broker)
    for name in settings:
        _check_group_bounds(name, values[name], broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session not in settings and heartbeat not in settings:
            continue
        if not _number(values[heartbeat]) < _number(values[session]):
            raise ConfigError(f"{heartbeat} must be less than {session}")


def _check_group_bounds(name: str, value: ConfigValue, broker: BrokerConfig) -> None:
    """A group may not leave the bounds that its brokers set."""
    kind, _, subject = name.partition(".")
    low_name = f"group.{kind}.min.{subject}"
    high_name = f"group.{kind}.max.{subject.removeprefix('num.')}"
    if low_name in BROKER_TABLE.keys and _number(value) < _number(broker.get(low_name)):
        raise ConfigError(
            f"{name} must be at least {low_name}, which is {broker.get(low_name)}, not {value}"
        )
    if high_name in BROKER_TABLE.keys and _number(value) > _number(broker.get(high_name)):
        raise ConfigError(
            f"{name} must be at most {high_name}, which is {broker.get(high_name)}, not {value}"
        )


def _number(value: ConfigValue) -> int:
    return value if isinstance(value, int) else 0


def apply_logger_changes(
    levels: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str | None]:
    """The levels to give to loggers, None to follow the parent again; or KafkaError."""
    _check_changes(changes)
    decided: dict[str, str | None] = {}
    for name, operation, value in changes:
        _require(
            operation in (ConfigOperation.SET, ConfigOperation.DELETE),
            "the level of a logger can be set or deleted, nothing else",
        )
        if name not in levels:
            raise ConfigError(f"there is no logger '{name[:SHOWN_CHARACTERS_MAX]}'")
        if operation == ConfigOperation.DELETE:
            _require(name != ROOT_LOGGER, "the root logger must have a level")
            decided[name] = None
            continue
        if value not in LOG_LEVELS:
            raise ConfigError(
                f"the level of {name} must be one of {', '.join(LOG_LEVELS)}, "
                f"not '{(value or '')[:SHOWN_CHARACTERS_MAX]}'"
            )
        decided[name] = value
    return decided


def check_logger_resource(resource_name: str, node_id: int) -> None:
    """A logger lives in one broker, which only that broker can change or show."""
    _require(
        resource_name == str(node_id),
        f"broker {node_id} cannot speak for the loggers of "
        f"'{resource_name[:SHOWN_CHARACTERS_MAX]}'",
    )
