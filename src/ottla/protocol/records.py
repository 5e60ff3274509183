"""Messages that kio has no schema for: the records of the metadata, offsets and transaction logs.

They are declared, by the rooms that own them, as dataclasses in kio's style (`__version__`,
`__flexible__`, a `kafka_type` for each field) and are read and written here by the same compiled
code as every other message. Pure.

The version in front of a record, and in the metadata log its frame, belong to the caller.
"""

from typing import Any, TypeVar

from ottla.protocol.decoders import decoder_of
from ottla.protocol.encoders import entity_encoder_of
from ottla.protocol.errors import ErrorCode, KafkaError

E = TypeVar("E")


def decode_entity(schema: type[E], data: bytes | bytearray | memoryview) -> E:
    """The entity in `data`; KafkaError(CORRUPT_MESSAGE) if it is not one.

    Bytes after it are ignored: a later version may have put something there.
    """
    shape: Any = schema
    try:
        entity: E = decoder_of(shape)(memoryview(data), 0)[0]
    except KafkaError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, error.message) from error
    return entity


def encode_entity(entity: Any) -> bytes:
    """The bytes of an entity, without a version in front."""
    parts: list[bytes] = []
    schema: Any = type(entity)
    entity_encoder_of(schema)(entity, parts.append)
    return b"".join(parts)
