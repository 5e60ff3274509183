"""A proxy between clients and one broker that strikes at a chosen request.

It stands at the broker's advertised address, so that every connection of every client passes it. A
`Fault` names an API, which of its requests, and the moment: before the broker sees it, inside (the
broker has done it, nobody hears the answer), or after (the answer was delivered). Then it
calls an action, with the process on the client's end, and cuts the connection.
"""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

BEFORE, INSIDE, AFTER = "before", "inside", "after"
MOMENTS = (BEFORE, INSIDE, AFTER)


@dataclass
class Fault:
    api_key: int
    nth: int
    moment: str
    strike: Callable[[int | None], None]
    is_matched: threading.Event = field(default_factory=threading.Event)
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
        self.requests: list[int] = []

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

    def disarm(self) -> None:
        with self._lock:
            self._fault = None

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            one.close()

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
            return None
        with self._lock:
            self._sockets |= {client, broker}
        pid_port = client.getpeername()[1]
        try:
            # Each request is followed to its answer; pipelined ones wait their turn.
            while True:
                request = _read_frame(client)
                fault = self._matching(struct.unpack(">h", request[4:6])[0])
                if fault is not None and fault.moment == BEFORE:
                    return self._strike(fault, pid_port)
                broker.sendall(request)
                answer = _read_frame(broker)
                if fault is not None and fault.moment == INSIDE:
                    return self._strike(fault, pid_port)
                client.sendall(answer)
                if fault is not None:
                    return self._strike(fault, pid_port)
        except (OSError, EOFError):
            return None
        finally:
            client.close()
            broker.close()

    def _matching(self, api_key: int) -> Fault | None:
        with self._lock:
            self.requests.append(api_key)
            fault = self._fault
            if fault is None or fault.api_key != api_key:
                return None
            self._seen += 1
            if self._seen != fault.nth:
                return None
            self._fault = None
            fault.is_matched.set()
            return fault

    def _strike(self, fault: Fault, port: int) -> None:
        fault.strike(_process_at(port))
        fault.is_done.set()


def _process_at(port: int) -> int | None:
    """The process whose end of a connection has this local port."""
    for connection in psutil.net_connections("tcp"):
        if connection.laddr and connection.laddr.port == port and connection.pid is not None:
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
