"""The programs that make load: rawload (Go), kcat or confluent-kafka (librdkafka), Java's tools.

Each function runs one load against one broker and returns its figures under the keys that
the loads name. A program that this machine lacks raises `Missing` with the reason; a program
that fails raises `LoadFailed` with what it said.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bench.brokers import (
    CACHE,
    DOWNLOAD_S_MAX,
    ROOT,
    BrokerProcess,
    Missing,
    java_command,
    kafka_jars,
    quiet_environment,
)

LOAD_S_MAX = 300.0
CLIENT_JVM = ("-Xmx512m", "-Xms512m")
JOIN_GROUP = 11

Sample = dict[str, float]


class LoadFailed(Exception):
    """The load generator ended with an error; the sentence is its own."""


def run_program(command: list[str], *, environment: dict[str, str] | None = None) -> str:
    """What the program printed; it is a failed load when it fails or never ends."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LOAD_S_MAX,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{Path(command[0]).name} took over {LOAD_S_MAX:.0f} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"{Path(command[0]).name}: {(done.stderr + done.stdout)[-600:].strip()}")
    return done.stdout


@cache
def _rawload() -> str:
    """Build bench/rawload once per run."""
    go = shutil.which("go")
    if go is None:
        raise Missing("go is not installed")
    built = CACHE / "bench" / "rawload"
    built.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [go, "build", "-o", str(built), "."],
        cwd=ROOT / "bench" / "rawload",
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise Missing(f"go could not build rawload: {done.stderr[-300:]}")
    return str(built)


def rawload(broker: BrokerProcess, topic: str, **flags: object) -> Sample:
    """Ready-made frames; the keys are rawload's own."""
    command = [_rawload(), "-addr", broker.bootstrap, "-pid", str(broker.pid), "-topic", topic]
    for name, value in flags.items():
        command.append(f"-{name}={value}".lower() if value is True else f"-{name}={value}")
    answer = json.loads(run_program(command))
    return {key: value for key, value in answer.items() if isinstance(value, int | float)}


def _timed(broker: BrokerProcess, records: int, size: int, work: Callable[[], float]) -> Sample:
    """Rates and the broker's CPU around `work`, which returns the seconds that count."""
    before = broker.usage().cpu_s
    seconds = work()
    cpu_s = broker.usage().cpu_s - before
    return {
        "records_per_s": records / seconds,
        "mb_per_s": records * size / 1e6 / seconds,
        "cpu_ms_per_mb": cpu_s * 1e3 / (records * size / 1e6),
    }


@cache
def _payload(records: int, size: int) -> Path:
    """A file of lines that kcat sends as one record each."""
    folder = CACHE / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"payload-{records}x{size}.txt"
    if not path.exists() or path.stat().st_size != records * (size + 1):
        line = ("abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size] + "\n"
        path.write_text(line * records)
    return path


def librdkafka_name() -> str:
    if shutil.which("kcat"):
        return "kcat"
    return "confluent-kafka"


def librdkafka_produce(broker: BrokerProcess, topic: str, records: int, size: int) -> Sample:
    """librdkafka's producer: kcat, or confluent-kafka where there is no kcat."""
    if shutil.which("kcat") is None:
        return _timed(broker, records, size, _python_produce(broker, topic, records, size))
    path = _payload(records, size)
    settings = ["-X", "acks=1", "-X", "linger.ms=5", "-X", "batch.size=1000000"]
    command = ["kcat", "-b", broker.bootstrap, "-P", "-t", topic, "-p", "0", *settings]

    def work() -> float:
        began = time.monotonic()
        run_program([*command, "-l", str(path)])
        return time.monotonic() - began

    return _timed(broker, records, size, work)


def librdkafka_consume(broker: BrokerProcess, topic: str, records: int, size: int) -> Sample:
    """librdkafka's consumer by assignment; kcat formats nothing and prints nothing."""
    if shutil.which("kcat") is None:
        return _timed(broker, records, size, _python_consume(broker, topic, records))
    command = ["kcat", "-b", broker.bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning"]

    def work() -> float:
        began = time.monotonic()
        run_program([*command, "-c", str(records), "-f", "", "-X", "fetch.wait.max.ms=100"])
        return time.monotonic() - began

    return _timed(broker, records, size, work)


def _python_produce(
    broker: BrokerProcess, topic: str, records: int, size: int
) -> Callable[[], float]:
    from confluent_kafka import Producer

    def work() -> float:
        settings = {"bootstrap.servers": broker.bootstrap, "acks": "1", "linger.ms": 5}
        producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
        value = b"x" * size
        began = time.monotonic()
        for _ in range(records):
            while True:
                try:
                    producer.produce(topic, value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        left = producer.flush(60)
        if left:
            raise LoadFailed(f"confluent-kafka: {left} records were not delivered")
        return time.monotonic() - began

    return work


def _python_consume(broker: BrokerProcess, topic: str, records: int) -> Callable[[], float]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    def work() -> float:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench"})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        began = time.monotonic()
        read = 0
        while read < records:
            batch = consumer.consume(10_000, timeout=10)
            if not batch:
                raise LoadFailed(f"confluent-kafka: only {read} of {records} records came")
            read += len(batch)
        elapsed = time.monotonic() - began
        consumer.close()
        return elapsed

    return work


def java_produce(broker: BrokerProcess, topic: str, records: int, size: int) -> Sample:
    """ProducerPerformance with acks=1; the rate is what it reports."""
    load = ["--topic", topic, "--num-records", str(records), "--record-size", str(size)]
    server = ["--bootstrap-server", broker.bootstrap, "--throughput", "-1"]
    settings = ["--command-property", "acks=1", "enable.idempotence=false"]
    main_class = "org.apache.kafka.tools.ProducerPerformance"
    command = java_command(main_class, *load, *server, *settings, jvm=CLIENT_JVM)

    def work() -> float:
        last = run_program(command, environment=quiet_environment()).strip().splitlines()[-1]
        return records / float(last.split("records sent, ")[1].split(" records/sec")[0])

    return _timed(broker, records, size, work)


@cache
def _assign_consumer() -> Path:
    """Compile bench/java/AssignConsumer.java and return the folder of its class."""
    javac = shutil.which("javac")
    if javac is None:
        raise Missing("javac is not installed")
    built = CACHE / "bench" / "java"
    built.mkdir(parents=True, exist_ok=True)
    source = ROOT / "bench" / "java" / "AssignConsumer.java"
    run_program([javac, "-cp", f"{kafka_jars()}/*", "-d", str(built), str(source)])
    return built


def speaks_groups(broker: BrokerProcess) -> bool:
    with broker.connect() as connection:
        return JOIN_GROUP in connection.api_versions()


def java_consume(
    broker: BrokerProcess, topic: str, records: int, size: int, *, by_group: bool
) -> Sample:
    """ConsumerPerformance where both brokers have groups, else a consumer that assigns."""
    if not by_group:
        folder = str(_assign_consumer())
        wanted = (broker.bootstrap, topic, str(records))
        command = java_command("AssignConsumer", *wanted, jvm=CLIENT_JVM, classpath=folder)

        def assigned() -> float:
            seconds: float = json.loads(run_program(command, environment=quiet_environment()))[
                "seconds"
            ]
            return seconds

        return _timed(broker, records, size, assigned)
    asked = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    count = ("--num-records", str(records), "--hide-header", "--timeout", "30000")
    main_class = "org.apache.kafka.tools.ConsumerPerformance"
    command = java_command(main_class, *asked, *count, jvm=CLIENT_JVM)

    def grouped() -> float:
        last = run_program(command, environment=quiet_environment()).strip().splitlines()[-1]
        columns = [column.strip() for column in last.split(",")]
        # The time of fetching alone: joining the group is another matter.
        return float(columns[7]) / 1e3 * records / float(columns[4])

    return _timed(broker, records, size, grouped)


def java_latency(broker: BrokerProcess, topic: str, records: int) -> Sample:
    """EndToEndLatency: one record at a time from a producer through the broker to a consumer."""
    main_class = "org.apache.kafka.tools.EndToEndLatency"
    asked = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--producer-acks", "1")
    command = java_command(
        main_class, *asked, "--num-records", str(records), "--record-size", "100", jvm=CLIENT_JVM
    )
    said = run_program(command, environment=quiet_environment())
    return {"latency_ms": float(said.split("Avg latency: ")[1].split(" ms")[0])}


def tool_version(command: list[str], line: int = 0) -> str:
    """The first line that a program says about itself, or that it is missing."""
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=False, env=dict(os.environ)
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[line].strip() if len(lines) > line else "unknown"
