"""The proxy that other tests strike with: a fault is done only when it has struck."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.fault_proxy import AFTER, BEFORE, INSIDE, Fault, FaultProxy

API_KEY = 3
FRAME = struct.pack(">ihhi", 8, API_KEY, 0, 7)
# Sends the frame on a connection of its own, as often as it is told, and says what it heard.
CLIENT = """
import socket, sys

for _ in range(int(sys.argv[2])):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as place:
        place.sendall(bytes.fromhex(sys.argv[3]))
        try:
            heard = len(place.recv(100))
        except ConnectionResetError:
            heard = 0
    print(heard, end=" ")
"""


class EchoServer:
    """Sends back what it gets; closes the first `broken` connections instead."""

    def __init__(self, broken: int) -> None:
        self.broken = broken
        self.heard = 0
        self.listener = socket.create_server(("127.0.0.1", 0))

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                while data := client.recv(100):
                    self.heard += 1
                    if self.heard <= self.broken:
                        break
                    client.sendall(data)


@contextmanager
def proxied(broken: int = 0) -> Iterator[tuple[FaultProxy, EchoServer]]:
    server = EchoServer(broken)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        with FaultProxy(server.listener.getsockname()) as proxy:
            yield proxy, server
    finally:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(30)


def ask(proxy: FaultProxy, count: int) -> str:
    """How many bytes another process hears in answer to each of its requests."""
    command = [sys.executable, "-c", CLIENT, str(proxy.port), str(count), FRAME.hex()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(
    ("moment", "said", "heard"),
    [(BEFORE, "12 0 12 ", 2), (INSIDE, "12 0 12 ", 3), (AFTER, "12 12 12 ", 3)],
)
def test_the_chosen_request_is_struck_at_its_moment(moment: str, said: str, heard: int) -> None:
    with proxied() as (proxy, server):
        struck: list[int] = []
        fault = proxy.arm(Fault(API_KEY, 2, moment, struck.append))
        assert ask(proxy, 3) == said
        assert fault.is_done.wait(30)
        assert len(struck) == 1
        assert server.heard == heard


def test_a_request_that_broke_by_itself_leaves_the_fault_to_the_next_one() -> None:
    with proxied(broken=1) as (proxy, server):
        struck: list[int] = []
        fault = proxy.arm(Fault(API_KEY, 1, INSIDE, struck.append))
        assert ask(proxy, 1) == "0 "
        assert not fault.is_done.is_set()
        assert ask(proxy, 2) == "0 12 "
        assert fault.is_done.is_set()
        assert server.heard == 3


def test_an_action_that_finds_nobody_leaves_the_fault_to_the_next_one() -> None:
    with proxied() as (proxy, _):
        struck: list[int] = []

        def strike(pid: int) -> None:
            struck.append(pid)
            if len(struck) == 1:
                raise ProcessLookupError

        fault = proxy.arm(Fault(API_KEY, 1, INSIDE, strike))
        assert ask(proxy, 3) == "0 0 12 "
        assert fault.is_done.is_set()


def test_a_fault_that_does_not_cut_holds_the_answer_until_it_has_struck() -> None:
    with proxied() as (proxy, server):
        heard: list[int] = []
        fault = Fault(API_KEY, 1, INSIDE, lambda pid: heard.append(server.heard), cuts=False)
        proxy.arm(fault)
        assert ask(proxy, 1) == "12 "
        assert heard == [1]


def test_ones_own_requests_are_not_struck() -> None:
    with proxied() as (proxy, _):
        fault = proxy.arm(Fault(API_KEY, 1, BEFORE, lambda pid: os.kill(pid, 0)))
        with socket.create_connection(("127.0.0.1", proxy.port)) as place:
            place.sendall(FRAME)
            assert place.recv(100) == FRAME
        assert not fault.is_done.is_set()
