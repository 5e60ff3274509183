"""What every client with transactions is asked to do with them, and what must come out.

The programs speak as compat/scenario.py says: steps in, results out, no judgement. Two topics
are there before they start: the target, which has two partitions, and a source of numbered
records in one. A reader never guesses that it has seen everything: it reads until the last
records of a later transaction, one in each partition, have come.

Pure: no processes, clock or files.
"""

import re
from collections.abc import Callable
from typing import Any

from compat.scenario import Mismatch, Results

PARTITIONS = 2
SOURCE_RECORDS = 9
TAKEN = 3
TIMEOUT_MS = 1_000

Json = Any
Step = dict[str, Json]

COMMITTED = [["c-0", 0], ["c-1", 1], ["c-2", 0]]
ABORTED = [["a-0", 0], ["a-1", 1]]
LAST = [["end-0", 0], ["end-1", 1]]
VERY_LAST = [["very-end-0", 0], ["very-end-1", 1]]


def source_value(number: int) -> str:
    return f"in-{number}"


SOURCE = [source_value(number) for number in range(SOURCE_RECORDS)]


def source_topic(topic: str) -> str:
    return f"{topic}-source"


def steps(topic: str) -> list[Step]:
    """In order; every transactional id and group is the step's own unless told otherwise."""

    def write(name: str, op: str, records: Json) -> Step:
        return {"name": name, "op": op, "transactional_id": f"{topic}-writer", "records": records}

    def transform(name: str, *, commit: bool) -> Step:
        return {
            "name": name,
            "op": "transform",
            "transactional_id": f"{topic}-transform",
            "group": f"{topic}-group",
            "source": source_topic(topic),
            "count": TAKEN,
            "prefix": "out-" if commit else "undone-",
            "commit": commit,
        }

    def read(name: str, until: Json, *, committed: bool) -> Step:
        wanted = [value for value, _ in until]
        return {"name": name, "op": "read", "committed": committed, "until": wanted}

    return [
        write("transactions/commit", "commit", COMMITTED),
        write("transactions/abort", "abort", ABORTED),
        write("transactions/commit after abort", "commit", LAST),
        read("transactions/read committed", LAST, committed=True),
        read("transactions/read uncommitted", LAST, committed=False),
        transform("transactions/send offsets", commit=True),
        transform("transactions/send offsets and abort", commit=False),
        transform("transactions/resume after abort", commit=True),
        {
            "name": "transactions/fence a zombie",
            "op": "fence",
            "transactional_id": f"{topic}-fence",
            "zombie": ["zombie", 0],
            "heir": ["heir", 0],
        },
        {
            "name": "transactions/time out",
            "op": "time_out",
            "transactional_id": f"{topic}-late",
            "timeout_ms": TIMEOUT_MS,
            "late": ["late", 1],
            "after": ["after", 1],
        },
        write("transactions/commit at the end", "commit", VERY_LAST),
        read("transactions/nothing undone is seen", VERY_LAST, committed=True),
    ]


STEP_NAMES = tuple(step["name"] for step in steps(""))

_FENCED = re.compile(r"fenced|epoch", re.IGNORECASE)


def _values(records: Json, partition: int) -> list[str]:
    return [value for value, at in records if at == partition]


def _same(what: str, got: Json, expected: Json) -> None:
    if got != expected:
        raise Mismatch(f"{what}: expected {expected!r}, got {got!r}")


def _read(got: Json, per_partition: Callable[[int], list[str]]) -> None:
    for partition in range(PARTITIONS):
        _same(f"partition {partition}", got[str(partition)], per_partition(partition))


def _check_everything(got: Json) -> None:
    """Transforms write to partition 0; what was aborted, fenced or late is not there."""
    transformed = [f"out-{value}" for value in SOURCE[: 2 * TAKEN]]
    first = [
        *_values(COMMITTED, 0),
        *_values(LAST, 0),
        *transformed,
        "heir",
        *_values(VERY_LAST, 0),
    ]
    second = [*_values(COMMITTED, 1), *_values(LAST, 1), "after", *_values(VERY_LAST, 1)]
    _same("partition 0", got["0"], first)
    _same("partition 1", got["1"], second)


def check(results: Results, name: str) -> None:
    """Raise `Mismatch` if the step's value is not what it must be."""
    got = results[name]["value"]
    match name.removeprefix("transactions/"):
        case "commit" | "commit after abort" | "commit at the end" | "abort":
            counts = {"commit": len(COMMITTED), "abort": len(ABORTED)}
            _same("records", got, counts.get(name.removeprefix("transactions/"), len(LAST)))
        case "read committed":
            _read(got, lambda p: [*_values(COMMITTED, p), *_values(LAST, p)])
        case "read uncommitted":
            _read(got, lambda p: [*_values(COMMITTED, p), *_values(ABORTED, p), *_values(LAST, p)])
        case "send offsets":
            _same("taken", got, SOURCE[:TAKEN])
        case "send offsets and abort" | "resume after abort":
            _same("taken", got, SOURCE[TAKEN : 2 * TAKEN])
        case "fence a zombie":
            if not _FENCED.search(got):
                raise Mismatch(f"the zombie was told {got!r}")
        case "time out":
            if not got:
                raise Mismatch("the commit of a transaction that had timed out went through")
        case "nothing undone is seen":
            _check_everything(got)
        case _:
            raise ValueError(f"no check for {name}")
