"""An event loop that owns time and order.

asyncio runs callbacks first come, first served, so a race that needs another order never
shows. Here the seed picks among all that are ready, and when nothing is, the clock jumps to
the next timer: an hour of timeouts takes milliseconds, and one seed always gives one history.

Three things would leak the real world in, and are stopped:
- sets of tasks iterate by address (asyncio.TaskGroup cancels in that order): tasks and futures
  hash by a serial number here;
- dropped coroutines run their `finally` whenever the collector comes by: the tasks of a dead
  node are kept until `close`;
- real sockets, threads and sleeps: the loop has none, and those that bypass it raise while it
  runs (by an audit hook; by a guard where Python 3.11 announces nothing).

Owned by the one thread that calls `run_until_complete`.
"""

import asyncio
import heapq
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from ottla.runtime.simulated.incarnation import CURRENT, Incarnation, NodeDown
from ottla.runtime.simulated.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Virtual clocks start here, so that a zero which was never set cannot pass for a time.
START_SECONDS = 1_000.0
# More callbacks than this without time passing is a loop that feeds itself.
CALLBACKS_PER_INSTANT_MAX = 1_000_000

_FENCED_AUDIT_EVENTS = frozenset(
    {
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
        "os.fork",
    }
)
# Effects that Python 3.11 raises no audit event for.
_GUARDED_CALLS: tuple[tuple[Any, str], ...] = ((threading.Thread, "start"), (time, "sleep"))
_FENCED_METHODS = (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "remove_reader",
    "remove_signal_handler",
    "remove_writer",
    "run_in_executor",
    "sendfile",
    "set_default_executor",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)


class SimulationFence(RuntimeError):
    """Code inside a simulation reached for the real world."""


class SimulationDeadlock(RuntimeError):
    """Nothing is ready, no timer is set, and the awaited result is not there."""


class SimulationStalled(RuntimeError):
    """Callbacks keep feeding each other while no time passes."""


class SimulationOverdue(RuntimeError):
    """The awaited result is not there after all the virtual time that was allowed."""


class SimulatedFuture(asyncio.Future[T]):
    def __init__(self, *, loop: "SimulatedLoop") -> None:
        self._serial = loop.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class SimulatedTask(asyncio.Task[T]):
    _log_destroy_pending: bool  # asyncio's switch for its complaint about unfinished tasks

    def __init__(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        loop: "SimulatedLoop",
        **options: Any,
    ) -> None:
        context: Context | None = options.get("context")
        self.serial = loop.next_serial()
        self.incarnation = CURRENT.get() if context is None else context.get(CURRENT)
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.serial


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self, random: Random, trace: Trace, *, reorder: bool = True) -> None:
        super().__init__()
        self._random = random
        self._trace = trace
        self._reorder = reorder
        self._now = START_SECONDS
        self._serials = 0
        self._runnable: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._callbacks_this_instant = 0
        self._buried: list[SimulatedTask[Any]] = []
        self.deadline = float("inf")
        self.unhandled: list[BaseException] = []
        self.set_exception_handler(_collect_unhandled)
        _install_audit_hook()

    @classmethod
    def create(cls, random: Random, trace: Trace, *, reorder: bool = True) -> "SimulatedLoop":
        return cls(random, trace, reorder=reorder)

    def __del__(self) -> None:
        """Nothing to warn of: the loop holds no resource of the machine."""

    def next_serial(self) -> int:
        self._serials += 1
        return self._serials

    def _refuse_if_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._refuse_if_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._runnable.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self.is_running() and threading.get_ident() != _fenced_thread:
            raise SimulationFence("call_soon_threadsafe from another thread")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._refuse_if_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self.next_serial(), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are skipped when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return SimulatedFuture(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        self._refuse_if_closed()
        return SimulatedTask(coro, loop=self, **options)

    def run_forever(self) -> None:
        global _fenced_thread
        outer, _fenced_thread = _fenced_thread, threading.get_ident()
        try:
            with _guarded_calls():
                super().run_forever()
        finally:
            _fenced_thread = outer

    def _run_once(self) -> None:
        """Run one callback, chosen by the seed."""
        runnable = self._runnable
        while not runnable:
            self._advance()
        index = int(self._random.random() * len(runnable)) if self._reorder else 0
        handle = runnable.pop(index)
        if handle.cancelled():
            return
        incarnation = handle._context.get(CURRENT)  # type: ignore[attr-defined]  # not in typeshed
        if incarnation is not None and not incarnation.is_alive:
            return
        self._callbacks_this_instant += 1
        if self._callbacks_this_instant > CALLBACKS_PER_INSTANT_MAX:
            raise SimulationStalled(f"time stands still at {self._now}: {_label(handle)}")
        self._trace.note(f"{self._now:.9f} {len(runnable)} {index} {incarnation} {_label(handle)}")
        handle._run()

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise SimulationDeadlock(f"nothing left to do; waiting: {self._describe_tasks()}")
        if timers[0][0] > self.deadline:
            raise SimulationOverdue(f"at {self.deadline} still waiting: {self._describe_tasks()}")
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._callbacks_this_instant = 0
        while timers and timers[0][0] <= self._now:
            self._runnable.append(heapq.heappop(timers)[2])

    def _tasks(self) -> list[SimulatedTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        return sorted(tasks, key=lambda task: task.serial)

    def _describe_tasks(self) -> str:
        return ", ".join(f"{_coroutine_name(task)} on {task.incarnation}" for task in self._tasks())

    def bury(self, incarnation: Incarnation) -> None:
        """Keep the tasks of a dead node, so that no `finally` of theirs runs by accident."""
        self._buried.extend(task for task in self._tasks() if task.incarnation is incarnation)

    def close(self) -> None:
        """End every task where it stands. Their `finally` blocks run now, to no effect."""
        if self.is_closed():
            return
        tasks = {task.serial: task for task in [*self._buried, *self._tasks()]}
        for _, task in sorted(tasks.items()):
            task._log_destroy_pending = False
            coroutine = task.get_coro()
            try:
                if coroutine is not None:
                    coroutine.close()
            except (Exception, NodeDown):  # noqa: BLE001  (what a torn-down finally says is noise)
                continue
        self._buried.clear()
        self._runnable.clear()
        self._timers.clear()
        super().close()


def _collect_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, NodeDown):
        return  # the end of a node is what the test asked for
    if isinstance(loop, SimulatedLoop):
        loop.unhandled.append(error or RuntimeError(context["message"]))


def _coroutine_name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "?")


def _label(handle: asyncio.Handle) -> str:
    """What the callback is called; never an address, and never asyncio's global task number."""
    callback = handle._callback  # type: ignore[attr-defined]  # not in typeshed
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return _coroutine_name(owner)
    return getattr(callback, "__qualname__", None) or type(callback).__qualname__


def _fenced(name: str) -> Callable[..., Any]:
    def raise_fence(*args: Any, **options: Any) -> Any:
        raise SimulationFence(f"loop.{name} does not exist in a simulation")

    return raise_fence


for _name in _FENCED_METHODS:
    setattr(SimulatedLoop, _name, _fenced(_name))


@contextmanager
def _guarded_calls() -> Iterator[None]:
    """Raise for the guarded calls of this thread; other threads' go through."""
    originals = [(owner, name, getattr(owner, name)) for owner, name in _GUARDED_CALLS]

    def guard(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == _fenced_thread:
                raise SimulationFence(f"{name} inside a simulation")
            return original(*args, **options)

        return call

    for owner, name, original in originals:
        setattr(owner, name, guard(original.__qualname__, original))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


_fenced_thread: int | None = None
_has_audit_hook = False


def _install_audit_hook() -> None:
    global _has_audit_hook
    if not _has_audit_hook:
        _has_audit_hook = True
        sys.addaudithook(_on_audit)


def _on_audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _FENCED_AUDIT_EVENTS and threading.get_ident() == _fenced_thread:
        raise SimulationFence(f"{event} inside a simulation")
