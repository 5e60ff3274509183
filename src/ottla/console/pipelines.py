"""The Spark pipelines that publish their state where this console can read it. Shell.

A pipeline replaces its `status.json` as a whole, so reading needs no lock. The file is written by
another process and perhaps by another version: what is missing in it is shown as missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ottla.console.graph import Node, Picture, draw

PIPELINES_MAX = 100
_TONES = {
    "running": "good",
    "starting": "warn",
    "restarting": "warn",
    "stopping": "warn",
    "failed": "bad",
    "dead": "bad",
}


class QueryRow(NamedTuple):
    name: str
    delivery: str
    input_rate: float
    processed_rate: float
    lag: int
    batch_id: int | None
    batch_duration_ms: int
    row_count: int
    state_row_count: int


class PipelineRow(NamedTuple):
    name: str
    state: str
    tone: str
    started_at_ms: int
    updated_at_ms: int
    restarts: int
    last_error: str
    last_error_at_ms: int
    input_rate: float
    processed_rate: float
    lag: int
    queries: list[QueryRow]
    graph: dict[str, Any]


def read_pipelines(directory: str | None) -> list[PipelineRow]:
    """Every pipeline that has run here; nothing where there is none."""
    from ottla.spark.pipelines.run_directory import all_pipelines, home_directory

    home = Path(directory) if directory else home_directory(os.environ)
    try:
        found = all_pipelines(home)[:PIPELINES_MAX]
    except OSError:
        return []
    rows = []
    for run in found:
        status = run.read_status()
        if status is not None:
            rows.append(pipeline_row(status, run.name))
    return rows


def pipeline_row(status: dict[str, Any], name: str) -> PipelineRow:
    """One status as a row."""
    queries = [query_row(query) for query in status.get("queries") or [] if isinstance(query, dict)]
    state = str(status.get("state", "unknown"))
    error = status.get("last_error") or {}
    return PipelineRow(
        str(status.get("name") or name),
        state,
        _TONES.get(state, "quiet"),
        int(status.get("started_at_ms") or -1),
        int(status.get("updated_at_ms") or -1),
        int(status.get("restarts") or 0),
        str(error.get("message", "")),
        int(error.get("at_ms") or -1),
        sum(query.input_rate for query in queries),
        sum(query.processed_rate for query in queries),
        sum(query.lag for query in queries),
        queries,
        status.get("graph") or {"nodes": [], "edges": []},
    )


def query_row(query: dict[str, Any]) -> QueryRow:
    batch_id = query.get("batch_id")
    return QueryRow(
        str(query.get("name") or ""),
        str(query.get("delivery") or "").replace("_", " "),
        float(query.get("input_rows_per_second") or 0),
        float(query.get("processed_rows_per_second") or 0),
        sum((query.get("lag") or {}).values()),
        None if batch_id is None else int(batch_id),
        int(query.get("batch_duration_ms") or 0),
        int(query.get("rows_total") or 0),
        int(query.get("state_rows") or 0),
    )


def picture(rows: list[PipelineRow], rates: dict[str, float]) -> Picture:
    """Topics and queries of all pipelines in one graph; a topic that two share is one box."""
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []
    for row in rows:
        own = {}
        speeds = {query.name: query.processed_rate for query in row.queries}
        for node in row.graph.get("nodes", []):
            kind, label = str(node.get("kind", "")), str(node.get("label", ""))
            is_outside = kind in ("topic", "files", "console")
            node_id = f"{kind}:{label}" if is_outside else f"{row.name}/{node.get('id')}"
            own[str(node.get("id"))] = node_id
            if kind == "topic":
                rate = rates.get(label)
                note = f"{rate:,.0f}/s" if rate is not None else "no such topic"
                nodes[node_id] = Node(node_id, "topic", label, note, f"/topics/{label}")
            elif kind == "sink":
                speed = speeds.get(label, 0.0)
                nodes[node_id] = Node(
                    node_id, "query", label, f"{row.name} · {speed:,.0f}/s", "", row.tone
                )
            else:
                note = row.name if not is_outside else kind
                nodes[node_id] = Node(
                    node_id, kind, label, f"{kind} of {note}" if note != kind else kind
                )
        for edge in row.graph.get("edges", []):
            if len(edge) == 2 and str(edge[0]) in own and str(edge[1]) in own:
                edges.append((own[str(edge[0])], own[str(edge[1])]))
    return draw(list(nodes.values()), edges)
