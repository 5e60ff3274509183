"""What the options of a write mean: those of Spark's own Kafka sink, and Ottla's. Pure.

`kafka.*` are the properties of a Kafka producer; those that concern how Java's producer works
inside are accepted and have no effect. What cannot be obeyed is refused with a sentence before
anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.config import ClientConfig
from ottla.client.transactions import (
    ACKS_ALL,
    DELIVERY_TIMEOUT_MS,
    IN_FLIGHT_MAX,
    TRANSACTION_TIMEOUT_MS,
)
from ottla.protocol.codecs import NAMES as CODEC_NAMES
from ottla.protocol.codecs import Codec
from ottla.spark.exactly_once import MismatchPolicy
from ottla.spark.option_values import GivenOptions, OptionError, client_config
from ottla.spark.partitioner import Partitioning, partitioning_of

BATCH_BYTES = 524_288  # few large batches cost a broker least; topics take 1 MB unless told
REQUEST_BYTES_MAX = 1_048_576  # Kafka's default of max.request.size
TRANSACTIONAL_ID_PREFIX = "ottla"

EXACTLY_ONCE = "exactly_once"
AT_LEAST_ONCE = "at_least_once"

_DELIVERIES = {EXACTLY_ONCE: True, AT_LEAST_ONCE: False}
_REFUSED = {
    "key.serializer": "Keys are written as they are; cast the column to STRING or BINARY.",
    "value.serializer": "Values are written as they are; cast the column to STRING or BINARY.",
    "interceptor.classes": "Java classes cannot run in this sink.",
    "transactional.id": (
        "The sink makes its own from the query's id; 'transactionalIdPrefix' changes how it begins."
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
    writer: str | None
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
    """The options of a write; OptionError if one cannot be obeyed."""
    given = GivenOptions(options)
    properties = given.kafka_properties(_REFUSED)
    if (block_ms := given.text("kafka.max.block.ms")) is not None:
        properties.setdefault("default.api.timeout.ms", block_ms)  # as producers call it
    is_exactly_once = given.choice("delivery", _DELIVERIES, EXACTLY_ONCE)
    acks, is_idempotent = _acks(given, is_exactly_once=is_exactly_once)
    codec = given.choice("kafka.compression.type", CODEC_NAMES, "none")
    request_bytes_max = given.number_or("kafka.max.request.size", REQUEST_BYTES_MAX, 1, _INT_MAX)
    batch_bytes = given.number_or("kafka.batch.size", BATCH_BYTES, 0, _INT_MAX)
    policies = {policy.value: policy for policy in MismatchPolicy}
    level_name = _LEVEL_NAMES.get(codec)
    return SinkOptions(
        client=client_config(properties),
        topic=given.text("topic"),
        is_exactly_once=is_exactly_once,
        stage_directory=given.text("stageDirectory"),
        checkpoint_location=given.text("checkpointLocation"),
        transactional_id_prefix=given.text("transactionalIdPrefix") or TRANSACTIONAL_ID_PREFIX,
        marker_topic=given.text("markerTopic"),
        mismatch_policy=given.choice("markerMismatch", policies, MismatchPolicy.FAIL.value),
        write_id=_file_name(given, "writeId"),
        query_id=_file_name(given, "queryId"),
        writer=_file_name(given, "writer"),
        batch_id=given.number_or("batchId", 0, 0),
        partitioning=_partitioning(given),
        codec=codec,
        codec_level=given.number(level_name, -_INT_MAX, _INT_MAX) if level_name else None,
        batch_bytes_max=min(batch_bytes, request_bytes_max),
        request_bytes_max=request_bytes_max,
        acks=acks,
        is_idempotent=is_idempotent,
        in_flight_max=given.number_or(
            "kafka.max.in.flight.requests.per.connection", IN_FLIGHT_MAX, 1
        ),
        transaction_timeout_ms=given.number_or(
            "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, 1, _INT_MAX
        ),
        delivery_timeout_ms=given.number_or(
            "kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS, 1, _INT_MAX
        ),
    )


def check_columns(fields: Iterable[Field], topic: str | None) -> None:
    """OptionError unless the columns are those that a record can be made of."""
    types = {field.name: field.type for field in fields}
    if "value" not in types:
        raise OptionError(
            "The rows have no column 'value', which every record needs; they have "
            f"{', '.join(types) or 'none'}. Make one, such as to_json(struct(*)) AS value."
        )
    if topic is None and "topic" not in types:
        raise OptionError(
            "It is not said where records go: set the option 'topic', or give the rows a column "
            "'topic'."
        )
    for name, allowed in _COLUMN_TYPES.items():
        if name in types and types[name] not in allowed:
            raise OptionError(
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


def _file_name(given: GivenOptions, option: str) -> str | None:
    """A name under which tasks stage rows; one that is a path would lead out of the directory."""
    name = given.text(option)
    if name is not None and (name in (".", "..") or "/" in name or "\0" in name):
        raise OptionError(
            f"{option} is '{name}', but names a directory of staged rows, so it can be neither "
            "'.' nor '..' and have no '/' in it."
        )
    return name


def _acks(given: GivenOptions, *, is_exactly_once: bool) -> tuple[int, bool]:
    acks = given.choice("kafka.acks", _ACKS, "all")
    is_idempotent = acks == ACKS_ALL and given.boolean("kafka.enable.idempotence", True)
    if is_exactly_once and not is_idempotent:
        raise OptionError(
            "Exactly once needs kafka.acks=all and kafka.enable.idempotence=true: leave both "
            f"options out, or set delivery={AT_LEAST_ONCE}."
        )
    return acks, is_idempotent


def _partitioning(given: GivenOptions) -> Partitioning:
    ignores_keys = given.boolean("kafka.partitioner.ignore.keys", False)
    try:
        return partitioning_of(given.text("kafka.partitioner.class"), ignore_keys=ignores_keys)
    except ValueError as error:
        raise OptionError(str(error)) from error
