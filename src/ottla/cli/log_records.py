"""What does a record say that a broker wrote for brokers? Pure: bytes in, plain values out.

The metadata log and the internal topics hold records in binary forms of their own, which are told
apart by the directory that a segment lies in, or by the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from ottla.protocol import uuids
from ottla.protocol.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
)

TOPIC_ID_BYTES = 16

Fields = dict[str, Any]
Decode = Callable[[bytes | None, bytes | None], Fields]


def decoder_for(path: str, kind: str | None) -> Decode | None:
    """How the records of a file are read: as the user says, or as its directory does."""
    if kind is not None:
        return DECODERS[kind]
    topic = path.rpartition("/")[0].rpartition("/")[2].rpartition("-")[0]
    found = _KIND_BY_TOPIC.get(topic)
    return None if found is None else DECODERS[found]


def metadata_fields(key: bytes | None, value: bytes | None) -> Fields:
    """A record of the metadata log, whose key is empty."""
    from ottla.metadata.records import decode_record

    if value is None:
        return {}
    record = decode_record(value)
    return {"key": type(record).__name__, "value": plain(record)}


def offsets_fields(key: bytes | None, value: bytes | None) -> Fields:
    """A record of `__consumer_offsets`: a committed offset, or something of a group."""
    from ottla.coordinators.group.consumer.records import decode_consumer_record
    from ottla.coordinators.group.records import decode_record
    from ottla.coordinators.record_fields import FieldReader

    if key is None:
        return {}
    record = decode_record(key, value)
    if record is not None and not isinstance(record[0], str):
        return _coordinator_fields("OffsetCommit", record[0]._asdict(), record[1])
    if record is None:
        reader = FieldReader(key)
        record_type = reader.int16()
        found = decode_consumer_record(record_type, reader, value)
        if found is None:
            return {"key": {"type": record_type}}
        name, values = type(found).__name__, found._asdict()
    else:
        name, values = type(record).__name__, record._asdict()
    *_, last = values
    content = values.pop(last)
    return _coordinator_fields(name.removesuffix("Record"), values, content)


def transaction_fields(key: bytes | None, value: bytes | None) -> Fields:
    """A record of `__transaction_state`: where a transactional id stands."""
    from ottla.coordinators.transaction.records import decode_key, decode_value

    if key is None:
        return {}
    named = {"transactional_id": decode_key(key)}
    return _coordinator_fields("Transaction", named, None if value is None else decode_value(value))


def _coordinator_fields(kind: str, named: Mapping[str, Any], value: Any) -> Fields:
    return {"key": {"type": kind, **plain(named)}, "value": plain(value)}


DECODERS: Mapping[str, Decode] = {
    "metadata": metadata_fields,
    "offsets": offsets_fields,
    "transactions": transaction_fields,
}
_KIND_BY_TOPIC = {
    CLUSTER_METADATA_TOPIC: "metadata",
    OFFSETS_TOPIC: "offsets",
    TRANSACTION_TOPIC: "transactions",
}


def plain(value: Any) -> Any:
    """A value that JSON can carry: ids as Kafka prints them, records as dicts."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, UUID):
        return uuids.encode(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {_name(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return text(value)
    return value


def _name(key: Any) -> str:
    """The key of a map; topics are kept by their raw ids."""
    if isinstance(key, bytes) and len(key) == TOPIC_ID_BYTES:
        return uuids.encode(UUID(bytes=key))
    return text(key) or "" if isinstance(key, bytes) else str(key)


def text(data: bytes | None) -> str | None:
    """Bytes as text, with escapes for what cannot be shown."""
    if data is None:
        return None
    shown = data.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
