"""UUIDs as Kafka writes them: URL-safe Base64 without padding, 22 characters. Pure.

Topic ids, directory ids and cluster ids appear so in files, configurations and tools; on
the wire they are 16 raw bytes.
"""

from base64 import urlsafe_b64encode
from binascii import Error, a2b_base64
from uuid import UUID

ZERO = UUID(int=0)
ONE = UUID(int=1)  # reserved: the topic id of __cluster_metadata

_TEXT_LENGTH = 22
_URL_SAFE = str.maketrans("-_", "+/")


def encode(value: UUID) -> str:
    """The 22 characters of `value`."""
    return urlsafe_b64encode(value.bytes).decode("ascii")[:_TEXT_LENGTH]


def decode(text: str) -> UUID:
    """The UUID that `encode` wrote so; ValueError for anything else."""
    if len(text) > _TEXT_LENGTH + 2:
        raise ValueError(f"{text[:32]!r}... is too long for a UUID in Base64")
    bare = text.rstrip("=")
    if "+" in bare or "/" in bare or not bare.isascii():
        raise ValueError(f"{text!r} is not a UUID in URL-safe Base64")
    try:
        raw = a2b_base64(bare.translate(_URL_SAFE) + "=" * (-len(bare) % 4), strict_mode=True)
    except Error as error:
        raise ValueError(f"{text!r} is not a UUID in URL-safe Base64: {error}") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} holds {len(raw)} bytes, a UUID has 16")
    return UUID(bytes=raw)
