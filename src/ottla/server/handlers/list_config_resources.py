"""ListConfigResources: names of the resources that can hold configuration.

Versions 0 and 1. Version 0 (once ListClientMetricsResources) knows client metrics only; from
version 1 on an empty list of types asks for all.
"""

from typing import Any

from ottla.config.resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


def handle(services: Services, call: Call, request: Any) -> Fields:
    types = [ConfigResourceType.CLIENT_METRICS]
    if call.version >= 1:
        asked = given(request, "resource_types", ())
        types = list(dict.fromkeys(asked or ConfigResourceType))
        if not set(types) <= set(ConfigResourceType):
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    return {
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in types
            for name in _names(services, kind)
        ],
    }


def _names(services: Services, kind: int) -> list[str]:
    image = services.image
    if kind == ConfigResourceType.TOPIC:
        return sorted(image.topics)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.type == kind)
