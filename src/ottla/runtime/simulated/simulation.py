"""A cluster of simulated nodes: the one object that a test holds.

    with Simulation(seed=7) as simulation:
        async def scenario() -> None:
            broker = Broker(simulation.runtime("a"), config)
            await simulation.spawn("a", broker.start())
            simulation.power_loss("a")
            ...
        simulation.run(scenario())

Everything random comes from the seed, in separate streams, so that one more disk write does
not change what the network does. `trace_hash` is the fingerprint of all decisions so far.

Code started by `spawn` belongs to its node and dies with it, mid-sentence. Code that only uses
a node's runtime from outside lives on, but every call to that runtime raises NodeDown.

The synchronous parts (disk, clock, random) work without `run`, too.
"""

import asyncio
import random
from collections.abc import Coroutine
from contextvars import copy_context
from types import TracebackType
from typing import Any, TypeVar

from ottla.runtime.interfaces import Runtime
from ottla.runtime.simulated.disk import MountedDisk, SimulatedDisk
from ottla.runtime.simulated.incarnation import (
    CURRENT,
    Incarnation,
    NodeCrashed,
    NodeDown,
    PowerCut,
)
from ottla.runtime.simulated.inodes import Survival
from ottla.runtime.simulated.loop import SimulatedLoop
from ottla.runtime.simulated.network import NodeNetwork, SimulatedNetwork
from ottla.runtime.simulated.node_world import SimulatedClock, SimulatedOffload, SimulatedRandom
from ottla.runtime.simulated.trace import Trace

T = TypeVar("T")

# A scenario that is not over after a virtual day waits for something that will not come.
VIRTUAL_SECONDS_MAX = 86_400.0
# Of a node; `SimulatedDisk.limit_open_files` takes them away.
DESCRIPTORS_MAX = 20_000


class _Node:
    """A machine: what outlives the processes that run on it."""

    def __init__(self, clock: SimulatedClock, disk: SimulatedDisk) -> None:
        self.clock = clock
        self.disk = disk
        self.lives = 0
        self.incarnation: Incarnation | None = None
        self.runtime: Runtime | None = None
        self.spawned: dict[asyncio.Future[Any], None] = {}


class Simulation:
    def __init__(self, seed: int, *, reorder: bool = True) -> None:
        """`reorder=False` runs callbacks first come, first served, as asyncio does."""
        self.seed = seed
        self._trace = Trace()
        self.loop = SimulatedLoop.create(self._stream("scheduler"), self._trace, reorder=reorder)
        self.network = SimulatedNetwork(self._stream("network"), self._trace)
        self.random = self._stream("workload")
        self._nodes: dict[str, _Node] = {}

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def runtime(self, node: str) -> Runtime:
        """The runtime of the node's present life; after a crash this starts the next one."""
        machine = self._node(node)
        if machine.runtime is None or machine.incarnation is None:
            machine.lives += 1
            incarnation = machine.incarnation = Incarnation(node, machine.lives)
            self._trace.note(f"start {incarnation!r}")
            self.network.start_node(incarnation)
            chance = self._stream(f"random/{incarnation!r}")
            machine.runtime = Runtime(
                clock=machine.clock,
                random=SimulatedRandom(chance),
                disk=MountedDisk(machine.disk, incarnation),
                network=NodeNetwork(self.network, incarnation),
                offload=SimulatedOffload(self._stream(f"offload/{incarnation!r}"), incarnation),
                descriptors_max=DESCRIPTORS_MAX,
            )
        return machine.runtime

    def disk(self, node: str) -> SimulatedDisk:
        return self._node(node).disk

    def clock(self, node: str) -> SimulatedClock:
        return self._node(node).clock

    def is_alive(self, node: str) -> bool:
        return self._node(node).incarnation is not None

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Run `coroutine` as part of the node. The future raises NodeDown if the node dies."""
        self.runtime(node)
        machine = self._node(node)
        context = copy_context()
        context.run(CURRENT.set, machine.incarnation)
        outcome: asyncio.Future[T] = self.loop.create_future()
        machine.spawned[outcome] = None
        task = self.loop.create_task(coroutine, context=context)

        def pass_on(done: "asyncio.Task[T]") -> None:
            machine.spawned.pop(outcome, None)
            if outcome.done():
                return
            if done.cancelled():
                outcome.cancel()
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        def pass_back(done: "asyncio.Future[T]") -> None:
            if done.cancelled():
                task.cancel()

        task.add_done_callback(pass_on)
        outcome.add_done_callback(pass_back)
        return outcome

    def run(
        self, coroutine: Coroutine[Any, Any, T], *, seconds_max: float = VIRTUAL_SECONDS_MAX
    ) -> T:
        """Run until `coroutine` is done; then raise what callbacks and lost tasks left behind."""
        self.loop.deadline = self.loop.time() + seconds_max
        result = self.loop.run_until_complete(coroutine)
        if self.loop.unhandled:
            errors, self.loop.unhandled = self.loop.unhandled, []
            raise BaseExceptionGroup("unhandled inside the simulation", errors)
        return result

    def crash(self, node: str) -> None:
        """kill -9: the process is gone, everything it wrote is still there."""
        incarnation = self._end_life(node, NodeCrashed(f"{node} was killed"))
        if incarnation is not None:
            self.network.stop_node(incarnation, kernel_survives=True)
            self._node(node).disk.forget_locks(incarnation)

    def power_loss(self, node: str, survival: Survival | None = None) -> None:
        """Process and page cache are gone; `survival` overrules what the seed lets survive."""
        self._cut_power(node)
        self._node(node).disk.lose_power(survival)

    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    def close(self) -> None:
        for node in list(self._nodes):
            self._cut_power(node)
        self.loop.close()

    def _cut_power(self, node: str) -> None:
        incarnation = self._end_life(node, PowerCut(f"{node} lost power"))
        if incarnation is not None:
            self.network.stop_node(incarnation, kernel_survives=False)

    def _end_life(self, node: str, cause: NodeDown) -> Incarnation | None:
        machine = self._node(node)
        incarnation = machine.incarnation
        if incarnation is None:
            return None
        self._trace.note(f"end {incarnation!r} {type(cause).__name__}")
        incarnation.cause = cause
        machine.incarnation = machine.runtime = None
        self.loop.bury(incarnation)
        for outcome in list(machine.spawned):
            if not outcome.done():
                outcome.set_exception(type(cause)(*cause.args))
                outcome.exception()  # nobody needs to have waited for it
        machine.spawned.clear()
        return incarnation

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            clock = SimulatedClock(self.loop.time)
            disk = SimulatedDisk(self._stream(f"disk/{name}"), self._trace, clock.wall_ms)
            disk.on_power_cut(lambda: self._cut_power(name))
            node = self._nodes[name] = _Node(clock, disk)
        return node

    def _stream(self, name: str) -> random.Random:
        """A generator of its own for each purpose (seeding by string does not use hash())."""
        return random.Random(f"{self.seed}/{name}")
