"""What the sink writes to a real broker, option by option, and how it refuses."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from ottla.client import Client, ClientConfig, TopicPartition, committed_offsets
from ottla.client.transactions import BatchProducer
from ottla.spark.partitioner import partition_of_key
from support.spark_runs import broker, create_topic, patiently, read_topic, values_of

pytestmark = pytest.mark.timeout(300)

JAVA = "org.apache.kafka.clients.producer."
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(tmp_path_factory.mktemp("broker")) as process:
        yield process.bootstrap


def rows(spark: Any, count: int, partitions: int = 2) -> Any:
    frame = spark.range(0, count, 1, partitions)
    return frame.selectExpr("CAST(id AS STRING) AS key", "concat('v', id) AS value")


def write(frame: Any, bootstrap: str, stage: Path, **options: str) -> None:
    settings = {"kafka.bootstrap.servers": bootstrap, "stageDirectory": str(stage), **options}
    writer = frame.write.format("ottla").mode("append").options(**settings)
    patiently(writer.save)


def test_keys_go_where_javas_producer_puts_them(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    create_topic(bootstrap, "placed-by-key", 5)
    write(rows(spark, 2000), bootstrap, tmp_path, topic="placed-by-key")
    found = read_topic(bootstrap, "placed-by-key")
    assert Counter(m.value() for m in found) == Counter(b"v%d" % n for n in range(2000))
    assert all(m.partition() == partition_of_key(m.key(), 5) for m in found)
    assert all(m.value() == b"v" + m.key() for m in found)
    assert list(tmp_path.iterdir()) == [tmp_path / ".ottla-stage"]  # nothing is left behind


def test_columns_choose_topic_partition_and_headers(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    for name in ("column-a", "column-b"):
        create_topic(bootstrap, name, 3)
    frame = spark.sql(
        """
        SELECT encode(CAST(id AS STRING), 'utf-8') AS key,
          IF(id = 3, NULL, concat('v', id)) AS value,
          IF(id % 2 = 0, 'column-a', 'column-b') AS topic, IF(id < 4, 2, NULL) AS partition,
          array(struct('h' AS key, CAST('v' AS BINARY) AS value), struct('n' AS key,
            CAST(NULL AS BINARY) AS value)) AS headers, id AS ignored
        FROM range(8)
        """
    )
    write(frame, bootstrap, tmp_path)
    evens, odds = read_topic(bootstrap, "column-a"), read_topic(bootstrap, "column-b")
    assert sorted(m.value() for m in evens) == [b"v0", b"v2", b"v4", b"v6"]
    assert sorted(m.value() or b"" for m in odds) == [b"", b"v1", b"v5", b"v7"]
    assert {m.value(): m.partition() for m in evens if m.value() in (b"v0", b"v2")} == {
        b"v0": 2,
        b"v2": 2,
    }
    assert evens[0].headers()[0][0] == "h"
    assert evens[0].headers()[1] == ("n", None)


@pytest.mark.parametrize(
    "codec", ["lz4", "zstd", *(pytest.param(c, marks=LONG) for c in ("gzip", "snappy", "none"))]
)
def test_every_codec_can_be_read_back(
    spark: Any, bootstrap: str, tmp_path: Path, codec: str
) -> None:
    options = {"topic": f"codec-{codec}", "kafka.compression.type": codec}
    write(rows(spark, 500), bootstrap, tmp_path, **options)  # the broker creates the topic
    assert values_of(bootstrap, f"codec-{codec}") == Counter(b"v%d" % n for n in range(500))


@pytest.mark.parametrize(
    "options",
    [
        {"delivery": "at_least_once"},
        {"delivery": "at_least_once", "kafka.acks": "0"},
        {"kafka.batch.size": "2000"},
        {"kafka.partitioner.class": JAVA + "RoundRobinPartitioner"},
        *(
            pytest.param(options, marks=LONG)
            for options in (
                {"delivery": "at_least_once", "kafka.acks": "1"},
                {"delivery": "at_least_once", "kafka.enable.idempotence": "false"},
                {"kafka.max.in.flight.requests.per.connection": "1"},
                {"kafka.client.id": "me", "kafka.linger.ms": "5", "kafka.retries": "3"},
            )
        ),
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()),
)
def test_options_change_how_but_not_what_is_written(
    spark: Any, bootstrap: str, tmp_path: Path, options: dict[str, str]
) -> None:
    name = f"options-{abs(hash(str(options)))}"
    create_topic(bootstrap, name, 3)
    write(rows(spark, 300), bootstrap, tmp_path, topic=name, **options)
    assert values_of(bootstrap, name) == Counter(b"v%d" % n for n in range(300))
    if "kafka.partitioner.class" in options:
        counts = Counter(m.partition() for m in read_topic(bootstrap, name))
        assert set(counts.values()) == {100}


def test_the_option_topic_overrides_the_column(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    create_topic(bootstrap, "override", 1)
    frame = rows(spark, 3).selectExpr("value", "'elsewhere' AS topic")
    write(frame, bootstrap, tmp_path, topic="override")
    assert sum(values_of(bootstrap, "override").values()) == 3


def test_a_batch_write_with_an_id_is_written_once_however_often_it_is_repeated(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "repeated", 2)
    for _ in range(3):
        write(rows(spark, 50), bootstrap, tmp_path, topic="repeated", writeId="monday")
    write(rows(spark, 50), bootstrap, tmp_path, topic="repeated", writeId="tuesday")
    assert set(values_of(bootstrap, "repeated").values()) == {2}


def test_the_marker_is_where_the_options_say(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    for topic in ("marked", "markers"):
        create_topic(bootstrap, topic, 2)
    options = {"writeId": "once", "transactionalIdPrefix": "mine", "markerTopic": "markers"}
    for _ in range(2):
        write(rows(spark, 10), bootstrap, tmp_path, topic="marked", **options)
    assert set(values_of(bootstrap, "marked").values()) == {1}
    with Client(ClientConfig.of(bootstrap)) as client:
        found = committed_offsets(client, "mine-write-once", None)
    assert {place: committed.offset for place, committed in found.items()} == {
        TopicPartition("markers", 0): 1
    }


def test_an_empty_frame_writes_nothing(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    create_topic(bootstrap, "empty", 1)
    write(rows(spark, 10).where("value = 'x'"), bootstrap, tmp_path, topic="empty")
    write(rows(spark, 10).where("value = 'x'"), bootstrap, tmp_path, topic="empty", writeId="e")
    assert read_topic(bootstrap, "empty") == []


def test_a_task_that_fails_is_repeated_and_written_once(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "retried", 2)
    guard = str(tmp_path / "failed-once")

    def fail_once(batches: Any) -> Any:
        import os

        for batch in batches:
            yield batch
            if not os.path.exists(guard):
                open(guard, "w").close()
                os.kill(os.getpid(), 9)

    frame = rows(spark, 1000).mapInArrow(fail_once, "key STRING, value STRING")
    write(frame, bootstrap, tmp_path / "stage", topic="retried")
    assert values_of(bootstrap, "retried") == Counter(b"v%d" % n for n in range(1000))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id"], {"topic": "keyed"}, "no column 'value'"),
        (["id AS value"], {"topic": "keyed"}, "'value' is of type bigint"),
        (["'v' AS value"], {}, "option 'topic'"),
        (["'v' AS value", "99 AS partition"], {"topic": "keyed"}, "partition 99 of topic keyed"),
        (["'v' AS value"], {"topic": "keyed", "delivery": "twice"}, "exactly_once, at_least_once"),
        (["'v' AS value"], {"topic": "keyed", "stageDirectory": "s3://b/x"}, "must be a path"),
        (["'v' AS value"], {"topic": "keyed", "stageDirectory": "/proc/none"}, "stageDirectory"),
        (["'v' AS value"], {"topic": "bad topic"}, "bad topic"),
    ],
)
def test_what_cannot_be_written_is_refused_with_what_to_do(
    spark: Any,
    bootstrap: str,
    tmp_path: Path,
    columns: list[str],
    options: dict[str, str],
    said: str,
) -> None:
    settings = {"stageDirectory": str(tmp_path), **options}
    writer = spark.range(3).selectExpr(*columns).write.format("ottla").mode("append")
    writer = writer.options(**{"kafka.bootstrap.servers": bootstrap, **settings})
    with pytest.raises(Exception, match=said):
        writer.save()


def test_a_topic_is_not_overwritten(spark: Any, bootstrap: str) -> None:
    writer = rows(spark, 1).write.format("ottla").mode("overwrite")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.options(**{"kafka.bootstrap.servers": bootstrap, "topic": "keyed"}).save()


# Spark keeps the process that commits; with other options it asks the broker what is true.
ANEW = {"kafka.client.id": "anew"}


class Stream:
    """A streaming query over files of rows, one file a micro-batch."""

    def __init__(self, spark: Any, directory: Path, bootstrap: str, **options: str) -> None:
        self.spark = spark
        self.directory = directory
        self.options = {"kafka.bootstrap.servers": bootstrap, **options}
        self.expected: Counter[bytes] = Counter()
        (directory / "in").mkdir(parents=True)

    def add(self, file: int, count: int = 20) -> None:
        values = [f"{file}-{n}" for n in range(count)]
        self.expected.update(value.encode() for value in values)
        temporary = self.directory / f"{file}.tmp"
        temporary.write_text("".join(json.dumps({"value": v}) + "\n" for v in values))
        temporary.rename(self.directory / "in" / f"{file:05}.json")

    def run(self, **options: str) -> None:
        """Process what is there; raise what ended the query."""
        reader = self.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1)
        writer = (
            reader.json(str(self.directory / "in"))
            .writeStream.format("ottla")
            .options(**{**self.options, **options})
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
        )
        patiently(lambda: writer.start().awaitTermination())

    @property
    def transactional_id(self) -> str:
        metadata = json.loads((self.directory / "checkpoint" / "metadata").read_text())
        return f"ottla-{metadata['id']}"


@pytest.fixture
def stream(spark: Any, bootstrap: str, tmp_path: Path, request: Any) -> Stream:
    topic = f"stream-{abs(hash(request.node.name))}"
    create_topic(bootstrap, topic, 3)
    made = Stream(spark, tmp_path, bootstrap, topic=topic)
    for file in range(3):
        made.add(file)
    return made


def check(stream: Stream) -> None:
    found = values_of(stream.options["kafka.bootstrap.servers"], stream.options["topic"])
    assert found == stream.expected


def test_a_streaming_query_goes_on_where_it_was(stream: Stream) -> None:
    stream.run()
    stream.add(3)
    stream.run()
    check(stream)


def test_at_least_once_writes_everything_too(stream: Stream) -> None:
    stream.run(delivery="at_least_once")
    check(stream)


def test_a_driver_that_was_replaced_is_told_so_and_loses_nothing(
    stream: Stream, bootstrap: str
) -> None:
    stream.run()
    with Client(ClientConfig.of(bootstrap)) as client:
        BatchProducer(client, stream.transactional_id).take_producer_id()
    stream.add(3)
    with pytest.raises(Exception, match="Another driver took over"):
        stream.run()
    stream.run()
    check(stream)


@pytest.mark.parametrize("policy", ["publish", "skip"])
def test_a_marker_that_is_gone_stops_the_query_until_the_operator_decides(
    stream: Stream, bootstrap: str, policy: str
) -> None:
    stream.run()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_consumer_groups([stream.transactional_id])[stream.transactional_id].result(30)
    stream.add(3)
    with pytest.raises(Exception, match=r"is gone.*markerMismatch"):
        stream.run(**ANEW)
    stream.run(markerMismatch=policy)
    if policy == "skip":
        for n in range(20):
            del stream.expected[f"3-{n}".encode()]
    stream.add(4)
    stream.run()
    check(stream)


@pytest.mark.parametrize(("marker", "said"), [(1, "only 1 micro-batches"), (9, "older than")])
def test_a_marker_that_does_not_fit_stops_the_query(
    stream: Stream, bootstrap: str, marker: int, said: str
) -> None:
    stream.run()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": stream.transactional_id})
    consumer.commit(offsets=[Place(stream.options["topic"], 0, marker)], asynchronous=False)
    consumer.close()
    stream.add(3)
    with pytest.raises(Exception, match=said):
        stream.run(**ANEW)
    assert sum(values_of(bootstrap, stream.options["topic"]).values()) == 60
