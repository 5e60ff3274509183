"""Formatting against the bytes that Apache Kafka 4.3.1's storage tool wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.metadata.formatting import (
    FORMATTED_SNAPSHOT,
    FormatError,
    format_storage,
    random_cluster_id,
    read_meta_properties,
)
from ottla.protocol import uuids
from ottla.raft.batches import MetadataBatch, parse_batches
from ottla.raft.control_records import SnapshotHeaderRecord, VoterEndpoint, VotersRecord
from ottla.raft.driver import own_voter
from ottla.raft.log import DIRECTORY_NAME
from ottla.runtime.interfaces import Runtime
from ottla.runtime.real import real_runtime

GOLDEN = Path(__file__).parent / "golden"
CONTROLLER = VoterEndpoint("CONTROLLER", "127.0.0.1", 21001)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    real = real_runtime()
    yield real
    real.offload.close()


def timeless(path: Path) -> list[MetadataBatch]:
    """Every batch, without the times and the directory id, which differ per run."""
    batches = []
    for batch in parse_batches(path.read_bytes()):
        control = []
        for record in batch.control:
            if isinstance(record, SnapshotHeaderRecord):
                record = SnapshotHeaderRecord()
            elif isinstance(record, VotersRecord):
                voters = [
                    own_voter(v.voter_id, uuids.decode("A" * 22), v.endpoints)
                    for v in record.voters
                ]
                record = VotersRecord(voters=tuple(voters))
            control.append(record)
        batches.append(batch._replace(timestamp_ms=0, control=tuple(control)))
    return batches


def test_a_standalone_controller_gets_the_files_that_kafka_writes(
    runtime: Runtime, tmp_path: Path
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    result = format_storage(
        runtime,
        log_dirs=[str(first), str(second)],
        node_id=1,
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
        standalone_endpoints=[CONTROLLER],
    )
    assert result.formatted == (str(first), str(second))
    for directory in (first, second):
        assert timeless(directory / "bootstrap.checkpoint") == timeless(
            GOLDEN / "kafka-bootstrap.checkpoint"
        )
        properties = read_meta_properties(runtime, str(directory))
        assert properties is not None
        assert (properties.cluster_id, properties.node_id) == (result.cluster_id, 1)
    assert timeless(first / DIRECTORY_NAME / FORMATTED_SNAPSHOT.file_name) == timeless(
        GOLDEN / "kafka-dynamic-0-0.checkpoint"
    )
    assert not (second / DIRECTORY_NAME).exists()


def test_static_voters_leave_no_snapshot(runtime: Runtime, tmp_path: Path) -> None:
    format_storage(runtime, log_dirs=[str(tmp_path)], node_id=1, cluster_id="c")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bootstrap.checkpoint",
        "meta.properties",
    ]


def test_initial_controllers_bring_their_own_directory_id(runtime: Runtime, tmp_path: Path) -> None:
    directory_id = runtime.random.uuid4()
    voters = [own_voter(1, directory_id, [CONTROLLER]), own_voter(2, runtime.random.uuid4(), [])]
    format_storage(
        runtime, log_dirs=[str(tmp_path)], node_id=1, cluster_id="c", initial_voters=voters
    )
    properties = read_meta_properties(runtime, str(tmp_path))
    assert properties is not None
    assert properties.directory_id == directory_id


def test_formatted_directories_are_refused_or_left_alone(runtime: Runtime, tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    format_storage(runtime, log_dirs=[first], node_id=1, cluster_id="c")
    before = read_meta_properties(runtime, first)
    with pytest.raises(FormatError, match="formatted already"):
        format_storage(runtime, log_dirs=[first, second], node_id=1, cluster_id="c")
    assert read_meta_properties(runtime, second) is None
    result = format_storage(
        runtime, log_dirs=[first, second], node_id=1, cluster_id="c", ignore_formatted=True
    )
    assert (result.formatted, result.skipped) == ((second,), (first,))
    assert read_meta_properties(runtime, first) == before


def test_directories_of_others_are_refused(runtime: Runtime, tmp_path: Path) -> None:
    format_storage(runtime, log_dirs=[str(tmp_path)], node_id=1, cluster_id="c")
    for node_id, cluster_id, why in ((2, "c", "node 1"), (1, "d", "cluster c")):
        with pytest.raises(FormatError, match=why):
            format_storage(
                runtime,
                log_dirs=[str(tmp_path)],
                node_id=node_id,
                cluster_id=cluster_id,
                ignore_formatted=True,
            )


def test_features_are_checked_and_written(runtime: Runtime, tmp_path: Path) -> None:
    for features in ({"nope": 1}, {"kraft.version": 1}, {"metadata.version": 31}):
        with pytest.raises(FormatError):
            format_storage(
                runtime, log_dirs=[str(tmp_path)], node_id=1, cluster_id="c", features=features
            )
    assert read_meta_properties(runtime, str(tmp_path)) is None


@pytest.mark.parametrize(("node_id", "cluster_id"), [(-1, "c"), (1, " ")])
def test_nonsense_is_refused(
    runtime: Runtime, tmp_path: Path, node_id: int, cluster_id: str
) -> None:
    with pytest.raises(FormatError):
        format_storage(runtime, log_dirs=[str(tmp_path)], node_id=node_id, cluster_id=cluster_id)


def test_cluster_ids_are_random_and_of_22_characters(runtime: Runtime) -> None:
    ids = {random_cluster_id(runtime.random) for _ in range(20)}
    assert len(ids) == 20
    assert {len(cluster_id) for cluster_id in ids} == {22}
