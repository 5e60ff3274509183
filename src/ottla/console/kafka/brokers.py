"""Which broker is asked, and over which connection.

librdkafka's admin client asks for the offsets of one group at a time, and cannot ask for the
quorum, hanging producers or the documentation of a setting at all. With five hundred groups that
is five hundred round trips for one page, so the console asks with `ottla.client` and leaves only
the writing of records to librdkafka.

A connection of `ottla.client` blocks and belongs to one thread, so each broker has one thread of
its own. A broker that let a question time out is left alone for a while: questions to all brokers
wait for each other, and one that hangs would hold up the answers of the rest each time. A cluster
is found through its bootstrap addresses and then through those that its brokers advertise. Owned by
the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ottla.client.config import Address, ClientConfig
from ottla.client.connection import Connection
from ottla.client.errors import Unreachable
from ottla.console.kafka.model import BrokerView
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError

# A page must not hang on a broker that is gone: its neighbours answer in milliseconds.
TIMEOUT_MS = 4_000
# A broker that did not answer in time is not asked again for this long.
REST_S = 8.0
CLIENT_ID = "ottla-console"

Versions = tuple[int, int]


class UnsupportedError(KafkaError):
    """This cluster does not offer an API in any version that the console speaks."""

    def __init__(self, api: ApiKey) -> None:
        name = api.name.replace("_", " ").title().replace(" ", "")
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"This cluster does not offer {name}.")
        self.api = api


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    """How to reach the cluster, with timeouts that suit a page."""
    settled = {
        "request.timeout.ms": str(TIMEOUT_MS),
        "socket.connection.setup.timeout.ms": str(TIMEOUT_MS),
        **properties,
        "client.id": CLIENT_ID,
    }
    return ClientConfig.from_properties(settled)


class BrokerLink:
    """One broker's connection and the thread that it belongs to."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self._config = config
        self._connection: Connection | None = None
        self._rests_until = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"console-{address}")

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def ask(self, api: ApiKey, spoken: Versions, fields: Mapping[str, Any]) -> Any:
        """The decoded answer; the thread decodes, so that the event loop need not."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, api, spoken, fields)

    def close(self) -> None:
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _ask(self, api: ApiKey, spoken: Versions, fields: Mapping[str, Any]) -> Any:
        began = time.monotonic()
        if began < self._rests_until:
            raise Unreachable(f"{self.address} did not answer in time a moment ago.")
        try:
            return self._ask_now(api, spoken, fields)
        except Unreachable:
            if time.monotonic() - began >= TIMEOUT_MS / 1000:
                self._rests_until = time.monotonic() + REST_S
            raise

    def _ask_now(self, api: ApiKey, spoken: Versions, fields: Mapping[str, Any]) -> Any:
        if self._connection is None or not self._connection.is_open:
            self._connection = Connection(self.address, self._config)
        lowest, highest = spoken
        try:
            version = self._connection.version_of(api, lowest=lowest, highest=highest)
        except KafkaError as error:
            raise UnsupportedError(api) from error
        return self._connection.ask(api, fields, version=version)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Brokers:
    """Links to the brokers of one cluster."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._known: Mapping[int, BrokerView] = {}
        self._links: dict[Address, BrokerLink] = {}

    def know(self, brokers: Mapping[int, BrokerView]) -> None:
        """Remember the brokers that the cluster advertises now; let go of the others."""
        self._known = brokers
        wanted = {Address(broker.host, broker.port) for broker in brokers.values()}
        wanted.update(self._config.bootstrap_servers)
        for address in [address for address in self._links if address not in wanted]:
            self._links.pop(address).close()

    async def ask(
        self, broker_id: int, api: ApiKey, spoken: Versions, fields: Mapping[str, Any]
    ) -> Any:
        """Ask one broker, in a version between the two that the caller speaks."""
        broker = self._known.get(broker_id)
        if broker is None:
            raise Unreachable(f"Broker {broker_id} is not part of the cluster now.")
        return await self._link(Address(broker.host, broker.port)).ask(api, spoken, fields)

    async def ask_any(self, api: ApiKey, spoken: Versions, fields: Mapping[str, Any]) -> Any:
        """Ask one broker after the other until one answers."""
        trouble = Unreachable("No broker is known.")
        for address in self._candidates():
            try:
                return await self._link(address).ask(api, spoken, fields)
            except Unreachable as error:
                trouble = error
        raise trouble

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _candidates(self) -> Iterable[Address]:
        advertised = [Address(broker.host, broker.port) for broker in self._known.values()]
        everyone = dict.fromkeys([*advertised, *self._config.bootstrap_servers])
        return sorted(everyone, key=lambda address: not self._is_connected(address))

    def _is_connected(self, address: Address) -> bool:
        link = self._links.get(address)
        return link is not None and link.is_connected

    def _link(self, address: Address) -> BrokerLink:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = BrokerLink(address, self._config)
        return link
