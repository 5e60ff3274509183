"""One question to one broker, for the few that librdkafka cannot ask.

It speaks plaintext only; a cluster behind TLS or SASL is told so in words. Each question opens a
connection of its own, as a command asks one or two. Shell: asyncio for the length of the call.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

from ottla.cli.errors import CliError, ExitCode
from ottla.cli.settings import Connection

# Far above what a description of log directories takes; a stranger's port may claim any length.
RESPONSE_BYTES_MAX = 64 * 1024 * 1024
_CORRELATION_ID = 1


def is_plaintext(connection: Connection) -> bool:
    """Whether this module can speak to the cluster at all."""
    return connection.client.get("security.protocol", "plaintext").lower() == "plaintext"


def ask(
    connection: Connection,
    address: tuple[str, int],
    *,
    api_key: int,
    version: int,
    fields: Mapping[str, Any],
) -> Any:
    """The decoded response of one broker."""
    from ottla.protocol.messages import decode_response, encode_request

    host, port = address
    if not is_plaintext(connection):
        raise CliError(f"{host}:{port} is not asked for this over TLS or SASL; use Kafka's tools.")
    frame = encode_request(api_key, version, _CORRELATION_ID, "ottla-cli", fields)
    try:
        answer = asyncio.run(asyncio.wait_for(_exchange(host, port, frame), connection.timeout_s))
    except TimeoutError as error:
        raise CliError(
            f"{host}:{port} did not answer within {connection.timeout_s:g} s; "
            "try a longer --timeout.",
            ExitCode.UNREACHABLE,
        ) from error
    except (OSError, asyncio.IncompleteReadError) as error:
        raise CliError(
            f"{host}:{port} closed the connection ({error}); is it a Kafka broker?",
            ExitCode.UNREACHABLE,
        ) from error
    _, response = decode_response(api_key, version, memoryview(answer))
    return response


async def _exchange(host: str, port: int, frame: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        await writer.drain()
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise ConnectionError(f"it announced {size} bytes")
        return await reader.readexactly(size)
    finally:
        writer.close()
