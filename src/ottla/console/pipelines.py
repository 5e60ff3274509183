"""The Spark pipelines that publish their state where this console can read it. Shell.

A pipeline replaces its `status.json` as a whole, so reading needs no lock. The file is written by
another process and perhaps by another version: what is missing in it, or is not what it should be,
is shown as missing, and one odd file hides no other pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

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
    lag: int  # as Spark told after its last batch, or of its groups now, where they are known
    groups: list[str]  # the groups by which it shows how far it has come, where they are known
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
        try:
            status = run.read_status()
        except AttributeError:
            continue  # JSON, but no object: nothing that a pipeline wrote
        if status is not None:
            rows.append(pipeline_row(status, run.name))
    return rows


def pipeline_row(status: Mapping[str, Any], name: str) -> PipelineRow:
    """One status as a row."""
    queries = [query_row(one) for one in _list(status.get("queries")) if isinstance(one, dict)]
    state = str(status.get("state", "unknown"))
    error = _mapping(status.get("last_error"))
    return PipelineRow(
        str(status.get("name") or name),
        state,
        _TONES.get(state, "quiet"),
        _integer(status.get("started_at_ms"), -1),
        _integer(status.get("updated_at_ms"), -1),
        _integer(status.get("restarts"), 0),
        str(error.get("message") or ""),
        _integer(error.get("at_ms"), -1),
        sum(query.input_rate for query in queries),
        sum(query.processed_rate for query in queries),
        sum(query.lag for query in queries),
        queries,
        _graph(_mapping(status.get("graph"))),
    )


def with_group_lag(row: PipelineRow, lags: Mapping[str, int | None]) -> PipelineRow:
    """The row with the lag that its groups have now: Spark tells only that after its last batch."""
    queries = [_with_group_lag(query, lags) for query in row.queries]
    return row._replace(queries=queries, lag=sum(query.lag for query in queries))


def _with_group_lag(query: QueryRow, lags: Mapping[str, int | None]) -> QueryRow:
    known = [lag for lag in map(lags.get, query.groups) if lag is not None]
    if not known or len(known) < len(query.groups):
        return query._replace(groups=[])
    return query._replace(lag=sum(known))


def _graph(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes and edges of the shape that is drawn; anything else is left out."""
    nodes = [
        {"id": str(one.get("id")), "kind": str(one.get("kind")), "label": str(one.get("label", ""))}
        for one in _list(graph.get("nodes"))
        if isinstance(one, dict)
    ]
    edges = [
        [str(one[0]), str(one[1])]
        for one in _list(graph.get("edges"))
        if isinstance(one, list) and len(one) == 2
    ]
    return {"nodes": nodes, "edges": edges}


def query_row(query: Mapping[str, Any]) -> QueryRow:
    batch_id = query.get("batch_id")
    return QueryRow(
        str(query.get("name") or ""),
        str(query.get("delivery") or "").replace("_", " "),
        _number(query.get("input_rows_per_second")),
        _number(query.get("processed_rows_per_second")),
        sum(_integer(behind, 0) for behind in _mapping(query.get("lag")).values()),
        [str(group) for group in _list(query.get("groups"))],
        None if batch_id is None else _integer(batch_id, 0),
        _integer(query.get("batch_duration_ms"), 0),
        _integer(query.get("rows_total"), 0),
        _integer(query.get("state_rows"), 0),
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float:
    is_number = isinstance(value, (int, float)) and isfinite(value)
    return float(value) if is_number else 0.0  # type: ignore[arg-type]


def _integer(value: object, default: int) -> int:
    return int(_number(value)) if isinstance(value, (int, float)) else default


def picture(rows: Sequence[PipelineRow], rates: Mapping[str, float | None]) -> Picture:
    """Topics and steps of all pipelines in one graph.

    A topic that two pipelines share is one box. A source is no box of its own: it is the topic or
    the files that it reads. Nor is a transform that only feeds a sink of the same name.
    """
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []
    for row in rows:
        stands_for = _stands_for(row)
        names: dict[str, str] = {}
        for node in row.graph["nodes"]:
            if node["id"] not in stands_for:
                made = _node(row, node["id"], node["kind"], node["label"], rates)
                nodes[made.node_id] = made
                names[node["id"]] = made.node_id
        for source, target in row.graph["edges"]:
            begin = names.get(stands_for.get(source, source))
            end = names.get(stands_for.get(target, target))
            if begin is not None and end is not None:
                edges.append((begin, end))
    return draw(list(nodes.values()), edges)


def _stands_for(row: PipelineRow) -> dict[str, str]:
    """The nodes that are no boxes of their own, and the boxes in their place."""
    known = {node["id"]: node for node in row.graph["nodes"]}
    onward: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for source, target in row.graph["edges"]:
        onward.setdefault(source, []).append(target)
        if known.get(target, {}).get("kind") == "source" and source in known:
            found[target] = source
    for source, targets in onward.items():
        node, target = known.get(source), known.get(targets[0])
        if node is None or target is None or len(targets) != 1:
            continue
        kinds = (node["kind"], target["kind"])
        if kinds == ("transform", "sink") and node["label"] == target["label"]:
            found[source] = targets[0]
    return found


def _node(
    row: PipelineRow, node_id: str, kind: str, label: str, rates: Mapping[str, float | None]
) -> Node:
    if kind == "topic":
        if label not in rates:
            return Node(f"topic:{label}", kind, label, "topic, not there yet")
        rate = rates[label]
        note = "topic" if rate is None else f"topic · {rate:,.0f}/s"
        return Node(f"topic:{label}", kind, label, note, f"/topics/{quote(label, safe='')}")
    if kind in ("files", "console"):
        return Node(f"{kind}:{label}", kind, label, kind)
    if kind == "sink":
        speed = sum(query.processed_rate for query in row.queries if query.name == label)
        return Node(
            f"{row.name}/{node_id}", "query", label, f"{row.name} · {speed:,.0f}/s", "", row.tone
        )
    return Node(f"{row.name}/{node_id}", kind, label, f"{kind} of {row.name}")
