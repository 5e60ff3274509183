"""Messages that kio has no schema for: the records of the metadata, offsets and transaction logs.

They are declared, by the rooms that own them, as dataclasses in kio's style (`__type__`,
`__version__`, `__flexible__`, a `kafka_type` for each field) and are read and written here by
kio's own codec, so that every struct of Kafka's formats has one implementation. Pure.

The version in front of a record, and in the metadata log its frame, belong to the caller.
"""

from io import BytesIO
from typing import Any, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError

E = TypeVar("E")


def decode_entity(schema: type[E], data: bytes | memoryview) -> E:
    """The entity in `data`; KafkaError(CORRUPT_MESSAGE) if it is not one. Bytes after it are
    ignored: a later version may have put something there."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    read: Any = entity_reader(schema)  # type: ignore[type-var]  # declared in kio's style
    try:
        entity: E = read(memoryview(data).toreadonly(), 0)[0]
    except (SerialError, ValueError, OverflowError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Not a {schema.__name__}: {type(error).__name__}",
        ) from error
    return entity


def encode_entity(entity: Any) -> bytes:
    """The bytes of an entity, without a version in front."""
    from kio.serial import entity_writer

    buffer = BytesIO()
    write: Any = entity_writer(type(entity))
    write(buffer, entity)
    return buffer.getvalue()
