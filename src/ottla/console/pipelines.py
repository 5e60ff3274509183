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
        _graph(status.get("graph")),
    )


def _graph(found: Any) -> dict[str, Any]:
    """Nodes and edges of the shape that is drawn; anything else is left out."""
    graph = found if isinstance(found, dict) else {}
    nodes = [node for node in graph.get("nodes") or [] if isinstance(node, dict)]
    edges = [edge for edge in graph.get("edges") or [] if len(edge) == 2]
    return {"nodes": nodes, "edges": edges}


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
    """Topics and steps of all pipelines in one graph.

    A topic that two pipelines share is one box. A source is no box of its own: it is the topic or
    the files that it reads.
    """
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []
    for row in rows:
        kinds = {str(node.get("id")): str(node.get("kind", "")) for node in row.graph["nodes"]}
        pairs = [(str(a), str(b)) for a, b in row.graph["edges"]]
        stands_for = {b: a for a, b in pairs if kinds.get(b) == "source"}
        names: dict[str, str] = {}
        for node in row.graph["nodes"]:
            node_id, kind = str(node.get("id")), str(node.get("kind", ""))
            if kind != "source" or node_id not in stands_for:
                made = _node(row, node_id, kind, str(node.get("label", "")), rates)
                nodes[made.node_id] = made
                names[node_id] = made.node_id
        for source, target in pairs:
            begin = names.get(stands_for.get(source, source))
            end = names.get(target)
            if begin is not None and end is not None:
                edges.append((begin, end))
    return draw(list(nodes.values()), edges)


def _node(row: PipelineRow, node_id: str, kind: str, label: str, rates: dict[str, float]) -> Node:
    if kind == "topic":
        rate = rates.get(label)
        note = f"topic · {rate:,.0f}/s" if rate is not None else "topic, not there yet"
        return Node(
            f"topic:{label}", kind, label, note, f"/topics/{label}" if rate is not None else ""
        )
    if kind in ("files", "console"):
        return Node(f"{kind}:{label}", kind, label, kind)
    if kind == "sink":
        speed = sum(query.processed_rate for query in row.queries if query.name == label)
        return Node(
            f"{row.name}/{node_id}", "query", label, f"{row.name} · {speed:,.0f}/s", "", row.tone
        )
    return Node(f"{row.name}/{node_id}", kind, label, f"{kind} of {row.name}")
