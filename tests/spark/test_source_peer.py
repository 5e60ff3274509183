"""Ottla's source does what Spark's own connector does, option by option, on the same topics.

It needs Spark's connector, which bench/spark_peer.py fetches where it can, and minutes.
"""

from pathlib import Path

import peer_source_cases as cases
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from ottla.protocol.batches import Record, build_batch
from support.peer_runs import Outcome, are_both_refused, run_peers
from support.spark_runs import broker, create_topic
from support.wire import Wire

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

# Spark's connector 4.2 obeys maxRecordsPerPartition in a batch only beside minPartitions.
DIFFERENT_TASKS = {"batch: max records"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Outcome]]:
    folder = tmp_path_factory.mktemp("peer")
    with broker(folder / "broker") as process:
        _fill(process.bootstrap)
        return run_peers(Path(cases.__file__), process.bootstrap, folder)


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
    [
        *(f"batch: {name}" for name in cases.BATCHES),
        *(f"stream: {name}" for name in cases.STREAMS),
        *(f"growing: {name}" for name in cases.GROWING),
    ],
)
def test_the_outcome_is_that_of_sparks_own_connector(
    outcomes: dict[str, dict[str, Outcome]], case: str
) -> None:
    theirs, ours = outcomes[case]["kafka"], outcomes[case]["ottla"]
    if are_both_refused(theirs, ours):
        return
    if case in DIFFERENT_TASKS or not theirs.get("rows", theirs.get("batches")):
        assert {**ours, "tasks": 0} == {**theirs, "tasks": 0}
    else:
        assert ours == theirs
