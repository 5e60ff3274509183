"""kill -9 at every step of the sink's protocol: what is committed is what was to be written, once.

A proxy strikes at a request of the protocol, before the broker sees it, inside (done, answer lost)
or after, and kills who sent it (the Python process of a task, or the one that commits), the broker,
or the whole driver. Then the query starts again on its checkpoint, as a supervisor would start it.
A fault that never struck fails the test.

OTTLA_SINK_SEEDS says how many seeded runs there are (50 in the long target). Eight strike every
step at every moment once, with rows from files and from a topic, staged in files and in messages,
written by the sink and by foreachBatch; sixteen do so with either victim. OTTLA_SINK_DRIVER_KILLS
says in how many more runs the driver itself is killed.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from bench.brokers import ROOT, BrokerProcess, Kind

from ottla.protocol.api import ApiKey
from support.fault_proxy import INSIDE, MOMENTS, Fault, FaultProxy
from support.file_stream import FileStream, TopicStream
from support.spark_runs import BROKER_KIND, broker, create_topic, read_topic

SEEDS = int(os.environ.get("OTTLA_SINK_SEEDS", "8"))
DRIVER_KILLS = int(os.environ.get("OTTLA_SINK_DRIVER_KILLS", "1"))
PADDING = 10_000  # makes the output of a task more than a message carries
RUNS_MAX = 7
LONG_TRANSACTION = "kafka.transaction.timeout.ms=900000"  # what brokers allow by default

pytestmark = pytest.mark.timeout(1200)

# A task asks for metadata in its write(); the others are the steps of commit(), in their order.
ONCE = (ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_FETCH)
EACH_BATCH = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
EVERY = [(step, moment) for step in (*ONCE, *EACH_BATCH) for moment in MOMENTS]
GROUPS = 8  # of three faults
SOURCE_STEPS = (ApiKey.LIST_OFFSETS, ApiKey.FETCH)


class Place:
    def __init__(self, proxy: FaultProxy, process: BrokerProcess) -> None:
        self.proxy = proxy
        self.process = process
        self.bootstrap = f"127.0.0.1:{proxy.port}"

    def kill_sender(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def kill_broker(self, pid: int) -> None:
        self.process.kill()
        self.process.start()

    def stream(
        self, directory: Path, name: str, *, has_source: bool = False, is_foreach: bool = False
    ) -> FileStream:
        """A query over files or over a topic, into two topics."""
        topics = [f"{name}-a", f"{name}-b"]
        for topic in topics:
            create_topic(self.bootstrap, topic, 2)
        if not has_source:
            return FileStream(directory, self.bootstrap, topics, is_foreach=is_foreach)
        create_topic(self.bootstrap, f"{name}-in", 1)
        return TopicStream(directory, self.bootstrap, topics, f"{name}-in", is_foreach=is_foreach)

    def check(self, stream: FileStream) -> None:
        found = Counter(
            (topic, message.value())
            for topic in stream.topics
            for message in read_topic(self.bootstrap, topic)
        )
        lost, twice = stream.expected - found, found - stream.expected
        assert not lost, f"{sum(lost.values())} records are lost, such as {_shown(lost)}"
        assert not twice, f"{sum(twice.values())} records too many, such as {_shown(twice)}"


def _shown(records: Counter[tuple[str, bytes]]) -> str:
    topic, value = next(iter(records))
    return f"{value[:20]!r} in {topic}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    proxy = FaultProxy(("127.0.0.1", 0))
    with proxy, broker(tmp_path_factory.mktemp("broker"), proxy=proxy) as process:
        yield Place(proxy, process)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_killed_at_any_step_lose_and_repeat_nothing(
    spark: Any, place: Place, tmp_path: Path, seed: int
) -> None:
    turn, group = divmod(seed, GROUPS)
    rng = random.Random(seed)
    way = (seed + turn) % 8  # in each turn others meet the same steps
    is_padded, has_source, is_foreach = bool(way & 1), bool(way & 2), bool(way & 4)
    stream = place.stream(tmp_path, f"faults-{seed}", has_source=has_source, is_foreach=is_foreach)
    padding = PADDING if is_padded else 0
    was_in_files = False

    def run_with(step: ApiKey, nth: int, moment: str, *, is_broker: bool) -> None:
        if step is ApiKey.END_TXN and BROKER_KIND is Kind.KAFKA:
            # Killed when the end is decided, Apache Kafka 4.3.1 completes the transaction
            # at its next start without a marker in any partition: nobody can read on.
            is_broker = False

        def strike(pid: int) -> None:
            nonlocal was_in_files
            was_in_files |= stream.has_staged_files
            (place.kill_broker if is_broker else place.kill_sender)(pid)

        stream.add(padding=padding)
        fault = place.proxy.arm(Fault(step, nth, moment, strike))
        run_until_done(stream, spark)
        assert fault.is_done.wait(60), f"{step.name} never came"

    stream.add(padding=padding)
    for number in range(3):
        index = group + GROUPS * number
        step, moment = EVERY[index]
        # The first run has two micro-batches, others have one.
        nth = rng.randint(1, 2) if number == 0 and step in EACH_BATCH else 1
        run_with(step, nth, moment, is_broker=(turn + index + index // 3) % 2 == 1)
    if has_source:
        step = SOURCE_STEPS[turn % 2]
        run_with(step, 1, MOMENTS[seed % 3], is_broker=rng.random() < 0.5)
    place.check(stream)
    assert was_in_files == is_padded


@pytest.mark.parametrize("seed", range(DRIVER_KILLS))
def test_a_driver_killed_at_any_step_loses_and_repeats_nothing(
    place: Place, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(1000 + seed)
    stream = place.stream(tmp_path, f"driver-{seed}", has_source=seed % 2 == 0)
    for _ in range(3):
        stream.add(padding=PADDING)
    step, moment = EVERY[(seed * 5 + 23) % len(EVERY)]  # the first one: EndTxn, answer delivered
    nth = rng.randint(1, 3) if step in EACH_BATCH else 1
    job: list[subprocess.Popen[bytes]] = []

    def kill_driver(pid: int) -> None:
        """The JVM and its Python; the process that commits lives on for a moment, as a zombie."""
        os.killpg(job[-1].pid, signal.SIGKILL)

    fault = place.proxy.arm(Fault(step, nth, moment, kill_driver))
    for _ in range(4):
        with start_job(stream) as process:
            job.append(process)
            process.wait(400)
        if (tmp_path / "done").exists():
            break
    assert fault.is_done.is_set(), _log_of(stream)
    assert (tmp_path / "done").exists(), _log_of(stream)
    place.check(stream)


def test_a_zombie_driver_that_wakes_up_adds_nothing(place: Place, tmp_path: Path) -> None:
    """A driver is held in the middle of its commit while another takes its place and ends."""
    stream = place.stream(tmp_path, "zombie")
    for _ in range(3):
        stream.add(padding=PADDING)
    held: list[psutil.Process] = []

    def hold(pid: int) -> None:
        """Spark's Python processes are in groups of their own: stop what descends from it."""
        job = psutil.Process(zombie.pid)
        held.extend([job, *job.children(recursive=True)])
        for one in held:
            one.suspend()

    # It hears the answer when it wakes up, and goes on: TxnOffsetCommit and EndTxn of an old epoch.
    fault = Fault(ApiKey.ADD_OFFSETS_TO_TXN, 2, INSIDE, hold, cuts=False)
    place.proxy.arm(fault)
    # However long it is held: the broker must not end its transaction before it wakes up.
    with start_job(stream, log="zombie.log", option=LONG_TRANSACTION) as zombie:
        assert fault.is_done.wait(400), _log_of(stream, "zombie.log")
        with start_job(stream) as successor:
            successor.wait(400)
        assert (tmp_path / "done").exists(), _log_of(stream)
        for one in held:
            with suppress(psutil.NoSuchProcess):
                one.resume()
        assert zombie.wait(400) != 0
    assert "Another driver took over" in _log_of(stream, "zombie.log")
    place.check(stream)


@contextmanager
def start_job(
    stream: FileStream, log: str = "job.log", option: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own; nothing of it is left at the end."""
    program = ROOT / "tests" / "support" / "file_stream.py"
    options = [] if option is None else ["--option", option]
    with (stream.directory / log).open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(program), *stream.arguments, *options],
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _log_of(stream: FileStream, name: str = "job.log") -> str:
    return (stream.directory / name).read_text()[-5000:]


def run_until_done(stream: FileStream, spark: Any) -> None:
    """Start the query again when it fails, as a supervisor does."""
    for _ in range(RUNS_MAX - 1):
        try:
            stream.run(spark)
        except Exception:  # noqa: BLE001  # Spark wraps whatever ended the query
            continue
        return
    stream.run(spark)
