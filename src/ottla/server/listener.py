"""One listening address: accepts connections, counts them, closes those that fall silent.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections import Counter
from typing import NamedTuple

from ottla.runtime.interfaces import DEFAULT_SOCKET_OPTIONS, Runtime, SocketOptions
from ottla.runtime.interfaces import Listener as BoundListener
from ottla.server.connection import Connection, Dispatch, ReadBuffers

log = logging.getLogger(__name__)

# An idle connection is closed between one and one and a quarter of its allowance.
IDLE_SWEEPS_PER_TIMEOUT = 4


class ConnectionLimits:
    """How many connections the broker takes, in all and from one address."""

    def __init__(self, total_max: int, per_host_max: int, per_host: dict[str, int]) -> None:
        self._total_max = total_max
        self._per_host_max = per_host_max
        self._overrides = per_host
        self._by_host: Counter[str] = Counter()
        self.total = 0

    def take(self, host: str) -> bool:
        if self.total >= self._total_max:
            return False
        if self._by_host[host] >= self._overrides.get(host, self._per_host_max):
            return False
        self.total += 1
        self._by_host[host] += 1
        return True

    def give_back(self, host: str) -> None:
        self.total -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class _Silence(NamedTuple):
    """What a sweep saw: bytes that the peer did not take, and for how many sweeps in a row."""

    unsent_bytes: int
    sweeps: int


class Acceptor:
    """Satisfies `connection.ConnectionOwner` for the connections of one listener."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        buffers: ReadBuffers,
        *,
        request_bytes_max: int,
        idle_ms_max: int,
    ) -> None:
        self.name = name
        self.network = runtime.network
        self.dispatch = dispatch
        self.buffers = buffers
        self.request_bytes_max = request_bytes_max
        self.connections: set[Connection] = set()
        self.connections_refused_total = 0
        self._limits = limits
        self._is_open = False
        self._idle_sweep_seconds = idle_ms_max / 1000 / IDLE_SWEEPS_PER_TIMEOUT
        self._silence: dict[Connection, _Silence] = {}
        self._bound: BoundListener | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None

    async def listen(
        self, host: str, port: int, options: SocketOptions = DEFAULT_SOCKET_OPTIONS
    ) -> tuple[str, int]:
        """Bind and accept, but read nothing before `open`; the address that was bound."""
        self._bound = await self.network.listen(lambda: Connection(self), host, port, options)
        if self._idle_sweep_seconds > 0:
            self._schedule_sweep()
        return self._bound.host, self._bound.port

    def on_connected(self, connection: Connection) -> bool:
        if not self._limits.take(connection.peer_host):
            self.connections_refused_total += 1
            log.info("refused a connection from %s: too many", connection.peer_host)
            return False
        self.connections.add(connection)
        if not self._is_open:
            connection.hold()
        return True

    def open(self) -> None:
        """The broker is ready: serve those who connected early, and all others."""
        self._is_open = True
        for connection in self.connections:
            connection.release()

    def on_disconnected(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._silence.pop(connection, None)
            self._limits.give_back(connection.peer_host)
        if self._all_closed is not None and not self.connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def stop_accepting(self) -> None:
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def close(self, grace_seconds: float) -> None:
        """Let requests that are under way be answered, then close every connection."""
        self.stop_accepting()
        if not self.connections:
            return
        self._all_closed = asyncio.get_running_loop().create_future()
        for connection in tuple(self.connections):
            connection.close_when_quiet()
        try:
            await asyncio.wait_for(self._all_closed, grace_seconds)
        except TimeoutError:
            for connection in tuple(self.connections):
                connection.abort()

    def _schedule_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(self._idle_sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        for connection in tuple(self.connections):
            unsent, silent_sweeps = self._silence.get(connection, (0, 0))
            has_progressed = unsent != (unsent := connection.unsent_bytes)
            if not connection.is_idle or has_progressed:
                connection.is_idle = True
                silent_sweeps = 0
            elif unsent or not connection.is_answering:
                silent_sweeps += 1
            self._silence[connection] = _Silence(unsent, silent_sweeps)
            if silent_sweeps < IDLE_SWEEPS_PER_TIMEOUT:
                continue
            log.debug("closing the idle connection of %s", connection.peer_host)
            if unsent:
                connection.abort()  # nobody takes what would have to be sent before
            else:
                connection.close()
        self._schedule_sweep()
