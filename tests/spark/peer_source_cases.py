"""Reads the same topics with Spark's own connector and with Ottla's, option by option.

Run by test_source_peer.py. The outcome of a case is what was read, and in how many tasks.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.peer_runs import FORMATS, outcome, peer_session

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

# Name: options of a streaming read that ends with what there is, of "numbers" or as they say.
STREAMS: dict[str, dict[str, str]] = {
    "everything": {"startingOffsets": "earliest"},
    "the end by default": {},
    "max offsets": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"},
    "max offsets, uneven": {"startingOffsets": BOTH % (60, 0), "maxOffsetsPerTrigger": "33"},
    "min offsets": {
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "150",
        "maxTriggerDelay": "2s",
    },
    "min and max offsets": {
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "20",
        "maxOffsetsPerTrigger": "90",
    },
    "wrong delay": {"minOffsetsPerTrigger": "20", "maxTriggerDelay": "soon"},
    "starting offsets": {"startingOffsets": BOTH % (90, -1)},
    "starting timestamp": {"startingTimestamp": str(START_MS + 97_500)},
    "starting by timestamp": {
        "startingOffsetsByTimestamp": BOTH % (START_MS + 50_000, START_MS),
    },
    "starting timestamp behind the end": {"startingTimestamp": str(START_MS * 2)},
    "ending offsets": {"endingOffsets": "latest"},
    "ending timestamp": {"endingTimestamp": "5"},
    "min above max": {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
    "min partitions": {"startingOffsets": "earliest", "minPartitions": "6"},
    "max records": {"startingOffsets": "earliest", "maxRecordsPerPartition": "30"},
    "pattern": {"subscribePattern": "num.*", "startingOffsets": "earliest"},
    "assign": {"assign": '{"numbers":[1]}', "startingOffsets": "earliest"},
    "several topics": {"subscribe": "numbers,other", "startingOffsets": "earliest"},
    "headers": {"subscribe": "other", "includeHeaders": "true", "startingOffsets": "earliest"},
    "read committed": {
        "subscribe": "transacted",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    },
    "read uncommitted": {"subscribe": "transacted", "startingOffsets": "earliest"},
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
}

# Name: options of a streaming read that is repeated once its topic has a partition more.
GROWING: dict[str, dict[str, str]] = {
    "new partition": {"startingOffsets": "latest"},
    "new partition and max offsets": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"},
}
_WAYS = ("subscribe", "subscribePattern", "assign")


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
    if not any(way in options for way in _WAYS):
        options = {"subscribe": "numbers", **options}
    with tempfile.TemporaryDirectory() as checkpoint:
        return {"batches": _batches(spark, name, options, checkpoint)}


def growing_case(spark: Any, name: str, options: dict[str, str], case: str) -> dict[str, Any]:
    topic = f"{case.replace(' ', '-')}-{name}"
    given = {"bootstrap.servers": options["kafka.bootstrap.servers"], "log_level": 0}
    admin = AdminClient(given)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    batches: list[Any] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        for partition in range(2):
            producer = Producer(given)  # one that had been there would not know the new partition
            for value in range(10):
                producer.produce(topic, str(value).encode(), partition=partition)
            assert producer.flush(30) == 0
            batches += _batches(spark, name, {**options, "subscribe": topic}, checkpoint)
            if partition == 0:
                admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    for batch in batches:
        for row in batch["rows"]:
            del row["topic"], row["timestamp"]
    return {"batches": batches}


def _batches(spark: Any, name: str, options: dict[str, str], checkpoint: str) -> list[Any]:
    """The micro-batches of a query that reads what there is."""
    frame = spark.readStream.format(name).options(**options).load()
    batches: list[Any] = []

    def into(batch: Any, batch_id: int) -> None:
        batches.append({"rows": rows_of(batch), "tasks": batch.rdd.getNumPartitions()})

    writer = frame.writeStream.foreachBatch(into).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return batches


def main(bootstrap: str, jars: str, result: str) -> None:
    spark = peer_session(jars)
    bounded = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.default.api.timeout.ms": "8000",
        "kafka.request.timeout.ms": "5000",
        "kafkaConsumer.pollTimeoutMs": "8000",
    }
    found: dict[str, dict[str, Any]] = {}
    for name in FORMATS:
        for case, options in BATCHES.items():
            given = {**bounded, **options}
            found.setdefault(f"batch: {case}", {})[name] = outcome(batch_case, spark, name, given)
        for case, options in STREAMS.items():
            given = {**bounded, **options}
            found.setdefault(f"stream: {case}", {})[name] = outcome(stream_case, spark, name, given)
        for case, options in GROWING.items():
            done = outcome(growing_case, spark, name, {**bounded, **options}, case)
            found.setdefault(f"growing: {case}", {})[name] = done
    Path(result).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
