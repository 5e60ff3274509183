"""What a configuration key is, and how its text becomes a value. Pure.

Every value reaches Ottla as text: from server.properties, from CreateTopics, from
AlterConfigs, from the metadata log. Python's own converters are too kind for that
(`int("1_000")`, `float("nan ")`, `bool("no")`), so a value that Apache Kafka refuses could
be stored here and then stop a Kafka broker that reads the same metadata. `ConfigKey.parse`
accepts exactly what Kafka's ConfigDef accepts, and its refusals are one sentence that names
the key and what would have been allowed.

Invariant: `key.parse(render(value)) == value` for every value that `parse` returned.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final, Protocol

from ottla.protocol.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...] | None

PORT_MAX: Final = 65535
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

# Values in error messages are cut: a message must not grow with what a stranger sent.
SHOWN_CHARACTERS_MAX: Final = 100


class ConfigError(KafkaError):
    """A configuration that is refused, in one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class ConfigType(IntEnum):
    """The types of DescribeConfigs, with the numbers that it carries."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where DescribeConfigs says that a value comes from."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    READ_ONLY = "read-only"  # only by a restart
    PER_BROKER = "per-broker"  # for one broker by its id
    CLUSTER_WIDE = "cluster-wide"  # for one broker, or for all of them as their default


class Validator(Protocol):
    def allows(self, value: ConfigValue) -> bool: ...

    def describe(self) -> str:
        """What is allowed, to follow the word "must"."""


@dataclass(frozen=True, slots=True)
class Between:
    """Both ends included; None is no end."""

    low: int | float
    high: int | float | None = None

    def allows(self, value: ConfigValue) -> bool:
        if not isinstance(value, int | float):
            return False
        # Phrased so that NaN is refused.
        return value >= self.low and (self.high is None or value <= self.high)

    def describe(self) -> str:
        if self.high is None:
            return f"be at least {self.low}"
        return f"be between {self.low} and {self.high}"


@dataclass(frozen=True, slots=True)
class OneOf:
    names: tuple[str, ...]
    ignore_case: bool = False

    def allows(self, value: ConfigValue) -> bool:
        if not isinstance(value, str):
            return False
        if self.ignore_case:
            return value.upper() in {name.upper() for name in self.names}
        return value in self.names

    def describe(self) -> str:
        return f"be one of {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Elements:
    """A list without empty elements; of `names` only, where those are given.

    A repeated element counts once.
    """

    names: tuple[str, ...] = ()
    may_be_empty: bool = True

    def allows(self, value: ConfigValue) -> bool:
        if value is None:
            return True
        if not isinstance(value, tuple):
            return False
        if not value:
            return self.may_be_empty
        return "" not in value and (not self.names or all(name in self.names for name in value))

    def describe(self) -> str:
        if self.names:
            return f"be a list out of {', '.join(self.names)}"
        if self.may_be_empty:
            return "be a list without empty elements"
        return "be a list of at least one element and no empty one"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    def allows(self, value: ConfigValue) -> bool:
        return value is None or bool(value)

    def describe(self) -> str:
        return "not be empty"


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """1 to 9, or -1 for the codec's own default; 0 would store without compressing."""

    def allows(self, value: ConfigValue) -> bool:
        return value == -1 or (isinstance(value, int) and 1 <= value <= 9)

    def describe(self) -> str:
        return "be between 1 and 9, or -1"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or pairs of partition:broker."""

    def allows(self, value: ConfigValue) -> bool:
        if not isinstance(value, tuple):
            return False
        if value == ("*",):
            return True
        return all(re.fullmatch(r"[0-9]+:[0-9]+", pair) for pair in value)

    def describe(self) -> str:
        return "be * or a list of partition:broker pairs"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Elements of the form host:port."""

    def allows(self, value: ConfigValue) -> bool:
        return isinstance(value, tuple) and all(map(_is_endpoint, value))

    def describe(self) -> str:
        return "be a list of host:port"


@dataclass(frozen=True, slots=True)
class Voters:
    """Elements of the form id@host:port."""

    def allows(self, value: ConfigValue) -> bool:
        if not isinstance(value, tuple):
            return False
        parts = [voter.partition("@") for voter in value]
        return all(_VOTER_ID.fullmatch(node_id) and _is_endpoint(at) for node_id, _, at in parts)

    def describe(self) -> str:
        return "be a list of id@host:port"


_ENDPOINT: Final = re.compile(r"\[?[0-9a-zA-Z\-%._:]+\]?:([0-9]{1,5})", re.ASCII)
_VOTER_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


def _is_endpoint(text: str) -> bool:
    match = _ENDPOINT.fullmatch(text)
    return match is not None and int(match[1]) <= PORT_MAX


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """`latest`, `earliest`, or `by_duration:` with an ISO 8601 duration of days and less."""

    def allows(self, value: ConfigValue) -> bool:
        if not isinstance(value, str):
            return False
        return value in ("latest", "earliest") or _BY_DURATION.fullmatch(value) is not None

    def describe(self) -> str:
        return "be latest, earliest or by_duration:PnDTnHnMn.nS"


_BY_DURATION: Final = re.compile(
    r"by_duration:P(?=[0-9T])(?:[0-9]+D)?"
    r"(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


class Required(Enum):
    """Stands in the place of a default where there is none."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: ConfigValue | Required
    validator: Validator | None
    importance: Importance
    documentation: str
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[str, ...] = ()  # the broker keys that give a topic or group key its value
    used: bool = False  # whether Ottla obeys it
    internal: bool = False  # known and obeyed, but not shown by DescribeConfigs

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def default_value(self) -> ConfigValue:
        """The default, or ConfigError for a key that must be given."""
        if self.default is REQUIRED:
            raise ConfigError(f"{self.name} is missing and has no default")
        return self.default

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for, or ConfigError."""
        try:
            value = _convert(self.type, text)
        except ValueError:
            raise self._refusal(text, f"be {_TYPE_NAMES[self.type]}") from None
        if isinstance(self.validator, Elements) and isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))
        if self.validator is not None and not self.validator.allows(value):
            raise self._refusal(text, self.validator.describe())
        return value

    def _refusal(self, text: str, allowed: str) -> ConfigError:
        shown = "[hidden]" if self.is_sensitive else repr(text[:SHOWN_CHARACTERS_MAX])
        return ConfigError(f"{self.name} must {allowed}, not {shown}")


_TYPE_NAMES: Final[Mapping[ConfigType, str]] = MappingProxyType(
    {
        ConfigType.BOOLEAN: "true or false",
        ConfigType.STRING: "text",
        ConfigType.INT: "an integer of 32 bits",
        ConfigType.SHORT: "an integer of 16 bits",
        ConfigType.LONG: "an integer of 64 bits",
        ConfigType.DOUBLE: "a number",
        ConfigType.LIST: "a list separated by commas",
        ConfigType.CLASS: "the name of a class",
        ConfigType.PASSWORD: "text",
    }
)
_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DOUBLE: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<word>[+-]?(?:NaN|Infinity))",
    re.ASCII,
)
_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
# String.trim() of Java takes every control character, not only white space.
_TRIMMED: Final = "".join(map(chr, range(33)))


def _convert(config_type: ConfigType, text: str) -> ConfigValue:
    trimmed = text.strip(_TRIMMED)
    if config_type in (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD):
        return trimmed
    if config_type is ConfigType.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise ValueError(trimmed)
        return trimmed.lower() == "true"
    if config_type is ConfigType.LIST:
        return parse_list(trimmed)
    if config_type is ConfigType.DOUBLE:
        return _parse_double(trimmed)
    bits = _INTEGER_BITS[config_type]
    if _INTEGER.fullmatch(trimmed) is None:
        raise ValueError(trimmed)
    number = int(trimmed)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(trimmed)
    return number


def _parse_double(text: str) -> float:
    match = _DOUBLE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return float(match["number"] or match["word"])


def parse_list(text: str) -> tuple[str, ...]:
    """The elements between commas; no element at all in an empty text."""
    trimmed = text.strip(_TRIMMED)
    return tuple(_COMMA.split(trimmed)) if trimmed else ()


def render(value: ConfigValue) -> str | None:
    """The text that Apache Kafka shows for `value`; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _render_double(value)
    return str(value)


def _render_double(value: float) -> str:
    """Java's Double.toString: plain between 0.001 and 10,000,000, else like 1.0E10."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        sign = "-" if value < 0 else ""
        digits, _, fraction = mantissa.lstrip("-").partition(".")
        if digits == "0":
            significant = fraction.lstrip("0")
            power = -(len(fraction) - len(significant) + 1)
        else:
            significant = (digits + fraction).rstrip("0") if fraction == "0" else digits + fraction
            power = len(digits) - 1
        return f"{sign}{significant[0]}.{significant[1:] or '0'}E{power}"
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant."""
    found = get_close_matches(name[:SHOWN_CHARACTERS_MAX], known, n=1, cutoff=0.8)
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class ConfigTable:
    """The keys of one kind of resource, by name, in order of their names."""

    title: str
    keys: Mapping[str, ConfigKey] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, *groups: Iterable[ConfigKey]) -> "ConfigTable":
        keys: dict[str, ConfigKey] = {}
        for key in sorted((key for group in groups for key in group), key=lambda key: key.name):
            if key.name in keys:
                raise ValueError(f"{key.name} is defined twice among the {title}")
            keys[key.name] = key
        return cls(title, MappingProxyType(keys))

    def __getitem__(self, name: str) -> ConfigKey:
        key = self.keys.get(name)
        if key is None:
            shown = name[:SHOWN_CHARACTERS_MAX]
            nearest = nearest_name(name, self.keys)
            hint = f": did you mean '{nearest}'?" if nearest else ""
            raise ConfigError(f"unknown key '{shown}' among the {self.title}{hint}")
        return key
