"""What producers were told and what readers saw of a simulated broker, and what is wrong with it.

Judges with hindsight: the log is read to its end twice, the committed records as a consumer sees
them and all that is stored. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from ottla.protocol.errors import ErrorCode

Place = tuple[int, bytes]  # partition, value


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Sent:
    """One transaction as its producer saw it; outside of transactions, one batch."""

    producer: str
    number: int
    values: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # partition, offset or -1
    offset: int | None = None  # committed with it for the producer's own partition
    outcome: Outcome = Outcome.ABORTED


@dataclass
class Refused:
    """A batch whose producer was told for good that it is not stored."""

    producer: str
    partition: int
    values: list[bytes]
    code: ErrorCode
    is_transactional: bool


@dataclass
class History:
    sent: list[Sent] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    seen: list[tuple[int, int, bytes]] = field(default_factory=list)  # while it went on
    final: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    stored: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)  # aborted ones, too
    offsets: dict[str, int] = field(default_factory=dict)  # by producer
    problems: list[str] = field(default_factory=list)

    def check(self) -> list[str]:
        """Everything that is wrong; empty if nothing is."""
        found = list(self.problems)
        at = {
            (partition, value): offset
            for partition, records in self.final.items()
            for offset, value in records
        }
        found += self._check_stored_once()
        for one in self.sent:
            found += _check_transaction(one, at)
        for partition, offset, value in self.seen:
            if at.get((partition, value)) != offset:
                found.append(f"{value!r} was read at {partition}/{offset} and is not committed")
        found += self._check_refused(at)
        found += self._check_order()
        found += self._check_offsets(at)
        return found

    def _check_stored_once(self) -> Iterable[str]:
        for partition, records in self.stored.items():
            values = [value for _, value in records]
            for value in sorted({one for one in values if values.count(one) > 1}):
                yield f"{value!r} is twice in partition {partition}"
            missing = {value for _, value in self.final[partition]} - set(values)
            if missing:
                yield f"{missing} can be read in partition {partition} and is not stored"

    def _check_refused(self, at: dict[Place, int]) -> Iterable[str]:
        """No error that clients take as a definite failure is given for a batch that is stored.

        One of an aborted transaction may lie there: to its producer, who is fenced, it failed.
        """
        stored = {
            (partition, value) for partition, records in self.stored.items() for _, value in records
        }
        for one in self.refused:
            may_be_aborted = (
                one.is_transactional and one.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
            lies_there = at if may_be_aborted else stored
            if any((one.partition, value) in lies_there for value in one.values):
                yield f"{one.producer} was told {one.code.name} and {one.values} is stored"

    def _check_order(self) -> Iterable[str]:
        for partition, records in self.final.items():
            last: dict[bytes, tuple[int, ...]] = {}
            for _, value in records:
                producer, number, n = value.split(b"/")
                place = (int(number), int(n))
                if place <= last.get(producer, (-1,)):
                    yield f"{value!r} is out of order in partition {partition}"
                last[producer] = place

    def _check_offsets(self, at: dict[Place, int]) -> Iterable[str]:
        for producer, told in self.offsets.items():
            expected = max(
                (
                    one.offset
                    for one in self.sent
                    if one.producer == producer and one.offset is not None and _is_visible(one, at)
                ),
                default=-1,
            )
            if told != expected:
                yield f"the offset of {producer} is {told}, not {expected}"


def _is_visible(one: Sent, at: dict[Place, int]) -> bool:
    return any((partition, value) in at for value, (partition, _) in one.values.items())


def _check_transaction(one: Sent, at: dict[Place, int]) -> Iterable[str]:
    name = f"{one.producer}/{one.number}"
    present = [value for value, (partition, _) in one.values.items() if (partition, value) in at]
    if one.outcome is Outcome.COMMITTED:
        for value, (partition, offset) in one.values.items():
            if at.get((partition, value)) != offset:
                yield f"{value!r} of {name} was committed at {offset} and is not there"
    elif one.outcome is Outcome.ABORTED and present:
        yield f"{name} was aborted and {present} can be read"
    elif present and len(present) != len(one.values):
        yield f"{name} is torn: {present} of {list(one.values)}"
