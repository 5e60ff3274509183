"""DescribeConfigs: the configuration of topics, brokers, loggers, groups and client metrics.

Versions 1 to 4. Each resource has its own error; a topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION. Synonyms and documentation come where they are asked for.
"""

from typing import Any

from ottla.config.describe import ConfigEntry, describe
from ottla.config.dynamic import ResourceType
from ottla.metadata.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.log_levels import logger_levels
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields:
    with_synonyms = given(request, "include_synonyms", False)
    with_documentation = given(request, "include_documentation", False)
    results = []
    for resource in request.resources:
        answer: dict[str, Any] = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "configs": [],
        }
        try:
            answer["configs"] = [
                _entry(entry, with_synonyms, with_documentation)
                for entry in _describe(services, resource)
            ]
        except KafkaError as error:
            answer["error_code"] = error.code
            answer["error_message"] = error.message
        results.append(answer)
    return {"results": results}


def _describe(services: Services, resource: Any) -> list[ConfigEntry]:
    kind = as_resource_type(resource.resource_type)
    name = resource.resource_name
    if kind is ResourceType.TOPIC:
        check_topic_name(name)
        if name not in services.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe(
        kind,
        name,
        settings=services.image.config(kind, name),
        broker=services.config,
        names=resource.configuration_keys,
        logger_levels=logger_levels() if kind is ResourceType.BROKER_LOGGER else None,
    )


def as_resource_type(number: int) -> ResourceType:
    try:
        return ResourceType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no resource type {number}") from None


def _entry(entry: ConfigEntry, with_synonyms: bool, with_documentation: bool) -> Fields:
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_default": entry.is_default,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": one.name, "value": one.value, "source": one.source} for one in entry.synonyms
        ]
        if with_synonyms
        else [],
        "config_type": entry.type,
        "documentation": entry.documentation if with_documentation else None,
    }
