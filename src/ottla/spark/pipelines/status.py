"""What a pipeline says of itself: one value that commands, the console and Prometheus read. Pure.

    {"name": ..., "state": "starting|running|restarting|stopping|stopped|finished|failed",
     "pid": ..., "definition": path, "master": ..., "started_at_ms": ..., "updated_at_ms": ...,
     "restarts": n, "next_start_at_ms": null or a time, "last_error": null or {"message", "at_ms"},
     "metrics_url": null or an address,
     "graph": {"nodes": [{"id", "kind", "label"}], "edges": [[id, id]]},
     "queries": [{"name", "id", "run_id", "batch_id", "topic", "groups": [consumer groups that
                  show its progress], "delivery", "rows_total",
                  "input_rows_per_second", "processed_rows_per_second", "batch_duration_ms",
                  "lag": {topic: records}, "watermark", "state_rows", "at_ms"}]}

Kinds of nodes: topic, files, console (outside), source, transform, sink (inside).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.spark.pipelines.definition import Definition, Sink, SinkKind, Source, SourceKind
from ottla.spark.pipelines.spark_options import groups_of


def graph_of(definition: Definition) -> dict[str, Any]:
    """Topics, files and steps as nodes, what flows as edges."""
    nodes: dict[str, dict[str, str]] = {}
    edges: list[list[str]] = []

    def add(kind: str, label: str) -> str:
        node_id = f"{kind}:{label}"
        nodes.setdefault(node_id, {"id": node_id, "kind": kind, "label": label})
        return node_id

    inner = {source.name: add("source", source.name) for source in definition.sources}
    inner |= {one.name: add("transform", one.name) for one in definition.transforms}
    for source in definition.sources:
        edges.append([add(*_outside_source(source)), inner[source.name]])
    for transform in definition.transforms:
        edges += [[inner[name], inner[transform.name]] for name in definition.inputs_of(transform)]
    for sink in definition.sinks:
        sink_id = add("sink", sink.name)
        edges.append([inner[sink.input], sink_id])
        edges.append([sink_id, add(*_outside_sink(sink))])
    return {"nodes": list(nodes.values()), "edges": edges}


def _outside_source(source: Source) -> tuple[str, str]:
    if source.kind is SourceKind.FILES:
        return "files", source.path or ""
    return "topic", source.topic or ""


def _outside_sink(sink: Sink) -> tuple[str, str]:
    if sink.kind is SinkKind.TOPIC:
        return "topic", sink.topic or f"column {sink.topic_column}"
    return str(sink.kind), sink.path or sink.name


def empty_query(definition: Definition, sink: Sink) -> dict[str, Any]:
    """A query that has not made progress yet."""
    return {
        "name": sink.name,
        "id": None,
        "run_id": None,
        "batch_id": None,
        "topic": sink.topic,
        "groups": groups_of(definition, sink),
        "delivery": sink.delivery if sink.kind is SinkKind.TOPIC else "exactly_once",
        "rows_total": 0,
        "input_rows_per_second": 0.0,
        "processed_rows_per_second": 0.0,
        "batch_duration_ms": 0,
        "lag": {},
        "watermark": None,
        "state_rows": 0,
        "at_ms": None,
    }


def with_progress(
    query: Mapping[str, Any], progress: Mapping[str, Any], at_ms: int
) -> dict[str, Any]:
    """A query after one of Spark's progress reports."""
    return {
        **query,
        "id": progress.get("id"),
        "run_id": progress.get("runId"),
        "batch_id": progress.get("batchId"),
        "rows_total": query["rows_total"] + int(progress.get("numInputRows") or 0),
        "input_rows_per_second": _rate(progress.get("inputRowsPerSecond")),
        "processed_rows_per_second": _rate(progress.get("processedRowsPerSecond")),
        "batch_duration_ms": int(progress.get("batchDuration") or 0),
        "lag": lag_of(progress.get("sources") or []) or query["lag"],
        "watermark": (progress.get("eventTime") or {}).get("watermark"),
        "state_rows": sum(
            int(one.get("numRowsTotal") or 0) for one in progress.get("stateOperators") or []
        ),
        "at_ms": at_ms,
    }


def lag_of(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many records of each topic are there and not yet read."""
    lag: dict[str, int] = {}
    for source in sources:
        latest, end = offsets_of(source.get("latestOffset")), offsets_of(source.get("endOffset"))
        for topic, partitions in latest.items():
            done = end.get(topic, {})
            behind = sum(
                max(0, offset - done.get(partition, 0)) for partition, offset in partitions.items()
            )
            lag[topic] = lag.get(topic, 0) + behind
    return lag


def offsets_of(value: Any) -> dict[str, dict[str, int]]:
    """Offsets by topic and partition; anything else is a source that has none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, dict):
        return {}
    return {
        topic: {str(number): int(offset) for number, offset in partitions.items()}
        for topic, partitions in value.items()
        if not topic.startswith("$") and isinstance(partitions, dict)
    }


def _rate(value: Any) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        return 0.0
    return round(rate, 1) if rate == rate and abs(rate) != float("inf") else 0.0


def metrics_text(status: Mapping[str, Any]) -> str:
    """The status in Prometheus' text format."""
    pipeline = _label(status["name"])
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP ottla_pipeline_{name} {text}")
        lines.append(f"# TYPE ottla_pipeline_{name} {kind}")
        for labels, value in samples:
            pairs = f'pipeline="{pipeline}"{labels}'
            lines.append(f"ottla_pipeline_{name}{{{pairs}}} {value:g}")

    def by_query(field: str, scale: float = 1.0) -> list[tuple[str, float]]:
        return [
            (f',query="{_label(query["name"])}"', float(query[field] or 0) * scale)
            for query in status["queries"]
        ]

    metric("up", "gauge", "1 while queries run.", [("", status["state"] == "running")])
    metric("restarts_total", "counter", "Starts after a failure.", [("", status["restarts"])])
    metric("input_rows_total", "counter", "Rows read.", by_query("rows_total"))
    metric("input_rows_per_second", "gauge", "Rows arriving.", by_query("input_rows_per_second"))
    metric(
        "processed_rows_per_second", "gauge", "Rows done.", by_query("processed_rows_per_second")
    )
    metric(
        "batch_duration_seconds",
        "gauge",
        "How long the last micro-batch took.",
        by_query("batch_duration_ms", 0.001),
    )
    metric("batch_id", "gauge", "The last micro-batch.", by_query("batch_id"))
    metric("state_rows", "gauge", "Rows kept as state.", by_query("state_rows"))
    metric(
        "last_progress_timestamp_seconds",
        "gauge",
        "When the last micro-batch ended.",
        by_query("at_ms", 0.001),
    )
    metric(
        "lag_records",
        "gauge",
        "Records of a topic that are not read yet.",
        [
            (f',query="{_label(query["name"])}",topic="{_label(topic)}"', records)
            for query in status["queries"]
            for topic, records in query["lag"].items()
        ],
    )
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
