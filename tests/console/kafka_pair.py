"""Two brokers of Apache Kafka, or of anything that takes its properties: one cluster."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import (
    TOOL_JVM,
    BrokerProcess,
    Kind,
    Ports,
    free_port,
    java_command,
    quiet_environment,
    start_fresh,
)
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

SMALL_JVM = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
REPLICATED = {
    "offsets.topic.replication.factor": "2",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class SecondBroker(BrokerProcess):
    """A broker that follows the controller of another."""

    def write_properties(self) -> None:
        super().write_properties()
        text = self.properties_path.read_text()
        listener = f"PLAINTEXT://127.0.0.1:{self.ports.client}"
        for name in ("listeners", "advertised.listeners"):
            text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={listener}", text)
        self.properties_path.write_text(text)

    def format_like(self, first: BrokerProcess) -> None:
        """Join the cluster of another broker."""
        found = re.search(r"(?m)^cluster\.id=(.+)$", (first.data / "meta.properties").read_text())
        assert found is not None
        self.write_properties()
        options = ["format", "-t", found[1], "-c", str(self.properties_path)]
        done = subprocess.run(
            java_command(
                "kafka.tools.StorageTool", *options, "--no-initial-controllers", jvm=TOOL_JVM
            ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=quiet_environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _await_first_record(self, deadline: float) -> float:
        """It leads nothing yet: it is up once the cluster counts it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while 2 not in _brokers(admin):
            if time.monotonic() >= deadline:
                raise TimeoutError("the second broker did not join")
            time.sleep(0.1)
        return time.monotonic()


def _brokers(admin: AdminClient) -> set[int]:
    try:
        return set(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return set()


@contextmanager
def kafka_pair(directory: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A combined broker and controller, and a broker beside it."""
    with start_fresh(Kind.KAFKA, directory / "1", overrides=REPLICATED, jvm=SMALL_JVM) as first:
        follows = {
            **REPLICATED,
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.bootstrap.servers": first.controller_bootstrap,
        }
        ports = Ports(free_port(), free_port())
        second = SecondBroker(Kind.KAFKA, directory / "2", follows, SMALL_JVM, ports)
        with second:
            second.format_like(first)
            second.start()
            yield first, second
