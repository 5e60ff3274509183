"""A streaming query over files of rows, one file a micro-batch, into topics that a column names.

`python file_stream.py DIRECTORY BOOTSTRAP [MASTER]` runs it as a process of its own, to be killed.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

SCHEMA = "key STRING, value STRING, topic STRING"


class FileStream:
    def __init__(self, directory: Path, bootstrap: str, topics: list[str]) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.topics = topics
        self.expected: Counter[tuple[str, bytes]] = Counter()
        (directory / "in").mkdir(parents=True, exist_ok=True)

    def add(self, file: int, count: int = 30, padding: int = 0) -> None:
        """One more micro-batch."""
        rows = [
            {
                "key": str(n),
                "value": f"{file}-{n}{'x' * padding}",
                "topic": self.topics[n % len(self.topics)],
            }
            for n in range(count)
        ]
        self.expected.update((row["topic"], row["value"].encode()) for row in rows)
        temporary = self.directory / f"{file}.tmp"
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        temporary.rename(self.directory / "in" / f"{file:05}.json")

    def run(self, spark: Any, **options: str) -> None:
        """Process what is there; raise what ended the query."""
        run_query(spark, self.directory, self.bootstrap, **options)


def run_query(spark: Any, directory: Path, bootstrap: str, **options: str) -> None:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "checkpointLocation": str(directory / "checkpoint"),
        "kafka.retry.backoff.ms": "50",
        **options,
    }
    query = (
        reader.json(str(directory / "in"))
        .repartition(2)
        .writeStream.format("ottla")
        .options(**settings)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


if __name__ == "__main__":
    from support.spark_runs import spark_session

    run_query(spark_session(*sys.argv[3:4]), Path(sys.argv[1]), sys.argv[2])
    Path(sys.argv[1], "done").touch()
