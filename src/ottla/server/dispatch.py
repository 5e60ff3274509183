"""From a request's API key and version to its handler.

Most handlers are typed: they get the decoded request and return the response as a plain
dict, which is encoded for the version that was asked; they never look at bytes. Produce and
fetch are raw: they get the buffer and return bytes, because they carry all the traffic.

Which APIs exist is said once, in `handlers/__init__.py`; ApiVersions is answered from it.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import RequestHeader
from ottla.protocol.messages import decode_request, encode_response
from ottla.server.connection import Answer, Connection, Deferred
from ottla.server.services import Services

Fields: TypeAlias = Mapping[str, Any]


class Call(NamedTuple):
    """Who asks, and how."""

    version: int
    client_id: str | None
    client_host: str
    listener: str
    connection: Connection


TypedHandle: TypeAlias = Callable[[Services, Call, Any], Fields | Awaitable[Fields]]
RawHandle: TypeAlias = Callable[
    [Services, Connection, RequestHeader, memoryview, int], Answer | Deferred
]


class Handler(NamedTuple):
    """One API: its key, the versions it parses, and exactly one of the two handles."""

    key: ApiKey
    versions: tuple[int, int]
    typed: TypedHandle | None = None
    raw: RawHandle | None = None


class Dispatcher:
    """The dispatch of one listener. Satisfies `connection.Dispatch`."""

    def __init__(self, services: Services, listener: str, handlers: tuple[Handler, ...]) -> None:
        self._services = services
        self._listener = listener
        self._handlers = {int(handler.key): handler for handler in handlers}
        self._requests = services.metrics.requests

    def __call__(
        self, connection: Connection, header: RequestHeader, buffer: memoryview, end: int
    ) -> Answer | Deferred:
        handler = self._handlers.get(header.api_key)
        if handler is None or not (
            handler.versions[0] <= header.api_version <= handler.versions[1]
        ):
            return self._unsupported(header)
        self._requests[header.api_key] += 1
        if handler.raw is not None:
            return handler.raw(self._services, connection, header, buffer, end)
        return self._call_typed(handler, connection, header, buffer, end)

    def _call_typed(
        self,
        handler: Handler,
        connection: Connection,
        header: RequestHeader,
        buffer: memoryview,
        end: int,
    ) -> Answer | Deferred:
        request = decode_request(
            header.api_key, header.api_version, buffer[header.body_start : end]
        )
        call = Call(
            header.api_version,
            header.client_id,
            connection.peer_host,
            self._listener,
            connection,
        )
        typed = handler.typed
        if typed is None:
            raise TypeError(f"{handler.key.name} has no handle")
        fields = typed(self._services, call, request)
        if inspect.isawaitable(fields):
            return Deferred(self._encode_later(header, fields))
        return encode_response(header.api_key, header.api_version, header.correlation_id, fields)

    async def _encode_later(self, header: RequestHeader, fields: Awaitable[Fields]) -> bytes:
        return encode_response(
            header.api_key, header.api_version, header.correlation_id, await fields
        )

    def _unsupported(self, header: RequestHeader) -> Answer:
        if header.api_key == ApiKey.API_VERSIONS:
            # A client newer than this broker asks again with what it is told here (KIP-511).
            return encode_response(
                header.api_key,
                0,
                header.correlation_id,
                {
                    "error_code": ErrorCode.UNSUPPORTED_VERSION,
                    "api_keys": [
                        {
                            "api_key": ApiKey.API_VERSIONS,
                            "min_version": self._handlers[ApiKey.API_VERSIONS].versions[0],
                            "max_version": self._handlers[ApiKey.API_VERSIONS].versions[1],
                        }
                    ],
                },
            )
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"API {header.api_key} in version {header.api_version} is not offered",
        )
