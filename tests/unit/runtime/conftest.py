"""Worlds to run one and the same behaviour in: both real loops, and the simulation."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.runtime.interfaces import Runtime
from ottla.runtime.real import real_runtime
from ottla.runtime.simulated import Simulation

# Nothing here takes a second; what takes this long will never end.
HANG_SECONDS = 20


@dataclass
class World:
    name: str
    runtime: Runtime
    directory: str
    run: Callable[[Coroutine[Any, Any, Any]], Any]


def _real(name: str, directory: Path) -> Iterator[World]:
    factory = uvloop.new_event_loop if name == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runtime = real_runtime()

        def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
            return runner.run(asyncio.wait_for(coroutine, HANG_SECONDS))

        yield World(name, runtime, str(directory), run)
        runtime.offload.close()


@pytest.fixture(params=["uvloop", "asyncio", "simulated-1", "simulated-2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if not request.param.startswith("simulated"):
        yield from _real(request.param, tmp_path)
        return
    with Simulation(seed=int(request.param.rpartition("-")[2])) as simulation:
        runtime = simulation.runtime("a")
        runtime.disk.mkdir("/data")
        yield World("simulated", runtime, "/data", simulation.run)


@pytest.fixture(params=["uvloop", "asyncio"])
def real_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from _real(request.param, tmp_path)
