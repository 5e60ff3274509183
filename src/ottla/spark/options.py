"""What a user asked for with `.option(...)`, in the words of Spark's own Kafka integration. Pure.

Names, defaults and refusals are those of Spark's connector, so that changing `format("kafka")` to
`format("ottla")` is all there is to do. Option names are not case-sensitive. What goes to the
client is spelled with the prefix `kafka.`, as Spark has it, or without, as Kafka has it.

Options of Ottla's own are `checkpointLocation`, `commitProgress` and `filterPushdown`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ottla.client import Address, ClientConfig, TopicPartition
from ottla.client.config import PROPERTIES
from ottla.client.offsets import EARLIEST, LATEST
from ottla.protocol.errors import KafkaError

GROUP_ID_PREFIX = "spark-kafka-source"
POLL_TIMEOUT_MS = 120_000  # Spark's default of spark.network.timeout
FETCH_OFFSET_RETRIES = 3
FETCH_OFFSET_RETRY_INTERVAL_MS = 10
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

_STRATEGIES = ("subscribe", "subscribepattern", "assign")
_REFUSED = {
    "auto.offset.reset": "Instead set the source option 'startingOffsets' to 'earliest' or "
    "'latest' to specify where to start: the query itself manages which offsets are consumed.",
    "key.deserializer": "Keys are read as byte arrays; use DataFrame operations to decode them.",
    "value.deserializer": "Values are read as byte arrays; use DataFrame operations to decode "
    "them.",
    "key.serializer": "Keys are written as byte arrays or strings; use DataFrame operations to "
    "encode them.",
    "value.serializer": "Values are written as byte arrays or strings; use DataFrame operations to "
    "encode them.",
    "enable.auto.commit": "The source commits no offset that it relies on.",
    "interceptor.classes": "The source always reads keys and values as byte arrays.",
}
_DURATION = re.compile(r"(\d+)\s*([a-z]+)?")
_DURATION_MS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}


class OptionError(ValueError):
    """An option that is missing, contradictory or not understood."""


class Subscription(Enum):
    TOPICS = "subscribe"
    PATTERN = "subscribePattern"
    ASSIGNED = "assign"


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions are meant."""

    kind: Subscription
    text: str
    names: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or end: everywhere the same, or partition by partition.

    `everywhere` and `offsets` hold offsets, EARLIEST or LATEST; `timestamp_ms` and `timestamps_ms`
    hold times, to be looked up.
    """

    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    option: str = "startingOffsets"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Every option of the source, with its default."""

    client: ClientConfig
    topics: Topics
    starting: Position | None  # None: the default of the kind of query
    ending: Position | None
    is_latest_if_no_offset: bool = False  # startingOffsetsByTimestampStrategy
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    fetch_offset_retries: int = FETCH_OFFSET_RETRIES
    fetch_offset_retry_interval_ms: int = FETCH_OFFSET_RETRY_INTERVAL_MS
    partition_cache_ttl_ms: int = -1
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    group_id_prefix: str = GROUP_ID_PREFIX
    group_id: str | None = None
    include_headers: bool = False
    checkpoint_location: str | None = None
    commits_progress: bool = True
    pushes_filters: bool = False


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The client properties among the options: `kafka.x`, or `x` where it is one of Kafka's."""
    properties: dict[str, str] = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered in PROPERTIES:
            properties.setdefault(lowered, value)
        elif lowered.startswith("kafka."):
            properties[lowered.removeprefix("kafka.")] = value
    for name, reason in _REFUSED.items():
        if name in properties:
            raise OptionError(f"Kafka option '{name}' is not supported. {reason}")
    if not properties.get("bootstrap.servers", "").strip():
        raise OptionError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring the Kafka client"
        )
    return properties


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    try:
        return ClientConfig.from_properties(properties)
    except KafkaError as error:
        raise OptionError(f"Kafka options: {error}") from error


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a read; OptionError in the words of Spark's connector where it has some."""
    lowered = {name.lower(): value for name, value in options.items()}
    topics = _parse_topics(lowered)
    properties = kafka_properties(options)
    group_id = properties.pop("group.id", None)
    prefix = lowered.get("groupidprefix", GROUP_ID_PREFIX)
    properties.setdefault("client.id", group_id or prefix)
    strategy = lowered.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy is '{strategy}', neither 'error' nor 'latest'"
        )
    return SourceOptions(
        client=client_config(properties),
        topics=topics,
        starting=_parse_position(lowered, "starting"),
        ending=_parse_position(lowered, "ending"),
        is_latest_if_no_offset=strategy == "latest",
        fail_on_data_loss=_boolean(lowered, "failOnDataLoss", True),
        poll_timeout_ms=_whole(lowered, "kafkaConsumer.pollTimeoutMs", 1) or POLL_TIMEOUT_MS,
        fetch_offset_retries=_default(
            _whole(lowered, "fetchOffset.numRetries", 0), FETCH_OFFSET_RETRIES
        ),
        fetch_offset_retry_interval_ms=_default(
            _whole(lowered, "fetchOffset.retryIntervalMs", 0), FETCH_OFFSET_RETRY_INTERVAL_MS
        ),
        partition_cache_ttl_ms=_default(_whole(lowered, "partition.metadata.cache.ttl.ms", -1), -1),
        max_offsets_per_trigger=_whole(lowered, "maxOffsetsPerTrigger", 1),
        min_offsets_per_trigger=_whole(lowered, "minOffsetsPerTrigger", 1),
        max_trigger_delay_ms=_duration_ms(lowered, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        min_partitions=_positive(lowered, "minPartitions"),
        max_records_per_partition=_positive(lowered, "maxRecordsPerPartition"),
        group_id_prefix=prefix,
        group_id=group_id,
        include_headers=_boolean(lowered, "includeHeaders", False),
        checkpoint_location=lowered.get("checkpointlocation"),
        commits_progress=_boolean(lowered, "commitProgress", True),
        pushes_filters=_boolean(lowered, "filterPushdown", False),
    )


def check_stream_options(options: SourceOptions) -> None:
    """Refuse what a streaming read cannot have."""
    # endingTimestamp alone is ignored, as Spark's connector ignores it.
    if options.ending is not None and options.ending.option != "endingTimestamp":
        kind = "offset" if options.ending.option == "endingOffsets" else "timestamp"
        raise OptionError(f"ending {kind} not valid in streaming queries")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            f"The value of minOffsetPerTrigger({low}) must be less than or equal to "
            f"maxOffsetPerTrigger({high})."
        )


def check_batch_options(options: SourceOptions) -> None:
    """Refuse what a batch read cannot have."""
    starting, ending = options.starting, options.ending
    if starting is not None:
        if starting.everywhere == LATEST:
            raise OptionError("starting offset can't be latest for batch queries on Kafka")
        for topic_partition, offset in starting.offsets.items():
            if offset == LATEST:
                raise OptionError(
                    f"startingOffsets for {topic_partition} can't be latest for batch queries on "
                    "Kafka"
                )
    if ending is not None:
        if ending.everywhere == EARLIEST:
            raise OptionError("ending offset can't be earliest for batch queries on Kafka")
        for topic_partition, offset in ending.offsets.items():
            if offset == EARLIEST:
                raise OptionError(
                    f"ending offset for {topic_partition} can't be earliest for batch queries on "
                    "Kafka"
                )


def _parse_topics(lowered: Mapping[str, str]) -> Topics:
    given = [name for name in _STRATEGIES if name in lowered]
    names = "subscribe, subscribePattern, assign"
    if not given:
        raise OptionError(f"One of the following options must be specified: {names}")
    if len(given) > 1:
        raise OptionError(f"Only one of the following options can be specified: {names}")
    text = lowered[given[0]].strip()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'"
            )
        return Topics(Subscription.TOPICS, text, names=topics)
    if given[0] == "subscribepattern":
        if not text:
            raise OptionError(
                f"Pattern to subscribe is empty as specified value for option 'subscribePattern' "
                f"is '{text}'"
            )
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern '{text}' is not a pattern: {error}") from error
        return Topics(Subscription.PATTERN, text)
    if not text.startswith("{"):
        raise OptionError(
            f"No topicpartitions to assign as specified value for option 'assign' is '{text}'"
        )
    return Topics(Subscription.ASSIGNED, text, partitions=_parse_partitions(text))


def _parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    example = 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}'
    try:
        found = json.loads(text)
        partitions = tuple(
            TopicPartition(str(topic), int(number))
            for topic, numbers in found.items()
            for number in numbers
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionError(f"{example}, got {text}") from error
    if not partitions:
        raise OptionError(f"{example}, got {text}")
    return partitions


def _parse_position(lowered: Mapping[str, str], side: str) -> Position | None:
    """The first given of: one time, times, offsets."""
    if f"{side}timestamp" in lowered:
        option = f"{side}Timestamp"
        time_ms = _whole(lowered, option, 0)
        return Position(timestamp_ms=time_ms, option=option)
    option = f"{side}OffsetsByTimestamp"
    if option.lower() in lowered:
        return Position(
            timestamps_ms=_parse_numbers(option, lowered[option.lower()]), option=option
        )
    option = f"{side}Offsets"
    text = lowered.get(option.lower(), "").strip()
    if not text:
        return None
    if text.lower() in ("earliest", "latest"):
        everywhere = EARLIEST if text.lower() == "earliest" else LATEST
        return Position(everywhere=everywhere, option=option)
    return Position(offsets=_parse_numbers(option, text), option=option)


def _parse_numbers(option: str, text: str) -> dict[TopicPartition, int]:
    try:
        found = json.loads(text)
        return {
            TopicPartition(str(topic), int(partition)): int(number)
            for topic, numbers in found.items()
            for partition, number in numbers.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionError(
            f'{option}: expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, '
            f"got {text}"
        ) from error


def _whole(lowered: Mapping[str, str], name: str, lowest: int) -> int | None:
    text = lowered.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise OptionError(f"{name} is '{text}', not a whole number") from None
    if number < lowest:
        raise OptionError(f"{name} is {number}, but must be at least {lowest}")
    return number


def _positive(lowered: Mapping[str, str], name: str) -> int | None:
    text = lowered.get(name.lower())
    if text is not None and text.strip().lstrip("+-").isdecimal() and int(text) <= 0:
        raise OptionError(f"{name} must be positive")
    return _whole(lowered, name, 1)


def _default(given: int | None, default: int) -> int:
    return default if given is None else given


def _boolean(lowered: Mapping[str, str], name: str, default: bool) -> bool:
    text = lowered.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is '{text}', neither true nor false")
    return text == "true"


def _duration_ms(lowered: Mapping[str, str], name: str, default_ms: int) -> int:
    """A time as Spark writes it: `15m`, `500ms`; a number alone is milliseconds."""
    text = lowered.get(name.lower())
    if text is None:
        return default_ms
    match = _DURATION.fullmatch(text.strip().lower())
    unit_ms = _DURATION_MS.get(match.group(2) or "ms") if match else None
    if match is None or unit_ms is None:
        raise OptionError(f"{name} is '{text}', which is not a time such as 500ms, 30s or 15m")
    return int(match.group(1)) * unit_ms


def address_list(config: ClientConfig) -> str:
    """The bootstrap servers as a user writes them."""
    return ",".join(str(Address(*address)) for address in config.bootstrap_servers)
