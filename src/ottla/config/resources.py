"""Whose settings are meant, and what a request does to one of them. Pure data.

The numbers are those of the protocol and of the metadata log.
"""

from enum import IntEnum
from typing import NamedTuple


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int  # one of ConfigOperation, if the client knows what it does
    value: str | None
