"""A Kafka client inside the simulation: one connection, requests in their order."""

import asyncio
from collections.abc import Mapping, Sequence
from struct import pack, unpack_from
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response, encode_request
from ottla.runtime.interfaces import Runtime


class _Stream(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.arrived = asyncio.Event()
        self.is_lost = False
        self._buffer = bytearray(4096)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.arrived.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.arrived.set()

    def eof_received(self) -> bool:
        return False

    async def frame(self) -> bytes:
        while True:
            if len(self.received) >= 4:
                (length,) = unpack_from(">i", self.received)
                if len(self.received) >= 4 + length:
                    body = bytes(self.received[4 : 4 + length])
                    del self.received[: 4 + length]
                    return body
            if self.is_lost:
                raise ConnectionError("the broker is gone")
            self.arrived.clear()
            await self.arrived.wait()


class SimClient:
    """Asks a broker; a ConnectionError or TimeoutError says that the outcome is not known."""

    def __init__(self, runtime: Runtime, host: str, port: int) -> None:
        self._runtime = runtime
        self._address = (host, port)
        self._stream: _Stream | None = None
        self._correlation_id = 0

    async def ask(
        self, key: ApiKey, version: int, fields: Mapping[str, Any], seconds_max: float = 5.0
    ) -> Any:
        try:
            return await asyncio.wait_for(self._ask(key, version, fields), seconds_max)
        except (ConnectionError, TimeoutError):
            self.disconnect()
            raise

    async def ask_all(
        self,
        key: ApiKey,
        version: int,
        requests: Sequence[Mapping[str, Any]],
        seconds_max: float = 5.0,
    ) -> list[Any]:
        """Send all without waiting; the answers of the first ones, of how many is not known."""
        answers: list[Any] = []

        async def ask() -> None:
            stream = await self._connected()
            first_id = self._correlation_id + 1
            for fields in requests:
                self._send(stream, key, version, fields)
            for correlation_id in range(first_id, first_id + len(requests)):
                answers.append(await self._receive(stream, key, version, correlation_id))

        try:
            await asyncio.wait_for(ask(), seconds_max)
        except (ConnectionError, TimeoutError):
            self.disconnect()
        return answers

    async def _ask(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        stream = await self._connected()
        self._send(stream, key, version, fields)
        return await self._receive(stream, key, version, self._correlation_id)

    async def _connected(self) -> _Stream:
        if self._stream is None:
            stream = _Stream()
            await self._runtime.network.connect(lambda: stream, *self._address)
            self._stream = stream
        return self._stream

    def _send(self, stream: _Stream, key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
        self._correlation_id += 1
        body = encode_request(key, version, self._correlation_id, "sim", fields)
        if stream.transport is None or stream.is_lost:
            raise ConnectionError("the broker is gone")
        stream.transport.write(pack(">i", len(body)) + body)

    async def _receive(
        self, stream: _Stream, key: ApiKey, version: int, correlation_id: int
    ) -> Any:
        found, entity = decode_response(key, version, memoryview(await stream.frame()))
        if found != correlation_id:
            raise AssertionError(f"answer {found} to request {correlation_id}")
        return entity

    def disconnect(self) -> None:
        if self._stream is not None and self._stream.transport is not None:
            self._stream.transport.abort()
        self._stream = None
