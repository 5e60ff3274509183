"""The outside world of a real machine: uvloop, sockets, files, threads.

uvloop where it can be had (four times asyncio's rate), else asyncio's own loop; nothing
above this room can tell which one runs.
"""

import asyncio
import gc
import random
import resource
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID

from ottla.runtime.interfaces import Runtime
from ottla.runtime.kafka_uuid import is_usable_uuid
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.real_network import RealNetwork

T = TypeVar("T")


class RealClock:
    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class RealRandom:
    __slots__ = ("_generator",)

    def __init__(self) -> None:
        self._generator = random.Random()

    def random(self) -> float:
        return self._generator.random()

    def randint(self, low: int, high: int) -> int:
        return self._generator.randint(low, high)

    def uuid4(self) -> UUID:
        while not is_usable_uuid(drawn := uuid.uuid4()):
            pass
        return drawn


class RealOffload:
    """Threads, started when the first function is handed in: most brokers in tests need none."""

    __slots__ = ("_executor", "_is_closed", "_retired", "_threads_max")

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._executor: ThreadPoolExecutor | None = None
        self._retired: list[ThreadPoolExecutor] = []  # may still be finishing what they began
        self._is_closed = False

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        if self._is_closed:
            raise RuntimeError("the offload is closed")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads_max, thread_name_prefix="offload")
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def resize(self, threads_max: int) -> None:
        if threads_max == self._threads_max:
            return
        self._threads_max = threads_max
        if self._executor is not None:
            # A pool cannot shrink. This one finishes what it was given, and its threads end.
            self._executor.shutdown(wait=False)
            self._retired.append(self._executor)
            self._executor = None

    def close(self) -> None:
        self._is_closed = True
        if self._executor is not None:
            self._retired.append(self._executor)
            self._executor = None
        for executor in self._retired:
            executor.shutdown(wait=True)
        self._retired.clear()


# More than any broker uses; some systems allow a billion, and some tools then count them all.
_DESCRIPTORS_MAX = 1 << 20


def _raise_descriptor_limit() -> int:
    """Allow this process all the descriptors it may have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # macOS promises more than it gives
            wanted = soft
    return wanted


def real_runtime(*, offload_threads: int = 4) -> Runtime:
    return Runtime(
        clock=RealClock(),
        random=RealRandom(),
        disk=RealDisk(),
        network=RealNetwork(),
        offload=RealOffload(offload_threads),
        descriptors_max=_raise_descriptor_limit(),
    )


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a fresh loop, the fastest there is on this machine."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


# Requests leave few cycles behind, and a collection every 700 allocations finds almost nothing.
_COLLECT_AFTER_ALLOCATIONS = 50_000


def settle_memory() -> None:
    """To be called once a server has started: what it has built so far stays for good.

    Taken out of the collector's sight, it is not walked again and again, and pages that a
    forked process shares stay shared.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER_ALLOCATIONS, 20, 50)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
