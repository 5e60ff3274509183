"""The half of `word_count.py` that runs inside Spark's Python."""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.spark_write_job import create_topic
from ottla.spark.pipelines.definition import Definition
from ottla.spark.pipelines.session import spark_session
from ottla.spark.sink_batches import exactly_once_batches

WORDS = 10_000
MICRO_BATCH_RECORDS = 200_000
LOOKS = 3  # at the heap, each time
POLL_S = 0.2


def fill(spark: Any, bootstrap: str, records: int) -> None:
    """One word a record."""
    create_topic(bootstrap, "lines")
    frame = spark.range(0, records, 1, 8).selectExpr(f"concat('w', id * 7919 % {WORDS}) AS value")
    target = {"kafka.bootstrap.servers": bootstrap, "topic": "lines"}
    frame.write.format("ottla").mode("append").options(**target).save()


def count(spark: Any, bootstrap: str, records: int) -> dict[str, list[float]]:
    """Count the words of the one topic exactly once into the other; MB of the heap that live.

    A JVM takes what it may before it collects, so that its size says little: what is left after
    a collection is looked at, around a third of the micro-batches and around their end.
    """
    create_topic(bootstrap, "word-counts")
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "lines",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(MICRO_BATCH_RECORDS),
    }
    lines = spark.readStream.format("ottla").options(**source).load()
    counts = lines.selectExpr("CAST(value AS STRING) AS key").groupBy("key").count()
    output = counts.selectExpr("key", "CAST(count AS STRING) AS value")
    sink = exactly_once_batches(**{"kafka.bootstrap.servers": bootstrap, "topic": "word-counts"})
    query = output.writeStream.foreachBatch(sink).outputMode("update")
    query = query.option("checkpointLocation", tempfile.mkdtemp(dir=Path.cwd()))
    running = query.trigger(availableNow=True).start()
    batches = records // MICRO_BATCH_RECORDS
    looks: dict[str, tuple[int, list[float]]] = {
        "third": (batches // 3, []),
        "end": (batches - LOOKS, []),
    }
    while not running.awaitTermination(POLL_S):
        done = (running.lastProgress or {}).get("batchId", -1)
        for first, found in looks.values():
            if first <= done and len(found) < LOOKS:
                found.append(live_heap_mb(spark))
    return {when: found for when, (_, found) in looks.items()}


def live_heap_mb(spark: Any) -> float:
    """What a collection leaves of the JVM's heap."""
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory
    memory = beans.getMemoryMXBean()
    memory.gc()
    return float(memory.getHeapMemoryUsage().getUsed()) / 1e6


def counted(spark: Any, bootstrap: str) -> int:
    """The sum of the last count of every word, as a reader of what is committed finds it."""
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "word-counts",
        "kafka.isolation.level": "read_committed",
    }
    found = spark.read.format("ottla").options(**source).load()
    last = found.selectExpr("key", "CAST(CAST(value AS STRING) AS LONG) AS n")
    last = last.groupBy("key").agg({"n": "max"})
    return int(last.groupBy().sum("max(n)").first()[0])


def main(argv: Sequence[str]) -> None:
    bootstrap, result, records = argv
    spark = spark_session(Definition(name="word-count"), "local[2]")
    fill(spark, bootstrap, int(records))
    began = time.time()
    heap = count(spark, bootstrap, int(records))
    ended = time.time()
    total = counted(spark, bootstrap)
    found = {"began": began, "ended": ended, "counted": total, "heap_mb": heap}
    Path(result).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
