"""Who connects before the broker is ready is answered once it is, and not before."""

import asyncio
import struct

from ottla.protocol.api import ApiKey
from ottla.runtime.real import real_runtime, run
from ottla.server.connection_limits import ConnectionLimits
from ottla.server.listener import Acceptor
from ottla.server.read_buffers import ReadBuffers

FRAME = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)


def test_early_connection_is_answered_when_the_broker_opens() -> None:
    asked: list[int] = []

    def dispatch(_connection: object, header: object, _buffer: object, _end: int) -> bytes:
        asked.append(getattr(header, "correlation_id", 0))
        return b"answer"

    async def main() -> None:
        acceptor = Acceptor(
            real_runtime(),
            "PLAINTEXT",
            dispatch,
            ConnectionLimits(),
            ReadBuffers(),
            request_bytes_max=1_000,
            idle_ms_max=60_000,
        )
        host, port = await acceptor.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(host, port)
        # In two parts, each of which the broker's loop has every chance to read.
        for part in (FRAME + FRAME[:5], FRAME[5:] + FRAME):
            writer.write(part)
            await asyncio.sleep(0.05)
        assert asked == []
        acceptor.open()
        for _ in range(3):
            assert await reader.readexactly(10) == b"\0\0\0\6answer"
        assert asked == [1, 1, 1]
        writer.close()
        await acceptor.close(1.0)

    run(main())
