"""Ten million records through word count, exactly once: how fast, and whether memory stays flat.

One query reads a topic, counts its words and writes every new count to another topic, in the
session that a pipeline gets. The memory of Spark's JVM, of its Python processes and of the broker
is looked at throughout; what it is after a third of the time, when all that is loaded once has
been, is held against what it is at the end. Of the JVM that is what a collection leaves.

    python -m bench --only word_count
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from bench.brokers import ROOT, BrokerProcess, Kind, Missing, start_fresh
from bench.loads import Effort
from bench.table import OTTLA, Figure, Goal, Row, value_at_most

Say = Callable[[str], None]

RECORDS = 10_000_000
RECORDS_QUICK = 1_000_000
SAMPLE_S = 0.25
JOB_S_MAX = 3600.0
# A leak of a hundred bytes a record would be a gigabyte at the end.
GROWTH_GOAL = value_at_most(1.1)
# Memory is the median over a tenth of the run: a JVM's goes up and down with its collections.
WINDOW = 0.1
HEAP = "what lives in Spark's heap"
JVM, PYTHON, BROKER = "Spark's JVM, heap not collected", "Spark's Python", "broker"


class Memory(NamedTuple):
    """MB of every process of its kind together, at a time."""

    at: float
    mb: dict[str, float]


def measure_word_count(effort: Effort, say: Say) -> list[Row]:
    """Rows of Ottla's alone: Spark's own sink has no exactly once to compare with."""
    records = RECORDS if effort.rounds > 1 else RECORDS_QUICK
    say(f"counting the words of {records:,} records")
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        start_fresh(Kind.OTTLA, Path(folder) / "broker") as broker,
    ):
        found, memory = _job(broker, Path(folder), records)
    if found["counted"] != records:
        raise RuntimeError(f"{found['counted']:,} of {records:,} records were counted")
    return rows_of(records, found["began"], found["ended"], found["heap_mb"], memory)


def rows_of(
    records: int,
    began: float,
    ended: float,
    heap_mb: Mapping[str, Sequence[float]],
    memory: Sequence[Memory],
) -> list[Row]:
    """The table of one run; pure. A JVM's size has no goal: it grows to what it may take."""
    load = f"word count of {records / 1e6:g} M records"
    rows = [_row(load, "M records/s", records / (ended - began) / 1e6)]
    rows += _growth(f"{load}: {HEAP}", *(median(heap_mb[when]) for when in ("third", "end")))
    for kind in (PYTHON, BROKER, JVM):
        third = _around(1 / 3, began, ended, memory, kind)
        last = _around(1 - WINDOW / 2, began, ended, memory, kind)
        rows += _growth(f"{load}: {kind}", third, last, None if kind == JVM else GROWTH_GOAL)
    return rows


def _growth(load: str, third: float, last: float, goal: Goal | None = GROWTH_GOAL) -> list[Row]:
    return [
        _row(load, "MB after a third", third),
        _row(load, "MB at the end", last),
        _row(load, "end / a third", last / third, goal),
    ]


def _row(load: str, unit: str, value: float, goal: Goal | None = None) -> Row:
    return Row(load, Figure("value", unit, goal), {OTTLA: [value]})


def _around(share: float, began: float, ended: float, memory: Sequence[Memory], kind: str) -> float:
    """The median of a kind's memory in the window around a share of the run."""
    middle = began + share * (ended - began)
    half = WINDOW / 2 * (ended - began)
    found = [one.mb[kind] for one in memory if abs(one.at - middle) <= half]
    if not found:
        raise RuntimeError("the run was too short to look at its memory")
    return median(found)


def _job(broker: BrokerProcess, folder: Path, records: int) -> tuple[dict[str, Any], list[Memory]]:
    """Run the other half, `word_count_job.py`, and watch it."""
    result = folder / "result.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    arguments = [broker.bootstrap, str(result), str(records)]
    with (folder / "job.log").open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, "-m", "bench.word_count_job", *arguments],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            memory = list(_watch(job, broker.pid))
        finally:
            job.kill()
            job.wait()
    if job.returncode:
        raise Missing(f"the Spark job failed: {(folder / 'job.log').read_text()[-1500:]}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found, memory


def _watch(job: subprocess.Popen[bytes], broker_pid: int) -> Iterator[Memory]:
    deadline = time.monotonic() + JOB_S_MAX
    while job.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError("the Spark job did not end")
        yield Memory(time.time(), _memory_mb(job.pid, broker_pid))
        time.sleep(SAMPLE_S)


def _memory_mb(job_pid: int, broker_pid: int) -> dict[str, float]:
    found = dict.fromkeys((JVM, PYTHON, BROKER), 0.0)
    try:
        job = psutil.Process(job_pid)
        for process in (job, *job.children(recursive=True)):
            try:
                kind = JVM if process.name() == "java" else PYTHON
                found[kind] += process.memory_info().rss / 1e6
            except psutil.Error:
                continue  # it ended while it was looked at
        found[BROKER] = psutil.Process(broker_pid).memory_info().rss / 1e6
    except psutil.NoSuchProcess:
        pass  # the job has ended, and the samples behind its end are not looked at
    return found
