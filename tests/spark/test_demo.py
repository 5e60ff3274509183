"""What `make up` starts: a broker, orders, and a pipeline on Spark that totals them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from ottla.client import Client, ClientConfig, committed_offsets
from ottla.spark.pipelines.demo_pipeline import ORDERS_TOPIC, TOTALS_TOPIC
from support.spark_runs import read_topic

pytestmark = pytest.mark.timeout(600)

LINE = re.compile(
    r"orders (\d+) .* pipeline (\w+), batch (\d+|-), \d+ ms, lag (\d+) -> totals (\d+) "
)
STOP_S_MAX = 120


class Shown(NamedTuple):
    orders: int
    batch: int
    totals: int


@contextmanager
def up(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, its output in a pipe; nothing of it is left at the end."""
    command = ["up", "--demo", "--port", "0", "--http-port", "0", "--no-console", "--data"]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("ottla")), *command, str(directory / "data")],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "OTTLA_PIPELINES": str(directory / "pipelines"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()
            process.kill()
            process.wait()


def test_orders_totals_and_progress_are_seen_moving(tmp_path: Path) -> None:
    with up(tmp_path) as process:
        assert process.stdout is not None
        bootstrap = ""
        shown: list[Shown] = []
        lags: set[int] = set()
        while not _has_moved(shown) or len(lags) < 2:
            line = process.stdout.readline()
            assert line, f"it ended after {shown[-1:]}"
            if found := re.match(r"Broker +(\S+)", line):
                bootstrap = found[1]
            elif (seen := LINE.search(line)) and seen[2] == "running" and seen[3] != "-":
                shown.append(Shown(int(seen[1]), int(seen[3]), int(seen[5])))
                lags.add(int(seen[4]))
        before = _progress(bootstrap)
        _check_totals(bootstrap)
        while _progress(bootstrap) <= before:
            assert process.stdout.readline(), "it ended"
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_S_MAX)
        assert process.returncode == 0
        _, alive = psutil.wait_procs(children, timeout=STOP_S_MAX)
        assert not alive


def _has_moved(shown: list[Shown]) -> bool:
    """Whether orders, micro-batches and totals have become more, once there were totals."""
    running = [one for one in shown if one.totals]
    return bool(running) and all(
        now > then for now, then in zip(running[-1], running[0], strict=True)
    )


def _check_totals(bootstrap: str) -> None:
    """No window has more orders than were made in it."""
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for message in read_topic(bootstrap, TOTALS_TOPIC):
        total = json.loads(message.value())
        window = total["customer"], total["since"]
        assert total["orders"] >= totals[window]
        totals[window] = total["orders"]
    made: Counter[tuple[str, str]] = Counter()
    for message in read_topic(bootstrap, ORDERS_TOPIC):
        order = json.loads(message.value())
        made[order["customer"], f"{order['at'][11:18]}0"] += 1
    assert totals
    assert all(0 < orders <= made[window] for window, orders in totals.items())


def _progress(bootstrap: str) -> int:
    """How many orders the pipeline's consumer group has come past: the rest is its lag."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    groups = [group.group_id for group in admin.list_consumer_groups().result(60).valid]
    with Client(ClientConfig.of(bootstrap)) as client:
        return sum(
            committed.offset
            for group in groups
            for place, committed in committed_offsets(client, group, None).items()
            if place.topic == ORDERS_TOPIC
        )
