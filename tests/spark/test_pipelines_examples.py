"""Every example, with its sample data, gives what its page says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.brokers import ROOT

from ottla.client.client import Client
from ottla.client.config import ClientConfig
from ottla.spark.pipelines.definition import Definition, NewTopic
from ottla.spark.pipelines.load import load_pipeline
from ottla.spark.pipelines.start import await_end, start_queries
from ottla.spark.pipelines.topics import create_topic, prepare_topics
from support.spark_runs import broker, patiently, produce, read_topic

EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.timeout(300)


class Place:
    """A broker of its own for each example, so that their topics may have the same names."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.directory = directory
        self.environment = {"OTTLA_BROKERS": bootstrap, "ARCHIVE": str(directory / "archive")}

    def load(self, example: str, file: str, topic: str) -> None:
        """Write a file of sample data to a topic, as `ottla produce` does."""
        path = EXAMPLES / example / "data" / file
        records: list[tuple[bytes | None, bytes | None]] = []
        for line in path.read_bytes().splitlines():
            key, tab, value = line.partition(b"\t")
            records.append((key, value or None) if tab else (None, line))
        with Client(ClientConfig.of(self.bootstrap)) as client:
            create_topic(client, topic, NewTopic(1, -1, {}))
        produce(self.bootstrap, topic, records)

    def definition(self, example: str, file: str = "pipeline.toml") -> Definition:
        return load_pipeline(str(EXAMPLES / example / file), self.environment)

    def run(self, example: str, file: str = "pipeline.toml") -> None:
        definition = self.definition(example, file)
        assert prepare_topics(definition) == []
        checkpoint = str(self.directory / "checkpoints" / definition.name)
        patiently(
            lambda: await_end(
                start_queries(self.spark, definition, checkpoint, trigger="available_now")
            )
        )

    def read(self, topic: str) -> list[Any]:
        return read_topic(self.bootstrap, topic)

    def rows(self, topic: str) -> list[Any]:
        return [json.loads(message.value()) for message in self.read(topic)]


@pytest.fixture
def place(spark: Any, tmp_path: Path) -> Iterator[Place]:
    with broker(tmp_path / "broker") as process:
        yield Place(spark, process.bootstrap, tmp_path)


def test_word_count(place: Place) -> None:
    place.load("word_count", "lines.txt", "lines")
    place.run("word_count")
    counts = {message.key(): int(message.value()) for message in place.read("word-counts")}
    assert counts[b"kafka"] == 3
    assert counts[b"streams"] == 2
    assert counts[b"he"] == 3
    place.load("word_count", "lines.txt", "lines")
    place.run("word_count")
    counts = {message.key(): int(message.value()) for message in place.read("word-counts")}
    assert counts[b"kafka"] == 6


@pytest.mark.long
def test_windowed_totals_with_late_records(place: Place) -> None:
    for file in ("orders.txt", "orders-later.txt", "orders-too-late.txt"):
        place.load("windowed_totals", file, "orders")
        place.run("windowed_totals")
    found = {(row["customer"], row["minute"][11:16]): row for row in place.rows("order-totals")}
    assert len(place.rows("order-totals")) == len(found)  # each minute is written once
    assert found["milena", "10:00"]["total"] == 16  # a record out of order is in, one too late not
    assert found["felice", "10:00"]["total"] == 20
    assert found["milena", "10:01"]["orders"] == 1
    assert found["felice", "10:02"]["total"] == 3


@pytest.mark.long
def test_stream_table_join(place: Place) -> None:
    place.load("stream_table_join", "customers.tsv", "customers")
    place.load("stream_table_join", "orders.txt", "orders")
    place.run("stream_table_join")
    cities = {row["order"]: row["city"] for row in place.rows("orders-enriched")}
    assert cities == {1: "Vienna", 2: "Breslau", 3: "unknown", 4: "unknown"}
    produce(place.bootstrap, "customers", [(b"nobody", b'{"name": "N", "city": "Zurau"}')])
    place.load("stream_table_join", "orders.txt", "orders")
    place.run("stream_table_join")
    assert [row["city"] for row in place.rows("orders-enriched") if row["order"] == 3] == [
        "unknown",
        "Zurau",
    ]


def test_transfers(place: Place) -> None:
    place.load("transfers", "transfers.txt", "transfers")
    place.run("transfers")
    paid, received = place.rows("debits"), place.rows("credits")
    assert sorted(row["id"] for row in paid) == ["t1", "t2", "t3", "t4"]
    assert sorted(row["id"] for row in received) == ["t1", "t2", "t3", "t4"]
    assert sum(row["cents"] for row in paid + received) == 0


def test_change_capture(place: Place) -> None:
    place.load("change_capture", "changes.txt", "changes")
    place.run("change_capture")
    table = {message.key(): message.value() for message in place.read("customers-current")}
    assert json.loads(table[b"1"] or b"") == {"name": "Milena", "city": "Vienna"}
    assert table[b"2"] is None
    assert set(table) == {b"1", b"2", b"3"}


@pytest.mark.long
def test_parquet_and_back(place: Place) -> None:
    place.load("parquet_and_back", "events.tsv", "events")
    place.run("parquet_and_back", "to_parquet.toml")
    place.run("parquet_and_back", "from_parquet.toml")
    found = place.read("events-again")
    assert sorted((m.key(), json.loads(m.value())["id"]) for m in found) == [(b"a", 1), (b"a", 3)]


def test_dead_letters(place: Place) -> None:
    place.load("dead_letters", "orders.txt", "orders")
    place.run("dead_letters")
    assert sorted(row["order"] for row in place.rows("orders-good")) == [1, 4]
    dead = {message.headers()[0][1]: message.value() for message in place.read("orders-dead")}
    assert dead[b"not an order in JSON"] == b"this is not JSON"
    assert set(dead) == {b"not an order in JSON", b"no customer", b"the amount is not positive"}


def test_topics_that_are_missing_are_told_before_spark_starts(place: Place) -> None:
    problems = prepare_topics(place.definition("word_count"))
    assert [(one.path, "lines" in one.reason) for one in problems] == [
        (("sources", "lines", "topic"), True)
    ]


def test_every_example_has_its_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "examples").glob("*.md")}
    assert pages == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
