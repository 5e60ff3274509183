"""`format("ottla")` for reading in a real Spark, from a real broker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException, StreamingQueryException

from ottla.client import Client, ClientConfig, TopicPartition, committed_offsets
from ottla.protocol.batches import Record, build_batch
from ottla.spark import register
from ottla.spark.schema import spark_schema
from support.spark_runs import broker, create_topic, patiently
from support.wire import Wire

pytestmark = pytest.mark.timeout(600)

START_MS = 1_700_000_000_000
# Batches and streams look a format up in different ways, for reading and for writing.
UNTOLD = """
import sys
from pyspark.sql import SparkSession

where = {"kafka.bootstrap.servers": sys.argv[1]}
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
numbers = spark.read.format("ottla").options(subscribe="numbers", **where).load()
numbers.where("partition = 0").write.format("ottla").mode("append").options(
    topic="copied", writeId="copy", **where
).save()
stream = spark.readStream.format("ottla").options(subscribe="copied", **where).load()
options = {"topic": "copied", "checkpointLocation": sys.argv[2] + "/checkpoint", **where}
stream.writeStream.format("ottla").options(**options).trigger(
    availableNow=True
).start().awaitTermination()
copied = spark.read.format("ottla").options(subscribe="copied", **where).load()
print(numbers.count(), copied.count())
"""
KEPT = {"retention.ms": "-1"}  # records of these times would be taken by retention


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(tmp_path_factory.mktemp("broker")) as process:
        create_topic(process.bootstrap, "numbers", 2, **KEPT)
        for partition in (0, 1):
            fill(process.bootstrap, "numbers", partition, 0, 100)
        yield process.bootstrap


def fill(bootstrap: str, topic: str, partition: int, first: int, count: int) -> None:
    records = [
        Record(n, START_MS + first + n, b"k%d" % partition, b"%d" % (first + n), ((b"h", b"1"),))
        for n in range(count)
    ]
    with Wire(bootstrap) as wire:
        assert int(wire.produce(topic, build_batch(records), partition=partition).error_code) == 0


def loaded(spark: Any, bootstrap: str, **options: str) -> Any:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{"subscribe": "numbers", **options}).load()


def streamed(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()


def run_to_end(frame: Any, checkpoint: Path, into: Any) -> Any:
    writer = frame.writeStream.foreachBatch(into).option("checkpointLocation", str(checkpoint))

    def run() -> Any:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    return patiently(run)


class Collected:
    """Gathers values, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.fails = False

    def __call__(self, frame: Any, batch_id: int) -> None:
        found = [int(row.value) for row in frame.select(frame.value.cast("string")).collect()]
        if self.fails:
            raise RuntimeError("the sink fails")
        self.values += found


def test_the_format_is_found_by_a_session_that_was_told_nothing(
    bootstrap: str, tmp_path: Path
) -> None:
    """In a process of its own: what is registered stays in a session."""
    create_topic(bootstrap, "copied", 1, **KEPT)

    def run() -> None:
        done = subprocess.run(
            [sys.executable, "-c", UNTOLD, bootstrap, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        assert (done.returncode, done.stdout) == (0, "200 100\n"), done.stderr[-5000:]

    patiently(run)


def test_the_tuned_settings_reach_the_jvm(spark: Any) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm.System.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert not jvm.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED


def test_a_topic_is_read_whole(spark: Any, bootstrap: str) -> None:
    frame = loaded(spark, bootstrap, includeHeaders="true")
    assert frame.schema == spark_schema(include_headers=True)
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    assert [int(row.value) for row in rows] == [*range(100), *range(100)]
    last = rows[-1]
    assert (bytes(last.key), last.topic, last.partition, last.offset) == (b"k1", "numbers", 1, 99)
    assert last.timestamp.timestamp() == (START_MS + 99) / 1000
    assert [(header.key, bytes(header.value)) for header in last.headers] == [("h", b"1")]


def test_columns_can_be_chosen_and_partitions_split(spark: Any, bootstrap: str) -> None:
    frame = loaded(spark, bootstrap, minPartitions="4", endingOffsets='{"numbers":{"0":40,"1":8}}')
    assert frame.rdd.getNumPartitions() == 4
    assert frame.selectExpr("sum(cast(cast(value as string) as int)) as s").first().s == 808


def test_a_wrong_option_fails_at_load(spark: Any, bootstrap: str) -> None:
    with pytest.raises(AnalysisException, match=r"auto\.offset\.reset' is not supported"):
        loaded(spark, bootstrap, **{"kafka.auto.offset.reset": "latest"})
    with pytest.raises(AnalysisException, match="Topic 'absent' does not exist"):
        loaded(
            spark, bootstrap, subscribe="absent", **{"kafka.default.api.timeout.ms": "1"}
        ).count()


def test_filters_are_pushed_down(spark: Any, bootstrap: str) -> None:
    register(spark)
    frame = loaded(spark, bootstrap, filterPushdown="true", maxRecordsPerPartition="10")
    narrowed = frame.where("offset >= 75 AND partition = 1 AND timestamp > timestamp_millis(5)")
    assert narrowed.rdd.getNumPartitions() == 3
    assert narrowed.count() == 25


def test_a_stream_restarts_where_it_was_and_shows_its_lag(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "restarted", 1, **KEPT)
    fill(bootstrap, "restarted", 0, 0, 25)
    into = Collected()
    options = {"maxOffsetsPerTrigger": "10", "kafka.group.id": "lagging"}
    frame = streamed(spark, bootstrap, "restarted", **options)
    query = run_to_end(frame, tmp_path, into)
    assert [progress.numInputRows for progress in query.recentProgress] == [10, 10, 5]
    fill(bootstrap, "restarted", 0, 25, 5)
    run_to_end(frame, tmp_path, into)
    assert into.values == list(range(30))
    with Client(ClientConfig.of(bootstrap)) as client:
        found = committed_offsets(client, "lagging", None)
    assert found[TopicPartition("restarted", 0)].offset == 30


def test_patience_and_names_are_taken_from_options(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "patient", 1, **KEPT)
    fill(bootstrap, "patient", 0, 0, 10)
    options = {
        "kafkaConsumer.pollTimeoutMs": "30000",
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "10",
        "partition.metadata.cache.ttl.ms": "60000",
        "groupIdPrefix": "patient-readers",
        "checkpointLocation": str(tmp_path / "source"),
    }
    into = Collected()
    run_to_end(streamed(spark, bootstrap, "patient", **options), tmp_path / "query", into)
    assert into.values == list(range(10))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    (named,) = (group for group in groups if group.startswith("patient-readers-"))
    with Client(ClientConfig.of(bootstrap)) as client:
        found = committed_offsets(client, named, None)
    assert found[TopicPartition("patient", 0)].offset == 10


def test_a_first_batch_that_failed_is_read_again_from_its_start(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "failing", 1, **KEPT)
    fill(bootstrap, "failing", 0, 0, 10)
    into = Collected()
    into.fails = True
    frame = streamed(spark, bootstrap, "failing", startingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run_to_end(frame, tmp_path, into)  # it begins with an empty batch, at offset 10
    fill(bootstrap, "failing", 0, 10, 10)
    fill(bootstrap, "failing", 0, 20, 10)
    into.fails = False
    run_to_end(frame, tmp_path, into)
    assert into.values == list(range(10, 30))


def test_data_loss_ends_a_stream_with_words(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    create_topic(bootstrap, "shortened", 1, **KEPT)
    fill(bootstrap, "shortened", 0, 0, 10)
    into = Collected()
    run_to_end(streamed(spark, bootstrap, "shortened"), tmp_path, into)
    fill(bootstrap, "shortened", 0, 10, 10)
    fill(bootstrap, "shortened", 0, 20, 10)
    place = Place("shortened", 0, 20)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_records([place])[place].result(30)
    with pytest.raises(StreamingQueryException, match="set the source option 'failOnDataLoss'"):
        run_to_end(streamed(spark, bootstrap, "shortened"), tmp_path, into)
    lenient = streamed(spark, bootstrap, "shortened", failOnDataLoss="false")
    run_to_end(lenient, tmp_path, into)
    assert into.values == [*range(10), *range(20, 30)]
