"""Random messages of any schema, as plain dicts and as kio's entities, from one seeded source.

Values lean towards the edges: empty and null, the highest and lowest integers, strings long
enough for two bytes of length.
"""

import datetime
import random
import uuid
from collections.abc import Iterator
from typing import Any

from kio.index import load_request_schema, load_response_schema

from ottla.protocol.api import PRODUCE_VERSION_MIN, VERSIONS, ApiKey
from ottla.protocol.schemas import EPOCH, Kind, kinds_of

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ALPHABET = "abcXYZ019-_.äß中🙂"
_LONG_STRING = 300
_TIMESTAMP_MS_MAX = 4_000_000_000_000  # far enough, and exact in kio's floats


def served_versions() -> Iterator[tuple[ApiKey, int]]:
    """Every API in every version that has a schema."""
    for api_key, (lowest, highest) in VERSIONS.items():
        if api_key == ApiKey.PRODUCE:
            lowest = PRODUCE_VERSION_MIN
        for version in range(lowest, highest + 1):
            yield api_key, version


def all_schemas() -> Iterator[tuple[ApiKey, int, Any]]:
    """Requests and responses of everything served."""
    for api_key, version in served_versions():
        yield api_key, version, load_request_schema(api_key, version)
        yield api_key, version, load_response_schema(api_key, version)


def random_fields(rng: random.Random, schema: Any) -> dict[str, Any]:
    """A dict with a value for every field of `schema`."""
    kinds, tagged = kinds_of(schema)
    return {kind.name: _random_value(rng, kind) for kind in kinds + tagged}


def entity_from(schema: Any, fields: dict[str, Any]) -> Any:
    """The kio entity that a complete dict describes."""
    kinds, tagged = kinds_of(schema)
    return schema(**{kind.name: _entity_value(kind, fields[kind.name]) for kind in kinds + tagged})


def _random_value(rng: random.Random, kind: Kind) -> Any:
    if kind.tag is not None and kind.has_default and rng.random() < 0.4:
        return kind.default
    if kind.nullable and (kind.tag is None or kind.default is None) and rng.random() < 0.25:
        return None
    if kind.is_array:
        return [_random_item(rng, kind) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _random_item(rng, kind)


def _random_item(rng: random.Random, kind: Kind) -> Any:
    if kind.entity:
        return random_fields(rng, kind.entity)
    wire = kind.wire
    if wire in _INTEGER_BITS:
        high = (1 << (_INTEGER_BITS[wire] - 1)) - 1
        return rng.choice((0, -1, 1, high, -high - 1, rng.randint(-high - 1, high)))
    if wire == "uint16":
        return rng.choice((0, 65_535, rng.randint(0, 65_535)))
    if wire == "string":
        length = rng.choice((0, 1, 5, 20, _LONG_STRING if rng.random() < 0.1 else 3))
        return "".join(rng.choice(_ALPHABET) for _ in range(length))
    if wire in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 30, 200)))
    simple = {
        "bool": lambda: rng.random() < 0.5,
        "float64": lambda: rng.uniform(-1e12, 1e12),
        "error_code": lambda: rng.randint(-1, 120),
        "timedelta_i32": lambda: rng.randint(-(1 << 31), (1 << 31) - 1),
        "timedelta_i64": lambda: rng.randint(-1, 1 << 45),
        "datetime_i64": lambda: rng.randint(0, _TIMESTAMP_MS_MAX),
        "uuid": lambda: uuid.UUID(int=rng.getrandbits(128) | 1),
    }
    return simple[wire]()


def _entity_value(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind.is_array:
        return tuple(_entity_item(kind, item) for item in value)
    return _entity_item(kind, value)


def _entity_item(kind: Kind, value: Any) -> Any:
    from kio.schema.errors import ErrorCode

    if kind.entity:
        return entity_from(kind.entity, value)
    if kind.wire == "error_code":
        return ErrorCode(value)
    if kind.wire.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kind.wire == "datetime_i64":
        return EPOCH + datetime.timedelta(milliseconds=value)
    return value
