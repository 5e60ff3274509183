"""One broker on an event loop of its own, in a thread beside the test.

A test is synchronous and may block in a client, so the broker cannot share its thread. The
thread is a daemon: a test that forgets to stop its broker must not keep the interpreter alive.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.runtime.real import run
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed
from ottla.testing.mortal import MortalRuntime

Addresses = Mapping[str, tuple[str, int]]

# Recovery of what a test wrote takes far less; a broker that hangs must not hang the test.
START_S_MAX = 60.0
STOP_S_MAX = 60.0


class BrokerThread:
    """A broker that runs from `start` to `stop` or `kill`, once."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._ready: Future[Addresses] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Future[bool] | None = None
        self._done: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)

    def start(self) -> Addresses:
        """Start and return the addresses of the listeners, or raise what went wrong."""
        self._thread.start()
        return self._ready.result(START_S_MAX)

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        self._end(is_clean=True)

    def kill(self) -> None:
        """End at once, as SIGKILL does: nothing more reaches the disk or the network."""
        self._end(is_clean=False)

    def _end(self, *, is_clean: bool) -> None:
        loop, ending = self._loop, self._ending
        if loop is None or ending is None:
            return
        if not self._done.done():
            loop.call_soon_threadsafe(_resolve, ending, is_clean)
        self._done.result(STOP_S_MAX)
        self._thread.join(STOP_S_MAX)

    def _run(self) -> None:
        try:
            run(self._main())
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits for it
            target: Future[Any] = self._done if self._ready.done() else self._ready
            target.set_exception(error)
        else:
            self._done.set_result(None)

    async def _main(self) -> None:
        mortal = MortalRuntime()
        loop = asyncio.get_running_loop()
        ending: asyncio.Future[bool] = loop.create_future()
        try:
            format_if_needed(mortal.runtime, self._config)
            broker = Broker(mortal.runtime, self._config)
            try:
                await broker.start()
            except BaseException:
                await broker.stop()  # it may hold listeners and files already
                raise
            self._loop, self._ending = loop, ending
            self._ready.set_result(dict(broker.listeners))
            if await ending:
                await broker.stop()
            else:
                # What the dead broker's tasks complain about is nobody's concern.
                loop.set_exception_handler(lambda _loop, _context: None)
                mortal.die()
        finally:
            mortal.close()


def _resolve(ending: asyncio.Future[bool], is_clean: bool) -> None:
    if not ending.done():
        ending.set_result(is_clean)
