"""A proxy between clients and one broker that strikes at a chosen request.

It stands at the broker's advertised address, so that every connection of every client passes it. A
`Fault` names an API, which of its requests, and the moment: before the broker sees it, inside (the
broker has done it, nobody has heard the answer), or after (the answer was delivered). Then it
calls an action, with the process on the client's end, and cuts the connection.

A fault is done when its action has been. Where a request that it chose broke before, by something
else, it waits for the next one. Requests of the process that the proxy runs in, which look on,
are struck only if it says so.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

BEFORE, INSIDE, AFTER = "before", "inside", "after"
MOMENTS = (BEFORE, INSIDE, AFTER)
LOOKS_MAX = 5


def is_another(pid: int) -> bool:
    """Whether a process is not this one."""
    return pid != os.getpid()


def is_any(pid: int) -> bool:
    """Every process, this one too."""
    return True


@dataclass
class Fault:
    api_key: int
    nth: int
    moment: str
    strike: Callable[[int], None]
    cuts: bool = True  # else the request takes its course once the action has been
    counts: Callable[[int], bool] = is_another  # whether the requests of a process do
    is_done: threading.Event = field(default_factory=threading.Event)


class FaultProxy:
    """Forwards frames to `target` until told otherwise; use it in a `with` block."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._seen = 0
        self._sockets: set[socket.socket] = set()
        self._is_closed = False

    def __enter__(self) -> "FaultProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_closed = True
        self._listener.close()
        self.cut()

    def arm(self, fault: Fault) -> Fault:
        """Strike once, at the nth request of this API from now on."""
        with self._lock:
            self._fault, self._seen = fault, 0
        return fault

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self.target, timeout=10)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        with self._lock:
            self._sockets |= {client, broker}
        try:
            # Each request is followed to its answer; pipelined ones wait their turn.
            while self._exchange(client, broker):
                pass
        except (OSError, EOFError):
            return
        finally:
            with self._lock:
                self._sockets -= {client, broker}
            client.close()
            broker.close()

    def _exchange(self, client: socket.socket, broker: socket.socket) -> bool:
        """One request and its answer; whether there may be more on this connection."""
        request = _read_frame(client)
        fault, pid = self._matching(struct.unpack(">h", request[4:6])[0], client)
        if fault is None:
            broker.sendall(request)
            client.sendall(_read_frame(broker))
            return True
        try:
            if fault.moment == BEFORE and self._strike(fault, pid):
                return False
            broker.sendall(request)
            answer = _read_frame(broker)
            if fault.moment == INSIDE and self._strike(fault, pid):
                return False
            client.sendall(answer)
            return fault.moment != AFTER or not self._strike(fault, pid)
        finally:
            if not fault.is_done.is_set():
                self._arm_again(fault)

    def _matching(self, api_key: int, client: socket.socket) -> tuple[Fault | None, int]:
        with self._lock:
            fault = self._fault
            if fault is None or fault.api_key != api_key:
                return None, 0
            pid = _process_at(client.getpeername()[1], self.port)
            if pid is None or not fault.counts(pid):
                return None, 0
            self._seen += 1
            if self._seen != fault.nth:
                return None, 0
            self._fault = None
            return fault, pid

    def _arm_again(self, fault: Fault) -> None:
        with self._lock:
            if self._fault is None:
                self._fault, self._seen = fault, fault.nth - 1

    def _strike(self, fault: Fault, pid: int) -> bool:
        """Do it; whether the connection is cut now."""
        fault.strike(pid)
        fault.is_done.set()
        return fault.cuts


def _process_at(port: int, proxy_port: int) -> int | None:
    """The process whose end of a connection to the proxy has this local port."""
    # The kernel's table of connections may pass over one that is there while others come and go.
    for _ in range(LOOKS_MAX):
        for connection in psutil.net_connections("tcp"):
            if connection.pid is None or not connection.raddr:
                continue
            # Connections to different places may have the same local port.
            if (connection.laddr.port, connection.raddr.port) == (port, proxy_port):
                return connection.pid
    return None


def _read_frame(source: socket.socket) -> bytes:
    head = _read(source, 4)
    return head + _read(source, struct.unpack(">i", head)[0])


def _read(source: socket.socket, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        piece = source.recv(min(1 << 20, size - len(pieces)))
        if not piece:
            raise EOFError
        pieces += piece
    return bytes(pieces)
