"""Questions that librdkafka cannot ask, over `ottla.client`, with the same settings.

A command hands over its `Connection`, whose settings are librdkafka's; the wire client knows those
names too, TLS and SASL included. Blocking shell; every error leaves here as a `CliError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.errors import CliError, ExitCode, exit_code_of, sentence
from ottla.cli.settings import Connection

if TYPE_CHECKING:
    from ottla.client import Client

T = TypeVar("T")


@contextmanager
def wire_client(connection: Connection) -> Iterator[Client]:
    """A client of the cluster for the length of the block."""
    from ottla.client import Client, ClientConfig, Unreachable
    from ottla.protocol.errors import ErrorCode, KafkaError

    timeout_ms = str(max(1, round(connection.timeout_s * 1000)))
    properties = {
        "client.id": "ottla-cli",
        **connection.client,
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
        "socket.connection.setup.timeout.ms": timeout_ms,
    }
    try:
        with Client(ClientConfig.from_properties(properties)) as client:
            yield client
    except Unreachable as error:
        raise CliError(
            f"{sentence(str(error))[:-1]}; start a broker with 'ottla up' or name a running one "
            "with -b.",
            ExitCode.UNREACHABLE,
        ) from error
    except KafkaError as error:
        is_usage = error.code is ErrorCode.INVALID_CONFIG
        code = ExitCode.USAGE if is_usage else exit_code_of(error.code.name)
        raise CliError(sentence(str(error)), code) from error


def asked(connection: Connection, question: Callable[[Client], T]) -> T:
    """The answer to one question, tried again while the cluster settles."""
    with wire_client(connection) as client:
        return client.retrying(lambda: question(client))
