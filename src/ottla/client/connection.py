"""One connection to one broker: requests out, answers back in the order of the requests.

A broker answers the requests of a connection in order, so several may be under way at once; who
sends ahead receives in the same order. Which versions the broker speaks is asked once, when the
connection opens, and every request takes the highest version that both know.

Shell around one blocking socket; it belongs to one thread. After any failure of the transport the
connection is closed: what was under way may or may not have been done.
"""

import socket
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from struct import Struct
from time import monotonic
from typing import Any, NamedTuple

from ottla.client.authentication import authenticate
from ottla.client.config import RESPONSE_BYTES_MAX, Address, ClientConfig
from ottla.client.errors import Unreachable
from ottla.protocol.api import VERSIONS, ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import skip_response_header
from ottla.protocol.messages import decode_response, request_parts

_LENGTH = Struct(">i")
_SHORT = Struct(">h")
_SOFTWARE_NAME = "ottla"
_SOFTWARE_VERSION = "0.1"
# Brokers answer an ApiVersions request they do not know in version 0, which lists what they know.
_API_VERSIONS_FIRST = 3
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PARTS_MAX = 512  # in one call; systems allow a thousand
_SHORTEST_TIMEOUT_S = 0.001  # a timeout of zero would make the socket non-blocking


class Pending(NamedTuple):
    """A request whose answer has not been received."""

    correlation_id: int
    api_key: ApiKey
    version: int


class Frame(NamedTuple):
    """A received answer, undecoded."""

    api_key: ApiKey
    version: int
    data: memoryview
    body_start: int


class Connection:
    """Opened, negotiated and authenticated by its constructor."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self.config = config
        self._correlation_id = 0
        self._pending: deque[Pending] = deque()
        self._ranges: dict[int, tuple[int, int]] = {}
        self._is_closed = False
        self._receive_deadline = 0.0
        self._socket = _open(address, config)
        try:
            self._negotiate()
            if config.is_sasl:
                authenticate(self, config)
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    @property
    def pending_count(self) -> int:
        """How many answers are still to be received."""
        return len(self._pending)

    def knows(self, api_key: ApiKey) -> bool:
        """Whether the broker announced this API."""
        return api_key in self._ranges

    def version_of(self, api_key: ApiKey, *, lowest: int = 0, highest: int | None = None) -> int:
        """The highest version that both sides know, within the bounds of the caller."""
        ours = VERSIONS[api_key]
        theirs = self._ranges.get(api_key)
        if theirs is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self.address} does not serve {api_key.name}"
            )
        version = min(ours[1], theirs[1], ours[1] if highest is None else highest)
        if version < max(ours[0], theirs[0], lowest):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves {api_key.name} in versions {theirs[0]} to {theirs[1]}; "
                f"needed is one from {max(ours[0], lowest)} to {highest or ours[1]}",
            )
        return version

    def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, version: int | None = None) -> Any:
        """Send one request and decode its answer; nothing else may be under way."""
        if self._pending:
            raise ValueError("answers to earlier requests are still to be received")
        self.send(api_key, fields, version=version)
        frame = self.receive()
        return decode_response(frame.api_key, frame.version, frame.data)[1]

    def send(
        self, api_key: ApiKey, fields: Mapping[str, Any], *, version: int | None = None
    ) -> int:
        """Send one request without waiting; return the version it was sent in."""
        if version is None:
            version = self.version_of(api_key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = request_parts(api_key, version, self._correlation_id, self.config.client_id, fields)
        self._send_parts([_LENGTH.pack(sum(map(len, parts))), *parts])
        self._pending.append(Pending(self._correlation_id, api_key, version))
        return version

    def send_without_answer(
        self, api_key: ApiKey, fields: Mapping[str, Any], *, version: int
    ) -> None:
        """Send a request that the broker does not answer: a produce with acks=0."""
        self.send(api_key, fields, version=version)
        self._pending.pop()

    def receive(self, buffer: bytearray | None = None, *, extra_wait_ms: int = 0) -> Frame:
        """The next answer, in `buffer` if it is large enough, or in memory of its own."""
        if not self._pending:
            raise ValueError("no request is under way")
        expected = self._pending.popleft()
        wait_s = (self.config.request_timeout_ms + extra_wait_ms) / 1000
        self._receive_deadline = monotonic() + wait_s
        head = bytearray(4)
        self._fill(memoryview(head), expected)
        size = _LENGTH.unpack(head)[0]
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise self._lost(f"it announced a response of {size} bytes; is it a Kafka broker?")
        if buffer is None or len(buffer) < size:
            buffer = bytearray(size)
        data = memoryview(buffer)[:size]
        self._fill(data, expected)
        correlation_id, body_start = skip_response_header(expected.api_key, expected.version, data)
        if correlation_id != expected.correlation_id:
            raise self._lost(
                f"it answered request {correlation_id} where {expected.correlation_id} was due"
            )
        return Frame(expected.api_key, expected.version, data, body_start)

    def close(self) -> None:
        """Close the socket; answers still under way are given up."""
        self._is_closed = True
        self._pending.clear()
        self._socket.close()

    def _negotiate(self) -> None:
        fields = {
            "client_software_name": _SOFTWARE_NAME,
            "client_software_version": _SOFTWARE_VERSION,
        }
        try:
            response = self._ask_versions(_API_VERSIONS_FIRST, fields)
        except _AnsweredInVersion0 as older:
            response = older.response
            if not response.api_keys:
                response = self._ask_versions(0, {})
        if int(response.error_code) not in (0, ErrorCode.UNSUPPORTED_VERSION):
            raise self._lost(f"it refused to name its versions (error {int(response.error_code)})")
        self._ranges = {
            int(entry.api_key): (int(entry.min_version), int(entry.max_version))
            for entry in response.api_keys
        }

    def _ask_versions(self, version: int, fields: Mapping[str, Any]) -> Any:
        self.send(ApiKey.API_VERSIONS, fields, version=version)
        frame = self.receive()
        # The error code comes first in every version.
        code = _SHORT.unpack_from(frame.data, frame.body_start)[0]
        is_refused = code == ErrorCode.UNSUPPORTED_VERSION
        spoken = 0 if is_refused else version
        response = decode_response(ApiKey.API_VERSIONS, spoken, frame.data)[1]
        if is_refused and version:
            raise _AnsweredInVersion0(response)
        return response

    def _send_parts(self, parts: Sequence[bytes]) -> None:
        if self._is_closed:
            raise Unreachable(f"The connection to {self.address} is closed")
        try:
            self._socket.settimeout(self.config.request_timeout_ms / 1000)
            if self.config.is_tls:
                self._socket.sendall(b"".join(parts))
            else:
                _send_all(self._socket, parts)
        except TimeoutError:
            raise self._lost("it took nothing within request.timeout.ms") from None
        except OSError as error:
            raise self._lost(_reason(error)) from error

    def _fill(self, target: memoryview, expected: Pending | None) -> None:
        """Fill `target` before the deadline of this answer."""
        filled, size = 0, len(target)
        while filled < size:
            try:
                left_s = self._receive_deadline - monotonic()
                self._socket.settimeout(max(left_s, _SHORTEST_TIMEOUT_S))
                count = self._socket.recv_into(target[filled:])
            except TimeoutError:
                what = expected.api_key.name if expected else "a SASL message"
                lost = self._lost(f"it did not answer {what} within request.timeout.ms")
                lost.code = ErrorCode.REQUEST_TIMED_OUT
                raise lost from None
            except OSError as error:
                raise self._lost(_reason(error)) from error
            if count == 0:
                raise self._lost("it closed the connection")
            filled += count

    def _lost(self, why: str) -> Unreachable:
        self.close()
        return Unreachable(f"{self.address} cannot be used: {why}")


class _AnsweredInVersion0(Exception):
    def __init__(self, response: Any) -> None:
        super().__init__("the broker knows older versions of ApiVersions only")
        self.response = response


def _open(address: Address, config: ClientConfig) -> socket.socket:
    try:
        plain = socket.create_connection(
            (address.host, address.port), timeout=config.connect_timeout_ms / 1000
        )
    except OSError as error:
        raise Unreachable(f"{address} cannot be reached: {_reason(error)}") from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if config.receive_buffer_bytes > 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
        if config.send_buffer_bytes > 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
        if not config.is_tls:
            return plain
        return _tls_context(config).wrap_socket(plain, server_hostname=address.host)
    except OSError as error:
        plain.close()
        raise Unreachable(f"{address} refused TLS: {_reason(error)}") from error
    except BaseException:
        plain.close()
        raise


def _send_all(target: socket.socket, parts: Sequence[bytes]) -> None:
    """Send every part without putting them together first: records are megabytes."""
    left = deque(memoryview(part) for part in parts if part)
    while left:
        sent = target.sendmsg(list(islice(left, _PARTS_MAX)))
        while left and sent >= len(left[0]):
            sent -= len(left.popleft())
        if sent:
            left[0] = left[0][sent:]


def _tls_context(config: ClientConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=config.ssl_ca_location or None, cadata=config.ssl_ca_pem or None
        )
        context.check_hostname = config.ssl_checks_host_name
        versions = [_TLS_VERSIONS[name] for name in config.ssl_protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        if config.ssl_certificate_location:
            context.load_cert_chain(
                config.ssl_certificate_location,
                config.ssl_key_location or None,
                config.ssl_key_password or None,
            )
    except (OSError, ValueError) as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"The ssl.* files cannot be used: {error}"
        ) from error
    return context


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
