"""What a decision about a consumer group may look at besides the group. Pure data."""

from typing import NamedTuple

from ottla.coordinators.group.effects import Moment
from ottla.metadata.image import MetadataImage


class ConsumerGroupSettings(NamedTuple):
    """Settings of the broker and of the group, as they are now."""

    assignors: tuple[str, ...] = ("uniform", "range")  # the first is used unless members ask
    size_max: int = 2**31 - 1
    classic_size_max: int = 2**31 - 1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    regex_refresh_interval_ms: int = 600_000
    may_upgrade: bool = True
    may_downgrade: bool = True


class Context(NamedTuple):
    """The instant at which something is decided."""

    now: Moment
    image: MetadataImage
    settings: ConsumerGroupSettings
