"""From a request's API key and version to its handler.

Most handlers are typed: they get the decoded request and return the response as a plain
dict, which is encoded for the version that was asked; they never look at bytes. Produce and
fetch are raw: they get the buffer and return bytes, because they carry all the traffic.

Which APIs exist is said once, in `handlers/__init__.py`; ApiVersions is answered from it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import RequestHeader
from ottla.protocol.messages import (
    decode_request,
    encode_error_response,
    encode_response,
    encode_response_in_slices,
)
from ottla.server.connection import Answer, Connection, Deferred
from ottla.server.services import Services

log = logging.getLogger(__name__)

Fields: TypeAlias = Mapping[str, Any]
Versions: TypeAlias = Mapping[int, tuple[int, int]]


class Call(NamedTuple):
    """Who asks, and how."""

    version: int
    client_id: str | None
    client_host: str
    listener: str
    advertised: Versions  # what this listener offers
    connection: Connection
    header: RequestHeader
    frame: memoryview  # the whole request; it lies there only until the handler returns


class LongAnswer(NamedTuple):
    """An answer of one array that may be long; others are served while it is encoded."""

    array: str
    elements: Sequence[Fields]


TypedHandle: TypeAlias = Callable[
    [Services, Call, Any], Fields | Awaitable[Fields] | Awaitable[Fields | LongAnswer]
]
RawHandle: TypeAlias = Callable[
    [Services, Connection, RequestHeader, memoryview, int], Answer | Deferred
]


class Handler(NamedTuple):
    """One API: its key, the versions it parses, and exactly one of the two handles."""

    key: ApiKey
    versions: tuple[int, int]
    typed: TypedHandle | None = None
    raw: RawHandle | None = None


def _refusal(header: RequestHeader, request: Any, error: Exception) -> bytes:
    """The answer to a request that failed as a whole; whoever sent it may go on."""
    if isinstance(error, KafkaError):
        code, message = error.code, error.message
    else:
        log.error("%s failed", ApiKey(header.api_key).name, exc_info=error)
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
    return encode_error_response(
        header.api_key, header.api_version, header.correlation_id, request, code, message
    )


class Dispatcher:
    """The dispatch of one listener. Satisfies `connection.Dispatch`."""

    def __init__(
        self,
        services: Services,
        listener: str,
        handlers: tuple[Handler, ...],
        advertised: Versions,
    ) -> None:
        self._services = services
        self._listener = listener
        self._advertised = advertised
        self._requests = services.metrics.requests
        self._versions = {handler.key: handler.versions for handler in handlers}
        self._routes = {
            (int(handler.key), version): handler.raw or self._raw_of(handler)
            for handler in handlers
            for version in range(handler.versions[0], handler.versions[1] + 1)
            if version <= advertised[handler.key][1]
        }

    def __call__(
        self, connection: Connection, header: RequestHeader, buffer: memoryview, end: int
    ) -> Answer | Deferred:
        handle = self._routes.get(header[:2])
        if handle is None:
            return self._unsupported(header)
        self._requests[header.api_key] += 1
        return handle(self._services, connection, header, buffer, end)

    def _raw_of(self, handler: Handler) -> RawHandle:
        """A typed handler behind the signature of a raw one."""
        typed = handler.typed
        if typed is None:
            raise TypeError(f"{handler.key.name} has no handle")

        def handle(
            services: Services,
            connection: Connection,
            header: RequestHeader,
            buffer: memoryview,
            end: int,
        ) -> Answer | Deferred:
            key, version = header.api_key, header.api_version
            request = decode_request(key, version, buffer[header.body_start : end])
            call = Call(
                version,
                header.client_id,
                connection.peer_host,
                self._listener,
                self._advertised,
                connection,
                header,
                buffer[header.start : end],
            )
            try:
                fields = typed(services, call, request)
            except Exception as error:  # noqa: BLE001  a defect costs one answer, no connection
                return _refusal(header, request, error)
            if not isinstance(fields, dict) and inspect.isawaitable(fields):
                return Deferred(self._encode_later(header, request, fields))
            return encode_response(key, version, header.correlation_id, fields)

        return handle

    async def _encode_later(
        self, header: RequestHeader, request: Any, fields: Awaitable[Fields | LongAnswer]
    ) -> bytes:
        key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
        try:
            answer = await fields
        except Exception as error:  # noqa: BLE001  as above
            return _refusal(header, request, error)
        if not isinstance(answer, LongAnswer):
            return encode_response(key, version, correlation_id, answer)
        slices = []
        for one in encode_response_in_slices(key, version, correlation_id, *answer):
            slices.append(one)
            await asyncio.sleep(0)
        return b"".join(slices)

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
                            "min_version": self._versions[ApiKey.API_VERSIONS][0],
                            "max_version": self._versions[ApiKey.API_VERSIONS][1],
                        }
                    ],
                },
            )
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"API {header.api_key} in version {header.api_version} is not offered",
        )
