"""What the options of a write mean: those of Spark's own Kafka sink, and Ottla's. Pure.

Names are not case-sensitive. `kafka.*` are the properties of a Kafka producer; those that concern
how Java's producer works inside are accepted and have no effect. What cannot be obeyed is refused
with a sentence before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ottla.client.config import ClientConfig
from ottla.client.transactions import (
    ACKS_ALL,
    DELIVERY_TIMEOUT_MS,
    IN_FLIGHT_MAX,
    TRANSACTION_TIMEOUT_MS,
)
from ottla.protocol.codecs import NAMES as CODEC_NAMES
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import KafkaError
from ottla.spark.exactly_once import MismatchPolicy
from ottla.spark.partitioner import Partitioning, partitioning_of
from ottla.spark.sink_errors import SinkError

T = TypeVar("T")

BATCH_BYTES = 524_288  # few large batches cost a broker least; topics take 1 MB unless told
REQUEST_BYTES_MAX = 1_048_576  # Kafka's default of max.request.size
TRANSACTIONAL_ID_PREFIX = "ottla"

EXACTLY_ONCE = "exactly_once"
AT_LEAST_ONCE = "at_least_once"

_PREFIX = "kafka."
_REFUSED = {
    "kafka.key.serializer": "keys are written as they are; cast the column to STRING or BINARY",
    "kafka.value.serializer": "values are written as they are; cast the column to STRING or BINARY",
    "kafka.interceptor.classes": "Java classes cannot run in this sink",
    "kafka.transactional.id": (
        "the sink makes its own from the query's id; 'transactionalIdPrefix' changes how it begins"
    ),
}
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}
_LEVEL_NAMES = {
    Codec.GZIP: "kafka.compression.gzip.level",
    Codec.LZ4: "kafka.compression.lz4.level",
    Codec.ZSTD: "kafka.compression.zstd.level",
}
_INT_MAX = 2**31 - 1


class Field(NamedTuple):
    """A column of what is written: its name and its type as Spark writes types."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Every option that the sink obeys."""

    client: ClientConfig
    topic: str | None
    is_exactly_once: bool
    stage_directory: str | None
    checkpoint_location: str | None
    transactional_id_prefix: str
    marker_topic: str | None
    mismatch_policy: MismatchPolicy
    write_id: str | None
    query_id: str | None
    batch_id: int
    partitioning: Partitioning
    codec: Codec
    codec_level: int | None
    batch_bytes_max: int
    request_bytes_max: int
    acks: int
    is_idempotent: bool
    in_flight_max: int
    transaction_timeout_ms: int
    delivery_timeout_ms: int


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write; SinkError if one cannot be obeyed."""
    given = {name.lower(): str(value) for name, value in options.items()}
    for name, why in _REFUSED.items():
        if name in given:
            raise SinkError(f"The option '{name}' cannot be set: {why}.")
    delivery = given.get("delivery", EXACTLY_ONCE).strip().lower()
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise SinkError(f"delivery is '{delivery}', not {EXACTLY_ONCE} or {AT_LEAST_ONCE}.")
    is_exactly_once = delivery == EXACTLY_ONCE
    acks, is_idempotent = _acks(given, is_exactly_once=is_exactly_once)
    codec = _choice(given, "kafka.compression.type", CODEC_NAMES, "none")
    request_bytes_max = _number(given, "kafka.max.request.size", REQUEST_BYTES_MAX, 1)
    batch_bytes = _number(given, "kafka.batch.size", BATCH_BYTES, 0)
    policies = {policy.value: policy for policy in MismatchPolicy}
    level_name = _LEVEL_NAMES.get(codec, "")
    return SinkOptions(
        client=client_config(given),
        topic=_text(given, "topic"),
        is_exactly_once=is_exactly_once,
        stage_directory=_text(given, "stagedirectory"),
        checkpoint_location=_text(given, "checkpointlocation"),
        transactional_id_prefix=_text(given, "transactionalidprefix") or TRANSACTIONAL_ID_PREFIX,
        marker_topic=_text(given, "markertopic"),
        mismatch_policy=_choice(given, "markermismatch", policies, MismatchPolicy.FAIL.value),
        write_id=_text(given, "writeid"),
        query_id=_text(given, "queryid"),
        batch_id=_number(given, "batchid", 0, 0),
        partitioning=_partitioning(given),
        codec=codec,
        codec_level=_number(given, level_name, 0, -_INT_MAX) if level_name in given else None,
        batch_bytes_max=min(batch_bytes, request_bytes_max),
        request_bytes_max=request_bytes_max,
        acks=acks,
        is_idempotent=is_idempotent,
        in_flight_max=_number(
            given, "kafka.max.in.flight.requests.per.connection", IN_FLIGHT_MAX, 1
        ),
        transaction_timeout_ms=_number(
            given, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, 1
        ),
        delivery_timeout_ms=_number(given, "kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS, 1),
    )


def client_config(given: Mapping[str, str]) -> ClientConfig:
    """How to reach the cluster, from options in lower case."""
    properties = {
        name.removeprefix(_PREFIX): value
        for name, value in given.items()
        if name.startswith(_PREFIX)
    }
    for plain in ("bootstrap.servers", "bootstrapservers"):
        if plain in given:
            properties.setdefault("bootstrap.servers", given[plain])
    if not properties.get("bootstrap.servers"):
        raise SinkError("The option 'kafka.bootstrap.servers' is not set: name a broker.")
    try:
        return ClientConfig.from_properties(properties)
    except KafkaError as error:
        raise SinkError(f"kafka.{error}.") from error


def check_columns(fields: Iterable[Field], topic: str | None) -> None:
    """SinkError unless the columns are those that a record can be made of."""
    types = {field.name: field.type for field in fields}
    if "value" not in types:
        raise SinkError(
            "The rows have no column 'value', which every record needs; they have "
            f"{', '.join(types) or 'none'}. Make one, such as to_json(struct(*)) AS value."
        )
    if topic is None and "topic" not in types:
        raise SinkError(
            "It is not said where records go: set the option 'topic', or give the rows a column "
            "'topic'."
        )
    for name, allowed in _COLUMN_TYPES.items():
        if name in types and types[name] not in allowed:
            raise SinkError(
                f"The column '{name}' is of type {types[name]}, but must be "
                f"{' or '.join(allowed)}: cast it."
            )


_COLUMN_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def _acks(given: Mapping[str, str], *, is_exactly_once: bool) -> tuple[int, bool]:
    acks = _choice(given, "kafka.acks", _ACKS, "all")
    idempotence = given.get("kafka.enable.idempotence", "true").lower()
    if idempotence not in ("true", "false"):
        raise SinkError(f"kafka.enable.idempotence is '{idempotence}', not true or false.")
    is_idempotent = acks == ACKS_ALL and idempotence == "true"
    if is_exactly_once and not is_idempotent:
        raise SinkError(
            "Exactly once needs kafka.acks=all and idempotence: leave both options out, or set "
            f"delivery={AT_LEAST_ONCE}."
        )
    return acks, is_idempotent


def _partitioning(given: Mapping[str, str]) -> Partitioning:
    ignore = given.get("kafka.partitioner.ignore.keys", "false").lower()
    try:
        return partitioning_of(
            _text(given, "kafka.partitioner.class"), ignore_keys=ignore == "true"
        )
    except ValueError as error:
        raise SinkError(str(error)) from error


def _text(given: Mapping[str, str], name: str) -> str | None:
    return given.get(name, "").strip() or None


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, T], default: str) -> T:
    asked = given.get(name, default).strip().lower()
    if asked not in choices:
        raise SinkError(f"{name} is '{asked}', not one of {', '.join(choices)}.")
    return choices[asked]


def _number(given: Mapping[str, str], name: str, default: int, lowest: int) -> int:
    return _parsed(given, name, default, lambda text: _within(name, int(text), lowest))


def _parsed(given: Mapping[str, str], name: str, default: int, parse: Callable[[str], int]) -> int:
    if name not in given:
        return default
    try:
        return parse(given[name])
    except ValueError:
        raise SinkError(f"{name} is '{given[name]}', not a number.") from None


def _within(name: str, value: int, lowest: int) -> int:
    if not lowest <= value <= _INT_MAX:
        raise SinkError(f"{name} is {value}, but must be from {lowest} to {_INT_MAX}.")
    return value
