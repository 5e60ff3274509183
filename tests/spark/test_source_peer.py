"""Ottla's source does what Spark's own connector does, option by option, on the same topics.

It needs Spark's connector, which bench/spark_peer.py fetches where it can, and minutes.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peer_source_cases as cases
import pytest
from bench import spark_peer
from bench.brokers import ROOT, Missing
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from ottla.protocol.batches import Record, build_batch
from support.spark_runs import broker, create_topic
from support.wire import Wire

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

Outcome = dict[str, Any]

# Spark's connector 4.2 obeys maxRecordsPerPartition in a batch only beside minPartitions.
DIFFERENT_TASKS = {"batch: max records"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Outcome]]]:
    try:
        python, jars = spark_peer.prepare()
    except Missing as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("peer")
    with broker(folder / "broker") as process:
        _fill(process.bootstrap)
        result = folder / "outcomes.json"
        script = Path(__file__).with_name("peer_source_cases.py")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(spark_peer.worker_python(python)),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        done = subprocess.run(
            [str(python), str(script), process.bootstrap, jars, str(result)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=1700,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        keep = os.environ.get("OTTLA_SPARK_PEER_RESULT")
        if keep:
            Path(keep).write_text(result.read_text())
        yield json.loads(result.read_text())


def _fill(bootstrap: str) -> None:
    for topic, partitions in (("numbers", 2), ("other", 1), ("shortened", 1), ("transacted", 1)):
        # Records of these times would be taken by retention.
        create_topic(bootstrap, topic, partitions, **{"retention.ms": "-1"})
    with Wire(bootstrap) as wire:
        for partition in (0, 1):
            for start in range(0, 100, 10):
                records = [
                    Record(n, cases.START_MS + (start + n) * 1000, None, b"%d" % (start + n))
                    for n in range(10)
                ]
                wire.produce("numbers", build_batch(records), partition=partition)
        headers = ((b"a", b"1"), (b"a", None), (b"", b""), (b"\xff", b"x"))
        wire.produce(
            "other",
            build_batch([Record(0, -1, b"k", None, headers), Record(1, 12345, b"", b"")]),
        )
        for start in range(0, 30, 10):
            records = [Record(n, 1, None, b"%d" % (start + n)) for n in range(10)]
            wire.produce("shortened", build_batch(records))
    place = Place("shortened", 0, 15)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_records([place])[place].result(30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "peer", "log_level": 0}
    )
    producer.init_transactions(30)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.produce("transacted", b"%d" % number)
        producer.flush(30)
        end(30)


@pytest.mark.parametrize(
    "case",
    [*(f"batch: {name}" for name in cases.BATCHES), *(f"stream: {n}" for n in cases.STREAMS)],
)
def test_the_outcome_is_that_of_sparks_own_connector(
    outcomes: dict[str, dict[str, Outcome]], case: str
) -> None:
    theirs, ours = outcomes[case]["kafka"], outcomes[case]["ottla"]
    if "refused" in theirs or "refused" in ours:
        assert "refused" in theirs, f"only Ottla refuses: {ours}"
        assert "refused" in ours, f"only Spark's connector refuses: {theirs}"
    elif case in DIFFERENT_TASKS or not theirs.get("rows", theirs.get("batches")):
        assert {**ours, "tasks": 0} == {**theirs, "tasks": 0}
    else:
        assert ours == theirs
