"""IncrementalAlterConfigs: set, delete, append to and subtract from single keys.

Versions 0 and 1. Levels of loggers change in this process alone; all else is decided by the
controller and committed.
"""

from typing import Any

from ottla.config.dynamic import apply_logger_changes, check_logger_resource
from ottla.config.resources import ConfigChange, ConfigResourceType
from ottla.metadata.configs import ResourceChange, decide_incremental_alter_configs
from ottla.metadata.image import ConfigResource
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.config_schema import BrokerConfigSchema
from ottla.server.dispatch import Call, Fields
from ottla.server.log_levels import logger_levels, set_levels
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    answers: list[Fields] = []
    changes: list[ResourceChange] = []
    for resource in request.resources:
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            answers.append(_alter_loggers(services, resource, request.validate_only))
        else:
            changes.append(
                ResourceChange(
                    ConfigResource(resource.resource_type, resource.resource_name),
                    _changes(resource),
                )
            )
    schema = BrokerConfigSchema(services.config)
    altered = await services.metadata.submit(
        lambda image: decide_incremental_alter_configs(
            image, changes, schema=schema, validate_only=request.validate_only
        )
    )
    for result in altered:
        answers.append(
            answer(
                result.resource.type, result.resource.name, result.error_code, result.error_message
            )
        )
    return {"responses": answers}


def _changes(resource: Any) -> list[ConfigChange]:
    return [
        ConfigChange(config.name, config.config_operation, config.value)
        for config in resource.configs
    ]


def answer(kind: int, name: str, code: ErrorCode, message: str | None) -> Fields:
    return {
        "resource_type": kind,
        "resource_name": name,
        "error_code": code,
        "error_message": message,
    }


def _alter_loggers(services: Services, resource: Any, validate_only: bool) -> Fields:
    try:
        check_logger_resource(resource.resource_name, services.broker_id)
        levels = apply_logger_changes(logger_levels(), _changes(resource))
    except KafkaError as error:
        return answer(resource.resource_type, resource.resource_name, error.code, error.message)
    if not validate_only:
        set_levels(levels)
    return answer(resource.resource_type, resource.resource_name, ErrorCode.NONE, None)
