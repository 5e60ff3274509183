"""From what a person asked for to where in the logs reading begins.

"Since" a time is answered by the brokers' time indexes, never by reading from the oldest record.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.console.browse import Query
from ottla.console.errors import BadRequestError
from ottla.console.filters import compile_filter, compile_search
from ottla.console.kafka.model import Metadata
from ottla.console.kafka.questions import EARLIEST, LATEST, Questions
from ottla.console.numbers import PARTITION_MAX, integer
from ottla.console.paging import Range
from ottla.console.records import Position, Predicate, parse_position
from ottla.protocol.errors import ErrorCode, KafkaError

PAGE_SIZES = (50, 100, 200, 500)
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
    size: int = PAGE_SIZES[0]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Ask:
        """What the query of an address asks for."""
        begin = given.get("from", "newest")
        if begin not in BEGINNINGS:
            raise BadRequestError(f"'from' is one of {', '.join(BEGINNINGS)}.")
        return cls(
            begin,
            given.get("partition", ""),
            given.get("offset", ""),
            given.get("time", ""),
            given.get("q", ""),
            given.get("filter", ""),
            given.get("cursor", ""),
            given.get("isolation") == "committed",
            integer(given.get("size"), "The page size", default=PAGE_SIZES[0], least=1, most=500),
        )

    @property
    def is_backward(self) -> bool:
        return self.begin == "newest"

    def position(self) -> Position:
        """The place that the cursor holds."""
        try:
            return parse_position(self.cursor)
        except ValueError as error:
            raise BadRequestError(str(error)) from None

    def time_ms(self) -> int:
        return parse_time_ms(self.time)

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


def parse_duration_ms(text: str) -> int:
    """`15m` as milliseconds."""
    found = re.fullmatch(r"(\d{1,9})\s*([smhdw])", text.strip())
    if found is None:
        raise BadRequestError(f"'{text[:40]}' is not a duration: write 15m or 2h.")
    return int(found[1]) * _UNITS_S[found[2]] * 1000


def parse_time_ms(text: str, now_s: float | None = None) -> int:
    """`15m` ago, milliseconds, or a date and time (UTC unless it says otherwise)."""
    text = text.strip()
    if re.fullmatch(r"\d{1,9}\s*[smhdw](\s+ago)?", text):
        now_ms = int((now_s if now_s is not None else time.time()) * 1000)
        return max(0, now_ms - parse_duration_ms(text.removesuffix("ago")))
    if re.fullmatch(r"\d{9,18}", text):
        # Ten digits are seconds: milliseconds of that length lie in 1970.
        return int(text) * 1000 if len(text) <= 10 else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequestError(
            f"'{text[:40]}' is not a time: write 15m, 2026-11-16T14:00, or milliseconds."
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
    number = integer(asked, "The partition", most=PARTITION_MAX)
    if number >= count:
        raise BadRequestError(f"{topic} has no partition {number}; it has {count}.")
    return [number]


class Bounds(NamedTuple):
    ranges: dict[int, Range]
    troubles: dict[int, str]  # partitions whose bounds nobody tells now


async def bounds(
    questions: Questions,
    metadata: Metadata,
    topic: str,
    partitions: list[int],
    *,
    is_committed: bool,
) -> Bounds:
    """What there is of each partition now; KafkaError if no leader answers at all."""
    wanted = [(topic, partition) for partition in partitions]
    ends = await questions.offsets(
        metadata, dict.fromkeys(wanted, LATEST), is_committed=is_committed
    )
    starts = await questions.offsets(
        metadata, dict.fromkeys(ends.found, EARLIEST), is_committed=False
    )
    errors = {**ends.troubles, **starts.troubles}
    if errors and not starts.found:
        raise next(iter(errors.values()))
    ranges = {}
    for key, (start, _) in starts.found.items():
        ranges[key[1]] = Range(start, max(ends.found[key][0], start))
    return Bounds(ranges, {key[1]: str(error) for key, error in errors.items()})


async def seek(questions: Questions, metadata: Metadata, topic: str, ask: Ask) -> Query:
    """The query that answers what was asked."""
    predicate = ask.predicate()
    partitions = partitions_of(metadata, topic, ask.partition)
    found = await bounds(questions, metadata, topic, partitions, is_committed=ask.is_committed)
    ranges, troubles = found.ranges, found.troubles
    if ask.cursor:
        # A partition whose bounds are not known now keeps its place for a later page.
        position = {
            p: clamp(offset, ranges[p]) if p in ranges else offset
            for p, offset in ask.position().items()
            if p in ranges or p in troubles
        }
        troubles = {p: why for p, why in troubles.items() if p in position}
    else:
        position, unknown = await _beginning(questions, metadata, topic, ask, ranges)
        troubles = {**troubles, **unknown}
    return Query(
        topic,
        ranges,
        position,
        ask.is_backward,
        ask.size,
        predicate,
        ask.is_committed,
        troubles,
    )


async def _beginning(
    questions: Questions, metadata: Metadata, topic: str, ask: Ask, ranges: dict[int, Range]
) -> tuple[Position, dict[int, str]]:
    """Where each partition begins, and which of them cannot tell now."""
    if ask.begin == "newest":
        return {partition: found.end for partition, found in ranges.items()}, {}
    if ask.begin == "oldest":
        return {partition: found.start for partition, found in ranges.items()}, {}
    if ask.begin == "offset":
        offset = integer(ask.offset, "The offset")
        return {p: clamp(offset, found) for p, found in ranges.items()}, {}
    timestamp_ms = ask.time_ms()
    at_time = await questions.offsets(
        metadata,
        {(topic, partition): timestamp_ms for partition in ranges},
        is_committed=ask.is_committed,
    )
    position = {}
    for (_, partition), (offset, _) in at_time.found.items():
        found = ranges[partition]
        position[partition] = found.end if offset < 0 else clamp(offset, found)
    return position, {key[1]: str(error) for key, error in at_time.troubles.items()}


def clamp(offset: int, found: Range) -> int:
    """The offset, or the end of the log that is nearer."""
    return min(max(offset, found.start), found.end)
