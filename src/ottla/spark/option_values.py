"""How options of a read or a write are spelled and understood, whatever they mean. Pure.

Names are not case-sensitive. What goes to the client is spelled with the prefix `kafka.`, as Spark
has it, or without, as Kafka has it; with the prefix it wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from ottla.client.config import PROPERTIES, ClientConfig
from ottla.protocol.errors import KafkaError

T = TypeVar("T")

NUMBER_MAX = 2**63 - 1
_PREFIX = "kafka."
_DURATION = re.compile(r"(\d+)\s*([a-z]+)?")
_DURATION_MS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}


class OptionError(ValueError):
    """An option that is missing, contradictory or not understood."""


class GivenOptions:
    """The options of one read or write, by the names that the documentation gives them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in options.items()}

    def raw(self, name: str) -> str | None:
        """The value as it was given."""
        lowered = name.lower()
        if lowered.startswith(_PREFIX) and lowered not in self._given:
            lowered = lowered.removeprefix(_PREFIX)
        return self._given.get(lowered)

    def text(self, name: str) -> str | None:
        """The value without blanks around it; none if nothing is left."""
        return (self.raw(name) or "").strip() or None

    def number(self, name: str, lowest: int, highest: int = NUMBER_MAX) -> int | None:
        text = self.raw(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"{name} is '{text}', not a whole number") from None
        if number < lowest:
            raise OptionError(f"{name} is {number}, but must be at least {lowest}")
        if number > highest:
            raise OptionError(f"{name} is {number}, but must be at most {highest}")
        return number

    def number_or(self, name: str, default: int, lowest: int, highest: int = NUMBER_MAX) -> int:
        number = self.number(name, lowest, highest)
        return default if number is None else number

    def positive(self, name: str) -> int | None:
        """A number above zero, refused in the words of Spark's connector."""
        text = self.raw(name)
        if text is not None and text.strip().lstrip("+-").isdecimal() and int(text) <= 0:
            raise OptionError(f"{name} must be positive")
        return self.number(name, 1)

    def boolean(self, name: str, default: bool) -> bool:
        text = (self.raw(name) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name} is '{text}', neither true nor false")
        return text == "true"

    def choice(self, name: str, choices: Mapping[str, T], default: str) -> T:
        """What the value stands for."""
        asked = (self.text(name) or default).lower()
        if asked not in choices:
            raise OptionError(f"{name} is '{asked}', not one of {', '.join(choices)}")
        return choices[asked]

    def duration_ms(self, name: str, default_ms: int, unit: str = "ms") -> int:
        """A time as Spark writes it: `15m`, `500ms`; a number alone is of the given unit."""
        text = self.raw(name)
        if text is None:
            return default_ms
        match = _DURATION.fullmatch(text.strip().lower())
        unit_ms = _DURATION_MS.get(match.group(2) or unit) if match else None
        if match is None or unit_ms is None:
            raise OptionError(f"{name} is '{text}', which is not a time such as 500ms, 30s or 15m")
        return int(match.group(1)) * unit_ms

    def kafka_properties(self, refused: Mapping[str, str]) -> dict[str, str]:
        """The client properties among the options; those of `refused` are, with their reasons."""
        properties: dict[str, str] = {}
        for name, value in self._given.items():
            if name in PROPERTIES:
                properties.setdefault(name, value)
            elif name.startswith(_PREFIX):
                properties[name.removeprefix(_PREFIX)] = value
        for name, reason in refused.items():
            if name in properties:
                raise OptionError(f"Kafka option '{name}' is not supported. {reason}")
        if not properties.get("bootstrap.servers", "").strip():
            raise OptionError(
                "Option 'kafka.bootstrap.servers' must be specified for configuring the Kafka "
                "client"
            )
        return properties


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    """How to reach the cluster; OptionError if a property cannot be obeyed."""
    try:
        return ClientConfig.from_properties(properties)
    except KafkaError as error:
        raise OptionError(f"Kafka options: {error}") from error
