"""Apache Kafka's own tools read what is written here."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import ControlType, Record, build_batch, control_batch
from ottla.protocol.codecs import Codec
from ottla.protocol.ids import TopicPartition
from ottla.runtime.real import real_runtime
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.file_pool import FilePool
from ottla.storage.recovery import OpenOptions, open_log

DUMP = "org.apache.kafka.tools.DumpLogSegments"
Dump = Callable[..., str]


@pytest.fixture
def dump(jars: Path) -> Dump:
    def call(*options: str) -> str:
        command = ["java", "-Xmx128m", "-cp", f"{jars}/*", DUMP, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log of several segments with codecs, producers and an aborted transaction."""
    runtime = real_runtime()
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = open_log(
        runtime,
        FilePool(runtime.disk),
        TopicPartition("t", 0),
        UUID(int=5),
        str(directory),
        OpenOptions(TopicConfig(segment_bytes=4_000, index_interval_bytes=500), True),
    )
    now_ms = runtime.clock.wall_ms()
    for n in range(40):
        records = [Record(at, now_ms + n - at, b"k", bytes(150)) for at in range(3)]
        batch = build_batch(
            records,
            codec=Codec(n % 5),
            producer_id=7 if n % 2 else -1,
            producer_epoch=0 if n % 2 else -1,
            base_sequence=(n // 2) * 3 if n % 2 else -1,
            is_transactional=bool(n % 2),
        )
        log.append_as_leader(batch, leader_epoch=n // 20)
        if n == 25:
            marker = control_batch(
                ControlType.ABORT,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=2,
                timestamp_ms=now_ms,
            )
            log.append_as_leader(marker, leader_epoch=1, origin=AppendOrigin.COORDINATOR)
    log.close()
    return directory


def test_kafka_reads_every_record_and_finds_the_indexes_in_order(
    directory: Path, dump: Dump
) -> None:
    logs = sorted(directory.glob("*.log"))
    assert len(logs) >= 2
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    files = ",".join(map(str, [*logs, *indexes]))
    text = dump("--deep-iteration", "--print-data-log", "--files", files)
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(40 * 3 + 1))
    assert "isvalid: false" not in text
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in text
    for complaint in ("Mismatches", "Non-consecutive", "mismatch", "rror"):
        assert complaint not in text
    checked = dump("--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert len(re.findall(r"passed sanity check|is empty", checked)) == len(indexes), checked
    assert checked.count("passed sanity check") > len(logs)


def test_kafka_reads_the_snapshots_and_the_aborted_transaction(directory: Path, dump: Dump) -> None:
    files = [*sorted(directory.glob("*.snapshot")), *directory.glob("*.txnindex")]
    text = dump("--files", ",".join(map(str, files)))
    newest = [line for line in text.splitlines() if "producerId: 7 " in line]
    assert "producerEpoch: 0" in newest[-1] or "producerEpoch: 0" in newest[0]
    assert "lastSequence: 59" in text
    assert "corrupt" not in text
    aborted = re.search(r"producerId: 7 firstOffset: (\d+) lastOffset: (\d+)", text)
    assert aborted is not None
    assert (int(aborted[1]), int(aborted[2])) == (3, 78)
