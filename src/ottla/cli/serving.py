"""Run a broker in this process until a signal asks it to stop.

Ctrl-C and SIGTERM are how a server is stopped, so a clean stop is exit code 0. A second signal
gives up on the clean stop. Shell: owns the event loop of the process.
"""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.errors import CliError, sentence
from ottla.cli.output import note

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.server.broker import Broker

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(config: BrokerConfig, on_ready: Callable[[Broker], None]) -> None:
    """Run a broker; `on_ready` is called once it accepts clients."""
    from ottla.protocol.errors import KafkaError
    from ottla.runtime.real import run

    for warning in config.warnings():
        note(f"Warning: {warning}")
    try:
        run(_serve(config, on_ready))
    except KafkaError as error:
        raise CliError(sentence(str(error))) from error
    except OSError as error:
        raise _os_error(error, config) from error


async def _serve(config: BrokerConfig, on_ready: Callable[[Broker], None]) -> None:
    from ottla.runtime.real import real_runtime
    from ottla.server.broker import Broker

    runtime = real_runtime()
    broker = Broker(runtime, config)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    task = asyncio.current_task()

    def on_signal() -> None:
        if asked.is_set() and task is not None:
            task.cancel()
        asked.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        await broker.start()
        on_ready(broker)
        await asked.wait()
        note("Stopping; once more gives up on a clean stop.")
    finally:
        await broker.stop()
        runtime.offload.close()


def _os_error(error: OSError, config: BrokerConfig) -> CliError:
    if error.errno == errno.EADDRINUSE:
        addresses = ", ".join(str(listener) for listener in config.broker_listeners)
        return CliError(
            f"The port of {addresses} is taken by another program; stop it or choose another port."
        )
    if isinstance(error, BlockingIOError):
        return CliError(
            f"Another broker is using {', '.join(config.log_dirs)}; stop it or choose another "
            "directory."
        )
    where = f"{error.filename}: " if error.filename else ""
    return CliError(where + sentence(error.strerror or str(error)))
