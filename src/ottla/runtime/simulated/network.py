"""The network between simulated nodes, and the ways in which a test breaks it.

A node's name is its host name; a wildcard or loopback address means the node itself. Links
have a direction, so a partition can be deaf one way only. TCP hides loss: while a link is
blocked, bytes wait as a sender's kernel would repeat them, and arrive once it opens. What
programs see of a bad network is delay, resets, refused and timed-out connects, and silence.
"""

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass

from ottla.runtime.interfaces import DEFAULT_SOCKET_OPTIONS, File, SocketOptions
from ottla.runtime.simulated.incarnation import CURRENT, Incarnation
from ottla.runtime.simulated.trace import Trace
from ottla.runtime.simulated.transport import RESET, SimulatedTransport

# Where kernels start to hand out ports for 0.
EPHEMERAL_PORT_MIN = 32_768
# After so long a kernel gives up on a host that does not answer (Linux: six SYNs, 127 s).
CONNECT_SECONDS_MAX = 127.0
LATENCY_SECONDS = (0.000_05, 0.002)
# One packet in a hundred takes a detour.
SPIKE_PROBABILITY = 0.01
SPIKE_FACTOR = 20

OWN_HOSTS = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost"})

ProtocolFactory = Callable[[], asyncio.BufferedProtocol]


@dataclass(slots=True, eq=False)
class _Listening:
    incarnation: Incarnation
    context: Context
    factory: ProtocolFactory


class SimulatedListener:
    def __init__(
        self, network: "SimulatedNetwork", listening: _Listening, host: str, port: int
    ) -> None:
        self._network = network
        self._listening = listening
        self.host = host
        self.port = port

    def close(self) -> None:
        self._network.stop_listening(self._listening, self.port)


class SimulatedNetwork:
    """All links, as a test sees them."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.rng = rng
        self._trace = trace
        self._latencies: dict[tuple[str, str], tuple[float, float]] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._known: set[str] = set()
        self._powered: set[str] = set()
        self._listening: dict[tuple[str, int], _Listening] = {}
        self._ends: dict[SimulatedTransport, None] = {}
        self._last_port: dict[str, int] = {}
        self._unblocked: list[asyncio.Future[None]] = []

    # Faults.

    def set_latency(self, source: str, target: str, low: float, high: float) -> None:
        self._latencies[source, target] = (low, high)

    def block(self, source: str, target: str) -> None:
        """Let nothing pass from `source` to `target`; the way back stays open."""
        self._trace.note(f"network block {source} {target}")
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        self._trace.note(f"network unblock {source} {target}")
        self._blocked.discard((source, target))
        self._wake()

    def clog(self, one: str, other: str) -> None:
        """Hold everything between two nodes, both ways, until `unclog`."""
        self.block(one, other)
        self.block(other, one)

    def unclog(self, one: str, other: str) -> None:
        self.unblock(one, other)
        self.unblock(other, one)

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut every link between nodes of different groups."""
        sides = [list(group) for group in groups]
        for number, side in enumerate(sides):
            for others in sides[number + 1 :]:
                for one in side:
                    for other in others:
                        self.clog(one, other)

    def heal(self) -> None:
        """Open every link."""
        self._trace.note("network heal")
        self._blocked.clear()
        self._wake()

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two nodes; both ends hear of it."""
        for end in self._between(one, other):
            error = ConnectionResetError("the network reset the connection")
            end.drop(error, tell_peer=None)

    def half_open(self, gone: str, left: str) -> None:
        """Reset the connections of `gone` to `left`, without a word to `left`."""
        for end in self._between(gone, left):
            if end.incarnation.node == gone:
                error = ConnectionResetError("the network reset the connection")
                end.drop(error, tell_peer=None)

    def connections(self, one: str, other: str) -> int:
        """How many ends of connections exist between two nodes."""
        return len(self._between(one, other))

    def _between(self, one: str, other: str) -> list[SimulatedTransport]:
        return [
            end
            for end in self._ends
            if end.peer is not None
            and (end.incarnation.node, end.peer.incarnation.node) in ((one, other), (other, one))
        ]

    # Nodes.

    def start_node(self, incarnation: Incarnation) -> None:
        self._known.add(incarnation.node)
        self._powered.add(incarnation.node)
        self._wake()

    def stop_node(self, incarnation: Incarnation, *, kernel_survives: bool) -> None:
        """End a node's connections. A kernel resets those of a killed process; a machine
        without power says nothing."""
        if not kernel_survives:
            self._powered.discard(incarnation.node)
        for key, listening in list(self._listening.items()):
            if listening.incarnation is incarnation:
                del self._listening[key]
        for end in list(self._ends):
            if end.incarnation is incarnation:
                end.vanish(kernel_survives=kernel_survives)

    # What the ends of connections ask (transport.Fabric).

    def latency(self, source: str, target: str) -> float:
        low, high = self._latencies.get((source, target), LATENCY_SECONDS)
        seconds = self.rng.uniform(low, high)
        return seconds * SPIKE_FACTOR if self.rng.random() < SPIKE_PROBABILITY else seconds

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def has_power(self, node: str) -> bool:
        return node in self._powered

    def forget(self, end: SimulatedTransport) -> None:
        self._ends.pop(end, None)

    # Connecting.

    def listen(
        self, incarnation: Incarnation, factory: ProtocolFactory, host: str, port: int
    ) -> SimulatedListener:
        node = incarnation.node
        if host not in OWN_HOSTS and host != node:
            raise OSError(errno.EADDRNOTAVAIL, f"{node} has no address {host}")
        port = port or self._next_port(node)
        if (node, port) in self._listening:
            raise OSError(errno.EADDRINUSE, f"address already in use: {node}:{port}")
        listening = _Listening(incarnation, _context_of(incarnation), factory)
        self._listening[node, port] = listening
        return SimulatedListener(self, listening, host or "0.0.0.0", port)

    def stop_listening(self, listening: _Listening, port: int) -> None:
        key = listening.incarnation.node, port
        if self._listening.get(key) is listening:
            del self._listening[key]

    async def connect(
        self, incarnation: Incarnation, factory: ProtocolFactory, host: str, port: int
    ) -> SimulatedTransport:
        source, target = incarnation.node, host
        if host in OWN_HOSTS:
            target = source
        elif host not in self._known:
            raise socket.gaierror(socket.EAI_NONAME, f"no node is called {host}")
        near: SimulatedTransport | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._reach(source, target)
                near = self._accept(incarnation, target, port)
                await self._travel(target, source)
        except BaseException as error:
            if near is not None:
                near.drop(None, tell_peer=RESET)
            if isinstance(error, TimeoutError):
                raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer") from None
            raise
        incarnation.check()
        if near is None or near.peer is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses")
        if near.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, f"{host}:{port} reset the connection")
        near.start(factory(), near.peer)
        return near

    def _accept(
        self, incarnation: Incarnation, target: str, port: int
    ) -> SimulatedTransport | None:
        """Make both ends; the far one is in use before the near one knows that it exists."""
        listening = self._listening.get((target, port))
        if listening is None:
            return None
        source = incarnation.node
        far_name, near_name = (target, port), (source, self._next_port(source))
        far = SimulatedTransport(
            self, listening.incarnation, listening.context, far_name, near_name
        )
        near = SimulatedTransport(self, incarnation, _context_of(incarnation), near_name, far_name)
        self._ends[far] = self._ends[near] = None
        far.peer, near.peer = near, far
        asyncio.get_running_loop().call_soon(
            lambda: far.start(listening.factory(), near), context=listening.context
        )
        return near

    async def _reach(self, source: str, target: str) -> None:
        """Travel to a node that has power; until then nobody answers."""
        await self._travel(source, target)
        while target not in self._powered:
            await self._change()
            await self._travel(source, target)

    async def _travel(self, source: str, target: str) -> None:
        await asyncio.sleep(self.latency(source, target))
        while self.is_blocked(source, target):
            await self._change()
            await asyncio.sleep(self.latency(source, target))

    async def _change(self) -> None:
        """Until a link opens or a node starts."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unblocked.append(future)
        await future

    def _wake(self) -> None:
        waiting, self._unblocked = self._unblocked, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for end in list(self._ends):
            end.kick()
            if end.peer is not None:
                end.peer.kick()

    def _next_port(self, node: str) -> int:
        port = self._last_port.get(node, EPHEMERAL_PORT_MIN - 1) + 1
        while (node, port) in self._listening:
            port += 1
        self._last_port[node] = port
        return port


class NodeNetwork:
    """The network as one life of one node uses it."""

    def __init__(self, network: SimulatedNetwork, incarnation: Incarnation) -> None:
        self._network = network
        self._incarnation = incarnation

    async def resolve(self, host: str) -> list[str]:
        self._incarnation.check()
        return [host]

    def host_name(self) -> str:
        return self._incarnation.node

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
    ) -> SimulatedListener:
        self._incarnation.check()
        return self._network.listen(self._incarnation, factory, host, port)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Transport:
        self._incarnation.check()
        return await self._network.connect(self._incarnation, factory, host, port)

    def send_file(
        self,
        transport: asyncio.Transport,
        head: bytes,
        file: File,
        offset: int,
        count: int,
        tail: bytes = b"",
    ) -> asyncio.Future[None] | None:
        self._incarnation.check()
        if not isinstance(transport, SimulatedTransport):
            raise TypeError("not a transport of this simulation")
        if transport.is_closing():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(ConnectionAbortedError("the connection is closed"))
            return future
        sending = transport.send_file(head, file, offset, count, tail)
        is_sent = sending.done() and not sending.cancelled() and sending.exception() is None
        return None if is_sent else sending

    def expect_another(self) -> None:
        """Nobody sleeps here."""

    def unsent_bytes(self, transport: asyncio.Transport) -> int:
        if not isinstance(transport, SimulatedTransport):
            raise TypeError("not a transport of this simulation")
        return transport.unsent_bytes()


def _context_of(incarnation: Incarnation) -> Context:
    context = copy_context()
    context.run(CURRENT.set, incarnation)
    return context
