"""Who is asking: SASL PLAIN and SCRAM (RFC 5802) on a connection that has just been opened.

PLAIN sends the password, so it belongs behind TLS. SCRAM proves that both sides know it: the
client's proof is worth nothing to who listens, and the server must prove itself in turn, which is
checked. Shell over the connection; the arithmetic is pure.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from ottla.client.config import ClientConfig
from ottla.client.errors import raise_for
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.connection import Connection

_ITERATIONS_MIN = 4096  # Kafka's least; fewer would make the password cheap to guess
_ITERATIONS_MAX = 1 << 24  # seconds of work; a hostile server may name any number
_NONCE_BYTES = 24


def authenticate(connection: Connection, config: ClientConfig) -> None:
    """Authenticate, or raise SASL_AUTHENTICATION_FAILED with the broker's words."""
    mechanism = config.sasl_mechanism
    response = connection.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism}, version=1)
    offered = ", ".join(response.mechanisms)
    raise_for(
        response.error_code,
        f"{connection.address} does not take {mechanism}",
        f"it takes {offered}",
    )
    if mechanism == "PLAIN":
        _send(connection, b"\0".join((b"", *_credentials(config))))
        return
    user, password = _credentials(config)
    scram = Scram(mechanism, user, password, token_urlsafe(_NONCE_BYTES))
    first = _send(connection, scram.first_message())
    final = _send(connection, scram.final_message(first))
    scram.check_server(final)


class Scram:
    """The client's side of one SCRAM exchange."""

    def __init__(self, mechanism: str, user: bytes, password: bytes, nonce: str) -> None:
        self._hash = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
        name = user.replace(b"=", b"=3D").replace(b",", b"=2C")
        self._nonce = nonce.encode()
        self._password = password
        self._first_bare = b"n=" + name + b",r=" + self._nonce
        self._server_signature = b""

    def first_message(self) -> bytes:
        return b"n,," + self._first_bare

    def final_message(self, server_first: bytes) -> bytes:
        """The proof for the server's nonce, salt and iteration count."""
        fields = _fields_of(server_first)
        nonce = fields.get(b"r", b"")
        try:
            salt = b64decode(fields[b"s"], validate=True)
            iterations = int(fields[b"i"])
        except (KeyError, ValueError):
            raise _failed("the broker's challenge is not one of SCRAM") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _failed("the broker's nonce does not continue the client's")
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise _failed(f"the broker asks for {iterations} iterations")
        without_proof = b"c=biws,r=" + nonce
        message = b",".join((self._first_bare, server_first, without_proof))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._sign(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._sign(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._sign(self._sign(salted, b"Server Key"), message)
        return without_proof + b",p=" + b64encode(proof)

    def check_server(self, server_final: bytes) -> None:
        """The server must have known the password too."""
        fields = _fields_of(server_final)
        if b"e" in fields:
            raise _failed(fields[b"e"].decode(errors="replace"))
        expected = b64encode(self._server_signature)
        if not hmac.compare_digest(fields.get(b"v", b""), expected):
            raise _failed("the broker did not prove that it knows the password")

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _fields_of(message: bytes) -> dict[bytes, bytes]:
    pairs = (piece.partition(b"=") for piece in message.split(b","))
    return {name: value for name, _, value in pairs}


def _credentials(config: ClientConfig) -> tuple[bytes, bytes]:
    return config.sasl_username.encode(), config.sasl_password.encode()


def _send(connection: Connection, message: bytes) -> bytes:
    response = connection.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
    raise_for(response.error_code, f"{connection.address} refused the user", response.error_message)
    return bytes(response.auth_bytes)


def _failed(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {why}")
