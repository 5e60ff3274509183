"""kill -9 at every step of the sink's protocol: what is committed is what was to be written, once.

A proxy strikes at a request of the protocol, before the broker sees it, inside (done, answer lost)
or after, and kills who sent it (the Python process of a task, or the one that commits), the broker,
or the whole driver. Then the query starts again on its checkpoint, as a supervisor would start it.

OTTLA_SINK_SEEDS says how many seeded runs there are (50 in the long target); each picks its own
series of faults. OTTLA_SINK_DRIVER_KILLS says in how many more runs the driver itself is killed.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from bench.brokers import ROOT, BrokerProcess

from ottla.protocol.api import ApiKey
from support.fault_proxy import MOMENTS, Fault, FaultProxy
from support.file_stream import FileStream
from support.spark_runs import broker, create_topic, read_topic, spark_session

SEEDS = int(os.environ.get("OTTLA_SINK_SEEDS", "8"))
DRIVER_KILLS = int(os.environ.get("OTTLA_SINK_DRIVER_KILLS", "1"))
FILES = 4

pytestmark = pytest.mark.timeout(1200)

# A task asks for metadata in its write(); the others are the steps of commit(), in their order.
STEPS = (
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
# Every step and moment, so that eight runs of three faults strike each of them once.
EVERY = [(step, moment) for step in STEPS for moment in MOMENTS]


class Place:
    def __init__(self, proxy: FaultProxy, process: BrokerProcess) -> None:
        self.proxy = proxy
        self.process = process
        self.bootstrap = f"127.0.0.1:{proxy.port}"

    def kill_sender(self, pid: int | None) -> None:
        if pid is not None and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)

    def kill_broker(self, pid: int | None) -> None:
        self.process.kill()
        self.process.start()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    proxy = FaultProxy(("127.0.0.1", 0))
    with proxy, broker(tmp_path_factory.mktemp("broker"), proxy=proxy) as process:
        yield Place(proxy, process)


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def new_stream(place: Place, directory: Path, name: str) -> FileStream:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        create_topic(place.bootstrap, topic, 2)
    stream = FileStream(directory, place.bootstrap, topics)
    for file in range(FILES):
        stream.add(file)
    return stream


def check(place: Place, stream: FileStream) -> None:
    found = Counter(
        (topic, message.value())
        for topic in stream.topics
        for message in read_topic(place.bootstrap, topic)
    )
    lost, twice = stream.expected - found, found - stream.expected
    assert not lost, f"{sum(lost.values())} records are lost, such as {next(iter(lost))}"
    assert not twice, f"{sum(twice.values())} records too many, such as {next(iter(twice))}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_killed_at_any_step_lose_and_repeat_nothing(
    spark: Any, place: Place, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    stream = new_stream(place, tmp_path, f"faults-{seed}")
    chosen = [EVERY[(seed + SEEDS * n) % len(EVERY)] for n in range(3)]
    for number, (step, moment) in enumerate(chosen):
        strike = place.kill_broker if rng.random() < 0.25 else place.kill_sender
        nth = rng.randint(1, 2) if number == 0 else 1  # later ones have one micro-batch each
        fault = place.proxy.arm(Fault(step, nth, moment, strike))
        if number:
            stream.add(FILES + number)
        run_until_done(stream, spark)
        place.proxy.disarm()
        if fault.is_matched.is_set():
            assert fault.is_done.wait(60)
        else:  # a query that went on has no reason to take an id again
            assert step in (ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_FETCH)
    stream.run(spark)
    check(place, stream)


@pytest.mark.parametrize("seed", range(DRIVER_KILLS))
def test_a_driver_killed_at_any_step_loses_and_repeats_nothing(
    place: Place, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(1000 + seed)
    stream = new_stream(place, tmp_path, f"driver-{seed}")
    step, moment = EVERY[(seed * 5 + 23) % len(EVERY)]  # the first one: EndTxn, answer delivered
    job: list[subprocess.Popen[bytes]] = []

    def kill_driver(pid: int | None) -> None:
        """The JVM and its Python; the process that commits lives on for a moment, as a zombie."""
        os.killpg(job[-1].pid, signal.SIGKILL)

    place.proxy.arm(Fault(step, rng.randint(1, 3), moment, kill_driver))
    for _ in range(4):
        with start_job(tmp_path, place.bootstrap) as process:
            job.append(process)
            process.wait(400)
        if (tmp_path / "done").exists():
            break
    place.proxy.disarm()
    assert (tmp_path / "done").exists()
    check(place, stream)


@contextmanager
def start_job(directory: Path, bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own; nothing of it is left at the end."""
    program = ROOT / "tests" / "support" / "file_stream.py"
    with (directory / "job.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(program), str(directory), bootstrap],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_zombie_driver_that_wakes_up_adds_nothing(
    spark: Any, place: Place, tmp_path: Path
) -> None:
    """The process that commits is held in the middle while the query starts again and ends."""
    stream = new_stream(place, tmp_path, "zombie")
    stopped: list[int] = []

    def stop_sender(pid: int | None) -> None:
        if pid is not None and pid != os.getpid():
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    place.proxy.arm(Fault(ApiKey.ADD_OFFSETS_TO_TXN, 2, "after", stop_sender))
    first = threading.Thread(target=run_until_done, args=(stream, spark), daemon=True)
    first.start()
    assert _wait_for(lambda: bool(stopped))
    for query in spark.streams.active:
        threading.Thread(target=query.stop, daemon=True).start()
    first.join(120)
    run_until_done(stream, spark)
    os.kill(stopped[0], signal.SIGCONT)  # it sends TxnOffsetCommit and EndTxn of an old epoch
    _wait_for(lambda: not psutil.pid_exists(stopped[0]), seconds=20)
    check(place, stream)


def run_until_done(stream: FileStream, spark: Any) -> None:
    """Start the query again when it fails, as a supervisor does."""
    for _ in range(6):
        try:
            stream.run(spark)
        except Exception:  # noqa: BLE001  # Spark wraps whatever ended the query
            continue
        return
    stream.run(spark)


def _wait_for(condition: Any, seconds: int = 300) -> bool:
    event = threading.Event()
    for _ in range(seconds * 10):
        if condition():
            return True
        event.wait(0.1)
    return False
