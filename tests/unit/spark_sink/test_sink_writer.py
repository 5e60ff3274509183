"""What Spark's driver calls of a write, with what tasks left, against a broker."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from ottla.client import LATEST, Client, ClientConfig, TopicPartition, list_offsets
from ottla.protocol.batches import Record, build_batch
from ottla.spark import sink_process
from ottla.spark.encode import EncodedBatch, Target
from ottla.spark.sink import TaskOutput, batch_writer, stream_writer
from ottla.spark.stage import INLINE_BYTES_MAX, StageWriter
from ottla.testing import Cluster

QUERY_ID = "2d129684-03bc-4508-97a5-78727a79302a"
SCHEMA = StructType([StructField("value", StringType())])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as found:
        found.create_topic("out")
        yield found


@pytest.fixture
def options(cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    prefix = secrets.token_hex(4)
    named = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "out"}
    yield {**named, "stageDirectory": str(tmp_path), "transactionalIdPrefix": prefix}
    for transactional_id in [one for one in sink_process._publishers if one.startswith(prefix)]:
        sink_process.forget_publisher(transactional_id)


def task_output(stage: Path, owner: str, batch_id: int, task: str) -> TaskOutput:
    """A file with one record, too large to travel in a message."""
    data = build_batch([Record(0, 1, None, b"v" * INLINE_BYTES_MAX, ())])
    writer = StageWriter(stage / owner / str(batch_id), task)
    writer.add(EncodedBatch(Target("out", 0), memoryview(bytearray(data)), 1))
    return TaskOutput(owner, writer.finish())


def files_of(stage: Path) -> list[str]:
    found = (path for path in stage.rglob("*.batches") if path.is_file())
    return sorted(str(path.relative_to(stage)) for path in found)


def end_of(cluster: Cluster) -> int:
    partition = TopicPartition("out", 0)
    with Client(ClientConfig.of(cluster.bootstrap_servers)) as client:
        return list_offsets(client, {partition: LATEST})[partition].offset


def test_who_takes_a_query_over_removes_what_failed_attempts_left(
    cluster: Cluster, options: dict[str, str], tmp_path: Path
) -> None:
    writer = stream_writer(options, SCHEMA, False)
    task_output(tmp_path, QUERY_ID, 0, "failed")
    task_output(tmp_path, QUERY_ID, 7, "of a later micro-batch that was planned anew")
    task_output(tmp_path, "other", 0, "task")
    before = end_of(cluster)
    writer.commit([task_output(tmp_path, QUERY_ID, 0, "good")], 0)
    assert files_of(tmp_path) == ["other/0/task.batches"]
    assert end_of(cluster) == before + 2  # the record, and the marker of its transaction


def test_a_published_micro_batch_that_is_repeated_leaves_no_files(
    cluster: Cluster, options: dict[str, str], tmp_path: Path
) -> None:
    stream_writer(options, SCHEMA, False).commit([task_output(tmp_path, QUERY_ID, 0, "one")], 0)
    sink_process.forget_publisher(f"{options['transactionalIdPrefix']}-{QUERY_ID}")
    before = end_of(cluster)
    writer = stream_writer(options, SCHEMA, False)
    writer.commit([task_output(tmp_path, QUERY_ID, 0, "again")], 0)
    assert (files_of(tmp_path), end_of(cluster)) == ([], before)


def test_a_write_that_is_given_up_leaves_no_files(options: dict[str, str], tmp_path: Path) -> None:
    kept = task_output(tmp_path, QUERY_ID, 3, "of another attempt")
    stream_writer(options, SCHEMA, False).abort([task_output(tmp_path, QUERY_ID, 3, "a"), None], 3)
    assert files_of(tmp_path) == [f"{QUERY_ID}/3/of another attempt.batches"]
    micro_batch = {**options, "queryId": QUERY_ID, "batchId": "3"}
    batch_writer(micro_batch, SCHEMA, False).abort([kept])
    assert files_of(tmp_path) == []


def test_without_a_place_of_its_own_output_is_the_users_alone(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    del options["stageDirectory"]
    stream_writer(options, SCHEMA, False)
    (made,) = tmp_path.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700


def test_properties_that_nobody_knows_are_told_once(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        stream_writer({**options, "kafka.linger.sm": "5", "kafka.linger.ms": "5"}, SCHEMA, False)
    assert caplog.text.count("Not known, without effect: linger.sm") == 1
