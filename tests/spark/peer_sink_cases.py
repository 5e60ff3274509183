"""Writes the same rows with Spark's own connector and with Ottla's, option by option.

Run by test_sink_peer.py. The outcome of a case is what is in the topics afterwards: keys, values,
headers and, where a key or the row chose it, the partition. What cannot be exactly once is asked
for with Ottla's option `delivery`, which Spark's connector passes over.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from support.peer_runs import FORMATS, outcome, peer_session

PARTITIONS = 3
ROWS = 40
KEYED = "CAST(id AS STRING) AS key, concat('v', id) AS value"
HEADERS = (
    "array(named_struct('key', 'a', 'value', CAST('1' AS BINARY)), "
    "named_struct('key', 'a', 'value', CAST(NULL AS BINARY))) AS headers"
)
ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


class Case(NamedTuple):
    columns: str  # {topic} is the topic of the case
    options: dict[str, str] = {}
    has_topic_option: bool = True


CASES = {
    "keys": Case(KEYED),
    "binary keys": Case("CAST(CAST(id AS STRING) AS BINARY) AS key, CAST('v' AS BINARY) AS value"),
    "empty and missing keys": Case("IF(id % 2 = 0, '', NULL) AS key, concat('v', id) AS value"),
    "missing values": Case("CAST(id AS STRING) AS key, CAST(NULL AS STRING) AS value"),
    "no keys": Case("concat('v', id) AS value"),
    "partitions": Case(f"{KEYED}, CAST(id % 3 AS INT) AS partition"),
    "some partitions": Case(f"{KEYED}, IF(id % 2 = 0, 2, NULL) AS partition"),
    "headers": Case(f"{KEYED}, {HEADERS}", {"includeHeaders": "true"}),
    "headers without the option": Case(f"{KEYED}, {HEADERS}"),
    "other columns": Case(f"{KEYED}, id AS other"),
    "topic column": Case(f"{KEYED}, '{{topic}}' AS topic", has_topic_option=False),
    "option before column": Case(f"{KEYED}, 'elsewhere' AS topic"),
    "names in other cases": Case(KEYED, {"KAFKA.Acks": "1", "DELIVERY": "at_least_once"}),
    "compressed": Case(KEYED, {"kafka.compression.type": "zstd"}),
    "acks 0": Case(KEYED, {"kafka.acks": "0", "delivery": "at_least_once"}),
    "small batches": Case(KEYED, {"kafka.batch.size": "100", "kafka.linger.ms": "2"}),
    "partitioner": Case(KEYED, {"kafka.partitioner.class": ROUND_ROBIN}),
    "no topic": Case(KEYED, has_topic_option=False),
    "no value": Case("CAST(id AS STRING) AS key"),
    "value of a number": Case("id AS value"),
    "key of a number": Case("id AS key, 'v' AS value"),
    "topic of a number": Case("'v' AS value, id AS topic", has_topic_option=False),
    "partition of a text": Case("'v' AS value, '0' AS partition"),
    "headers of a text": Case("'v' AS value, 'h' AS headers", {"includeHeaders": "true"}),
    "missing topic in a row": Case(
        "'v' AS value, CAST(NULL AS STRING) AS topic", has_topic_option=False
    ),
    "partition that is not there": Case("'v' AS value, 99 AS partition"),
    "negative partition": Case("'v' AS value, -2 AS partition"),
    "refused serializer": Case(KEYED, {"kafka.key.serializer": "x"}),
    "refused value serializer": Case(KEYED, {"kafka.value.serializer": "x"}),
}


def records_of(spark: Any, bootstrap: str, topic: str, *, is_placed: bool) -> list[Any]:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe=topic, includeHeaders="true").load()
    found = []
    for row in frame.collect():
        headers = [(h.key, h.value and h.value.decode()) for h in row.headers or ()]
        partition = row.partition if is_placed or row.key is not None else None
        found.append([_text(row.key), _text(row.value), partition, headers])
    return sorted(found, key=repr)


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode()


def batch_case(spark: Any, name: str, bootstrap: str, case: Case, topic: str) -> dict[str, Any]:
    spark.range(0, ROWS, 1, 2).createOrReplaceTempView("ids")
    frame = spark.sql(f"SELECT {case.columns.format(topic=topic)} FROM ids")
    writer = frame.write.format(name).mode("append").options(**_options(bootstrap, case, topic))
    writer.save()
    return {"records": _records(spark, bootstrap, case, topic)}


def stream_case(spark: Any, name: str, bootstrap: str, case: Case, topic: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        spark.range(0, ROWS, 1, 2).write.parquet(f"{directory}/in")
        frame = spark.readStream.schema("id LONG").parquet(f"{directory}/in")
        frame = frame.selectExpr(*_split(case.columns.format(topic=topic)))
        writer = frame.writeStream.format(name).options(**_options(bootstrap, case, topic))
        writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
    return {"records": _records(spark, bootstrap, case, topic)}


def _split(columns: str) -> list[str]:
    """A list of expressions at its outer commas."""
    found, depth = [""], 0
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _options(bootstrap: str, case: Case, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.max.block.ms": "5000",
        **({"topic": topic} if case.has_topic_option else {}),
        **case.options,
    }


def _records(spark: Any, bootstrap: str, case: Case, topic: str) -> list[Any]:
    found = records_of(spark, bootstrap, topic, is_placed="partition" in case.columns)
    if "kafka.partitioner.class" in case.options:
        return sorted([key, value, None, headers] for key, value, _, headers in found)
    return found


def main(bootstrap: str, jars: str, result: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    spark = peer_session(jars)
    found: dict[str, dict[str, Any]] = {}
    for kind, run in (("batch", batch_case), ("stream", stream_case)):
        for number, (case, given) in enumerate(CASES.items()):
            for name in FORMATS:
                topic = f"{kind}-{number}-{name}"
                for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
                    future.result(30)
                done = outcome(run, spark, name, bootstrap, given, topic)
                found.setdefault(f"{kind}: {case}", {})[name] = done
    Path(result).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
