"""The broker's small HTTP side: /livez, /readyz and /metrics.

Read-only, a few requests a minute: a hand-written server of GET keeps the broker free of a
web framework, and runs on the simulated network too. Anything but a well-formed GET of a known
path is a 4xx; a head larger than HEAD_BYTES_MAX closes the connection.

Owned by the event loop's thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

from ottla.runtime.interfaces import Listener, Network

HEAD_BYTES_MAX = 8192  # what common servers allow for a request head
CONNECTIONS_MAX = 64  # scrapers and probes; a flood is refused
SECONDS_MAX = 30.0  # a request that does not arrive by then is dropped

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Page(NamedTuple):
    status: int
    content_type: str
    body: bytes


Pages: TypeAlias = Mapping[str, Callable[[str], Page]]  # path -> function of the query string


class HttpServer:
    def __init__(self, network: Network, pages: Pages) -> None:
        self._network = network
        self.pages = pages
        self.open: set[_HttpConnection] = set()
        self._listener: Listener | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        self._listener = await self._network.listen(lambda: _HttpConnection(self), host, port)
        return self._listener.host, self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self.open):
            connection.close()


class _HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = bytearray(HEAD_BYTES_MAX)
        self._filled = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.open) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._server.open.add(self)
        self._timer = asyncio.get_running_loop().call_later(SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        head, separator, _ = bytes(self._buffer[: self._filled]).partition(b"\r\n\r\n")
        if separator:
            self._answer(self._page(head))
        elif self._filled == HEAD_BYTES_MAX:
            self._answer(_text(400, "The request head is too large."))

    def eof_received(self) -> bool:
        return False

    def _page(self, head: bytes) -> Page:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _text(400, "Send an HTTP/1.1 GET request.")
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _text(405, "Only GET is served here.")
        path, _, query = target.partition("?")
        page = self._server.pages.get(path)
        if page is None:
            known = ", ".join(sorted(self._server.pages))
            return _text(404, f"There is no such page; there are {known}.")
        found = page(query)
        return found._replace(body=b"") if method == "HEAD" else found

    def _answer(self, page: Page) -> None:
        head = (
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        if self._transport is not None:
            self._transport.write(head.encode("latin-1") + page.body)
            self._transport.close()


def _text(status: int, sentence: str) -> Page:
    return Page(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())
