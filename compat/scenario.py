"""What every client is asked to do, in which order, and what must come out.

A client is driven by a program of its own (in Python, Java, Go or JavaScript) which reads the
scenario as JSON from stdin, performs its steps in order and prints JSON lines:

    {"client": "name version"}
    {"step": NAME, "value": V}  or  {"step": NAME, "error": E}  or  {"step": NAME, "skipped": WHY}

`error` is what the client raised; `skipped` says that the client has no such call. A step that
fails does not end the program: later steps still run, so one defect shows as one failure. The
programs judge nothing; `check` below does, from the scenario and the results alone. Consuming
steps wait for as many records as were delivered, which is less than `count` where a client
lacks a codec.

Pure: no processes, clock or files; the caller gives the time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PARTITIONS = 2
PARTITIONS_ADDED = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
RECORDS_PER_STEP = 5
RECORD_GAP_MS = 1_000
RETENTION_MS_BEFORE = "360000000"
RETENTION_MS_AFTER = "720000000"

Json = Any
Step = dict[str, Json]
Results = dict[str, dict[str, Json]]


@dataclass(frozen=True)
class Scenario:
    bootstrap: str
    topic: str
    steps: tuple[Step, ...]

    def as_json(self) -> dict[str, Json]:
        return {"bootstrap": self.bootstrap, "topic": self.topic, "steps": list(self.steps)}

    def produced(self, results: Results) -> list[dict[str, Json]]:
        """The records of all produce steps that the client performed."""
        return [
            record
            for step in self.steps
            if step["op"] == "produce" and "value" in results.get(step["name"], {})
            for record in step["records"]
        ]


def _produce_steps(first_timestamp_ms: int) -> list[Step]:
    steps: list[Step] = []
    for codec in CODECS:
        for acks in ACKS:
            steps.append(_produce_step(len(steps), codec, acks, first_timestamp_ms))
    idempotent = _produce_step(len(steps), "none", "all", first_timestamp_ms)
    idempotent.update(name="produce/idempotent", idempotent=True)
    edges = _produce_step(len(steps) + 1, "none", "all", first_timestamp_ms)
    edges.update(name="produce/edges")
    for record, (key, value) in zip(
        edges["records"],
        [(None, "no key"), ("", "empty key"), ("tombstone", None), ("empty", ""), ("ключ", "値")],
        strict=True,
    ):
        record.update(key=key, value=value, headers=[])
    return [*steps, idempotent, edges]


def _produce_step(index: int, codec: str, acks: str, first_timestamp_ms: int) -> Step:
    """Five records into one partition; values are long enough that a codec compresses them."""
    first = index * RECORDS_PER_STEP
    name = f"produce/{codec}/acks={acks}"
    records = [
        {
            "partition": index % PARTITIONS,
            "key": f"key-{codec}-{acks}-{number}",
            "value": f"{codec}-{acks}-{number}-" + "ottla " * 40,
            "headers": [["codec", codec]],
            "timestamp": first_timestamp_ms + (first + number) * RECORD_GAP_MS,
        }
        for number in range(RECORDS_PER_STEP)
    ]
    step = {"name": name, "op": "produce", "codec": codec, "acks": acks, "idempotent": False}
    return {**step, "records": records}


def build(bootstrap: str, topic: str, *, now_ms: int) -> Scenario:
    """The scenario for one client; its records were created within the last two hours."""
    first_timestamp_ms = now_ms - 7_200_000
    produce = _produce_steps(first_timestamp_ms)
    total = sum(len(step["records"]) for step in produce)
    middle_ms = first_timestamp_ms + (total // 2) * RECORD_GAP_MS - RECORD_GAP_MS // 2
    steps: list[Step] = [
        {
            "name": "create_topic",
            "op": "create_topic",
            "partitions": PARTITIONS,
            "configs": {"retention.ms": RETENTION_MS_BEFORE},
        },
        {"name": "describe_topic", "op": "describe_topic"},
        *produce,
        {"name": "consume", "op": "consume", "partitions": PARTITIONS, "count": total},
        {"name": "list_offsets", "op": "list_offsets", "partitions": PARTITIONS},
        {
            "name": "seek_by_time",
            "op": "seek_by_time",
            "partitions": PARTITIONS,
            "timestamp": middle_ms,
        },
        {
            "name": "alter_configs",
            "op": "alter_configs",
            "configs": {"retention.ms": RETENTION_MS_AFTER},
        },
        {
            "name": "describe_configs",
            "op": "describe_configs",
            "names": ["retention.ms", "cleanup.policy"],
        },
        {"name": "add_partitions", "op": "add_partitions", "count": PARTITIONS_ADDED},
        {
            "name": "group_consume",
            "op": "group_consume",
            "group": f"{topic}-group",
            "partitions": PARTITIONS,
            "count": total,
        },
        {"name": "delete_records", "op": "delete_records", "partition": 0, "offset": 3},
        {"name": "delete_topic", "op": "delete_topic"},
    ]
    return Scenario(bootstrap, topic, tuple(steps))


STEP_NAMES = tuple(step["name"] for step in build("", "", now_ms=10_000_000).steps)


class Mismatch(AssertionError):
    """A step ended without an error but with another result than the scenario asks for."""


def _same(what: str, got: Json, expected: Json) -> None:
    if got != expected:
        raise Mismatch(f"{what}: expected {expected!r}, got {got!r}")


def _content(record: dict[str, Json]) -> tuple[Json, ...]:
    headers = tuple(tuple(header) for header in record.get("headers") or ())
    return (record["partition"], record["key"], record["value"], headers)


def _check_records(scenario: Scenario, results: Results, got: list[dict[str, Json]]) -> None:
    """Every record once, in any order between steps (acks=0 may be overtaken), offsets dense."""
    sent = scenario.produced(results)
    expected = sorted(map(_content, sent), key=repr)
    _same("record count", len(got), len(sent))
    _same("records", sorted(map(_content, got), key=repr), expected)
    for partition in range(PARTITIONS):
        offsets = [record["offset"] for record in got if record["partition"] == partition]
        _same(f"offsets of partition {partition}", offsets, list(range(len(offsets))))
    timestamps = {_content(record): record["timestamp"] for record in sent}
    for record in got:
        # A client that cannot choose timestamps reports its records with "timestamp": null.
        if record["timestamp"] is not None:
            _same("timestamp", record["timestamp"], timestamps[_content(record)])


def _check_produce(scenario: Scenario, results: Results, step: Step, value: Json) -> None:
    """The value is how many records the client considers delivered."""
    _same("delivered", value, len(step["records"]))


def _check_offsets(scenario: Scenario, results: Results, step: Step, value: Json) -> None:
    sent = scenario.produced(results)
    for partition in range(PARTITIONS):
        end = sum(record["partition"] == partition for record in sent)
        _same(f"offsets of partition {partition}", value[str(partition)], [0, end])


def _check_seek(scenario: Scenario, results: Results, step: Step, value: Json) -> None:
    """The first offset whose record is not older, found by scanning what was consumed."""
    stored = results["consume"].get("value") or results["group_consume"].get("value")
    if not stored:
        raise Mismatch("nothing was consumed to compare with")
    for partition in range(PARTITIONS):
        times = [
            (record["offset"], record.get("stored_timestamp", record["timestamp"]))
            for record in stored
            if record["partition"] == partition
        ]
        first = min(offset for offset, ms in times if ms >= step["timestamp"])
        _same(f"offset of partition {partition}", value[str(partition)], first)


def _check_configs(scenario: Scenario, results: Results, step: Step, value: Json) -> None:
    altered = "value" in results["alter_configs"]
    created = "value" in results["create_topic"]
    retention = RETENTION_MS_AFTER if altered else RETENTION_MS_BEFORE
    if altered or created:
        _same("retention.ms", value["retention.ms"], retention)
    _same("cleanup.policy", value["cleanup.policy"], "delete")


CHECKS: dict[str, Callable[[Scenario, Results, Step, Json], None]] = {
    "create_topic": lambda _s, _r, _step, value: _same("created", value, True),
    "describe_topic": lambda _s, _r, _step, value: _same("partitions", value, PARTITIONS),
    "produce": _check_produce,
    "consume": lambda s, r, _step, value: _check_records(s, r, value),
    "group_consume": lambda s, r, _step, value: _check_records(s, r, value),
    "list_offsets": _check_offsets,
    "seek_by_time": _check_seek,
    "alter_configs": lambda _s, _r, _step, value: _same("altered", value, True),
    "describe_configs": _check_configs,
    "add_partitions": lambda _s, _r, _step, value: _same("partitions", value, PARTITIONS_ADDED),
    "delete_records": lambda _s, _r, step, value: _same("low watermark", value, step["offset"]),
    "delete_topic": lambda _s, _r, _step, value: _same("listed afterwards", value, False),
}


def check(scenario: Scenario, results: Results, name: str) -> None:
    """Raise Mismatch unless the step's value is what the scenario asks for."""
    step = next(step for step in scenario.steps if step["name"] == name)
    CHECKS[step["op"]](scenario, results, step, results[name]["value"])
