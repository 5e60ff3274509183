"""The broker's loggers under the levels that Kafka's tools know (BROKER_LOGGER resources).

A change lasts until the broker stops, as in Kafka: levels are not part of the metadata.
"""

import logging
from collections.abc import Mapping

ROOT = "root"
_TO_PYTHON = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
_FROM_PYTHON = {level: name for name, level in reversed(_TO_PYTHON.items())}


def logger_levels() -> dict[str, str]:
    """Every logger of the broker with the level that counts for it."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("ottla")]
    levels = {name: logging.getLogger(name).getEffectiveLevel() for name in sorted(names)}
    levels[ROOT] = logging.root.level
    return {name: _FROM_PYTHON.get(level, "INFO") for name, level in levels.items()}


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Give loggers these levels; None lets one follow its parent again."""
    for name, level in levels.items():
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else _TO_PYTHON[level])
