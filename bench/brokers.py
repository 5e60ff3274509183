"""How to format, start, watch, stop and kill one broker, Ottla's or Apache Kafka's.

Both take the same server.properties and the same data directory, so a caller that is given
a `BrokerProcess` cannot tell which of the two it drives, and `on_same_data` hands the
directory of one to the other. Apache Kafka's jars come from the folder that
OTTLA_KAFKA_JARS names, or are copied once by Maven into `.cache/kafka-jars`.

Owned by whoever starts it: every broker belongs to one `with` block, which kills what is left.
"""

import base64
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from bench import wire

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
KAFKA_VERSION = "4.3.1"

START_S_MAX = 120.0
STOP_S_MAX = 60.0
DOWNLOAD_S_MAX = 900.0

# What bin/kafka-server-start.sh and kafka-run-class.sh give the broker.
KAFKA_SERVER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# A tool lives for a second: the optimizing compiler would cost more than it gives.
TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

FIRST_TOPIC = "first-record"


class Kind(StrEnum):
    OTTLA = "ottla"
    KAFKA = "kafka"


class Missing(Exception):
    """A toolchain that this machine lacks; the sentence says which, for a table or a skip."""


class Usage(NamedTuple):
    cpu_s: float
    rss_bytes: int
    pss_bytes: int
    open_files: int
    threads: int


class Ports(NamedTuple):
    client: int
    controller: int


@contextlib.contextmanager
def built_once(name: str) -> Iterator[None]:
    """Hold up whoever wants to download or build the same at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars, filled by Maven when it is not there yet."""
    given = os.environ.get("OTTLA_KAFKA_JARS")
    folder = Path(given) if given else CACHE / f"kafka-jars-{KAFKA_VERSION}"
    if shutil.which("java") is None:
        raise Missing("java is not installed")
    if (folder / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        return folder
    if given:
        raise Missing(f"OTTLA_KAFKA_JARS={given} holds no kafka_2.13-{KAFKA_VERSION}.jar")
    if shutil.which("mvn") is None:
        raise Missing("mvn is not installed and OTTLA_KAFKA_JARS is not set")
    with built_once(folder.name):
        return folder if folder.exists() else _fetch_kafka(folder)


def _fetch_kafka(folder: Path) -> Path:
    # Maven fills a folder beside the final one, so that a broken download is never mistaken for it.
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    pom = ROOT / "bench" / "peer" / "pom.xml"
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={partial}"],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise Missing(f"mvn could not fetch Apache Kafka {KAFKA_VERSION}: {done.stdout[-500:]}")
    partial.rename(folder)
    return folder


def java_command(
    main_class: str, *arguments: str, jvm: Sequence[str] = TOOL_JVM, classpath: str = ""
) -> list[str]:
    path = f"{kafka_jars()}/*" + (f":{classpath}" if classpath else "")
    return ["java", *jvm, "-cp", path, main_class, *arguments]


def quiet_environment(level: str = "error") -> dict[str, str]:
    """The environment of a user: Java logs to stderr at this level only, Python keeps bytecode."""
    options = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"
    environment = {**os.environ, "JDK_JAVA_OPTIONS": options}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def run_java(
    main_class: str,
    *arguments: str,
    timeout_s: float = 60.0,
    jvm: Sequence[str] = TOOL_JVM,
    classpath: str = "",
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's tools to its end."""
    return subprocess.run(
        java_command(main_class, *arguments, jvm=jvm, classpath=classpath),
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=quiet_environment(),
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cluster_id() -> str:
    """A random id as Kafka writes them: URL-safe Base64 that does not start with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def server_properties(ports: Ports, data: Path, overrides: Mapping[str, str]) -> str:
    """A combined broker and controller on the loopback interface, internal topics unreplicated."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports.client},"
        f"CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports.client},"
        f"CONTROLLER://127.0.0.1:{ports.controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **overrides,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


@dataclass
class BrokerProcess:
    """One broker and its directory. After `stop` or `kill` it may be started again."""

    kind: Kind
    directory: Path
    overrides: Mapping[str, str] = field(default_factory=dict)
    jvm: Sequence[str] = KAFKA_SERVER_JVM
    ports: Ports = field(default_factory=lambda: Ports(free_port(), free_port()))
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.ports.client)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports.client}"

    @property
    def controller_bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports.controller}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def properties_path(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.kind}.log"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the broker is not running")
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _command(self, ottla: Sequence[str], kafka: Sequence[str], jvm: Sequence[str]) -> list[str]:
        if self.kind is Kind.KAFKA:
            return java_command(*kafka, jvm=jvm)
        program = Path(sys.executable).with_name("ottla")
        if not program.exists():
            raise Missing(f"{program} does not exist: run `make install`")
        return [str(program), *ottla]

    def write_properties(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        text = server_properties(self.ports, self.data, self.overrides)
        self.properties_path.write_text(text)

    def format(self) -> None:
        """Write the properties and format the data directory for a quorum of this node alone."""
        self.write_properties()
        options = ["-t", cluster_id(), "-c", str(self.properties_path), "--standalone"]
        command = self._command(
            ["storage", "format", *options],
            ["kafka.tools.StorageTool", "format", *options],
            TOOL_JVM,
        )
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=quiet_environment(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"formatting for {self.kind} failed: {done.stdout}{done.stderr}")

    def start(self, *, timeout_s: float = START_S_MAX) -> float:
        """Run the broker; return the seconds from exec to the first acknowledged record."""
        if self.process is not None:
            raise RuntimeError("the broker is running already")
        path = str(self.properties_path)
        command = self._command(["server", path], ["kafka.Kafka", path], self.jvm)
        with self.log_path.open("ab") as log:
            began = time.monotonic()
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=quiet_environment("warn"),
            )
        try:
            done = self._await_first_record(began + timeout_s)
        except Exception as error:
            self.kill()
            raise RuntimeError(f"{self.kind} did not start: {error}\n{self.log_tail()}") from error
        return done - began

    def _await_first_record(self, deadline: float) -> float:
        """Ask in short turns, so that a broker that died is noticed at once."""
        while True:
            turn = min(deadline, time.monotonic() + 2.0)
            try:
                return wire.first_acknowledged(self.address, FIRST_TOPIC, deadline=turn)
            except TimeoutError:
                if self.process is None or self.process.poll() is not None:
                    raise
                if time.monotonic() >= deadline:
                    raise

    def stop(self, *, timeout_s: float = STOP_S_MAX) -> float:
        """Ask for a clean stop (SIGTERM) and return the seconds it took."""
        process = self.process
        if process is None:
            raise RuntimeError("the broker is not running")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.kind} ignored SIGTERM for {timeout_s} s") from None
        self.process = None
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9; nothing happens when the broker is gone already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def exit_code(self) -> int | None:
        """What a broker that ended by itself ended with; negative for a signal from elsewhere."""
        return self.process.poll() if self.process is not None else None

    def on_same_data(self, kind: Kind) -> "BrokerProcess":
        """The other broker over the same directory, properties and ports."""
        if self.process is not None:
            raise RuntimeError("stop the broker before another one opens its directory")
        return BrokerProcess(kind, self.directory, self.overrides, self.jvm, self.ports)

    def log_tail(self, lines: int = 30) -> str:
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def connect(self) -> wire.Connection:
        return wire.Connection(self.address)

    def usage(self) -> Usage:
        """CPU, memory and files of the broker's process and its children."""
        root = psutil.Process(self.pid)
        total = Usage(0.0, 0, 0, 0, 0)
        for process in (root, *root.children(recursive=True)):
            times, memory = process.cpu_times(), process.memory_full_info()
            total = Usage(
                total.cpu_s + times.user + times.system,
                total.rss_bytes + memory.rss,
                total.pss_bytes + memory.pss,
                total.open_files + process.num_fds(),
                total.threads + process.num_threads(),
            )
        return total


def start_fresh(
    kind: Kind,
    directory: Path,
    *,
    overrides: Mapping[str, str] | None = None,
    jvm: Sequence[str] = KAFKA_SERVER_JVM,
) -> BrokerProcess:
    """Format an empty directory and start a broker on it."""
    broker = BrokerProcess(kind, directory, overrides or {}, jvm)
    broker.format()
    broker.start()
    return broker
