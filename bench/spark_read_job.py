"""The half of `spark_read.py` that runs inside Spark's Python."""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.spark_read import FLOOR, ONE_RECORD, STEADY
from bench.table import turns
from ottla.spark.pipelines.session import TUNED

COMMON = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
FORMATS = ("kafka", "ottla")
STREAM_BATCHES = 3
MICRO_BATCHES = 60
MICRO_WARM_UP = 20
TRICKLE_S = 0.005
FLOOR_ROWS = 7  # about what a micro-batch of the trickle finds


def session(jars: str, kind: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.jars", jars)
    for name, value in {**COMMON, **(TUNED if kind == "tuned" else {})}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def batch_read(spark: Any, name: str, options: dict[str, str], records: int) -> float:
    frame = spark.read.format(name).options(**options).load()
    began = time.perf_counter()
    row = frame.selectExpr("count(*) AS n", "sum(length(value)) AS bytes").first()
    took = time.perf_counter() - began
    if row.n != records:
        raise RuntimeError(f"{name} read {row.n} of {records} records")
    return records / took / 1e6


def stream_read(spark: Any, name: str, options: dict[str, str], records: int) -> float:
    """availableNow in a few batches, without the time that a query takes to start."""
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(records // STREAM_BATCHES)}
    frame = spark.readStream.format(name).options(**options, **limits).load()
    checkpoint = tempfile.mkdtemp()
    writer = frame.selectExpr("length(value) AS bytes").writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)
    progress = query.recentProgress
    read = sum(item["numInputRows"] for item in progress)
    if read != records:
        raise RuntimeError(f"{name} streamed {read} of {records} records")
    seconds = sum(item["durationMs"]["triggerExecution"] for item in progress) / 1000
    return records / seconds / 1e6


def smallest_batches(spark: Any, name: str, bootstrap: str, *, steadily: bool) -> list[float]:
    """The milliseconds of triggers that found one record, or a few of a steady trickle."""
    from confluent_kafka import Producer

    from bench.spark_read import create_topic
    from ottla.client import Client, ClientConfig

    topic = f"small-{name}-{time.time_ns()}"
    with Client(ClientConfig.of(bootstrap)) as client:
        create_topic(client, topic, 1)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    frame = spark.readStream.format(name).options(**options, startingOffsets="earliest").load()
    checkpoint = tempfile.mkdtemp()
    writer = frame.selectExpr("length(value) AS bytes").writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    wanted = MICRO_BATCHES + MICRO_WARM_UP
    if steadily:
        while (query.lastProgress or {}).get("batchId", 0) < wanted:
            producer.produce(topic, b"one")
            producer.flush(30)
            time.sleep(TRICKLE_S)
    else:
        for _ in range(wanted):
            producer.produce(topic, b"one")
            producer.flush(30)
            query.processAllAvailable()
    found = [item for item in query.recentProgress if item["numInputRows"]]
    query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return _durations(found)


def floor_batches(spark: Any) -> list[float]:
    """The same for rows that Spark makes itself: what no connector can go below."""
    source = spark.readStream.format("rate-micro-batch")
    frame = source.option("rowsPerBatch", FLOOR_ROWS).option("numPartitions", 1).load()
    checkpoint = tempfile.mkdtemp()
    writer = frame.select("value").writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()
    while (query.lastProgress or {}).get("batchId", 0) < MICRO_BATCHES + MICRO_WARM_UP:
        time.sleep(TRICKLE_S)
    found = query.recentProgress
    query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return _durations(found)


def _durations(found: Sequence[Any]) -> list[float]:
    return [float(item["durationMs"]["triggerExecution"]) for item in found[MICRO_WARM_UP:]]


def main(argv: Sequence[str]) -> None:
    bootstrap, result, jars, kind, rounds, *topics = argv
    spark = session(jars, kind)
    found: dict[str, dict[str, list[float]]] = {}
    for topic in topics:
        name, _, count = topic.partition("=")
        size = {"read-100": "100 B", "read-1000": "1 KB"}[name]
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name}
        for load, measure in (("batch", batch_read), ("streaming", stream_read)):
            samples = found[f"{load} read, {size}"] = {name: [] for name in FORMATS}
            for index, form in enumerate(turns(FORMATS, int(rounds) + 1)):
                value = measure(spark, form, options, int(count))
                print(f"{load} read, {size}, {form}: {value:.2f} M records/s", flush=True)
                if index >= len(FORMATS):  # the first round warms up
                    samples[form].append(value)
    for load, steadily in ((ONE_RECORD, False), (STEADY, True)):
        small: dict[str, list[float]] = {name: [] for name in FORMATS}
        for form in turns(FORMATS, 2):
            found_ms = smallest_batches(spark, form, bootstrap, steadily=steadily)
            print(f"{load}, {form}: {median(found_ms):.0f} ms", flush=True)
            small[form] += found_ms
        found[load] = small
    floor = floor_batches(spark) + floor_batches(spark)
    print(f"{FLOOR}: {median(floor):.0f} ms", flush=True)
    found[FLOOR] = dict.fromkeys(FORMATS, floor)
    Path(result).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
