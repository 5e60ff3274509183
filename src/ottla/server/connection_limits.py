"""How many connections the broker takes: in all, on a listener, from one address, in a second.

As in Apache Kafka, who comes when all places are taken, or too many came within a few seconds,
waits; who comes from an address that has its share is turned away. The listener on which other
brokers come waits for no place that clients have taken.

Pure: the caller gives the time and performs the waiting.
"""

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

# So many seconds' worth of connections may come at once; Kafka looks at as many.
BURST_SECONDS = 10.0
NO_LIMIT = 2**31 - 1


class ListenerLimits(NamedTuple):
    connections_max: int = NO_LIMIT
    per_second_max: int = NO_LIMIT


class LimitSettings(NamedTuple):
    """The configuration as it is now."""

    whole: ListenerLimits = ListenerLimits()
    per_host_max: int = NO_LIMIT
    hosts: Mapping[str, int] = {}  # addresses that have a limit of their own
    listeners: Mapping[str, ListenerLimits] = {}
    protected_listener: str | None = None


class _Bucket:
    """Tokens for connections, refilled at a rate."""

    __slots__ = ("_full_at", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._full_at = -inf  # when all that was taken will have been refilled

    def seconds_until_token(self, now: float) -> float:
        if not self.rate:
            return inf
        return max(0.0, self._full_at - now + 1 / self.rate - BURST_SECONDS)

    def take(self, now: float) -> None:
        if self.rate:
            self._full_at = max(self._full_at, now) + 1 / self.rate


class ConnectionLimits:
    def __init__(self, settings: LimitSettings | None = None) -> None:
        self._settings = settings or LimitSettings()
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._buckets: dict[str | None, _Bucket] = {}

    @property
    def total(self) -> int:
        return self._by_listener.total()

    def update(self, settings: LimitSettings) -> None:
        self._settings = settings

    def is_host_full(self, host: str) -> bool:
        settings = self._settings
        return self._by_host[host] >= settings.hosts.get(host, settings.per_host_max)

    def seconds_until_room(self, listener: str, now: float) -> float:
        """When one more may be taken: 0 if now, infinite if somebody must leave first."""
        if self.excess(listener, 1) > 0:
            return inf
        return max(bucket.seconds_until_token(now) for bucket in self._buckets_of(listener))

    def excess(self, listener: str, more: int = 0) -> int:
        """How many connections a listener would have too many with so many more."""
        settings = self._settings
        limits = settings.listeners.get(listener, ListenerLimits())
        excess = self._by_listener[listener] + more - limits.connections_max
        if listener != settings.protected_listener:
            excess = max(excess, self.total + more - settings.whole.connections_max)
        return max(excess, 0)

    def take(self, listener: str, host: str, now: float) -> None:
        self._by_listener[listener] += 1
        self._by_host[host] += 1
        for bucket in self._buckets_of(listener):
            bucket.take(now)

    def give_back(self, listener: str, host: str) -> None:
        self._by_listener[listener] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _buckets_of(self, listener: str) -> list[_Bucket]:
        limits = self._settings.listeners.get(listener, ListenerLimits())
        found = []
        for key, rate in ((None, self._settings.whole), (listener, limits)):
            bucket = self._buckets.setdefault(key, _Bucket(rate.per_second_max))
            bucket.rate = rate.per_second_max
            found.append(bucket)
        return found
