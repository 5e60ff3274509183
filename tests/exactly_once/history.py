"""What clients asked, what they were told, and what is known of it: a history.

An operation is one send, one poll, or a transaction of several. It ends in one of three ways:
`OK`, it took place; `FAIL`, it certainly did not; `INFO`, nobody knows. Values are unique, so a
value names its send. A poll keeps the offset of everything it returned, and a send the offset
that it was acknowledged with, if it was.

A process is one producer and one consumer. After an `INFO`, or an error that ends a producer,
the worker goes on as another process, because nothing can be expected across such a break.

Pure, apart from `save` and `load`: one JSON array per line, for people to look at.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

Key = int  # one partition
Value = int
Pair = tuple[int, Value]  # offset, value


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True)
class Send:
    key: Key
    value: Value
    offset: int | None = None


@dataclass(frozen=True)
class Poll:
    pairs: Mapping[Key, tuple[Pair, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Assign:
    """The consumer reads these partitions from now on, each from where it was or from 0."""

    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Subscribe:
    """The consumer reads what its group gives it from now on."""


Step = Send | Poll | Assign | Subscribe


@dataclass(frozen=True, eq=False)
class Operation:
    """One completed operation; equal only to itself."""

    process: int
    steps: tuple[Step, ...]
    outcome: Outcome
    invoked_at: int
    completed_at: int  # of an INFO: when the client gave up, which says nothing of the broker
    error: str = ""
    is_transaction: bool = False

    def sends(self) -> dict[Key, list[Send]]:
        found: dict[Key, list[Send]] = {}
        for step in self.steps:
            if isinstance(step, Send):
                found.setdefault(step.key, []).append(step)
        return found

    def reads(self) -> dict[Key, list[Pair]]:
        """All polls of the operation together, by partition, in the order they came."""
        found: dict[Key, list[Pair]] = {}
        for step in self.steps:
            if isinstance(step, Poll):
                for key, pairs in step.pairs.items():
                    if pairs:
                        found.setdefault(key, []).extend(pairs)
        return found

    def assigned(self) -> tuple[Key, ...] | None:
        for step in self.steps:
            if isinstance(step, Assign):
                return step.keys
        return None

    def subscribes(self) -> bool:
        return any(isinstance(step, Subscribe) for step in self.steps)

    def __str__(self) -> str:
        return json.dumps(operation_to_json(self), separators=(",", ":"))


def step_to_json(step: Step) -> list[Any]:
    if isinstance(step, Send):
        return ["send", step.key, step.value, step.offset]
    if isinstance(step, Assign):
        return ["assign", list(step.keys)]
    if isinstance(step, Subscribe):
        return ["subscribe"]
    return ["poll", {str(key): [list(pair) for pair in got] for key, got in step.pairs.items()}]


def step_from_json(data: list[Any]) -> Step:
    if data[0] == "send":
        return Send(data[1], data[2], data[3])
    if data[0] == "assign":
        return Assign(tuple(data[1]))
    if data[0] == "subscribe":
        return Subscribe()
    pairs = {int(key): tuple((o, v) for o, v in got) for key, got in data[1].items()}
    return Poll(pairs)


def operation_to_json(operation: Operation) -> list[Any]:
    return [
        operation.process,
        operation.outcome.value,
        [step_to_json(step) for step in operation.steps],
        operation.invoked_at,
        operation.completed_at,
        operation.error,
        operation.is_transaction,
    ]


def operation_from_json(data: list[Any]) -> Operation:
    process, outcome, steps, invoked_at, completed_at, error, is_transaction = data
    return Operation(
        process,
        tuple(step_from_json(step) for step in steps),
        Outcome(outcome),
        invoked_at,
        completed_at,
        error,
        is_transaction,
    )


def save(path: Path, operations: Iterable[Operation]) -> None:
    with path.open("w") as file:
        for operation in operations:
            file.write(f"{operation}\n")


def load(path: Path) -> list[Operation]:
    with path.open() as file:
        return [operation_from_json(json.loads(line)) for line in file]
