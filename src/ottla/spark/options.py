"""What a user asked for with `.option(...)`, in the words of Spark's own Kafka integration. Pure.

Names, defaults and refusals are those of Spark's connector, so that the options of a query stay as
they are when `format("kafka")` becomes `format("ottla")`.

Options of Ottla's own are `checkpointLocation`, `commitProgress` and `filterPushdown`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ottla.client import ClientConfig, TopicPartition
from ottla.client.offsets import EARLIEST, LATEST
from ottla.spark.option_values import GivenOptions, OptionError, client_config

GROUP_ID_PREFIX = "spark-kafka-source"
POLL_TIMEOUT_MS = 120_000  # Spark's default of spark.network.timeout
FETCH_OFFSET_ATTEMPTS = 3
FETCH_OFFSET_INTERVAL_MS = 1_000  # what Spark's code has; its documentation says 10
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
# Four times Kafka's default of max.partition.fetch.bytes: a task reads one partition only, and
# larger answers cost broker and task less.
PARTITION_FETCH_BYTES = 4 << 20

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
    fetch_offset_attempts: int = FETCH_OFFSET_ATTEMPTS  # fetchOffset.numRetries
    fetch_offset_interval_ms: int = FETCH_OFFSET_INTERVAL_MS
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


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a read; OptionError in the words of Spark's connector where it has some."""
    given = GivenOptions(options)
    topics = _parse_topics(given)
    properties = given.kafka_properties(_REFUSED)
    group_id = properties.pop("group.id", None)
    prefix = given.raw("groupIdPrefix") or GROUP_ID_PREFIX
    properties.setdefault("client.id", group_id or prefix)
    properties.setdefault("max.partition.fetch.bytes", str(PARTITION_FETCH_BYTES))
    strategies = {"error": False, "latest": True}
    cache_ttl_ms = given.number_or("partition.metadata.cache.ttl.ms", -1, -1)
    if cache_ttl_ms == 0:
        raise OptionError(
            "partition.metadata.cache.ttl.ms must be a positive number of milliseconds, or -1 to "
            "keep nothing"
        )
    return SourceOptions(
        client=client_config(properties),
        topics=topics,
        starting=_parse_position(given, "starting"),
        ending=_parse_position(given, "ending"),
        is_latest_if_no_offset=given.choice(
            "startingOffsetsByTimestampStrategy", strategies, "error"
        ),
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        poll_timeout_ms=given.number_or("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS, 1),
        fetch_offset_attempts=given.number_or("fetchOffset.numRetries", FETCH_OFFSET_ATTEMPTS, 1),
        fetch_offset_interval_ms=given.number_or(
            "fetchOffset.retryIntervalMs", FETCH_OFFSET_INTERVAL_MS, 0
        ),
        partition_cache_ttl_ms=cache_ttl_ms,
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", 1),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger", 1),
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        min_partitions=given.positive("minPartitions"),
        max_records_per_partition=given.positive("maxRecordsPerPartition"),
        group_id_prefix=prefix,
        group_id=group_id,
        include_headers=given.boolean("includeHeaders", False),
        checkpoint_location=given.text("checkpointLocation"),
        commits_progress=given.boolean("commitProgress", True),
        pushes_filters=given.boolean("filterPushdown", False),
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
    if starting is not None and ending is not None:
        _check_order(starting.offsets, ending.offsets, "offset")
        _check_order(starting.timestamps_ms, ending.timestamps_ms, "timestamp")


def _check_order(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], what: str
) -> None:
    """Refuse numbers of both sides that contradict each other; EARLIEST and LATEST do not."""
    if not starts or not ends:
        return
    if set(starts) != set(ends):
        raise OptionError(
            f"The starting {what}s name {', '.join(map(str, sorted(starts)))}, the ending ones "
            f"{', '.join(map(str, sorted(ends)))}: they must name the same partitions"
        )
    for topic_partition, start in starts.items():
        if start > ends[topic_partition] >= 0:
            raise OptionError(
                f"The specified start {what} {start} is greater than the end {what} "
                f"{ends[topic_partition]} for topic {topic_partition.topic} partition "
                f"{topic_partition.partition}"
            )


def _parse_topics(given: GivenOptions) -> Topics:
    found = [(kind, given.raw(kind.value)) for kind in Subscription]
    named = [(kind, text.strip()) for kind, text in found if text is not None]
    names = ", ".join(kind.value for kind in Subscription)
    if not named:
        raise OptionError(f"One of the following options must be specified: {names}")
    if len(named) > 1:
        raise OptionError(f"Only one of the following options can be specified: {names}")
    kind, text = named[0]
    if kind is Subscription.TOPICS:
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'"
            )
        return Topics(kind, text, names=topics)
    if kind is Subscription.PATTERN:
        if not text:
            raise OptionError(
                f"Pattern to subscribe is empty as specified value for option 'subscribePattern' "
                f"is '{text}'"
            )
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern '{text}' is not a pattern: {error}") from error
        return Topics(kind, text)
    if not text.startswith("{"):
        raise OptionError(
            f"No topicpartitions to assign as specified value for option 'assign' is '{text}'"
        )
    return Topics(kind, text, partitions=_parse_partitions(text))


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


def _parse_position(given: GivenOptions, side: str) -> Position | None:
    """The first given of: one time, times, offsets."""
    option = f"{side}Timestamp"
    time_ms = given.number(option, 0)
    if time_ms is not None:
        return Position(timestamp_ms=time_ms, option=option)
    option = f"{side}OffsetsByTimestamp"
    times = given.raw(option)
    if times is not None:
        return Position(timestamps_ms=_parse_numbers(option, times), option=option)
    option = f"{side}Offsets"
    text = given.text(option)
    if text is None:
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
