"""How the configuration of topics, brokers, groups and client metrics is changed. Pure.

Only what was set on purpose is stored; defaults stay out of the log, so that they can change. Each
resource succeeds or fails as a whole, and is checked as it will be, not key by key, because
some keys are only valid together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.config.definitions import SHOWN_CHARACTERS_MAX
from ottla.config.resources import ConfigChange, ConfigOperation, ConfigResourceType
from ottla.metadata.decision import Decision
from ottla.metadata.features import MIN_INSYNC_REPLICAS, is_elr_enabled
from ottla.metadata.image import (
    DEFAULT_BROKER_RESOURCE,
    ConfigResource,
    MetadataImage,
)
from ottla.metadata.records import ConfigRecord, MetadataRecord
from ottla.metadata.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError

VALUE_LENGTH_MAX = 32767  # Java's short, which Kafka's own readers hold strings to


class ConfigSchema(Protocol):
    """What the config room knows about keys; handed in, as defaults are the broker's."""

    def check(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        """Raise KafkaError unless the resource may have exactly these overrides."""

    def is_list(self, resource: ConfigResource, name: str) -> bool: ...

    def default_value(self, resource: ConfigResource, name: str) -> str:
        """What holds where nothing is set, as text; empty for none."""


class ResourceChange(NamedTuple):
    resource: ConfigResource
    changes: Sequence[ConfigChange]


class AlteredResource(NamedTuple):
    resource: ConfigResource
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


def decide_incremental_alter_configs(
    image: MetadataImage,
    resources: Sequence[ResourceChange],
    *,
    schema: ConfigSchema,
    validate_only: bool = False,
) -> Decision[list[AlteredResource]]:
    """Set, delete, append to and subtract from single keys."""

    def wanted(change: ResourceChange) -> dict[str, str]:
        return _after_changes(image, change, schema)

    return _decide(image, resources, wanted, schema, validate_only)


def decide_alter_configs(
    image: MetadataImage,
    resources: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
    *,
    schema: ConfigSchema,
    validate_only: bool = False,
) -> Decision[list[AlteredResource]]:
    """Replace all overrides of a resource by those given, as AlterConfigs did before KIP-339."""
    changes = [
        ResourceChange(
            resource,
            [ConfigChange(name, ConfigOperation.SET, value) for name, value in entries],
        )
        for resource, entries in resources
    ]

    def wanted(change: ResourceChange) -> dict[str, str]:
        return {entry.name: _given_value(entry) for entry in change.changes}

    return _decide(image, changes, wanted, schema, validate_only)


class _Wanted(Protocol):
    def __call__(self, change: ResourceChange, /) -> dict[str, str]: ...


def _decide(
    image: MetadataImage,
    resources: Sequence[ResourceChange],
    wanted: _Wanted,
    schema: ConfigSchema,
    validate_only: bool,
) -> Decision[list[AlteredResource]]:
    records: list[MetadataRecord] = []
    results: list[AlteredResource] = []
    times = Counter(change.resource for change in resources)
    for change in resources:
        resource = change.resource
        try:
            if times[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names a resource twice")
            _check_resource(image, resource)
            _check_names(change)
            after = wanted(change)
            schema.check(resource, after)
            _check_values(image, resource, after)
        except KafkaError as error:
            results.append(AlteredResource(resource, error.code, error.message))
            continue
        records += _records(resource, image.configs.get(resource, {}), after)
        results.append(AlteredResource(resource))
    return Decision(() if validate_only else records, results)


def _check_resource(image: MetadataImage, resource: ConfigResource) -> None:
    name = resource.name
    match resource.type:
        case ConfigResourceType.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Topics have no common default")
            check_topic_name(name)
            if name not in image.topics:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
                )
        case ConfigResourceType.BROKER:
            if name and name not in map(str, image.brokers):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Broker '{name[:SHOWN_CHARACTERS_MAX]}' is not registered",
                )
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource has no name")
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The controller keeps no configuration for resource type {resource.type}",
            )


def _check_names(change: ResourceChange) -> None:
    times = Counter(entry.name for entry in change.changes)
    for name, count in times.items():
        if not name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "A configuration key is empty")
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is changed twice")


def _check_values(
    image: MetadataImage, resource: ConfigResource, configs: Mapping[str, str]
) -> None:
    for name, value in configs.items():
        if len(value.encode()) > VALUE_LENGTH_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The value of {name} is longer than {VALUE_LENGTH_MAX} bytes",
            )
    if resource.type != ConfigResourceType.BROKER or not is_elr_enabled(image):
        return
    # The controller compares in-sync replicas with one value for the whole cluster.
    if resource != DEFAULT_BROKER_RESOURCE and MIN_INSYNC_REPLICAS in configs:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} can be set per topic or for the cluster, not for one broker",
        )
    had = image.configs.get(DEFAULT_BROKER_RESOURCE, {})
    if (
        resource == DEFAULT_BROKER_RESOURCE
        and MIN_INSYNC_REPLICAS in had
        and MIN_INSYNC_REPLICAS not in configs
    ):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS} of the cluster cannot be removed"
        )


def _given_value(change: ConfigChange) -> str:
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} is given without a value")
    return change.value


def _after_changes(
    image: MetadataImage, change: ResourceChange, schema: ConfigSchema
) -> dict[str, str]:
    configs = dict(image.configs.get(change.resource, {}))
    for entry in change.changes:
        match entry.operation:
            case ConfigOperation.SET:
                configs[entry.name] = _given_value(entry)
            case ConfigOperation.DELETE:
                configs.pop(entry.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                configs[entry.name] = _changed_list(change.resource, entry, configs, schema)
            case unknown:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{unknown} is no operation on a configuration"
                )
    return configs


def _changed_list(
    resource: ConfigResource,
    entry: ConfigChange,
    configs: Mapping[str, str],
    schema: ConfigSchema,
) -> str:
    if not schema.is_list(resource, entry.name):
        verb = ConfigOperation(entry.operation).name
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{verb} does not apply to {entry.name}, which is not a list",
        )
    current = configs.get(entry.name)
    if current is None:
        current = schema.default_value(resource, entry.name)
    parts = _split(current)
    given = _split(_given_value(entry))
    if entry.operation == ConfigOperation.APPEND:
        parts += [part for part in given if part not in parts]
    else:
        parts = [part for part in parts if part not in given]
    return ",".join(parts)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _records(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]
) -> list[MetadataRecord]:
    """Only what differs; a removed key is written as null."""
    changed: dict[str, str | None] = {
        name: value for name, value in after.items() if before.get(name) != value
    }
    changed.update({name: None for name in before if name not in after})
    return [
        ConfigRecord(
            resource_type=resource.type, resource_name=resource.name, name=name, value=value
        )
        for name, value in changed.items()
    ]
