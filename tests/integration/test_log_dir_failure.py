"""A real broker process whose disks fill up, vanish, or are not what they should be at start.

Disks are tmpfs and bind mounts, so most of these tests need root; others skip with the reason.
"""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch, iter_batches, iter_records
from ottla.protocol.errors import ErrorCode
from support.wire import Wire

OTTLA = str(Path(sys.executable).with_name("ottla"))
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SECONDS_MAX = 60.0
# Small enough to fill at once, large enough for what a broker keeps beside the records.
DISK_BYTES = 3_000_000
BALLAST_BYTES = 1_000_000
VALUE = bytes(20_000)


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never came true: {what}")


class Node:
    """A server.properties with two log directories, and the process that serves them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.first, self.second = home / "first", home / "second"
        self.process: subprocess.Popen[str] | None = None
        self.address = self.http = ""
        self.mounts: list[Path] = []
        self.properties = home / "server.properties"
        self.configure(f"{self.first},{self.second}")

    def configure(self, log_dirs: str, node_id: int = 7) -> None:
        self.properties.write_text(
            f"process.roles=broker,controller\nnode.id={node_id}\n"
            "controller.listener.names=CONTROLLER\n"
            "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
            f"log.dirs={log_dirs}\noffsets.topic.num.partitions=1\n"
        )

    def format(self, cluster_id: str = CLUSTER_ID, *options: str) -> None:
        command = [OTTLA, "storage", "format", "-t", cluster_id, "-c", str(self.properties)]
        subprocess.run([*command, "--standalone", *options], check=True, capture_output=True)

    def mount(self, *options: str, at: Path) -> None:
        at.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", *options, str(at)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.decode().strip()}")
        self.mounts.append(at)

    def unmount(self, at: Path) -> None:
        subprocess.run(["umount", "-l", str(at)], check=True)
        self.mounts.remove(at)

    def start(self) -> None:
        self.process = process = subprocess.Popen(
            [OTTLA, "server", str(self.properties), "--http-port", "0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            ready = re.search(r"PLAINTEXT://(\S+); (\S+)/metrics", line)
            if ready:
                self.address, self.http = ready[1], ready[2]
                return
        raise AssertionError(told)

    def refuse(self) -> str:
        """What the process says when it will not start."""
        done = subprocess.run(
            [OTTLA, "server", str(self.properties)],
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode not in (0, -signal.SIGKILL)
        assert "Traceback" not in done.stderr
        lines = [line for line in done.stderr.splitlines() if " ERROR " not in line]
        assert len(lines) == 1, done.stderr
        return lines[0]

    def kill(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()

    def stop(self) -> tuple[int, str]:
        assert self.process is not None
        process, self.process = self.process, None
        process.terminate()
        _, told = process.communicate(timeout=SECONDS_MAX)
        return process.returncode, told

    def close(self) -> None:
        self.kill()
        for at in reversed(list(self.mounts)):
            self.unmount(at)

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.http}{path}") as answer:
            content: bytes = answer.read()
            return content.decode()

    def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        with Wire(self.address) as wire:
            return wire.ask(key, version, fields)

    def create_topic(self, name: str, partitions: int) -> None:
        asked = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "flush.messages", "value": "1"}],
        }
        answer = self.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [asked]})
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    def places(self, topic: str) -> dict[str, list[int] | None]:
        """Which partitions lie where; None for a directory that failed."""
        answer = self.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        return {
            Path(one.log_dir).name: None
            if one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            else [p.partition_index for t in one.topics if t.name == topic for p in t.partitions]
            for one in answer.results
        }

    def leaders(self, topic: str) -> dict[int, tuple[int, int]]:
        answer = self.ask(ApiKey.METADATA, 9, {"topics": [{"name": topic}]})
        return {
            one.partition_index: (int(one.error_code), one.leader_id)
            for one in answer.topics[0].partitions
        }

    def produce(self, topic: str, partition: int, value: bytes) -> Any:
        with Wire(self.address) as wire:
            batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, value)]))
            return wire.produce(topic, batch, partition=partition)

    def read_all(self, topic: str, partition: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while True:
            asked = {
                "partition": partition,
                "fetch_offset": len(found),
                "partition_max_bytes": 1 << 20,
            }
            fields = {
                "replica_id": -1,
                "max_wait": 10,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "topics": [{"topic": topic, "partitions": [asked]}],
            }
            result = self.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]
            assert result.error_code == ErrorCode.NONE, result
            values = [
                record.value
                for at, header in iter_batches(result.records or b"")
                for record in iter_records(result.records[at : at + header.size_bytes])
            ]
            if not values:
                return found
            found += values


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    try:
        yield found
    finally:
        found.close()


def test_a_full_disk_refuses_writes_and_takes_them_again_once_there_is_room(node: Node) -> None:
    node.mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", at=node.second)
    node.format()
    ballast = node.second / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    node.start()
    node.create_topic("t", 2)
    places = node.places("t")
    (full,) = places["second"] or []
    (other,) = places["first"] or []
    written: list[bytes] = []

    def write() -> int:
        value = b"%d:" % len(written) + VALUE
        code = int(node.produce("t", full, value).error_code)
        if code == ErrorCode.NONE:
            written.append(value)
        return code

    assert until(write, "the disk is full") == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(written) > 10
    assert node.produce("t", other, b"x").error_code == ErrorCode.NONE
    assert node.read_all("t", full) == written
    # Checkpoints and probes come round while it is full, and take nothing away.
    time.sleep(6)
    assert write() == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.leaders("t") == {0: (0, 7), 1: (0, 7)}
    (warning,) = json.loads(node.page("/readyz"))["warnings"].values()
    assert "No space left" in warning
    ballast.unlink()
    assert write() == ErrorCode.NONE
    assert json.loads(node.page("/readyz"))["status"] == "ready"
    node.kill()
    node.start()
    assert node.read_all("t", full) == written


def fill(path: Path) -> None:
    """Take the room that was too little for a record, to the last byte."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(descriptor, bytes(512)):
            pass
    except OSError as error:
        assert error.errno == errno.ENOSPC  # noqa: PT017  the loop ends in no other way
    finally:
        os.close(descriptor)


def test_a_disk_too_full_to_recover_serves_again_once_there_is_room(node: Node) -> None:
    node.mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", at=node.second)
    node.format()
    (node.second / "ballast").write_bytes(bytes(BALLAST_BYTES))
    node.start()
    node.create_topic("t", 2)
    (full,) = node.places("t")["second"] or []
    written = 0
    while node.produce("t", full, VALUE).error_code == ErrorCode.NONE:
        written += 1
    fill(node.second / "crumbs")
    node.kill()
    node.start()
    assert node.produce("t", full, VALUE).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.leaders("t") == {0: (0, 7), 1: (0, 7)}
    (node.second / "ballast").unlink()
    assert node.produce("t", full, b"late").error_code == ErrorCode.NONE
    assert node.read_all("t", full) == [VALUE] * written + [b"late"]


def test_a_disk_that_vanishes_takes_only_its_partitions_and_gives_them_back(node: Node) -> None:
    disk = node.home / "disk"
    disk.mkdir()
    node.mount("--bind", str(disk), at=node.second)
    node.format()
    node.start()
    node.create_topic("t", 4)
    lost, kept = node.places("t")["second"] or [], node.places("t")["first"] or []
    assert len(lost) == len(kept) == 2
    for partition in (*lost, *kept):
        assert node.produce("t", partition, b"before").error_code == ErrorCode.NONE
    node.unmount(node.second)
    until(lambda: node.leaders("t")[lost[0]] == (ErrorCode.LEADER_NOT_AVAILABLE, -1), "noticed")
    for partition in lost:
        assert node.produce("t", partition, b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for partition in kept:
        assert node.produce("t", partition, b"during").error_code == ErrorCode.NONE
        assert node.leaders("t")[partition] == (0, 7)
    assert node.places("t")["second"] is None
    node.create_topic("later", 3)
    assert node.places("later") == {"first": [0, 1, 2], "second": None}
    assert node.produce("later", 0, b"x").error_code == ErrorCode.NONE
    metrics = node.page("/metrics")
    assert "kafka_log_logmanager_offlinelogdirectorycount 1.0" in metrics
    assert f'logdirectoryoffline{{logDirectory="{node.second}"}} 1.0' in metrics
    ready = json.loads(node.page("/readyz"))
    assert ready["status"] == "ready"
    assert str(node.second) in str(ready["warnings"])
    code, told = node.stop()
    assert (code, "Traceback" in told) == (0, False), told
    node.mount("--bind", str(disk), at=node.second)
    node.start()
    for partition in lost:
        assert node.leaders("t")[partition] == (0, 7)
        assert node.read_all("t", partition) == [b"before"]
        assert node.produce("t", partition, b"after").error_code == ErrorCode.NONE
    for partition in kept:
        assert node.read_all("t", partition) == [b"before", b"during"]


def test_a_disk_that_returns_does_not_bring_back_a_topic_that_was_deleted(node: Node) -> None:
    # The disk that goes comes first, so that its old logs are found before the new ones.
    node.configure(f"{node.second},{node.first}\nmetadata.log.dir={node.first}")
    node.format()
    node.start()
    node.create_topic("t", 2)
    for partition in range(2):
        assert node.produce("t", partition, b"old").error_code == ErrorCode.NONE
    node.stop()
    missing(node)
    node.start()
    answer = node.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["t"], "timeout": 5000})
    assert answer.responses[0].error_code == ErrorCode.NONE
    node.create_topic("t", 2)
    for partition in range(2):
        assert node.produce("t", partition, b"new").error_code == ErrorCode.NONE
    node.kill()
    back(node)
    for _ in range(2):
        node.start()
        for partition in range(2):
            assert node.read_all("t", partition) == [b"new"]
        assert node.places("t") == {"first": [0, 1], "second": []}
        node.kill()


def test_a_new_disk_in_the_place_of_a_dead_one_starts_empty(node: Node) -> None:
    node.format()
    node.start()
    node.create_topic("t", 2)
    (lost,), (kept,) = node.places("t")["second"] or [], node.places("t")["first"] or []
    for partition in (lost, kept):
        assert node.produce("t", partition, b"before").error_code == ErrorCode.NONE
    node.stop()
    shutil.rmtree(node.second)
    node.format(CLUSTER_ID, "--ignore-formatted")
    node.start()
    until(lambda: node.leaders("t") == {lost: (0, 7), kept: (0, 7)}, "both are led")
    assert node.read_all("t", kept) == [b"before"]
    assert node.produce("t", lost, b"after").error_code == ErrorCode.NONE
    node.kill()
    node.start()
    assert node.read_all("t", lost) == [b"after"]


def missing(node: Node) -> None:
    node.second.rename(node.home / "away")


def unformatted(node: Node) -> None:
    missing(node)
    node.second.mkdir()


def unreadable(node: Node) -> None:
    (node.second / "meta.properties").write_bytes(b"version=1\n")


def read_only(node: Node) -> None:
    node.mount("--bind", str(node.second), at=node.second)
    done = subprocess.run(
        ["mount", "-o", "remount,bind,ro", str(node.second)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"remounting is not permitted here: {done.stderr.decode().strip()}")


def back(node: Node) -> None:
    if node.second in node.mounts:
        node.unmount(node.second)
    away = node.home / "away"
    if away.exists():
        shutil.rmtree(node.second, ignore_errors=True)
        away.rename(node.second)


@pytest.mark.parametrize("trouble", [missing, unformatted, unreadable, read_only])
def test_a_start_without_one_disk_serves_the_others(
    node: Node, trouble: Callable[[Node], None]
) -> None:
    node.format()
    properties = (node.second / "meta.properties").read_bytes()
    node.start()
    node.create_topic("t", 2)
    (lost,), (kept,) = node.places("t")["second"] or [], node.places("t")["first"] or []
    for partition in (lost, kept):
        assert node.produce("t", partition, b"before").error_code == ErrorCode.NONE
    assert node.stop()[0] == 0
    trouble(node)
    node.start()
    assert node.leaders("t") == {lost: (ErrorCode.LEADER_NOT_AVAILABLE, -1), kept: (0, 7)}
    assert node.produce("t", lost, b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.read_all("t", kept) == [b"before"]
    assert node.places("t") == {"first": [kept], "second": None}
    assert str(node.second) in str(json.loads(node.page("/readyz"))["warnings"])
    node.stop()
    back(node)
    (node.second / "meta.properties").write_bytes(properties)
    node.start()
    assert node.leaders("t") == {lost: (0, 7), kept: (0, 7)}
    assert node.read_all("t", lost) == [b"before"]


def test_a_disk_of_another_node_or_cluster_is_refused_in_one_sentence(node: Node) -> None:
    node.format()
    text = (node.second / "meta.properties").read_text()
    (node.second / "meta.properties").write_text(text.replace("node.id=7", "node.id=8"))
    assert node.refuse().endswith(f"{node.second} belongs to node 8, not 7.")
    other = "AAAAAAAAQACAAAAAAAAAAA"
    (node.second / "meta.properties").write_text(text.replace(CLUSTER_ID, other))
    assert node.refuse().endswith(f"{node.second} belongs to cluster {other}, not {CLUSTER_ID}.")


def test_no_usable_disk_is_one_sentence(node: Node) -> None:
    node.format()
    shutil.rmtree(node.first)
    shutil.rmtree(node.second)
    assert str(node.first) in node.refuse()


def test_the_metadata_disk_that_vanishes_ends_the_process_with_one_sentence(node: Node) -> None:
    disk = node.home / "disk"
    disk.mkdir()
    node.mount("--bind", str(disk), at=node.first)
    node.format()
    node.start()
    node.unmount(node.first)
    process = node.process
    assert process is not None
    _, told = process.communicate(timeout=SECONDS_MAX)
    node.process = None
    assert process.returncode == 1, told
    assert "Traceback" not in told
    last = told.splitlines()[-1]
    assert "cannot go on" in last
    assert str(node.first) in last
