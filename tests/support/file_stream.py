"""A streaming query that can be killed and started again: rows in micro-batches, into topics.

The rows come from files, one file a micro-batch, or from a topic; a column names the topic that a
row goes to. They are written by the sink, or by foreachBatch.

`python file_stream.py DIRECTORY BOOTSTRAP ...` runs the query of a directory as a process of its
own, to be killed.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

SCHEMA = "key STRING, value STRING, topic STRING"
ROWS = 30  # of a micro-batch
COPY_BEGAN = "copy-began"  # a file in the directory


class FileStream:
    """Rows in files; `is_foreach` says how they are written."""

    source_topic: str | None = None

    def __init__(
        self, directory: Path, bootstrap: str, topics: list[str], *, is_foreach: bool = False
    ) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.topics = topics
        self.is_foreach = is_foreach
        self.expected: Counter[tuple[str, bytes]] = Counter()
        self._runs = 0
        self._added = 0
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, count: int = ROWS, padding: int = 0) -> None:
        """One more micro-batch."""
        rows = [
            {
                "key": str(n),
                "value": f"{self._added}-{n}{'x' * padding}",
                "topic": self.topics[n % len(self.topics)],
            }
            for n in range(count)
        ]
        self.expected.update((row["topic"], row["value"].encode()) for row in rows)
        self._give([json.dumps(row) for row in rows])
        self._added += 1

    def run(self, spark: Any, **options: str) -> None:
        """Process what is there; raise what ended the query.

        Spark keeps its Python processes; under a name of its own each run asks the broker anew.
        """
        self._runs += 1
        run_query(
            spark,
            self.directory,
            self.bootstrap,
            source_topic=self.source_topic,
            is_foreach=self.is_foreach,
            **{"kafka.client.id": f"run-{self._runs}", **options},
        )

    @property
    def arguments(self) -> list[str]:
        """Those of this program for this stream."""
        topic = [] if self.source_topic is None else ["--source-topic", self.source_topic]
        return [str(self.directory), self.bootstrap, *topic, *["--foreach"] * self.is_foreach]

    @property
    def has_staged_files(self) -> bool:
        """Whether output lies in files now, for the driver to publish."""
        return any((self.directory / "checkpoint" / "ottla-stage").rglob("*.batches"))

    def _give(self, lines: list[str]) -> None:
        folder = self.directory / "in"
        folder.mkdir(exist_ok=True)
        temporary = self.directory / f"{self._added}.tmp"
        temporary.write_text("".join(f"{line}\n" for line in lines))
        temporary.rename(folder / f"{self._added:05}.json")


class TopicStream(FileStream):
    """Rows in a topic of one partition, which must exist."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        topics: list[str],
        source_topic: str,
        *,
        is_foreach: bool = False,
    ) -> None:
        super().__init__(directory, bootstrap, topics, is_foreach=is_foreach)
        self.source_topic = source_topic

    def _give(self, lines: list[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for line in lines:
            producer.produce(self.source_topic, line.encode())
        assert producer.flush(60) == 0


def run_query(
    spark: Any,
    directory: Path,
    bootstrap: str,
    *,
    source_topic: str | None = None,
    is_foreach: bool = False,
    waits_for_copy: bool = False,
    **options: str,
) -> None:
    from ottla.spark.sink_batches import exactly_once_batches

    checkpoint = str(directory / "checkpoint")
    client = {"kafka.bootstrap.servers": bootstrap, "kafka.retry.backoff.ms": "50", **options}
    if source_topic is None:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = reader.json(str(directory / "in"))
    else:
        reader = (
            spark.readStream.format("ottla").options(**client).option("subscribe", source_topic)
        )
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS)
        rows = reader.load().selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS row")
        rows = rows.select("row.*")
    rows = rows.repartition(2)
    if waits_for_copy:
        rows = rows.mapInArrow(partial(wait_for_copy, str(directory / COPY_BEGAN)), SCHEMA)
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if is_foreach:
        stage = str(Path(checkpoint) / "ottla-stage")
        writer = writer.foreachBatch(exactly_once_batches(stageDirectory=stage, **client))
    else:
        writer = writer.format("ottla").options(**client)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def wait_for_copy(flag: str, batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: hold the first attempt until Spark has begun another, so that both write."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() > 0:
        Path(flag).touch()
    while context.partitionId() == 0 and not Path(flag).exists():
        time.sleep(0.05)
    yield from batches


def main() -> None:
    from support.spark_runs import spark_session

    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("bootstrap")
    parser.add_argument("--master")
    parser.add_argument("--source-topic")
    parser.add_argument("--foreach", action="store_true")
    parser.add_argument("--wait-for-copy", action="store_true")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    options = dict(option.split("=", 1) for option in given.option)
    run_query(
        spark_session(given.master),
        given.directory,
        given.bootstrap,
        source_topic=given.source_topic,
        is_foreach=given.foreach,
        waits_for_copy=given.wait_for_copy,
        **options,
    )
    (given.directory / "done").touch()


if __name__ == "__main__":
    main()
