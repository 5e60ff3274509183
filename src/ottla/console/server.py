"""Runs the console: as a program, or beside a broker.

uvicorn catches signals for itself, which would take Ctrl-C from a broker that runs in the same
process, and pages must not wait for a broker that is busy; so `ottla up` starts the console in a
process of its own. The parent binds the port, so that it knows the address at once, and hands the
socket on. The child's stdin is its lease of life: it ends with its parent, however that ends.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from ottla.console.settings import DEFAULT_PORT, LOOPBACK, ConsoleSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

# Open tails and pulses never end by themselves.
STOP_S_MAX = 2
# Each open tab holds one; beyond this, new ones are told to come back later.
CONNECTIONS_MAX = 1_000
_BACKLOG = 128


def serve(settings: ConsoleSettings, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal; `on_ready` is told the address."""
    from ottla.console.web.app import create_app

    listener = listen(settings.host, settings.port)
    app = create_app(settings)
    on_ready(address_of(listener, settings.host))
    serve_on(listener, app)


def serve_on(listener: socket.socket, app: ASGIApp) -> None:
    """Serve on a socket that listens, until a signal."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=STOP_S_MAX,
        limit_concurrency=CONNECTIONS_MAX,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


def address_of(listener: socket.socket, host: str) -> str:
    """What a person opens in a browser."""
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class BackgroundConsole:
    """A console in a process of its own; ends with `stop`, or when its parent is gone."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address

    def stop(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S_MAX + 1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve_in_background(
    client: Mapping[str, str],
    *,
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    is_read_only: bool = False,
    pipelines_directory: str | None = None,
) -> BackgroundConsole:
    """Start a console beside this process; its address listens when this returns.

    OSError if the port is taken. The pages answer as soon as the child has been imported.
    """
    settings = ConsoleSettings(
        client=dict(client),
        host=host,
        port=port,
        is_read_only=is_read_only,
        pipelines_directory=pipelines_directory,
    )
    listener = listen(host, port)
    try:
        address = address_of(listener, host)
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.console", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the parent, who then stops this
        )
    finally:
        listener.close()
    if process.stdin is not None:
        process.stdin.write(json.dumps(asdict(settings)) + "\n")
        process.stdin.flush()
    return BackgroundConsole(process, address)
