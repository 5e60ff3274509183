"""AlterConfigs: replace all settings of a resource by those given.

Versions 0 to 2. Superseded by IncrementalAlterConfigs, which older clients do not know.
"""

from typing import Any

from ottla.metadata.configs import decide_alter_configs
from ottla.metadata.image import ConfigResource
from ottla.server.config_schema import BrokerConfigSchema
from ottla.server.dispatch import Call, Fields
from ottla.server.handlers.incremental_alter_configs import answer
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    wanted = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    schema = BrokerConfigSchema(services.config)
    altered = await services.metadata.submit(
        lambda image: decide_alter_configs(
            image, wanted, schema=schema, validate_only=request.validate_only
        )
    )
    return {
        "responses": [
            answer(
                result.resource.type, result.resource.name, result.error_code, result.error_message
            )
            for result in altered
        ]
    }
