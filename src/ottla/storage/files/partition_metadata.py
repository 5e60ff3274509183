"""`partition.metadata`: which topic, by id, a partition directory belongs to.

A topic that is deleted and created again has the same name but another id; without this file
a broker that was away would offer the old topic's records as the new one's. Pure.
"""

from uuid import UUID

from ottla.protocol import uuids
from ottla.storage.files.malformed import MalformedFileError, parse_int, text_of

FILE_NAME = "partition.metadata"
VERSION = 0


def encode_partition_metadata(topic_id: UUID) -> bytes:
    # Apache Kafka ends the last line without a newline.
    return f"version: {VERSION}\ntopic_id: {uuids.encode(topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> UUID:
    """The topic id. Later versions only add lines, so they are read too."""
    lines = text_of(data, path).splitlines()
    version = parse_int(_value(lines, 1, "version", path), path, line=1)
    if version < VERSION:
        raise MalformedFileError(path, f"version {version} is unknown", line=1)
    try:
        topic_id = uuids.decode(_value(lines, 2, "topic_id", path))
    except ValueError as error:
        raise MalformedFileError(path, str(error), line=2) from error
    if topic_id == uuids.ZERO:
        raise MalformedFileError(path, "the topic id is all zeros", line=2)
    return topic_id


def _value(lines: list[str], number: int, name: str, path: str) -> str:
    if len(lines) < number:
        raise MalformedFileError(path, f"no line with {name}", line=number)
    _, separator, value = lines[number - 1].partition(":")
    if not separator or not value.strip():
        raise MalformedFileError(path, f"{lines[number - 1]!r} gives no {name}", line=number)
    return value.strip()
