"""Settings of anything that has settings: described with documentation, altered one by one.

librdkafka knows topics, brokers and groups only and never asks for documentation, so these
questions go over `ottla.client`. Blocking shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ottla.cli.errors import CliError, ExitCode, exit_code_of, sentence

if TYPE_CHECKING:
    from ottla.client import Client

# The default of all brokers, which Kafka names with nothing at all.
DEFAULT = "default"

RESOURCE_TYPES = {
    "topic": 2,
    "broker": 4,
    "broker-logger": 8,
    "client-metrics": 16,
    "group": 32,
}
# What Kafka's admin client calls the places where a value may come from, by their numbers.
SOURCES = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
TYPES = (
    "UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
)  # fmt: skip


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Change = tuple[str, Operation, str | None]


@dataclass(frozen=True, slots=True)
class Entity:
    """Whose settings: a kind, and the name that a person gives it."""

    kind: str
    name: str

    def __str__(self) -> str:
        if self.is_default:
            return "the default of all brokers"
        return (
            f"{self.kind} {self.name}" if self.node_id is not None else f"{self.kind} '{self.name}'"
        )

    @property
    def is_default(self) -> bool:
        return self.kind == "broker" and self.name == DEFAULT

    @property
    def node_id(self) -> int | None:
        """The broker that must be asked; None where any one knows."""
        is_broker = self.kind in ("broker", "broker-logger") and not self.is_default
        return int(self.name) if is_broker else None

    @property
    def fields(self) -> dict[str, Any]:
        name = "" if self.is_default else self.name
        return {"resource_type": RESOURCE_TYPES[self.kind], "resource_name": name}


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    synonyms: dict[str, str | None]
    type: str
    documentation: str | None

    def is_set_on(self, kind: str) -> bool:
        """Whether somebody has set it there, rather than it being inherited."""
        if kind == "broker":
            return self.source != "DEFAULT_CONFIG"
        return self.source == f"DYNAMIC_{kind.upper().replace('-', '_')}_CONFIG"


def check_exists(client: Client, entity: Entity) -> None:
    """NOT_FOUND for a topic or broker that is not there; any group may have settings."""
    from ottla.cli.client import topic_not_found
    from ottla.protocol.errors import ErrorCode

    if entity.kind == "topic":
        found = client.metadata([entity.name]).topics.get(entity.name)
        if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_not_found(entity.name)
    elif entity.node_id is not None and entity.node_id not in client.metadata([]).brokers:
        raise CliError(
            f"There is no broker {entity.name}; 'ottla broker list' shows those there are.",
            ExitCode.NOT_FOUND,
        )


def described(client: Client, entity: Entity, *, with_documentation: bool = False) -> list[Entry]:
    """Every setting of a resource, by name."""
    from ottla.protocol.api import ApiKey
    from ottla.protocol.messages import given

    asked = {
        "resources": [{**entity.fields, "configuration_keys": None}],
        "include_synonyms": True,
        "include_documentation": with_documentation,
    }
    response = client.ask(ApiKey.DESCRIBE_CONFIGS, asked, node_id=entity.node_id)
    (result,) = response.results
    _raise_for(result.error_code, result.error_message, entity)
    entries = [
        Entry(
            config.name,
            config.value,
            _named(SOURCES, config.config_source),
            config.read_only,
            config.is_sensitive,
            {synonym.name: synonym.value for synonym in config.synonyms},
            _named(TYPES, given(config, "config_type", 0)),
            given(config, "documentation", None),
        )
        for config in result.configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


def alter(
    client: Client, entity: Entity, changes: Iterable[Change], *, validate_only: bool = False
) -> None:
    """Apply incremental changes (KIP-339)."""
    from ottla.protocol.api import ApiKey

    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    asked = {"resources": [{**entity.fields, "configs": configs}], "validate_only": validate_only}
    response = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked, node_id=entity.node_id)
    (result,) = response.responses
    _raise_for(result.error_code, result.error_message, entity)


def listed(client: Client, kinds: Sequence[str]) -> list[Entity]:
    """The resources that can have settings; before Kafka 4.1 client metrics alone can be listed."""
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey
    from ottla.protocol.messages import given

    kind_of = {RESOURCE_TYPES[kind]: kind for kind in kinds}
    is_old_enough = kinds == ["client-metrics"]
    version = client.any_connection().version_of(
        ApiKey.LIST_CONFIG_RESOURCES, lowest=0 if is_old_enough else 1
    )
    fields = {"resource_types": sorted(kind_of)}
    response = client.ask(ApiKey.LIST_CONFIG_RESOURCES, fields, version=version)
    raise_for(response.error_code, "The resources cannot be listed")
    found = [
        Entity(
            kind_of[given(one, "resource_type", RESOURCE_TYPES["client-metrics"])],
            one.resource_name,
        )
        for one in response.config_resources
    ]
    return sorted(found, key=lambda entity: (entity.kind, entity.name))


def _raise_for(number: int, message: str | None, entity: Entity) -> None:
    from ottla.client.errors import RETRIABLE, code_of, raise_for
    from ottla.protocol.errors import ErrorCode

    code = code_of(number)
    if code is ErrorCode.NONE:
        return
    if code in RETRIABLE:
        raise_for(number, str(entity), message)
    subject = str(entity)
    raise CliError(
        f"{subject[0].upper()}{subject[1:]}: {sentence(message or code.name)}",
        exit_code_of(code.name),
        error_name=code.name,
    )


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else "UNKNOWN"
