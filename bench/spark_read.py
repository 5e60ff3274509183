"""How fast Spark reads topics: Ottla's source against Spark's own connector.

One Spark session has both, so that both get the same broker, data, partitions and machine; rounds
alternate. They run in the Python that `spark_peer.py` makes, as the connector must match its Spark.

Two kinds of session: `as it comes`, and with the settings that pipelines set (Unix sockets to
Python workers, a checkpoint manager that renames, Arrow without checks), which are open to both.

    python -m bench --only spark_read
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import spark_peer
from bench.brokers import ROOT, BrokerProcess, Kind, Missing, start_fresh
from bench.loads import Effort
from bench.table import KAFKA, OTTLA, Figure, Goal, Row, at_least, at_most, value_at_least
from ottla.client import Client, ClientConfig
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch

Say = Callable[[str], None]

# One record at a time makes Spark's own connector wait for the end of a long poll; a steady trickle
# does not.
ONE_RECORD = "micro-batch of one record"
STEADY = "micro-batch of a few records, steadily"
# What Spark takes for a micro-batch that reads nothing from anywhere, its checkpoint included.
FLOOR = "micro-batch of a few rows, Spark by itself"
PARTITIONS = 2
BATCH_BYTES = 16_384  # of the Java producer, by default
JOB_S_MAX = 3600.0
START_MS = 1_700_000_000_000


class Topic(NamedTuple):
    name: str
    value_bytes: int
    records: int  # in each partition


def topics_of(effort: Effort) -> tuple[Topic, ...]:
    """Enough records that a query takes a second or more."""
    share = 1 if effort.rounds > 1 else 4
    return (Topic("read-100", 100, 2_000_000 // share), Topic("read-1000", 1000, 400_000 // share))


def compare_spark_reads(kind: Kind, effort: Effort, say: Say) -> list[Row]:
    """Rows in which Spark's own connector stands where Apache Kafka does in other tables."""
    rows = [_decoding_row()]
    try:
        python, jars = spark_peer.prepare()
    except Missing as error:
        say(f"Spark's own connector is missing: {error}")
        return rows
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        start_fresh(kind, Path(folder) / "broker") as broker,
    ):
        for topic in topics_of(effort):
            say(f"filling {topic.name} with {topic.records * PARTITIONS:,} records")
            fill(broker, topic)
        for session in ("as it comes", "tuned"):
            say(f"reading with Spark {spark_peer.SPARK_VERSION}, {session}")
            found = _job(broker, Path(folder), python, jars, session, effort, say)
            rows += _rows(found, session)
    return rows


def fill(broker: BrokerProcess, topic: Topic) -> None:
    """The same batch again and again: the broker gives each its own offsets."""
    count = max(1, BATCH_BYTES // (topic.value_bytes + 20))
    records = [
        Record(n, START_MS + n, b"key-%06d" % n, bytes([65 + n % 26]) * topic.value_bytes)
        for n in range(count)
    ]
    batch = bytes(build_batch(records))
    whole, rest = divmod(topic.records, count)
    with Client(ClientConfig.of(broker.bootstrap)) as client:
        create_topic(client, topic.name)
        connection = client.any_connection()
        for partition in range(PARTITIONS):
            for _ in range(whole):
                _produce(connection, topic.name, partition, batch)
            if rest:
                _produce(connection, topic.name, partition, bytes(build_batch(records[:rest])))


def create_topic(client: Client, name: str, partitions: int = PARTITIONS) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        # The records are as old as START_MS says: retention would take them.
        "configs": [{"name": "retention.ms", "value": "-1"}],
    }
    fields = {"topics": [topic], "timeout": 30_000, "validate_only": False}
    response = client.ask(ApiKey.CREATE_TOPICS, fields)
    if int(response.topics[0].error_code):
        raise RuntimeError(f"{name} was not created: {response.topics[0].error_message}")


def _produce(connection: object, topic: str, partition: int, batch: bytes) -> None:
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
    response = connection.ask(ApiKey.PRODUCE, fields, version=9)  # type: ignore[attr-defined]
    code = int(response.responses[0].partition_responses[0].error_code)
    if code:
        raise RuntimeError(f"{topic} refused records with error {code}")


def _job(
    broker: BrokerProcess,
    folder: Path,
    python: Path,
    jars: str,
    session: str,
    effort: Effort,
    say: Say,
) -> dict[str, dict[str, list[float]]]:
    result = folder / f"{session}.json"
    arguments = [broker.bootstrap, str(result), jars, session, str(effort.rounds)]
    topics = [f"{topic.name}={topic.records * PARTITIONS}" for topic in topics_of(effort)]
    environment = {
        **os.environ,
        # This tree, also where the environment was made from another.
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "PYSPARK_PYTHON": str(spark_peer.worker_python(python)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = folder / f"{session}.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [str(python), "-m", "bench.spark_read_job", *arguments, *topics],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as job,
    ):
        for line in job.stdout or ():
            say(f"  {line.rstrip()}")
        if job.wait(JOB_S_MAX):
            raise Missing(f"the Spark job failed: {log.read_text()[-800:]}")
    found: dict[str, dict[str, list[float]]] = json.loads(result.read_text())
    return found


GOALS: dict[str, Goal] = {
    "batch read, 100 B": at_least(2.0),
    "batch read, 1 KB": at_least(1.5),
    "streaming read, 100 B": at_least(2.0),
    "streaming read, 1 KB": at_least(1.5),
    ONE_RECORD: at_most(0.6),
    # None for STEADY: Spark by itself (FLOOR) takes more than 0.6 of what its own connector takes.
}


def _rows(found: dict[str, dict[str, list[float]]], session: str) -> list[Row]:
    """Goals are for the tuned session: it is what a pipeline runs in."""
    rows = []
    for load, samples in found.items():
        unit = "ms" if load in (ONE_RECORD, STEADY, FLOOR) else "M records/s"
        goal = GOALS.get(load) if session == "tuned" else None
        row = Row(f"Spark {session}: {load}", Figure("value", unit, goal))
        row.samples = {OTTLA: samples["ottla"], KAFKA: samples["kafka"]}
        rows.append(row)
    return rows


def _decoding_row() -> Row:
    """Decoding alone, on one core: from fetched bytes to Arrow, CRCs and bounds checked."""
    from bench.spark_decode import decode_rate

    row = Row("decoding alone, 100 B, one core", Figure("value", "M records/s", value_at_least(8)))
    row.samples = {OTTLA: [decode_rate(100) / 1e6]}
    return row
