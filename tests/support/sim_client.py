"""A Kafka client inside the simulation: one connection, requests one after another."""

import asyncio
from collections.abc import Mapping
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

    async def _ask(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        if self._stream is None:
            stream = _Stream()
            await self._runtime.network.connect(lambda: stream, *self._address)
            self._stream = stream
        self._correlation_id += 1
        body = encode_request(key, version, self._correlation_id, "sim", fields)
        if self._stream.transport is None or self._stream.is_lost:
            raise ConnectionError("the broker is gone")
        self._stream.transport.write(pack(">i", len(body)) + body)
        frame = await self._stream.frame()
        correlation_id, entity = decode_response(key, version, memoryview(frame))
        if correlation_id != self._correlation_id:
            raise AssertionError(f"answer {correlation_id} to request {self._correlation_id}")
        return entity

    def disconnect(self) -> None:
        if self._stream is not None and self._stream.transport is not None:
            self._stream.transport.abort()
        self._stream = None
