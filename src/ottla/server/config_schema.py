"""What the controller asks about configuration keys, answered from the config room's tables."""

from collections.abc import Mapping

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigType, render
from ottla.config.dynamic import find_key, validate
from ottla.config.resources import ConfigResourceType
from ottla.metadata.image import ConfigResource


class BrokerConfigSchema:
    """Satisfies `metadata.configs.ConfigSchema` for one broker's defaults."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker

    def check(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        validate(ConfigResourceType(resource.type), resource.name, configs, broker=self._broker)

    def is_list(self, resource: ConfigResource, name: str) -> bool:
        key = find_key(ConfigResourceType(resource.type), name)
        return key is not None and key.type is ConfigType.LIST

    def default_value(self, resource: ConfigResource, name: str) -> str:
        key = find_key(ConfigResourceType(resource.type), name)
        return "" if key is None else render(key.default_value) or ""
