"""Run a broker in this process until a signal asks it to stop.

Ctrl-C and SIGTERM are how a server is stopped, so a clean stop is exit code 0. A second signal
gives up on the clean stop. A broker that cannot go on (its last disk failed) ends the process
with a sentence. Shell: owns the event loop of the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.errors import CliError, sentence
from ottla.cli.output import note

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.server.broker import Broker

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

OnReady = Callable[["Broker"], None]
HttpAddress = tuple[str, int]


def serve(
    config: BrokerConfig,
    on_ready: OnReady,
    *,
    http_address: HttpAddress | None = None,
    log_level: str = "warning",
) -> None:
    """Run a broker; `on_ready` is called once it accepts clients."""
    from ottla.runtime.real import run

    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with plain_errors(config):
        run(_serve(config, on_ready, http_address))


@contextmanager
def plain_errors(config: BrokerConfig) -> Iterator[None]:
    """Turn what keeps a broker or its directories from work into sentences."""
    from ottla.metadata.formatting import FormatError
    from ottla.protocol.errors import KafkaError
    from ottla.raft.driver import QuorumError
    from ottla.raft.wire_records import CorruptRecordError, UnsupportedRecordError
    from ottla.storage.files.malformed import MalformedFileError

    try:
        yield
    except (
        KafkaError,
        FormatError,
        MalformedFileError,
        QuorumError,
        CorruptRecordError,
        UnsupportedRecordError,
    ) as error:
        raise CliError(sentence(str(error))) from error
    except OSError as error:
        raise _os_error(error, config) from error
    except asyncio.CancelledError as error:
        raise CliError("Stopped in the middle; the next start recovers the logs.") from error


async def _serve(config: BrokerConfig, on_ready: OnReady, http_address: HttpAddress | None) -> None:
    from ottla.runtime.real import real_runtime, settle_memory
    from ottla.server.broker import Broker

    runtime = real_runtime(offload_threads=config.background_threads)
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[None] = loop.create_future()
    task = asyncio.current_task()

    def on_signal() -> None:
        if not ending.done():
            ending.set_result(None)
        elif task is not None:
            task.cancel()

    def on_fatal(error: BaseException) -> None:
        if not ending.done():
            cannot = CliError(
                sentence(f"The broker cannot go on: {str(error) or type(error).__name__}")
            )
            cannot.__cause__ = error
            ending.set_exception(cannot)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    broker = Broker(runtime, config, http_address=http_address, on_fatal=on_fatal)
    try:
        await broker.start()
        settle_memory()
        on_ready(broker)
        await ending
        note("Stopping; once more gives up on a clean stop.")
    finally:
        await broker.stop()
        runtime.offload.close()


def _os_error(error: OSError, config: BrokerConfig) -> CliError:
    if error.errno == errno.EADDRINUSE:
        return CliError(
            f"{_taken_port(error)} is taken by another program; stop it or choose another port."
        )
    if isinstance(error, BlockingIOError):
        return CliError(
            f"Another broker is using {', '.join(config.log_dirs)}; stop it or choose another "
            "directory."
        )
    where = f"{error.filename}: " if error.filename else ""
    return CliError(where + sentence(error.strerror or str(error)))


def _taken_port(error: OSError) -> str:
    """The port, which the event loop tells only in the text of its error."""
    found = re.search(r"', (\d+)\)", str(error))
    return f"Port {found[1]}" if found else "The port"
