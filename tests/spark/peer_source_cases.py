"""Reads the same topics with Spark's own connector and with Ottla's, option by option.

Run by test_source_peer.py in the Python that has both. The outcome of a case is what was read, in
how many tasks, or the words of the refusal; each format's outcomes go to a file as JSON.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

START_MS = 1_700_000_000_000
BOTH = '{"numbers":{"0":%d,"1":%d}}'

# Name: options of a batch read.
BATCHES: dict[str, dict[str, str]] = {
    "everything": {"subscribe": "numbers"},
    "several topics": {"subscribe": "numbers, other"},
    "pattern": {"subscribePattern": "num.*"},
    "pattern that matches a part of the name": {"subscribePattern": "num"},
    "assign": {"assign": '{"numbers":[1]}'},
    "names in other cases": {"SubScribe": "numbers", "STARTINGOFFSETS": "Earliest"},
    "starting offsets": {"subscribe": "numbers", "startingOffsets": BOTH % (90, -2)},
    "ending offsets": {"subscribe": "numbers", "endingOffsets": BOTH % (7, -1)},
    "offsets not for all partitions": {
        "subscribe": "numbers",
        "startingOffsets": '{"numbers":{"0":1}}',
    },
    "starting timestamp": {"subscribe": "numbers", "startingTimestamp": str(START_MS + 97_500)},
    "starting timestamp behind the end": {
        "subscribe": "numbers",
        "startingTimestamp": str(START_MS * 2),
    },
    "starting timestamp behind the end, latest": {
        "subscribe": "numbers",
        "startingTimestamp": str(START_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "ending timestamp": {"subscribe": "numbers", "endingTimestamp": str(START_MS + 3_000)},
    "ending timestamp behind the end": {"subscribe": "numbers", "endingTimestamp": "9" * 15},
    "starting by timestamp": {
        "subscribe": "numbers",
        "startingOffsetsByTimestamp": BOTH % (START_MS + 50_000, START_MS),
    },
    "ending by timestamp": {
        "subscribe": "numbers",
        "endingOffsetsByTimestamp": BOTH % (START_MS + 50_000, START_MS * 2),
    },
    "precedence": {
        "subscribe": "numbers",
        "startingTimestamp": str(START_MS + 99_000),
        "startingOffsetsByTimestamp": BOTH % (START_MS, START_MS),
        "startingOffsets": "earliest",
    },
    "headers": {"subscribe": "other", "includeHeaders": "true"},
    "min partitions": {"subscribe": "numbers", "minPartitions": "5"},
    "min partitions, uneven": {
        "subscribe": "numbers",
        "minPartitions": "7",
        "endingOffsets": BOTH % (100, 13),
    },
    "max records": {"subscribe": "numbers", "maxRecordsPerPartition": "30"},
    "max records and min partitions": {
        "subscribe": "numbers",
        "maxRecordsPerPartition": "50",
        "minPartitions": "9",
    },
    "min partitions of none": {"subscribe": "numbers", "minPartitions": "0"},
    "read committed": {"subscribe": "transacted", "kafka.isolation.level": "read_committed"},
    "read uncommitted": {"subscribe": "transacted"},
    "retention took some": {
        "subscribe": "shortened",
        "startingOffsets": '{"shortened":{"0":0}}',
    },
    "retention took some, go on": {
        "subscribe": "shortened",
        "startingOffsets": '{"shortened":{"0":0}}',
        "failOnDataLoss": "false",
    },
    "topic that is missing": {"subscribe": "absent"},
    "no topics": {},
    "two ways": {"subscribe": "numbers", "subscribePattern": "n"},
    "empty subscribe": {"subscribe": ""},
    "assign without json": {"assign": "numbers"},
    "starting latest": {"subscribe": "numbers", "startingOffsets": "latest"},
    "starting latest for one": {"subscribe": "numbers", "startingOffsets": BOTH % (-1, 0)},
    "ending earliest": {"subscribe": "numbers", "endingOffsets": "earliest"},
    "ending earliest for one": {"subscribe": "numbers", "endingOffsets": BOTH % (-2, 5)},
    **{
        f"refused {name}": {"subscribe": "numbers", f"kafka.{name}": "x"}
        for name in ("auto.offset.reset", "key.deserializer", "value.deserializer")
    },
    "refused enable.auto.commit": {"subscribe": "numbers", "kafka.enable.auto.commit": "true"},
}

# Name: options of a streaming read that ends with what there is.
STREAMS: dict[str, dict[str, str]] = {
    "everything": {"startingOffsets": "earliest"},
    "the end by default": {},
    "max offsets": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"},
    "max offsets, uneven": {"startingOffsets": BOTH % (60, 0), "maxOffsetsPerTrigger": "33"},
    "starting offsets": {"startingOffsets": BOTH % (90, -1)},
    "starting timestamp": {"startingTimestamp": str(START_MS + 97_500)},
    "ending offsets": {"endingOffsets": "latest"},
    "ending timestamp": {"endingTimestamp": "5"},
    "min above max": {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
    "min partitions": {"startingOffsets": "earliest", "minPartitions": "6"},
}


def rows_of(frame: Any) -> list[Any]:
    """Rows in order, and column by column as the frame has them."""
    found = [json.loads(text) for text in frame.toJSON().collect()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def batch_case(spark: Any, name: str, options: dict[str, str]) -> dict[str, Any]:
    frame = spark.read.format(name).options(**options).load()
    return {
        "schema": frame.schema.simpleString(),
        "rows": rows_of(frame),
        "tasks": frame.rdd.getNumPartitions(),
    }


def stream_case(spark: Any, name: str, options: dict[str, str]) -> dict[str, Any]:
    frame = spark.readStream.format(name).options(subscribe="numbers", **options).load()
    batches: list[Any] = []

    def into(batch: Any, batch_id: int) -> None:
        batches.append({"rows": rows_of(batch), "tasks": batch.rdd.getNumPartitions()})

    checkpoint = tempfile.mkdtemp()
    writer = frame.writeStream.foreachBatch(into).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {"batches": batches}


def outcome(case: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What came out, or the words of the refusal."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return case(*arguments)
    except (PySparkException, Py4JError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def main(bootstrap: str, jars: str, result: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.jars", jars).master("local[2]")
    for setting, value in (
        ("spark.ui.enabled", "false"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.ui.showConsoleProgress", "false"),
    ):
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    bounded = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.default.api.timeout.ms": "8000",
        "kafka.request.timeout.ms": "5000",
        "kafkaConsumer.pollTimeoutMs": "8000",
    }
    found: dict[str, dict[str, Any]] = {}
    for name in ("kafka", "ottla"):
        for case, options in BATCHES.items():
            given = {**bounded, **options}
            found.setdefault(f"batch: {case}", {})[name] = outcome(batch_case, spark, name, given)
        for case, options in STREAMS.items():
            given = {**bounded, **options}
            found.setdefault(f"stream: {case}", {})[name] = outcome(stream_case, spark, name, given)
    Path(result).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
