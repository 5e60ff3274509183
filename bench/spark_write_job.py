"""The half of `spark_write.py` that runs inside Spark's Python."""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import wire
from bench.run import settle_memory
from bench.spark_write import PARTITIONS, SIZES

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # As pipelines set them; both sinks run with them.
    "spark.driver.defaultJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
}


FILES = 2  # that rows go into: what is staged, and the log
STREAM_BATCHES = 4  # after the first, in which workers start and connect


def session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    from ottla.spark import register

    builder = SparkSession.builder
    for name, value in {**SETTINGS, **({"spark.jars": jars} if jars else {})}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    register(made)
    return made


def create_topic(bootstrap: str, name: str) -> None:
    from ottla.client.client import Client
    from ottla.client.config import ClientConfig
    from ottla.spark.pipelines.definition import NewTopic
    from ottla.spark.pipelines.topics import create_topic as create

    with Client(ClientConfig.of(bootstrap)) as client:
        create(client, name, NewTopic(PARTITIONS, -1, {}))


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """What was written is not left to the disk, which would slow down whoever writes next."""
    host, _, port = bootstrap.rpartition(":")
    with wire.Connection((host, int(port))) as connection:
        for name in names:
            connection.delete_topic(name)


def compare(spark: Any, bootstrap: str, rounds: int) -> dict[str, Any]:
    """Millions of records a second, in rounds that alternate; the first one only warms up."""
    formats = ("kafka", "ottla")
    rates: dict[str, dict[str, list[float]]] = {}
    for size, records in SIZES.items():
        for kind in ("batch", "streaming"):
            found: dict[str, list[float]] = {name: [] for name in formats}
            for number in range(rounds + 1):
                for name in formats:
                    topic = f"{kind}-{size}-{name}-{number}"
                    create_topic(bootstrap, topic)
                    settle_memory(Path.cwd(), FILES * records * size)
                    took = _write(spark, kind, name, bootstrap, topic, records, size)
                    if number:
                        found[name].append(records / took / 1e6)
                delete_topics(bootstrap, [f"{kind}-{size}-{name}-{number}" for name in formats])
            rates[f"{kind} write, {'1 KB' if size == 1000 else f'{size} B'}"] = found
    return {"rates": rates}


def _write(
    spark: Any, kind: str, name: str, bootstrap: str, topic: str, records: int, size: int
) -> float:
    """Seconds for `records`: a DataFrame at once, or several micro-batches without the first.

    A value is a number and a constant, which Spark puts together for next to nothing: padding a
    string costs Spark more than either sink costs.
    """
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    number = "CAST(1000000000 + {} AS STRING)"
    columns = (f"{number} AS key", f"concat({number}, repeat('x', {size - 10})) AS value")
    if kind == "batch":
        frame = spark.range(0, records, 1, 2).selectExpr(*(one.format("id") for one in columns))
        began = time.perf_counter()
        frame.write.format(name).mode("append").options(**options).save()
        return time.perf_counter() - began
    source = spark.readStream.format("rate-micro-batch")
    source = source.option("rowsPerBatch", records // STREAM_BATCHES).option("numPartitions", 2)
    frame = source.load().selectExpr(*(one.format("value") for one in columns))
    checkpoint = tempfile.mkdtemp()
    query = frame.writeStream.format(name).options(**options)
    running = query.option("checkpointLocation", checkpoint).start()
    while (last := running.lastProgress) is None or last["batchId"] < STREAM_BATCHES:
        if not running.isActive:
            raise RuntimeError(f"the query ended: {running.exception()}")
        time.sleep(0.05)
    measured = [one for one in running.recentProgress if 1 <= one["batchId"] <= STREAM_BATCHES]
    running.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    rows = sum(one["numInputRows"] for one in measured)
    seconds = sum(one["durationMs"]["triggerExecution"] for one in measured) / 1000
    return seconds * records / rows


def main(argv: Sequence[str]) -> None:
    bootstrap, result, jars, rounds = argv
    spark = session(jars)
    found = compare(spark, bootstrap, int(rounds))
    Path(result).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
