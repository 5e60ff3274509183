"""From what a person asked for to where in the logs reading begins.

"Since" a time is answered by the brokers' time indexes, never by reading from the oldest record.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.console.browse import Query
from ottla.console.errors import BadRequestError
from ottla.console.filters import compile_filter, compile_search
from ottla.console.kafka.model import Metadata
from ottla.console.kafka.questions import EARLIEST, LATEST, Questions
from ottla.console.paging import Predicate, Range
from ottla.console.records import Position, parse_position
from ottla.protocol.errors import ErrorCode, KafkaError

BEGINNINGS = ("newest", "oldest", "offset", "time")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Ask(NamedTuple):
    """What the form of the messages page says; every field as it stands in the address."""

    begin: str = "newest"
    partition: str = ""
    offset: str = ""
    time: str = ""
    search: str = ""
    expression: str = ""
    cursor: str = ""
    is_committed: bool = False
    size: int = 50

    @property
    def is_backward(self) -> bool:
        return self.begin == "newest"

    def predicate(self) -> Predicate | None:
        """Search and filter together; FilterError if the expression cannot be read."""
        tests = []
        if self.search:
            tests.append(compile_search(self.search))
        if self.expression.strip():
            tests.append(compile_filter(self.expression))
        if not tests:
            return None
        return lambda record: all(test(record) for test in tests)


def parse_time_ms(text: str, now_s: float | None = None) -> int:
    """`15m` ago, milliseconds, or a date and time (UTC unless it says otherwise)."""
    text = text.strip()
    relative = re.fullmatch(r"(\d{1,9})\s*([smhdw])(?:\s+ago)?", text)
    if relative:
        seconds = int(relative[1]) * _UNITS_S[relative[2]]
        return max(0, int(((now_s if now_s is not None else time.time()) - seconds) * 1000))
    if re.fullmatch(r"\d{9,18}", text):
        # Ten digits are seconds: milliseconds of that length lie in 1970.
        return int(text) * 1000 if len(text) <= 10 else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequestError(
            f"'{text}' is not a time: write 15m, 2026-11-16T14:00, or milliseconds."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def partitions_of(metadata: Metadata, topic: str, asked: str) -> list[int]:
    """The partitions that are looked at."""
    if topic not in metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}.")
    count = len(metadata.topics[topic].partitions)
    if not asked:
        return list(range(count))
    if not asked.isdecimal() or int(asked) >= count:
        raise BadRequestError(f"{topic} has no partition {asked}; it has {count}.")
    return [int(asked)]


async def bounds(
    questions: Questions,
    metadata: Metadata,
    topic: str,
    partitions: list[int],
    *,
    is_committed: bool,
) -> dict[int, Range]:
    """What there is of each partition now; those without a leader are left out."""
    wanted = [(topic, partition) for partition in partitions]
    ends = await questions.offsets(
        metadata, dict.fromkeys(wanted, LATEST), is_committed=is_committed
    )
    starts = await questions.offsets(metadata, dict.fromkeys(wanted, EARLIEST), is_committed=False)
    return {
        key[1]: Range(starts[key][0], max(end, starts[key][0]))
        for key, (end, _) in ends.items()
        if key in starts
    }


async def seek(questions: Questions, metadata: Metadata, topic: str, ask: Ask) -> Query:
    """The query that answers what was asked."""
    partitions = partitions_of(metadata, topic, ask.partition)
    ranges = await bounds(questions, metadata, topic, partitions, is_committed=ask.is_committed)
    if ask.cursor:
        try:
            position = parse_position(ask.cursor)
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        position = {p: clamp(offset, ranges[p]) for p, offset in position.items() if p in ranges}
    else:
        position = await _beginning(questions, metadata, topic, ask, ranges)
    return Query(
        topic,
        ranges,
        position,
        ask.is_backward,
        ask.size,
        ask.predicate(),
        ask.is_committed,
    )


async def _beginning(
    questions: Questions, metadata: Metadata, topic: str, ask: Ask, ranges: dict[int, Range]
) -> Position:
    if ask.begin == "newest":
        return {partition: found.end for partition, found in ranges.items()}
    if ask.begin == "oldest":
        return {partition: found.start for partition, found in ranges.items()}
    if ask.begin == "offset":
        if not ask.offset.isdecimal():
            raise BadRequestError("The offset is a whole number from 0 on.")
        return {p: clamp(int(ask.offset), found) for p, found in ranges.items()}
    timestamp_ms = parse_time_ms(ask.time)
    found_at = await questions.offsets(
        metadata,
        {(topic, partition): timestamp_ms for partition in ranges},
        is_committed=ask.is_committed,
    )
    position = {}
    for partition, found in ranges.items():
        offset, _ = found_at.get((topic, partition), (-1, -1))
        position[partition] = found.end if offset < 0 else clamp(offset, found)
    return position


def clamp(offset: int, found: Range) -> int:
    """The offset, or the end of the log that is nearer."""
    return min(max(offset, found.start), found.end)
