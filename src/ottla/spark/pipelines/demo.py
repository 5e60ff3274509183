"""What `ottla up --demo` shows: orders that arrive, totals made of them, how far behind that is.

A process beside the broker: it makes orders, runs `demo_pipeline.py` supervised on local Spark,
reads the totals as any consumer would, and redraws a few lines every second. On anything but a
terminal it prints one line instead.

Shell: threads for orders, totals and the supervisor; the main thread draws.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import deque
from datetime import UTC, datetime
from importlib import import_module
from threading import Event, Thread
from time import monotonic
from typing import Any

from ottla.client.client import Client
from ottla.client.config import ClientConfig
from ottla.spark.pipelines import demo_pipeline
from ottla.spark.pipelines.definition import NewTopic
from ottla.spark.pipelines.demo_pipeline import ORDERS_TOPIC, PARTITIONS, TOTALS_TOPIC
from ottla.spark.pipelines.run_directory import AlreadyRunning, RunDirectory, home_directory
from ottla.spark.pipelines.supervisor import Supervisor
from ottla.spark.pipelines.topics import create_topic

ORDERS_PER_SECOND = 200
_TICK_S = 0.05
_REDRAW_S = 1.0
_SHOWN_MAX = 8
_STOP_S_MAX = 40.0
_CUSTOMERS = ("milena", "felice", "grete", "ottla", "josef", "karl", "leni", "frieda")


class Demo:
    """Makes orders, runs the pipeline, and knows what has happened so far."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ending = Event()
        self._orders = 0
        self._totals = 0
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=6)
        self._newest: dict[str, dict[str, Any]] = {}
        self._supervisor: Supervisor | None = None
        self._lines_drawn = 0

    def run(self) -> int:
        """Run until told to stop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._ending.set())
        with Client(ClientConfig.of(self._bootstrap)) as client:
            for topic in (ORDERS_TOPIC, TOTALS_TOPIC):
                create_topic(client, topic, NewTopic(PARTITIONS, -1, {}))
        self._supervisor = Supervisor(
            demo_pipeline.__file__,
            demo_pipeline.pipeline.definition,
            RunDirectory(home_directory(os.environ), "demo"),
            is_fresh=True,  # each demo begins with the orders that arrive now
            metrics_port=0,
        )
        threads = [
            Thread(target=self._make_orders, daemon=True),
            Thread(target=self._read_totals, daemon=True),
        ]
        worker = Thread(target=self._supervise, daemon=True)
        for thread in (*threads, worker):
            thread.start()
        while not self._ending.wait(_REDRAW_S):
            self._draw()
        self._supervisor.stop()
        worker.join(_STOP_S_MAX)
        return 0

    def _supervise(self) -> None:
        if self._supervisor is None:
            return
        try:
            status = self._supervisor.run()
            if status["state"] == "failed":
                print(f"The pipeline failed: {status['last_error']['message']}", file=sys.stderr)
        except AlreadyRunning:
            print("The demo's pipeline runs already; see 'ottla pipeline list'.", file=sys.stderr)

    def _make_orders(self) -> None:
        producer = import_module("confluent_kafka").Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 20, "log_level": 0}
        )
        began = monotonic()
        while not self._ending.wait(_TICK_S):
            due = int((monotonic() - began) * ORDERS_PER_SECOND)
            while self._orders < due:
                self._orders += 1
                customer = random.choice(_CUSTOMERS)
                order = {
                    "order": self._orders,
                    "customer": customer,
                    "amount": round(random.expovariate(1 / 40) + 1, 2),
                    "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                }
                producer.produce(ORDERS_TOPIC, json.dumps(order).encode(), customer.encode())
            producer.poll(0)
        producer.flush(5)

    def _read_totals(self) -> None:
        consumer = import_module("confluent_kafka").Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "demo-totals",
                "isolation.level": "read_committed",
                "auto.offset.reset": "latest",
                "log_level": 0,
            }
        )
        consumer.subscribe([TOTALS_TOPIC])
        while not self._ending.is_set():
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    total = json.loads(message.value())
                    self._totals += 1
                    self._newest[total["customer"]] = total
        consumer.close()

    def _draw(self) -> None:
        lines = self._lines()
        if not sys.stdout.isatty():
            print(lines[0], flush=True)
            return
        if self._lines_drawn:
            sys.stdout.write(f"\x1b[{self._lines_drawn}A\x1b[J")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        self._lines_drawn = len(lines)

    def _lines(self) -> list[str]:
        status = self._supervisor.status if self._supervisor is not None else {}
        query = status.get("queries", [{}])[0]
        self._recent.append((monotonic(), self._orders, self._totals))
        (then, orders, totals), (now, *_) = self._recent[0], self._recent[-1]
        seconds = max(0.001, now - then)
        lag = sum(query.get("lag", {}).values())
        state, batch_id = status.get("state", "starting"), query.get("batch_id")
        lines = [
            f"orders {self._orders} ({(self._orders - orders) / seconds:.0f}/s) -> pipeline "
            f"{state}, batch {'-' if batch_id is None else batch_id}, "
            f"{query.get('batch_duration_ms', 0)} ms, lag {lag} -> totals {self._totals} "
            f"({(self._totals - totals) / seconds:.0f}/s)"
        ]
        if error := status.get("last_error"):
            lines.append(f"last error: {error['message'][:200]}")
        newest = sorted(self._newest.values(), key=lambda total: str(total["customer"]))
        if newest:
            lines += ["", "CUSTOMER    SINCE     ORDERS     TOTAL"]
        lines += [
            f"{one['customer']:<10}  {one['since']}  {one['orders']:>6}  {one['total']:>8.2f}"
            for one in newest[:_SHOWN_MAX]
        ]
        return lines


if __name__ == "__main__":
    sys.exit(Demo(sys.argv[1]).run())
