"""The readers against a broker in this process, called as Spark calls them, without Spark."""

import json
import logging
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.client import (
    Client,
    ClientConfig,
    CommittedOffset,
    CorruptBatch,
    TopicPartition,
    committed_offsets,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    CRC_AT,
    MAGIC_AT,
    Record,
    build_batch,
    iter_batches,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark import source_initial, source_limits, source_task
from ottla.spark.datasource import OttlaDataSource
from ottla.spark.option_values import OptionError
from ottla.spark.options import SourceOptions, parse_source_options
from ottla.spark.schema import spark_schema
from ottla.spark.source import OttlaBatchReader, OttlaFilteringReader, OttlaStreamReader
from ottla.spark.source_initial import CheckpointUnreachable, InitialOffsetFile
from ottla.spark.source_offsets import OffsetReader, TopicGone
from ottla.spark.source_progress import group_id_of
from ottla.spark.source_task import DataLoss
from ottla.testing import Cluster
from support.wire import Wire

START_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # records of these times would be taken by retention


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("numbers", 2, config=KEPT)
        for partition in (0, 1):
            fill(cluster, "numbers", partition, 0, 100)
        yield cluster


def fill(cluster: Cluster, topic: str, partition: int, first: int, count: int) -> None:
    """Records of one a second, ten to a batch, their value naming partition and number."""
    with Wire(cluster.bootstrap_servers) as wire:
        for start in range(first, first + count, 10):
            numbers = range(start, min(start + 10, first + count))
            records = [
                Record(n - start, START_MS + n * 1000, None, b"%d-%d" % (partition, n))
                for n in numbers
            ]
            codec = list(Codec)[start // 10 % len(Codec)]
            wire.produce(topic, build_batch(records, codec=codec), partition=partition)


def new_topic(cluster: Cluster, request: pytest.FixtureRequest, partitions: int = 1) -> str:
    name = request.node.name.replace("[", ".").replace("]", "")[:200]
    cluster.create_topic(name, partitions, config=KEPT)
    return str(name)


def delete_records(cluster: Cluster, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    place = Place(topic, 0, before)
    admin.delete_records([place])[place].result(30)


def batch_reader(cluster: Cluster, **options: str) -> OttlaBatchReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    if not {"subscribe", "assign", "subscribePattern"} & set(options):
        given["subscribe"] = "numbers"
    source = OttlaDataSource(given)
    reader = source.reader(source.schema())
    assert isinstance(reader, OttlaBatchReader)
    return reader


def stream_reader(cluster: Cluster, topic: str, **options: str) -> OttlaStreamReader:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **options,
    }
    source = OttlaDataSource(given)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, OttlaStreamReader)
    return reader


def rows_of(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    """What tasks read, each with a reader that went through pickle."""
    return [
        row
        for partition in partitions
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]


def offsets_of(reader: Any) -> dict[int, tuple[int, int]]:
    """First and last offset that a batch reader reads of each partition."""
    found: dict[int, tuple[int, int]] = {}
    for row in rows_of(reader, reader.partitions()):
        first, _ = found.get(row["partition"], (row["offset"], 0))
        found[row["partition"]] = (first, row["offset"])
    return found


def values_between(reader: Any, start: Any, end: Any) -> list[bytes]:
    return sorted(row["value"] for row in rows_of(reader, reader.partitions(start, end)))


def numbered(partition: int, *numbers: int) -> list[bytes]:
    return sorted(b"%d-%d" % (partition, n) for n in numbers)


def test_a_batch_reads_everything_by_default(cluster: Cluster) -> None:
    reader = batch_reader(cluster)
    rows = rows_of(reader, reader.partitions())
    assert sorted(row["value"] for row in rows) == sorted(
        numbered(0, *range(100)) + numbered(1, *range(100))
    )
    last = rows[-1]
    assert (last["topic"], last["partition"], last["offset"]) == ("numbers", 1, 99)
    assert last["timestamp"] == datetime.fromtimestamp(START_MS / 1000 + 99, UTC)
    assert last["timestampType"] == 0
    assert last["key"] is None


SPECIFIC = '{"numbers":{"0":%d,"1":%d}}'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": SPECIFIC % (90, -2)}, {0: (90, 99), 1: (0, 99)}),
        ({"endingOffsets": SPECIFIC % (7, -1)}, {0: (0, 6), 1: (0, 99)}),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, {0: (0, 99), 1: (0, 99)}),
        ({"startingTimestamp": str(START_MS + 97_500)}, {0: (98, 99), 1: (98, 99)}),
        ({"endingTimestamp": str(START_MS + 3_000)}, {0: (0, 2), 1: (0, 2)}),
        ({"endingTimestamp": str(START_MS * 2)}, {0: (0, 99), 1: (0, 99)}),
        (
            {"startingOffsetsByTimestamp": SPECIFIC % (START_MS + 50_000, -2)},
            {0: (50, 99), 1: (0, 99)},
        ),
        (
            {"endingOffsetsByTimestamp": SPECIFIC % (START_MS + 50_000, -1)},
            {0: (0, 49), 1: (0, 99)},
        ),
        (
            {
                "startingOffsetsByTimestamp": SPECIFIC % (START_MS * 2, START_MS + 95_000),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {1: (95, 99)},
        ),
        (
            {"startingTimestamp": str(START_MS + 99_000), "startingOffsets": "earliest"},
            {0: (99, 99), 1: (99, 99)},
        ),
        ({"assign": '{"numbers":[1]}'}, {1: (0, 99)}),
        ({"subscribePattern": "num.*rs"}, {0: (0, 99), 1: (0, 99)}),
        ({"subscribePattern": "umber"}, {0: (0, 99), 1: (0, 99)}),
        ({"subscribePattern": "^umber"}, {}),
    ],
)
def test_where_a_batch_starts_and_ends(
    cluster: Cluster, options: dict[str, str], expected: dict[int, tuple[int, int]]
) -> None:
    assert offsets_of(batch_reader(cluster, **options)) == expected


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"subscribe": "absent"}, TopicGone, "Topic 'absent' does not exist"),
        ({"assign": '{"numbers":[7]}'}, OptionError, "no partition 7"),
        (
            {"startingOffsets": '{"numbers":{"0":5}}'},
            OptionError,
            "you must specify all TopicPartitions.*Specified: numbers-0. Assigned: numbers-0, num",
        ),
        ({"startingTimestamp": str(START_MS * 2)}, OptionError, "No offset matched"),
        ({"startingOffsets": SPECIFIC % (0, 120)}, DataLoss, "failOnDataLoss"),
        (
            {"startingOffsets": SPECIFIC % (90, 0), "endingTimestamp": str(START_MS + 9_000)},
            OptionError,
            "start offset 90 is greater than the resolved end offset 9 for topic numbers part",
        ),
    ],
)
def test_what_a_batch_cannot_read(
    cluster: Cluster, options: dict[str, str], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        batch_reader(cluster, **options, **{"fetchOffset.retryIntervalMs": "0"}).partitions()


def test_a_start_behind_the_end_is_a_mistake_whatever_data_loss_may_do(cluster: Cluster) -> None:
    options = {"startingOffsets": SPECIFIC % (90, 0), "failOnDataLoss": "false"}
    with pytest.raises(OptionError, match="greater than the resolved end"):
        batch_reader(cluster, **options, endingTimestamp=str(START_MS)).partitions()
    assert offsets_of(batch_reader(cluster, **options)) == {0: (90, 99), 1: (0, 99)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 2),
        ({"minPartitions": "5"}, 6),
        ({"maxRecordsPerPartition": "30"}, 8),
        ({"maxRecordsPerPartition": "50", "minPartitions": "3"}, 4),
    ],
)
def test_partitions_are_split(cluster: Cluster, options: dict[str, str], expected: int) -> None:
    reader = batch_reader(cluster, **options)
    partitions = reader.partitions()
    assert len(partitions) == expected
    assert len({row["value"] for row in rows_of(reader, partitions)}) == 200


AT_95 = datetime.fromtimestamp(START_MS / 1000 + 95, UTC)


@pytest.mark.parametrize(
    ("filters", "expected", "left"),
    [
        ([EqualTo(("partition",), 1)], {1: (0, 99)}, 0),
        ([In(("partition",), (0, 7))], {0: (0, 99)}, 0),
        ([EqualTo(("topic",), "other")], {}, 0),
        ([EqualTo(("offset",), 42), EqualTo(("partition",), 0)], {0: (42, 42)}, 0),
        ([GreaterThan(("offset",), 90), LessThan(("offset",), 95)], {0: (91, 94), 1: (91, 94)}, 0),
        (
            [GreaterThanOrEqual(("offset",), 90), LessThanOrEqual(("offset",), 95)],
            {0: (90, 95), 1: (90, 95)},
            0,
        ),
        ([GreaterThanOrEqual(("timestamp",), AT_95)], {0: (95, 99), 1: (95, 99)}, 1),
        ([GreaterThan(("timestamp",), AT_95 + timedelta(days=1))], {}, 1),
        ([LessThan(("timestamp",), AT_95)], {0: (0, 99), 1: (0, 99)}, 1),
        ([StringStartsWith(("topic",), "n")], {0: (0, 99), 1: (0, 99)}, 1),
    ],
)
def test_filters_narrow_what_is_read(
    cluster: Cluster, filters: list[Any], expected: dict[int, tuple[int, int]], left: int
) -> None:
    reader = batch_reader(cluster, filterPushdown="true")
    assert isinstance(reader, OttlaFilteringReader)
    assert len(list(reader.pushFilters(filters))) == left
    assert offsets_of(reader) == expected


def test_without_the_option_no_filters_are_taken(cluster: Cluster) -> None:
    assert not isinstance(batch_reader(cluster), OttlaFilteringReader)


def test_headers_are_read_when_asked_for(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    topic = new_topic(cluster, request)
    headers = ((b"a", b"1"), (b"a", None), (b"", b""))
    records = [Record(0, 1, b"k", None, headers), Record(1, 1, None, b"v")]
    with Wire(cluster.bootstrap_servers) as wire:
        wire.produce(topic, build_batch(records))
    reader = batch_reader(cluster, subscribe=topic, includeHeaders="true")
    rows = rows_of(reader, reader.partitions())
    assert [row["headers"] for row in rows] == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}],
        None,
    ]
    source = OttlaDataSource({"bootstrap.servers": "h", "subscribe": "t", "includeHeaders": "true"})
    assert source.schema() == spark_schema(include_headers=True)


def test_isolation_levels(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    topic = new_topic(cluster, request)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(30)
    for number, ending in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(30)
        ending(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)

    def values(level: str) -> list[bytes]:
        reader = batch_reader(cluster, subscribe=topic, **{"kafka.isolation.level": level})
        return [row["value"] for row in rows_of(reader, reader.partitions())]

    assert values("read_committed") == [b"0", b"2"]
    assert values("read_uncommitted") == [b"0", b"1", b"2", b"3", b"open"]
    producer.abort_transaction(30)


def test_records_that_retention_took_are_missed_or_skipped(
    cluster: Cluster, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 50)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 0}})}
    planned = batch_reader(cluster, **options).partitions()
    delete_records(cluster, topic, 35)
    with pytest.raises(DataLoss, match=r"now holds 35 to 49.*set the source option 'failOnData"):
        rows_of(batch_reader(cluster, **options), planned)
    lenient = batch_reader(cluster, **options, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert [row["offset"] for row in rows_of(lenient, planned)] == list(range(35, 50))
    assert "Some data may have been lost" in caplog.text
    delete_records(cluster, topic, 50)
    assert rows_of(lenient, planned) == []


# Bytes of the third batch: from its start, or from the end of the log.
@pytest.mark.parametrize("place", [-1, MAGIC_AT, CRC_AT], ids=["record", "magic", "crc"])
def test_a_corrupt_batch_is_named_at_once(place: int) -> None:
    with Cluster() as own:
        own.create_topic("broken", config=KEPT)
        fill(own, "broken", 0, 0, 30)
        own.stop()
        segment = next(own.directory.rglob("broken-0/*.log"))
        data = bytearray(segment.read_bytes())
        starts = [position for position, _ in iter_batches(memoryview(bytes(data)))]
        data[place if place < 0 else starts[2] + place] ^= 0xFF
        segment.write_bytes(data)
        own.start()
        # Time for ever: what will be the same next time is not tried again.
        options = {"subscribe": "broken", "kafkaConsumer.pollTimeoutMs": "1000000000"}
        reader = batch_reader(own, **options, endingOffsets='{"broken":{"0":30}}')
        with pytest.raises(CorruptBatch, match="offset 20 of topic broken, partition 0"):
            rows_of(reader, reader.partitions())


def test_a_stream_is_limited_and_ends_where_the_log_does(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request, 2)
    fill(cluster, topic, 0, 0, 30)
    fill(cluster, topic, 1, 0, 10)
    reader = stream_reader(cluster, topic, maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(20))
    assert values_between(reader, start, first) == sorted(
        numbered(0, *range(15)) + numbered(1, *range(5))
    )
    assert reader.reportLatestOffset() == {topic: {"0": 30, "1": 10}}
    rest = reader.latestOffset(first, ReadAllAvailable())
    assert rest == {topic: {"0": 30, "1": 10}}
    assert len(values_between(reader, first, rest)) == 20
    assert reader.latestOffset(rest, ReadMaxRows(20)) is rest
    reader.stop()


def test_a_stream_starts_at_the_end_by_default(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    reader = OttlaStreamReader(parse_source_options(options))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) is start
    fill(cluster, topic, 0, 10, 5)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert values_between(reader, start, end) == numbered(0, *range(10, 15))
    reader.stop()


def test_a_first_batch_repeated_after_a_crash_starts_where_it_did(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    reader = stream_reader(cluster, topic, startingOffsets="latest")
    start = reader.initialOffset()
    fill(cluster, topic, 0, 0, 10)
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    fill(cluster, topic, 0, 10, 10)
    # Spark keeps the end alone, as JSON, and asks a new reader where the query began.
    kept = json.loads(json.dumps(end))
    again = stream_reader(cluster, topic, startingOffsets="latest")
    later = again.initialOffset()
    assert later != start
    assert values_between(again, later, kept) == numbered(0, *range(10))
    following = again.latestOffset(kept, ReadAllAvailable())
    assert values_between(again, kept, following) == numbered(0, *range(10, 20))
    again.stop()


def test_an_empty_first_batch_repeated_after_a_crash_loses_nothing(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    reader = stream_reader(cluster, topic, startingOffsets="latest")
    start = reader.initialOffset()
    kept = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    reader.stop()
    fill(cluster, topic, 0, 0, 10)
    again = stream_reader(cluster, topic, startingOffsets="latest")
    assert values_between(again, again.initialOffset(), kept) == []
    following = again.latestOffset(kept, ReadAllAvailable())
    assert values_between(again, kept, following) == numbered(0, *range(10))
    again.stop()


def test_the_checkpoint_keeps_the_start_before_there_is_a_batch(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    topic = new_topic(cluster, request)
    options = {"startingOffsets": "latest", "checkpointLocation": str(tmp_path)}
    first = stream_reader(cluster, topic, **options)
    start = first.initialOffset()
    first.stop()
    fill(cluster, topic, 0, 0, 10)
    again = stream_reader(cluster, topic, **options)
    assert again.initialOffset() == start
    end = again.latestOffset(start, ReadAllAvailable())
    assert values_between(again, start, end) == numbered(0, *range(10))
    again.stop()


def test_available_now_reads_what_there_was_and_no_more(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 25)
    reader = stream_reader(cluster, topic, minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    offset, ends = reader.initialOffset(), []
    while True:
        following = reader.latestOffset(offset, ReadMaxRows(10))
        fill(cluster, topic, 0, 25, 25)
        if following == offset:
            break
        ends.append(following[topic]["0"])
        offset = following
    assert ends == [10, 20, 25]
    reader.stop()


def test_available_now_sees_that_a_topic_was_created_anew(
    cluster: Cluster, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 25)
    begun = {topic: {"0": 25}}  # as the checkpoint has it
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    cluster.create_topic(topic, 1, config=KEPT)
    fill(cluster, topic, 0, 0, 10)
    options = {"fetchOffset.retryIntervalMs": "0"}
    strict = stream_reader(cluster, topic, **options)
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="offset was changed from 25 to 10"):
        strict.partitions(begun, strict.latestOffset(begun, ReadAllAvailable()))
    strict.stop()
    lenient = stream_reader(cluster, topic, **options, failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    end = lenient.latestOffset(begun, ReadAllAvailable())
    assert (end, lenient.partitions(begun, end)) == ({topic: {"0": 10}}, [])
    assert lenient.latestOffset(end, ReadAllAvailable()) is end
    lenient.stop()


def test_available_now_does_not_ask_again_where_a_query_began(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """A time that no record reaches any more must not end a query that is long past it."""
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 25)
    reader = stream_reader(cluster, topic, startingTimestamp=str(START_MS * 2))
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    assert end == {topic: {"0": 25}}
    reader.stop()


def test_a_stream_waits_for_enough_or_long_enough(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    reader = stream_reader(cluster, topic, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="25")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(25)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first[topic] == {"0": 10}  # as in Spark, the first batch does not wait
    fill(cluster, topic, 0, 10, 10)
    assert reader.latestOffset(first, limit) is first
    assert reader.latestOffset(first, ReadAllAvailable())[topic] == {"0": 20}
    fill(cluster, topic, 0, 20, 20)
    assert reader.latestOffset(first, limit)[topic] == {"0": 35}
    reader.stop()
    impatient = stream_reader(cluster, topic, minOffsetsPerTrigger="1000", maxTriggerDelay="0")
    assert impatient.getDefaultReadLimit() == ReadMinRows(1000)
    begun = impatient.latestOffset(impatient.initialOffset(), ReadMinRows(1000))
    fill(cluster, topic, 0, 40, 10)
    assert impatient.latestOffset(begun, ReadMinRows(1000))[topic] == {"0": 50}
    impatient.stop()


def test_new_partitions_start_at_their_beginning(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    reader = stream_reader(cluster, topic)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    fill(cluster, topic, 1, 0, 20)
    limited = reader.latestOffset(first, ReadMaxRows(5))
    assert limited == {topic: {"0": 10, "1": 5}}
    assert values_between(reader, first, limited) == numbered(1, *range(5))
    reader.stop()


def test_a_topic_that_is_gone_ends_the_stream(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    options = {"failOnDataLoss": "false", "fetchOffset.retryIntervalMs": "0"}
    reader = stream_reader(cluster, topic, **options)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    with pytest.raises(TopicGone, match="new checkpoint"):
        reader.latestOffset(end, ReadAllAvailable())
    reader.stop()


def test_offsets_that_went_back_are_data_loss(
    cluster: Cluster, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    start, end = {topic: {"0": 20}}, {topic: {"0": 10}}
    strict = stream_reader(cluster, topic)
    with pytest.raises(DataLoss, match="offset was changed from 20 to 10"):
        strict.partitions(start, end)
    with pytest.raises(DataLoss, match="gone-3 are gone"):
        strict.partitions({"gone": {"3": 5}, topic: {"0": 0}}, end)
    lenient = stream_reader(cluster, topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lenient.partitions(start, end) == []
    assert "Some data may have been missed" in caplog.text


def test_progress_is_the_offsets_of_a_group(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 30)
    group = f"group-of-{topic}"
    reader = stream_reader(cluster, topic, **{"kafka.group.id": group})
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    reader.latestOffset(first, ReadMaxRows(10))  # the first batch is done
    reader.stop()
    with Client(ClientConfig.of(cluster.bootstrap_servers)) as client:
        found = committed_offsets(client, group, None)
        assert found == {TopicPartition(topic, 0): CommittedOffset(10, "")}


def test_a_group_of_one_run_is_deleted_with_it(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    reader = stream_reader(cluster, topic, groupIdPrefix="only-once")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.commit(end)
    reader.stop()
    assert "only-once" not in groups_of(cluster)
    quiet = stream_reader(cluster, topic, groupIdPrefix="silent", commitProgress="false")
    quiet.commit(end)
    quiet.stop()
    assert "silent" not in groups_of(cluster)


def groups_of(cluster: Cluster) -> str:
    with Client(ClientConfig.of(cluster.bootstrap_servers)) as client:
        response = client.ask(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
        return " ".join(group.group_id for group in response.groups)


def test_the_group_is_named_after_prefix_and_checkpoint() -> None:
    def group(**options: str) -> tuple[str, bool]:
        named = {"bootstrap.servers": "h", "subscribe": "t", **options}
        return group_id_of(parse_source_options(named))

    assert group(**{"kafka.group.id": "mine", "groupIdPrefix": "p"}) == ("mine", False)
    assert group(groupIdPrefix="p", checkpointLocation="/c") == group(
        groupIdPrefix="p", checkpointLocation="/c"
    )
    name, is_temporary = group()
    assert name.startswith("spark-kafka-source-")
    assert is_temporary
    assert group()[0] != name


def test_a_progress_that_cannot_be_committed_does_not_stop_the_stream(
    cluster: Cluster, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    options = {"kafka.group.id": "unlucky", "kafka.default.api.timeout.ms": "1"}
    reader = stream_reader(cluster, topic, **options)
    with caplog.at_level(logging.WARNING):
        reader.commit({"absent": {"0": 5}})
        reader.stop()
    assert "lag of group 'unlucky' is not shown" in caplog.text


def test_the_list_of_partitions_is_kept_for_its_time(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    kept = stream_reader(cluster, topic, **{"partition.metadata.cache.ttl.ms": "3600000"})
    fresh = stream_reader(cluster, topic)
    for reader in (kept, fresh):
        reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    ends = [len(reader._offsets().latest()) for reader in (kept, fresh)]
    assert ends == [1, 2]
    for reader in (kept, fresh):
        reader.stop()


def test_a_poll_that_brings_nothing_ends(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    options = {"subscribe": topic, "kafkaConsumer.pollTimeoutMs": "5"}
    reader = batch_reader(cluster, **options, endingOffsets=json.dumps({topic: {"0": 11}}))
    with pytest.raises(KafkaError, match="sent nothing from offset 10 on within 5 ms"):
        rows_of(reader, reader.partitions())


class Unlucky:
    """A client whose questions fail."""

    def __init__(self) -> None:
        self.asked = 0

    def retrying(self, attempt: Any) -> Any:
        return attempt()

    def metadata(self, topics: Any) -> Any:
        self.asked += 1
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"not yet {self.asked}")

    def forget_topics(self) -> None: ...


@pytest.mark.parametrize(("retries", "asked"), [(None, 3), ("1", 1), ("5", 5)])
def test_offsets_are_asked_for_as_often_as_the_option_says(retries: str | None, asked: int) -> None:
    named = {"bootstrap.servers": "h", "subscribe": "t", "fetchOffset.retryIntervalMs": "0"}
    named |= {} if retries is None else {"fetchOffset.numRetries": retries}
    client = Unlucky()
    reader = OffsetReader(parse_source_options(named), client)  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match=f"not yet {asked}"):
        reader.partitions()
    assert client.asked == asked


def test_spark_4_1_repeats_a_first_batch_from_its_start(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """It asks for the end first, without saying where it is."""
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    reader = stream_reader(cluster, topic, startingOffsets="latest")
    kept = json.loads(json.dumps(reader.latestOffset()))  # in the offset log
    assert values_between(reader, reader.initialOffset(), kept) == []
    assert reader.latestOffset() == kept  # nothing new
    reader.stop()
    fill(cluster, topic, 0, 10, 10)
    again = stream_reader(cluster, topic, startingOffsets="latest")
    assert values_between(again, again.initialOffset(), kept) == []
    following = again.latestOffset()
    assert values_between(again, kept, following) == numbered(0, *range(10, 20))
    again.stop()


def test_spark_4_1_goes_on_from_an_empty_first_batch(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    reader = stream_reader(cluster, topic, startingOffsets="latest")
    kept = json.loads(json.dumps(reader.latestOffset()))
    reader.stop()
    fill(cluster, topic, 0, 10, 10)
    again = stream_reader(cluster, topic, startingOffsets="latest")
    # The first batch is committed: Spark does not ask where the query began.
    assert values_between(again, kept, again.latestOffset()) == numbered(0, *range(10, 20))
    again.stop()


def test_spark_4_1_goes_on_where_no_new_query_could_begin(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(cluster, request)
    fill(cluster, topic, 0, 0, 10)
    reader = stream_reader(cluster, topic, startingTimestamp=str(START_MS * 2))
    assert reader.latestOffset() == {topic: {"0": 10}}
    assert reader.latestOffset() == {topic: {"0": 10}}
    with pytest.raises(OptionError, match="No offset matched"):
        reader.initialOffset()
    reader.stop()


def test_limits_that_spark_does_not_obey_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    named = {"bootstrap.servers": "h", "subscribe": "t", "maxOffsetsPerTrigger": "5"}
    OttlaStreamReader(parse_source_options(named))
    assert caplog.text == ""
    monkeypatch.setattr(source_limits, "HAS_LIMITS", False)
    OttlaStreamReader(parse_source_options(named))
    assert "maxOffsetsPerTrigger and minOffsetsPerTrigger have no effect" in caplog.text


def test_properties_that_nobody_knows_are_told(caplog: pytest.LogCaptureFixture) -> None:
    named = {"bootstrap.servers": "h", "subscribe": "t", "kafka.max.poll.records": "5"}
    OttlaDataSource(named).schema()
    assert caplog.text == ""
    misspelt = OttlaDataSource({**named, "kafka.isolation.levle": "read_committed"})
    for schema in (misspelt.schema(), misspelt.schema()):  # as often as Spark asks
        misspelt.streamReader(schema)
    assert caplog.text.count("Not known, without effect: isolation.levle") == 1


@pytest.mark.parametrize(
    ("location", "uri"),
    [("file:/c", "file:///c"), ("s3a://bucket/c", "s3://bucket/c"), ("gs://b/c", "gs://b/c")],
)
def test_locations_are_spelled_as_pyarrow_spells_them(
    monkeypatch: pytest.MonkeyPatch, location: str, uri: str
) -> None:
    asked: list[str] = []

    class Recorded:
        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            asked.append(uri)
            return None, "/c"

    monkeypatch.setattr(source_initial.fs, "FileSystem", Recorded)
    InitialOffsetFile(located(location))
    assert asked == [uri]


def located(location: str) -> SourceOptions:
    named = {"bootstrap.servers": "h", "subscribe": "t", "checkpointLocation": location}
    return parse_source_options(named)


@pytest.mark.parametrize("location", ["dbfs:/checkpoints/c", "wasbs://a@b/c"])
def test_a_location_that_pyarrow_does_not_know_is_a_warning(
    location: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = InitialOffsetFile(located(location))
    file.save({TopicPartition("t", 0): 5})
    assert file.load() is None
    assert f"are not kept in {location}" in caplog.text


def test_a_location_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = InitialOffsetFile(located(str(tmp_path / "file")))
    with pytest.raises(CheckpointUnreachable, match="or set the source's checkpointLocation"):
        file.save({TopicPartition("t", 0): 5})


def test_what_a_task_loads_is_kept_out_of_garbage_collection_once_all_is_loaded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark collects after each task: what numba loads with the first record is most of it."""
    events: list[str] = []
    monkeypatch.setattr(source_task, "settle", lambda: events.append("settled"))
    reader = batch_reader(cluster, assign='{"numbers": [0]}')
    for partition in reader.partitions():
        events.extend("batch" for _ in reader.read(partition))
    assert events == ["batch", "settled"]
