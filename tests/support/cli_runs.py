"""The command line in this process, and the brokers it may talk to."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers import java_command

from ottla.cli.main import run

KAFKA_START_S_MAX = 60.0
POLL_S = 0.05
TRIES_MAX = 400


class Done(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def jsonl(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


Cli = Callable[..., Done]


def until(is_so: Callable[[], bool]) -> None:
    """Apache Kafka's controller answers before its brokers have heard of a change."""
    for _ in range(TRIES_MAX):
        if is_so():
            return
        time.sleep(POLL_S)
    raise AssertionError("it did not become so")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def apache_kafka(directory: Path) -> Iterator[str]:
    port, controller = free_port(), free_port()
    java = java_command("kafka.Kafka", jvm=("-Xmx512m", "-XX:TieredStopAtLevel=1"))
    properties = directory / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        f"log.dirs={directory}/data\noffsets.topic.replication.factor=1\n"
        "offsets.topic.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    # Apache Kafka starts in a directory that Ottla formatted.
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"
    assert run(["storage", "format", "-t", cluster_id, "-c", str(properties), "--standalone"]) == 0
    with (directory / "kafka.log").open("wb") as log:
        process = subprocess.Popen([*java, str(properties)], stdout=log, stderr=subprocess.STDOUT)
    try:
        address = f"127.0.0.1:{port}"
        assert run(["cluster", "wait", "-b", address, "--timeout", str(KAFKA_START_S_MAX)]) == 0
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def ottla() -> Iterator[str]:
    from ottla.testing import Cluster

    with Cluster(config={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        yield cluster.bootstrap_servers
