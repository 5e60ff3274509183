"""What a running pipeline publishes: a status file, which the console reads."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.spark.pipelines.run_directory import RunDirectory


@contextmanager
def published(home: Path, status: dict[str, Any]) -> Iterator[None]:
    """A pipeline whose supervisor lives for as long as the block."""
    run = RunDirectory(home, status["name"])
    run.acquire()
    try:
        run.write_status(status, "")
        yield
    finally:
        run.release()
        shutil.rmtree(run.path)


def pipeline_status() -> dict[str, Any]:
    """What a running pipeline publishes; see ottla.spark.pipelines.status."""
    now_ms = int(time.time() * 1000)
    nodes = [
        ("topic", "orders"), ("topic", "payments"), ("source", "orders"), ("source", "payments"),
        ("transform", "paid_orders"), ("transform", "revenue"), ("sink", "paid"),
        ("sink", "revenue_by_country"), ("topic", "orders.paid"), ("topic", "revenue"),
    ]  # fmt: skip
    edges = [
        ("topic:orders", "source:orders"), ("topic:payments", "source:payments"),
        ("source:orders", "transform:paid_orders"), ("source:payments", "transform:paid_orders"),
        ("transform:paid_orders", "sink:paid"), ("sink:paid", "topic:orders.paid"),
        ("transform:paid_orders", "transform:revenue"),
        ("transform:revenue", "sink:revenue_by_country"),
        ("sink:revenue_by_country", "topic:revenue"),
    ]  # fmt: skip
    query = {
        "id": "1", "run_id": "1", "delivery": "exactly_once", "watermark": None, "at_ms": now_ms,
    }  # fmt: skip
    return {
        "name": "revenue", "state": "running", "pid": 1, "definition": "revenue.toml",
        "master": "local[2]", "started_at_ms": now_ms - 900_000, "updated_at_ms": now_ms,
        "restarts": 1, "next_start_at_ms": None, "metrics_url": None,
        "last_error": {"message": "The broker closed the connection; started again after 2 s.",
                       "at_ms": now_ms - 700_000},
        "graph": {
            "nodes": [{"id": f"{k}:{v}", "kind": k, "label": v} for k, v in nodes],
            "edges": [list(edge) for edge in edges],
        },
        "queries": [
            {**query, "name": "paid", "topic": "orders.paid", "groups": ["billing"],
             "batch_id": 412, "rows_total": 48_210,
             "input_rows_per_second": 101.2, "processed_rows_per_second": 388.0,
             "batch_duration_ms": 412, "lag": {"orders": 37}, "state_rows": 1204},
            {**query, "name": "revenue_by_country", "topic": "revenue", "batch_id": 409,
             "rows_total": 48_020, "input_rows_per_second": 99.0,
             "processed_rows_per_second": 341.5, "batch_duration_ms": 530,
             "lag": {"orders": 61}, "state_rows": 6},
        ],
    }  # fmt: skip
