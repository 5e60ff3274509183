"""The same pipeline on a standalone Spark cluster, with worker processes of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest
from bench.brokers import ROOT, free_port

from ottla.protocol.api import ApiKey
from support.fault_proxy import MOMENTS, Fault, FaultProxy
from support.file_stream import COPY_BEGAN, FileStream, TopicStream
from support.spark_runs import broker, create_topic, produce, read_topic

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

SPARK_HOME = Path(pyspark.__file__).parent
PADDING = 10_000
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers of one core each."""
    directory = tmp_path_factory.mktemp("cluster")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []

    def start(host: str, name: str, *arguments: str) -> None:
        with (directory / f"{len(processes)}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [str(SPARK_HOME / "bin" / "spark-class"), name, "--host", host, *arguments],
                    stdout=log,
                    stderr=log,
                    cwd=directory,
                    start_new_session=True,
                    env={
                        **os.environ,
                        "SPARK_HOME": str(SPARK_HOME),
                        "SPARK_LOCAL_IP": host,
                        "SPARK_DAEMON_MEMORY": "256m",
                        "PYSPARK_PYTHON": sys.executable,
                        "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}",
                    },
                )
            )

    ports = ["--port", str(port), "--webui-port", str(free_port())]
    start("127.0.0.1", "org.apache.spark.deploy.master.Master", *ports)
    for number in range(2):
        # Of hosts of their own, as Spark copies no task to the host that it runs on.
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work{number}")]
        place = ["--webui-port", str(free_port()), *size, address]
        start(f"127.0.0.{number + 1}", "org.apache.spark.deploy.worker.Worker", *place)
    try:
        _wait_for_workers(directory / "0.log")
        yield address
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _wait_for_workers(log: Path) -> None:
    deadline = time.monotonic() + 120
    while log.read_text().count("Registering worker") < 2:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def test_an_example_runs_unchanged_on_a_cluster(master: str, tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as process:
        create_topic(process.bootstrap, "lines", 2)
        lines = (ROOT / "examples/word_count/data/lines.txt").read_bytes().splitlines()
        produce(process.bootstrap, "lines", [(None, line) for line in lines])
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ottla")),
                *("pipeline", "run", "examples/word_count/pipeline.toml"),
                *("--once", "--master", master),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            env={
                **os.environ,
                "OTTLA_BROKERS": process.bootstrap,
                "OTTLA_PIPELINES": str(tmp_path / "pipelines"),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_SUBMIT_ARGS": "--conf spark.executor.memory=512m pyspark-shell",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        log = tmp_path / "pipelines" / "word-count" / "run.log"
        assert done.returncode == 0, f"{done.stderr}\n{log.read_text()[-3000:]}"
        counts = {m.key(): int(m.value()) for m in read_topic(process.bootstrap, "word-counts")}
        assert counts[b"kafka"] == 3
        status = json.loads((tmp_path / "pipelines/word-count/status.json").read_text())
        assert (status["state"], status["master"]) == ("finished", master)


# What a task asks a broker for: reading, and writing (partitions; the rest is the driver's).
@pytest.mark.parametrize("step", [ApiKey.FETCH, ApiKey.METADATA], ids=lambda step: step.name)
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_executor_killed_in_the_middle_of_its_task_loses_and_repeats_nothing(
    master: str, tmp_path: Path, step: ApiKey, moment: str
) -> None:
    proxy = FaultProxy(("127.0.0.1", 0))
    with proxy, broker(tmp_path / "broker", proxy=proxy):
        bootstrap = f"127.0.0.1:{proxy.port}"
        stream = new_stream(tmp_path, bootstrap, has_source=step is ApiKey.FETCH)

        fault = Fault(
            step,
            1,
            moment,
            lambda pid: executors_of(pid)[0].kill(),
            counts=lambda pid: bool(executors_of(pid)),  # the driver asks too
        )
        proxy.arm(fault)
        run_on(master, stream)
        assert fault.is_done.is_set()
        check(stream)


def test_a_task_and_its_speculative_copy_are_written_once(master: str, tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as process:
        stream = new_stream(tmp_path, process.bootstrap)
        settings = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.speculation.efficiency.enabled": "false",
        }
        run_on(master, stream, "--wait-for-copy", **settings)
        assert (stream.directory / COPY_BEGAN).exists()
        check(stream)


def executors_of(pid: int) -> list[psutil.Process]:
    """The executor that a task's Python process belongs to, if it is one."""
    return [p for p in psutil.Process(pid).parents() if EXECUTOR in " ".join(p.cmdline())]


def new_stream(directory: Path, bootstrap: str, *, has_source: bool = False) -> FileStream:
    """Three micro-batches, from files or from a topic, each beyond what a message carries."""
    create_topic(bootstrap, "out", 2)
    stream = FileStream(directory / "stream", bootstrap, ["out"])
    if has_source:
        create_topic(bootstrap, "in", 1)
        stream = TopicStream(directory / "stream", bootstrap, ["out"], "in")
    for _ in range(3):
        stream.add(padding=PADDING)
    return stream


def run_on(master: str, stream: FileStream, *arguments: str, **settings: str) -> None:
    """Run the query in a driver of its own."""
    program = str(ROOT / "tests" / "support" / "file_stream.py")
    given = {"spark.executor.memory": "512m", **settings}
    submitted = " ".join(f"--conf {name}={value}" for name, value in given.items())
    done = subprocess.run(
        [sys.executable, program, *stream.arguments, "--master", master, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}",
            "PYSPARK_SUBMIT_ARGS": f"{submitted} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]


def check(stream: FileStream) -> None:
    found = Counter(("out", message.value()) for message in read_topic(stream.bootstrap, "out"))
    assert found == stream.expected
