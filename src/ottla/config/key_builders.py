"""How the tables of keys are written: one short call for each key, by its type. Pure."""

from typing import Final, Protocol

from ottla.config.definitions import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    Required,
    UpdateMode,
    Validator,
)

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE


class KeyBuilder(Protocol):
    def __call__(
        self,
        name: str,
        default: ConfigValue | Required,
        importance: Importance,
        documentation: str,
        *,
        validator: Validator | None = None,
        update_mode: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[str, ...] = (),
        used: bool = False,
        internal: bool = False,
    ) -> ConfigKey: ...


def _builder(config_type: ConfigType) -> KeyBuilder:
    def build(
        name: str,
        default: ConfigValue | Required,
        importance: Importance,
        documentation: str,
        *,
        validator: Validator | None = None,
        update_mode: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[str, ...] = (),
        used: bool = False,
        internal: bool = False,
    ) -> ConfigKey:
        return ConfigKey(
            name=name,
            type=config_type,
            default=default,
            validator=validator,
            importance=importance,
            documentation=documentation,
            update_mode=update_mode,
            synonyms=synonyms,
            used=used,
            internal=internal,
        )

    return build


boolean: Final = _builder(ConfigType.BOOLEAN)
string: Final = _builder(ConfigType.STRING)
integer: Final = _builder(ConfigType.INT)
short: Final = _builder(ConfigType.SHORT)
long: Final = _builder(ConfigType.LONG)
double: Final = _builder(ConfigType.DOUBLE)
listing: Final = _builder(ConfigType.LIST)
class_name: Final = _builder(ConfigType.CLASS)
password: Final = _builder(ConfigType.PASSWORD)
