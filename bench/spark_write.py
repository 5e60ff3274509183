"""How fast Spark writes to topics: Ottla's exactly-once sink against Spark's own, at least once.

One Spark session has both, so that both get the same rows, broker, partitions and machine; rounds
alternate. They run in the Python that `spark_peer.py` makes, as the connector must match its Spark.

    python -m bench --only spark_write
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import spark_peer
from bench.brokers import ROOT, BrokerProcess, Kind, Missing, start_fresh
from bench.loads import Effort
from bench.table import KAFKA, OTTLA, Figure, Row, at_least

Say = Callable[[str], None]

GOAL = at_least(1.5)
PARTITIONS = 4
SIZES = {100: 4_000_000, 1000: 800_000}  # bytes of a value: how many records
# Each write is up to a gigabyte: a deleted topic is gone at once, so that rounds do not wait for a
# disk that is still busy with those before.
BROKER = {"log.segment.delete.delay.ms": "0"}
JOB_S_MAX = 3600.0


def compare_spark_writes(kind: Kind, effort: Effort, say: Say) -> list[Row]:
    """Rows in which Spark's own sink stands where Apache Kafka does in other tables."""
    try:
        python, jars = spark_peer.prepare()
    except Missing as error:
        say(f"Spark's own connector is missing: {error}")
        return []
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        start_fresh(kind, Path(folder) / "broker", overrides=BROKER) as broker,
    ):
        say(f"writing with Spark {spark_peer.SPARK_VERSION}, exactly once and at least once")
        found = _job(broker, Path(folder), python, jars, str(effort.rounds))
    rows = []
    for load, samples in found["rates"].items():
        row = Row(
            f"Spark {load}, exactly once / at least once", Figure("value", "M records/s", GOAL)
        )
        row.samples = {OTTLA: samples["ottla"], KAFKA: samples["kafka"]}
        rows.append(row)
    return rows


def _job(
    broker: BrokerProcess, folder: Path, python: Path, jars: str, *arguments: str
) -> dict[str, Any]:
    """Run the other half, `spark_write_job.py`, in the Python that has the Spark to measure."""
    result = folder / "result.json"
    environment = {
        **os.environ,
        # The environment may be shared with another tree, which its Ottla comes from.
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(python), "-m", "bench.spark_write_job", broker.bootstrap, str(result), jars]
    with (folder / "job.log").open("wb") as log:
        done = subprocess.run(
            [*command, *arguments],
            env=environment,
            cwd=folder,
            stderr=log,
            timeout=JOB_S_MAX,
            check=False,
        )
    if done.returncode:
        raise Missing(f"the Spark job failed: {(folder / 'job.log').read_text()[-1500:]}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found
