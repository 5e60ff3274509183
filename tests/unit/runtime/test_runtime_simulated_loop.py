"""Virtual time, seeded order, the fence, and one history for one seed."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from ottla.runtime.simulated import (
    NodeCrashed,
    Simulation,
    SimulationDeadlock,
    SimulationFence,
    SimulationOverdue,
    SimulationStalled,
    loop,
)


def test_an_hour_of_sleep_passes_at_once_and_exactly() -> None:
    async def scenario() -> float:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - before

    with Simulation(1) as simulation:
        assert simulation.run(scenario()) == 3600


def test_asyncio_tools_work_on_virtual_time() -> None:
    async def scenario() -> list[str]:
        told: list[str] = []
        event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue[int](1)

        async def produce() -> None:
            for number in range(3):
                await queue.put(number)
            event.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            assert [await queue.get() for _ in range(3)] == [0, 1, 2]
            await event.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        async with lock:
            told.append("locked")
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(n)) for n in (1, 2)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert (len(done), len(pending)) == (1, 1)
        return told

    with Simulation(1) as simulation:
        assert simulation.run(scenario()) == ["locked"]


def _order(seed: int, *, reorder: bool) -> list[int]:
    order: list[int] = []

    async def scenario() -> None:
        for number in range(6):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(1)

    with Simulation(seed, reorder=reorder) as simulation:
        simulation.run(scenario())
    return order


def test_the_seed_decides_which_ready_callback_runs_first() -> None:
    orders = {tuple(_order(seed, reorder=True)) for seed in range(20)}
    assert len(orders) > 15
    assert _order(4, reorder=True) == _order(4, reorder=True)
    assert _order(4, reorder=False) == [0, 1, 2, 3, 4, 5]


def test_waiting_for_nothing_is_a_deadlock_that_names_the_waiter() -> None:
    async def waits_forever() -> None:
        await asyncio.Event().wait()

    with Simulation(1) as simulation, pytest.raises(SimulationDeadlock, match="waits_forever"):
        simulation.run(waits_forever())


def test_waiting_beyond_the_allowed_time_is_overdue() -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    with Simulation(1) as simulation, pytest.raises(SimulationOverdue):
        simulation.run(tick(), seconds_max=100)


def test_callbacks_that_feed_each_other_are_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CALLBACKS_PER_INSTANT_MAX", 1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with Simulation(1) as simulation, pytest.raises(SimulationStalled, match="spin"):
        simulation.run(spin())


def test_the_real_world_is_fenced_off_while_the_loop_runs() -> None:
    async def scenario() -> None:
        running = asyncio.get_running_loop()
        with pytest.raises(SimulationFence):
            await asyncio.to_thread(int)
        with pytest.raises(SimulationFence):
            await asyncio.open_connection("127.0.0.1", 1)
        with pytest.raises(SimulationFence):
            running.add_reader(0, int)
        with pytest.raises(SimulationFence):
            socket.socket()
        with pytest.raises(SimulationFence):
            time.sleep(0)
        with pytest.raises(SimulationFence):
            threading.Thread(target=int).start()

    with Simulation(1) as simulation:
        simulation.run(scenario())
    socket.socket().close()
    time.sleep(0)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def test_an_error_in_a_callback_fails_the_run() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().call_soon([].pop)
        await asyncio.sleep(1)

    with Simulation(1) as simulation, pytest.raises(BaseExceptionGroup) as caught:
        simulation.run(scenario())
    assert isinstance(caught.value.exceptions[0], IndexError)


def test_a_crashed_node_stops_mid_sentence_and_runs_no_finally() -> None:
    told: list[str] = []

    async def life(simulation: Simulation) -> None:
        asyncio.get_running_loop().call_later(2, told.append, "timer of the dead")
        try:
            await asyncio.sleep(2)
            told.append("went on")
        finally:
            told.append("finally")
            simulation.runtime("a").disk.exists("/")

    async def scenario(simulation: Simulation) -> None:
        first = simulation.spawn("a", life(simulation))
        await asyncio.sleep(1)
        simulation.crash("a")
        with pytest.raises(NodeCrashed):
            await first
        await asyncio.sleep(10)
        assert told == []
        await simulation.spawn("a", asyncio.sleep(1))

    with Simulation(1) as simulation:
        simulation.run(scenario(simulation))


def test_a_dead_life_can_touch_nothing() -> None:
    with Simulation(1) as simulation:
        old = simulation.runtime("a")
        old.disk.mkdir("/d")
        file = old.disk.open("/d/f", create=True)
        lock = old.disk.lock("/d/.lock")
        simulation.crash("a")
        for attempt in (lambda: file.pwrite(b"x", 0), lambda: old.disk.exists("/d")):
            with pytest.raises(NodeCrashed):
                attempt()
        new = simulation.runtime("a")
        assert new.disk.listdir("/d") == [".lock", "f"]
        held = new.disk.lock("/d/.lock")
        lock.release()
        with pytest.raises(BlockingIOError):
            new.disk.lock("/d/.lock")
        held.release()


def test_a_wall_clock_jumps_alone() -> None:
    with Simulation(1) as simulation:
        a, b = simulation.runtime("a").clock, simulation.runtime("b").clock
        before = a.monotonic()
        simulation.clock("a").jump(-5000)
        assert b.wall_ms() - a.wall_ms() == 5000
        assert a.monotonic() == before


def test_sets_of_tasks_and_futures_iterate_alike_in_every_run() -> None:
    kept: list[object] = []  # the second run finds these addresses taken

    async def scenario() -> list[list[int]]:
        running = asyncio.get_running_loop()
        tasks = [asyncio.create_task(asyncio.sleep(1)) for _ in range(50)]
        futures = [running.create_future() for _ in range(50)]
        kept.extend([tasks, futures, [object() for _ in range(77)]])
        orders = [[tasks.index(t) for t in set(tasks)], [futures.index(f) for f in set(futures)]]
        await asyncio.gather(*tasks)
        return orders

    orders = []
    for _ in range(3):
        with Simulation(1) as simulation:
            orders.append(simulation.run(scenario()))
    assert orders[0] == orders[1] == orders[2]


SCENARIO = """
import asyncio
from ottla.runtime.simulated import Simulation

class Echo(asyncio.BufferedProtocol):
    def __init__(self): self.buffer = bytearray(64)
    def connection_made(self, transport): self.transport = transport
    def get_buffer(self, sizehint): return self.buffer
    def buffer_updated(self, size): self.transport.write(self.buffer[:size])

async def client(simulation, name, stop):
    runtime = simulation.runtime(name)
    await runtime.network.connect(Echo, "server", 9092)
    transport = await runtime.network.connect(Echo, "server", 9092)
    transport.write(runtime.random.uuid4().bytes)
    runtime.disk.write_atomic("/state", b"x")
    await runtime.offload.run(int)
    await stop.wait()

async def serve(simulation):
    await simulation.runtime("server").network.listen(Echo, "", 9092)

async def scenario(simulation):
    stop = asyncio.Event()
    await simulation.spawn("server", serve(simulation))
    names = {f"client-{n}" for n in range(8)}
    tasks = {simulation.spawn(n, client(simulation, n, stop)) for n in sorted(names)}
    await asyncio.sleep(0.2)
    simulation.network.clog("client-1", "server")
    simulation.power_loss("client-2")
    await asyncio.sleep(0.2)
    stop.set()
    await asyncio.wait(tasks)
    async with asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(asyncio.sleep(n / 10))

def history(seed):
    with Simulation(seed) as simulation:
        simulation.run(scenario(simulation))
        return simulation.trace_hash()

print(history(11), history(11), history(12))
"""


def test_one_seed_has_one_history_in_every_interpreter() -> None:
    outputs = []
    for hash_seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        outputs.append(
            subprocess.run(
                [sys.executable, "-c", SCENARIO],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
        )
    assert outputs[0] == outputs[1] == outputs[2]
    first, again, other = outputs[0]
    assert first == again != other
