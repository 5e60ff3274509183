"""What the broker's configuration says of connections, with host names resolved.

`listener.name.NAME.max.connections` and `.max.connection.creation.rate` count for one listener,
the keys without a prefix for all together.
"""

import logging

from ottla.config.broker import BrokerConfig
from ottla.runtime.interfaces import Network
from ottla.server.connection_limits import NO_LIMIT, LimitSettings, ListenerLimits

log = logging.getLogger(__name__)


async def limit_settings(
    network: Network, config: BrokerConfig, *, connections_max: int
) -> LimitSettings:
    """The limits in force; never more than `connections_max` connections."""
    hosts: dict[str, int] = {}
    for host, limit in config.max_connections_per_ip_overrides.items():
        try:
            addresses = await network.resolve(host)
        except OSError as error:
            log.warning("max.connections.per.ip.overrides names %s: %s", host, error)
            continue
        hosts.update(dict.fromkeys(addresses, limit))
    names = [listener.name for listener in config.listeners]
    return LimitSettings(
        ListenerLimits(
            min(config.max_connections, connections_max), config.max_connection_creation_rate
        ),
        config.max_connections_per_ip,
        hosts,
        {name: _listener_limits(config, name) for name in names},
        # With one listener for clients there is nobody to be protected from.
        config.inter_broker_listener_name if len(config.broker_listeners) > 1 else None,
    )


def _listener_limits(config: BrokerConfig, name: str) -> ListenerLimits:
    prefix = f"listener.name.{name.lower()}"
    return ListenerLimits(
        _given(config, f"{prefix}.max.connections"),
        _given(config, f"{prefix}.max.connection.creation.rate"),
    )


def _given(config: BrokerConfig, key: str) -> int:
    for source in (config.dynamic, config.dynamic_default, config.static):
        if key in source:
            return int(source[key])
    return NO_LIMIT
