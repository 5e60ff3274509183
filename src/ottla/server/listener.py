"""One listening address: accepts connections, counts them, closes those that fall silent.

Who finds no room is accepted all the same and not read from: to a client that looks like a
full backlog, which is where Apache Kafka leaves it, and as many may wait here as there.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from ottla.runtime.interfaces import DEFAULT_SOCKET_OPTIONS, Runtime, SocketOptions
from ottla.runtime.interfaces import Listener as BoundListener
from ottla.server.connection import Connection, Dispatch
from ottla.server.connection_limits import ConnectionLimits
from ottla.server.read_buffers import ReadBuffers

log = logging.getLogger(__name__)

# An idle connection is closed between one and one and a quarter of its allowance.
IDLE_SWEEPS_PER_TIMEOUT = 4


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
        waiting_max: int = DEFAULT_SOCKET_OPTIONS.backlog,
        on_room: Callable[[], None] | None = None,
    ) -> None:
        """`on_room` hears when a connection of this listener has made room for another."""
        self.name = name
        self.network = runtime.network
        self.dispatch = dispatch
        self.buffers = buffers
        self.request_bytes_max = request_bytes_max
        self.connections: set[Connection] = set()
        self.connections_refused_total = 0
        self._limits = limits
        self._clock = runtime.clock
        self._waiting_max = waiting_max
        self._waiting: dict[Connection, None] = {}
        self._admission: asyncio.TimerHandle | None = None
        self._on_room = on_room or self.admit
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
        host = connection.peer_host
        if self._limits.is_host_full(host) or len(self._waiting) >= self._waiting_max:
            self.connections_refused_total += 1
            log.info("refused a connection from %s: too many", host)
            return False
        now = self._clock.monotonic()
        if not self._waiting and not self._limits.seconds_until_room(self.name, now):
            self._take(connection)
            if not self._is_open:
                connection.hold()
        else:
            connection.hold()
            self._waiting[connection] = None
            self.admit()
        return True

    def _take(self, connection: Connection) -> None:
        self._limits.take(self.name, connection.peer_host, self._clock.monotonic())
        self.connections.add(connection)

    def admit(self) -> None:
        """Take those who wait, first come first served, as far as there is room."""
        if self._admission is not None:
            self._admission.cancel()
            self._admission = None
        while self._waiting:
            seconds = self._limits.seconds_until_room(self.name, self._clock.monotonic())
            if seconds:
                if seconds < inf:
                    loop = asyncio.get_running_loop()
                    self._admission = loop.call_later(seconds, self.admit)
                return
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            if self._limits.is_host_full(connection.peer_host):
                self.connections_refused_total += 1
                connection.close()
                continue
            self._take(connection)
            if self._is_open:
                connection.release()

    def close_excess(self) -> None:
        """Close as many as there are too many since the limits were lowered, idle ones first."""
        excess = self._limits.excess(self.name)
        by_use = sorted(self.connections, key=lambda one: (one.is_answering, not one.is_idle))
        for connection in by_use[:excess]:
            connection.close_when_quiet()

    def open(self) -> None:
        """The broker is ready: serve those who connected early, and all others."""
        self._is_open = True
        for connection in self.connections:
            connection.release()

    def on_disconnected(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if connection in self.connections:
            self.connections.discard(connection)
            self._silence.pop(connection, None)
            self._limits.give_back(self.name, connection.peer_host)
            self._on_room()
        if self._all_closed is not None and not self.connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def stop_accepting(self) -> None:
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        for timer in (self._sweeper, self._admission):
            if timer is not None:
                timer.cancel()
        for connection in tuple(self._waiting):
            connection.abort()

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
