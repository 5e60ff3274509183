"""Runs the console: as a program, or beside a broker.

uvicorn catches signals for itself, which would take Ctrl-C from a broker that runs in the same
process; so `ottla up` starts the console in a process of its own and ends it with itself.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import uvicorn

from ottla.console.settings import DEFAULT_PORT, LOOPBACK, ConsoleSettings
from ottla.console.web.app import create_app

# Open tails and pulses never end by themselves.
STOP_S_MAX = 2
_BACKLOG = 128


def serve(settings: ConsoleSettings, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal; `on_ready` is told the address."""
    listener = _listen(settings.host, settings.port)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=STOP_S_MAX,
        server_header=False,
    )
    on_ready(address_of(listener, settings.host))
    uvicorn.Server(config).run(sockets=[listener])


def address_of(listener: socket.socket, host: str) -> str:
    """What a person opens in a browser."""
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    return listener


class BackgroundConsole:
    """A console in a process of its own; ends with `close`, or when its parent is gone."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; its stdin is its lease of life."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S_MAX + 1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def serve_in_background(
    client: Mapping[str, str],
    *,
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    is_read_only: bool = False,
    pipelines_directory: str | None = None,
) -> BackgroundConsole:
    """Start a console beside this process and return once it listens; OSError if it cannot."""
    asked = {
        "client": dict(client),
        "host": host,
        "port": port,
        "is_read_only": is_read_only,
        "pipelines_directory": pipelines_directory,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.console", json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the parent, who then closes this
    )
    line = process.stdout.readline() if process.stdout is not None else ""
    answer = json.loads(line) if line.strip() else {"error": "it ended at once"}
    console = BackgroundConsole(process, answer.get("address", ""))
    if "error" in answer:
        console.close()
        raise OSError(answer["error"])
    return console
