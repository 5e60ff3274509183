"""DescribeConfigs: the configuration of topics, brokers, loggers, groups and client metrics.

Versions 1 to 4. Each resource has its own error; a topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION. Synonyms and documentation come where they are asked for. A resource
that is asked for twice is described once: no client does that but to keep the broker busy.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from ottla.config.describe import ConfigEntry
from ottla.config.resources import ConfigResourceType
from ottla.metadata.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields, LongAnswer
from ottla.server.log_levels import logger_levels
from ottla.server.services import Services

# More are described in slices, so that others are served in between.
RESOURCES_PER_SLICE = 20


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields | LongAnswer]:
    writer = _Writer(
        services,
        with_synonyms=given(request, "include_synonyms", False),
        with_documentation=given(request, "include_documentation", False),
    )
    resources = list(dict.fromkeys(request.resources))
    if len(resources) <= RESOURCES_PER_SLICE:
        return {"results": [writer.result(resource) for resource in resources]}
    return _describe_many(writer, resources)


async def _describe_many(writer: "_Writer", resources: Sequence[Any]) -> LongAnswer:
    results = []
    for number, resource in enumerate(resources, 1):
        results.append(writer.result(resource))
        if number % RESOURCES_PER_SLICE == 0:
            await asyncio.sleep(0)
    return LongAnswer("results", results)


class _Writer:
    """Writes the results of one request."""

    def __init__(
        self, services: Services, *, with_synonyms: bool, with_documentation: bool
    ) -> None:
        self._services = services
        self._with_synonyms = with_synonyms
        self._with_documentation = with_documentation
        self._last: tuple[Sequence[ConfigEntry], list[Fields]] = ((), [])

    def result(self, resource: Any) -> Fields:
        answer: dict[str, Any] = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "configs": [],
        }
        try:
            answer["configs"] = self._fields(_describe(self._services, resource))
        except KafkaError as error:
            answer["error_code"] = error.code
            answer["error_message"] = error.message
        return answer

    def _fields(self, entries: Sequence[ConfigEntry]) -> list[Fields]:
        """The entries as fields; topics without settings share theirs, one after another."""
        if self._last[0] is not entries:
            self._last = (entries, [self._entry(entry) for entry in entries])
        return self._last[1]

    def _entry(self, entry: ConfigEntry) -> Fields:
        return {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "read_only": entry.is_read_only,
            "config_source": entry.source,
            "is_default": entry.is_default,
            "is_sensitive": entry.is_sensitive,
            "synonyms": [
                {"name": one.name, "value": one.value, "source": one.source}
                for one in entry.synonyms
            ]
            if self._with_synonyms
            else [],
            "config_type": entry.type,
            "documentation": entry.documentation if self._with_documentation else None,
        }


def _describe(services: Services, resource: Any) -> Sequence[ConfigEntry]:
    kind = as_resource_type(resource.resource_type)
    name = resource.resource_name
    if kind is ConfigResourceType.TOPIC:
        check_topic_name(name)
        if name not in services.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return services.configs.descriptions.describe(
        kind,
        name,
        settings=services.image.config(kind, name),
        names=resource.configuration_keys,
        logger_levels=logger_levels() if kind is ConfigResourceType.BROKER_LOGGER else None,
    )


def as_resource_type(number: int) -> ConfigResourceType:
    try:
        return ConfigResourceType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no resource type {number}") from None
