"""Which anomalies a history holds, and which of them no exactly-once system may show.

The anomalies are those of Jepsen's Kafka workload, in its strictest setting: read_committed, no
edges between writes. A consumer that subscribes may skip and go back between two polls, as a
rebalance may have come between them; one that assigns partitions to itself may not. What counts
is known from the history alone: the log of a partition is put together from all offsets that were
reported, by polls of any outcome (Kafka's consumers never see what is uncommitted, whatever
becomes of their own transaction) and by sends that must have taken place. A send must have taken
place when it was acknowledged, or when its outcome is unknown and part of its transaction was
read.

Three checks go beyond Jepsen's: the rest of a transaction counts as unseen when part of it was
read; an aborted value may not be seen by a poll of any outcome; and a value that nobody sent to
that partition is a `phantom`.

Pure: a history in, findings out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from exactly_once import cycles
from exactly_once.history import Key, Operation, Outcome, Value

OPERATIONS_SHOWN_MAX = 4
OPERATION_CHARACTERS_MAX = 400
FINDINGS_SHOWN_MAX = 8


class Anomaly(StrEnum):
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    PHANTOM = "phantom"
    G1A = "G1a"
    PRECOMMITTED_READ = "precommitted-read"
    INT_POLL_SKIP = "int-poll-skip"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    INT_SEND_SKIP = "int-send-skip"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    G1C = "G1c"
    G1C_PROCESS = "G1c-process"
    G1C_REALTIME = "G1c-realtime"


# Transactions interleave in a partition; that is how Kafka works.
ALWAYS_ALLOWED = frozenset({Anomaly.INT_SEND_SKIP})


class Finding(NamedTuple):
    anomaly: Anomaly
    what: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        shown = [str(one)[:OPERATION_CHARACTERS_MAX] for one in self.operations]
        return "\n    ".join([f"{self.anomaly}: {self.what}", *shown[:OPERATIONS_SHOWN_MAX]])


@dataclass(frozen=True)
class Verdict:
    findings: tuple[Finding, ...]

    @property
    def bad(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.anomaly not in ALWAYS_ALLOWED)

    def counts(self) -> Counter[Anomaly]:
        return Counter(one.anomaly for one in self.findings)

    def __str__(self) -> str:
        shown: Counter[Anomaly] = Counter()
        lines = []
        for finding in self.bad:
            shown[finding.anomaly] += 1
            if shown[finding.anomaly] <= FINDINGS_SHOWN_MAX:
                lines.append(str(finding))
        counted = ", ".join(f"{name} {count}" for name, count in sorted(self.counts().items()))
        return "\n".join([f"anomalies: {counted or 'none'}", *lines])


class PartitionLog:
    """What is known of one partition: which values at which offsets, gaps left out."""

    def __init__(self) -> None:
        self.values_at: dict[int, set[Value]] = defaultdict(set)
        self.offsets_of: dict[Value, set[int]] = defaultdict(set)
        self._offsets: list[int] = []
        self._places: dict[int, int] = {}

    def add(self, offset: int, value: Value) -> None:
        self.values_at[offset].add(value)
        self.offsets_of[value].add(offset)

    def seal(self) -> None:
        self._offsets = sorted(self.values_at)
        self._places = {offset: place for place, offset in enumerate(self._offsets)}

    def place(self, value: Value) -> int | None:
        """How many known offsets precede the value's first one."""
        offsets = self.offsets_of.get(value)
        return self._places[min(offsets)] if offsets else None

    def between(self, first: int, second: int) -> list[Value]:
        """The values at the places after `first` and before `second`."""
        return [min(self.values_at[o]) for o in self._offsets[first + 1 : second]]

    def last_place(self, value: Value) -> int:
        return self._places[max(self.offsets_of[value])]


class Analysis:
    """What several checks need: who sent what, who read it, and the logs."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = sorted(operations, key=lambda one: one.completed_at)
        self.reads = {one: one.reads() for one in self.operations}
        self.writer_of: dict[tuple[Key, Value], Operation] = {}
        self.readers_of: dict[tuple[Key, Value], list[Operation]] = defaultdict(list)
        for operation in self.operations:
            for key, sends in operation.sends().items():
                for send in sends:
                    self.writer_of[key, send.value] = operation
            for key, pairs in self.reads[operation].items():
                for _, value in pairs:
                    self.readers_of[key, value].append(operation)
        self.logs = self._logs()

    def must_have_committed(self, operation: Operation) -> bool:
        if operation.outcome is not Outcome.INFO:
            return operation.outcome is Outcome.OK
        return any(
            (key, send.value) in self.readers_of
            for key, sends in operation.sends().items()
            for send in sends
        )

    def by_process(self) -> Iterator[list[Operation]]:
        found: dict[int, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            found[operation.process].append(operation)
        yield from found.values()

    def _logs(self) -> dict[Key, PartitionLog]:
        logs: dict[Key, PartitionLog] = defaultdict(PartitionLog)
        for operation in self.operations:
            for key, pairs in self.reads[operation].items():
                for offset, value in pairs:
                    logs[key].add(offset, value)
            if not self.must_have_committed(operation):
                continue
            for key, sends in operation.sends().items():
                for send in sends:
                    if send.offset is not None:
                        logs[key].add(send.offset, send.value)
        for log in logs.values():
            log.seal()
        return logs


def lost_writes(analysis: Analysis) -> Iterator[Finding]:
    """Never read, though something behind it was."""
    for key, log in analysis.logs.items():
        read = [value for value in log.offsets_of if (key, value) in analysis.readers_of]
        places = [place for value in read if (place := log.place(value)) is not None]
        bound = max(places, default=-1)
        for value in sorted(set(log.offsets_of) - set(read)):
            writer = analysis.writer_of[key, value]
            if log.last_place(value) <= bound and analysis.must_have_committed(writer):
                what = f"{value} of partition {key} was never read, others behind it were"
                yield Finding(Anomaly.LOST_WRITE, what, (writer,))


def unseen(analysis: Analysis) -> Iterator[Finding]:
    """Never read by the end: acknowledged, or of a transaction of which something was read."""
    for (key, value), writer in analysis.writer_of.items():
        if (key, value) not in analysis.readers_of and analysis.must_have_committed(writer):
            yield Finding(Anomaly.UNSEEN, f"{value} of partition {key}", (writer,))


def duplicates(analysis: Analysis) -> Iterator[Finding]:
    """One value at two offsets."""
    for key, log in analysis.logs.items():
        for value, offsets in log.offsets_of.items():
            if len(offsets) > 1:
                what = f"{value} of partition {key} is at {sorted(offsets)}"
                yield Finding(Anomaly.DUPLICATE, what)


def inconsistent_offsets(analysis: Analysis) -> Iterator[Finding]:
    """Two values at one offset."""
    for key, log in analysis.logs.items():
        for offset, values in log.values_at.items():
            if len(values) > 1:
                what = f"offset {offset} of partition {key} holds {sorted(values)}"
                yield Finding(Anomaly.INCONSISTENT_OFFSETS, what)


def aborted_reads(analysis: Analysis) -> Iterator[Finding]:
    """Read though its send failed for certain, or though nobody ever sent it there."""
    for (key, value), readers in analysis.readers_of.items():
        writer = analysis.writer_of.get((key, value))
        if writer is None:
            what = f"{value} of partition {key} was never sent there"
            yield Finding(Anomaly.PHANTOM, what, (readers[0],))
        elif writer.outcome is Outcome.FAIL:
            what = f"{value} of partition {key} was read and its send had failed"
            yield Finding(Anomaly.G1A, what, (writer, readers[0]))


def precommitted_reads(analysis: Analysis) -> Iterator[Finding]:
    """A transaction that reads what it sent itself."""
    for (key, value), readers in analysis.readers_of.items():
        writer = analysis.writer_of.get((key, value))
        if writer is not None and any(reader is writer for reader in readers):
            what = f"{value} of partition {key} was read within its own transaction"
            yield Finding(Anomaly.PRECOMMITTED_READ, what, (writer,))


def _order(
    log: PartitionLog, first: Value, second: Value, skip: Anomaly | None, backwards: Anomaly
) -> tuple[Anomaly, str] | None:
    """What is wrong with meeting `second` right after `first`, if anything is."""
    before, after = log.place(first), log.place(second)
    if before is None or after is None:
        return None
    if after <= before:
        return backwards, f"{second} after {first}"
    if after > before + 1 and skip is not None:
        return skip, f"{second} after {first}, without {log.between(before, after)[:8]}"
    return None


def _order_within(
    analysis: Analysis,
    operation: Operation,
    key: Key,
    values: Sequence[Value],
    skip: Anomaly,
    backwards: Anomaly,
) -> Iterator[Finding]:
    for first, second in pairwise(values):
        wrong = _order(analysis.logs[key], first, second, skip, backwards)
        if wrong is not None:
            yield Finding(wrong[0], f"partition {key}: {wrong[1]}", (operation,))


def order_within_operations(analysis: Analysis) -> Iterator[Finding]:
    """Gaps and reversals inside one operation, among its polls and among its sends."""
    for operation in analysis.operations:
        for key, pairs in analysis.reads[operation].items():
            values = [value for _, value in pairs]
            kinds = (Anomaly.INT_POLL_SKIP, Anomaly.INT_NONMONOTONIC_POLL)
            yield from _order_within(analysis, operation, key, values, *kinds)
        for key, sends in operation.sends().items():
            values = [send.value for send in sends]
            kinds = (Anomaly.INT_SEND_SKIP, Anomaly.INT_NONMONOTONIC_SEND)
            yield from _order_within(analysis, operation, key, values, *kinds)


def order_of_polls(analysis: Analysis) -> Iterator[Finding]:
    """Gaps and reversals from one poll of a process to its next.

    An operation that did not succeed rewinds its consumer, so the next one is compared with
    the last that did. An assignment forgets the partitions that it drops.
    """
    for operations in analysis.by_process():
        if any(operation.subscribes() for operation in operations):
            continue  # a rebalance may move it
        last: dict[Key, tuple[Value, Operation]] = {}
        for operation in operations:
            assigned = operation.assigned()
            if assigned is not None and operation.outcome is not Outcome.FAIL:
                last = {key: last[key] for key in assigned if key in last}
            for key, pairs in analysis.reads[operation].items():
                if key in last:
                    value, previous = last[key]
                    kinds = (Anomaly.POLL_SKIP, Anomaly.NONMONOTONIC_POLL)
                    wrong = _order(analysis.logs[key], value, pairs[0][1], *kinds)
                    if wrong is not None:
                        what = f"partition {key}: {wrong[1]}"
                        yield Finding(wrong[0], what, (previous, operation))
                if operation.outcome is Outcome.OK:
                    last[key] = (pairs[-1][1], operation)


def order_of_sends(analysis: Analysis) -> Iterator[Finding]:
    """A process whose later send lies before its earlier one."""
    for operations in analysis.by_process():
        last: dict[Key, tuple[Value, Operation]] = {}
        for operation in operations:
            if operation.outcome is Outcome.FAIL:
                continue
            for key, sends in operation.sends().items():
                if key in last:
                    value, previous = last[key]
                    backwards = Anomaly.NONMONOTONIC_SEND
                    wrong = _order(analysis.logs[key], value, sends[0].value, None, backwards)
                    if wrong is not None:
                        what = f"partition {key}: {wrong[1]}"
                        yield Finding(wrong[0], what, (previous, operation))
                last[key] = (sends[-1].value, operation)


def information_cycles(analysis: Analysis) -> Iterator[Finding]:
    """G1c by reads alone, with the order of each process, and with real time."""
    operations = analysis.operations
    number = {operation: index for index, operation in enumerate(operations)}
    graph: cycles.Graph = [set() for _ in operations]
    for place, readers in analysis.readers_of.items():
        writer = analysis.writer_of.get(place)
        if writer is not None:
            graph[number[writer]].update(number[one] for one in readers if one is not writer)
    reported: set[int] = set()
    yield from _cycles_of(analysis, graph, Anomaly.G1C, reported)
    for of_process in analysis.by_process():
        for first, second in pairwise(of_process):
            if first.outcome is not Outcome.INFO:
                graph[number[first]].add(number[second])
    yield from _cycles_of(analysis, graph, Anomaly.G1C_PROCESS, reported)
    begins = [one.invoked_at for one in operations]
    ends = [None if one.outcome is Outcome.INFO else one.completed_at for one in operations]
    extended, _ = cycles.with_realtime(graph, begins, ends)
    yield from _cycles_of(analysis, extended, Anomaly.G1C_REALTIME, reported)


def _cycles_of(
    analysis: Analysis, graph: cycles.Graph, anomaly: Anomaly, reported: set[int]
) -> Iterator[Finding]:
    """One finding per component in which no weaker kind of cycle was reported."""
    operations = analysis.operations
    for component in cycles.components(graph):
        members = {vertex for vertex in component if vertex < len(operations)}
        if members & reported:
            continue
        reported |= members
        loop = cycles.shortest_cycle(graph, component, start=min(members))
        steps = tuple(operations[vertex] for vertex in loop if vertex < len(operations))
        processes = " -> ".join(str(one.process) for one in (*steps, steps[0]))
        yield Finding(anomaly, f"a circle of {len(steps)}, of processes {processes}", steps)


CHECKS = (
    lost_writes,
    unseen,
    duplicates,
    inconsistent_offsets,
    aborted_reads,
    precommitted_reads,
    order_within_operations,
    order_of_polls,
    order_of_sends,
    information_cycles,
)


def check(operations: Iterable[Operation]) -> Verdict:
    """Every anomaly of the history."""
    analysis = Analysis(operations)
    return Verdict(tuple(finding for one in CHECKS for finding in one(analysis)))
