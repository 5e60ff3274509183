"""How fast Spark writes to a topic: Ottla's exactly-once sink against Spark's own, at least once.

One Spark session has both, so that both get the same rows, broker, partitions and machine; rounds
alternate. It needs Spark's Kafka connector, which exists for Spark 4.2: `spark_peer.py` makes a
Python environment with both. Without it Ottla's sink is measured alone and no ratio is told.

    python -m bench.spark_write                   # the table
    python -m bench.spark_write --word-count      # ten million records through word count
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.brokers import ROOT, BrokerProcess, Kind, start_fresh

GOAL = 1.5
PARTITIONS = 4
ROUNDS = 4
SIZES = {100: 1_000_000, 1000: 300_000}  # bytes of a value: how many records
WORD_COUNT_RECORDS = 10_000_000
WORDS = 10_000
JOB_S_MAX = 3600


def main(argv: Sequence[str]) -> int:
    """Measure and print; the exit code is 1 when the goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_write", description=__doc__)
    parser.add_argument("--broker", type=Kind, default=Kind.OTTLA)
    parser.add_argument("--word-count", action="store_true")
    parser.add_argument("--records", type=int, default=WORD_COUNT_RECORDS)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        broker = start_fresh(arguments.broker, Path(directory) / "broker")
        with broker:
            if arguments.word_count:
                return _word_count(broker, Path(directory), arguments.records)
            return _compare(broker, Path(directory))


def _compare(broker: BrokerProcess, directory: Path) -> int:
    found = _job(broker, directory, "compare")
    is_met = True
    print(f"{'write':<28}{'Spark, at least once':>24}{'Ottla, exactly once':>24}{'ratio':>8}")
    for row in found["rows"]:
        ratio = row["ottla"] / row["kafka"] if row["kafka"] else None
        is_met = is_met and (ratio is None or ratio >= GOAL)
        theirs = f"{row['kafka']:,.0f} rec/s" if row["kafka"] else "-"
        shown = f"{ratio:.2f}x" if ratio is not None else "-"
        print(f"{row['load']:<28}{theirs:>24}{row['ottla']:>18,.0f} rec/s{shown:>8}")
    return 0 if is_met else 1


def _word_count(broker: BrokerProcess, directory: Path, records: int) -> int:
    found = _job(broker, directory, "word-count", str(records))
    print(json.dumps(found, indent=1))
    return 0


def _job(broker: BrokerProcess, directory: Path, *arguments: str) -> dict[str, object]:
    """Run the other half of this module in the Python that has Spark's connector."""
    python, jars = _peer()
    result = directory / "result.json"
    command = [str(python), "-m", "bench.spark_write_job", broker.bootstrap, str(result), jars]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    job = subprocess.Popen([*command, *arguments], env=environment, cwd=directory)
    memory = _watch(job)
    if job.returncode:
        raise RuntimeError(f"the Spark job ended with {job.returncode}")
    found: dict[str, object] = json.loads(result.read_text())
    found["memory_mb"] = memory
    return found


def _peer() -> tuple[Path, str]:
    """The Python with Spark's connector and its jars; this Python and none if there is no other."""
    try:
        from bench.spark_peer import peer  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return Path(sys.executable), ""
    found: tuple[Path, str] = peer()
    return found


def _watch(job: subprocess.Popen[bytes]) -> list[int]:
    """Memory of the job and its children, sampled about thirty times, in MB."""
    samples: list[int] = []
    began = time.monotonic()
    while job.poll() is None:
        if time.monotonic() - began > JOB_S_MAX:
            job.kill()
            raise TimeoutError("the Spark job did not end")
        try:
            root = psutil.Process(job.pid)
            total = sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))
            samples.append(total >> 20)
        except psutil.Error:
            pass
        time.sleep(1)
    step = max(1, len(samples) // 30)
    return samples[::step]


def median_rate(records: int, seconds: Sequence[float]) -> float:
    """Records a second in the middle round."""
    return records / statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
