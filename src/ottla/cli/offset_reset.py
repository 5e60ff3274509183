"""Where a consumer group is to continue, from the forms that kafka-consumer-groups offers.

What a person types (`--topic orders:0,2`, `--by-duration PT1H30M`, a CSV file) is read here, and
new offsets are computed from what the cluster answered. An offset outside the log would make every
consumer start by its own policy, so it is moved to the nearest end, as Kafka's tool does.

Pure: no client, no clock; `group_reset.py` asks the cluster and commits.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Place = tuple[str, int]  # topic and partition

# A file beyond this is no plan of offsets; it would only fill the memory.
PLAN_BYTES_MAX = 64 * 1024 * 1024
OFFSET_MAX = 2**63 - 1

_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?"
    r"(?:(?P<seconds>[+-]?\d+)(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.IGNORECASE,
)


class ResetInputError(ValueError):
    """What was typed cannot be read; the text says what it should look like."""


class TopicChoice(NamedTuple):
    """A topic, and which of its partitions; None for all."""

    topic: str
    partitions: tuple[int, ...] | None = None


class Bounds(NamedTuple):
    log_start_offset: int
    log_end_offset: int


class NewOffset(NamedTuple):
    offset: int
    moved_from: int | None = None  # what was asked for, where the log does not reach


def parse_topic_choice(text: str) -> TopicChoice:
    """`orders` or `orders:0,2`."""
    topic, colon, rest = text.partition(":")
    if not topic:
        raise ResetInputError(f"'{text}' names no topic; give TOPIC or TOPIC:0,1")
    if not colon:
        return TopicChoice(topic)
    numbers = rest.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise ResetInputError(f"'{text}' does not name partitions like {topic}:0,1")
    return TopicChoice(topic, tuple(sorted({int(number) for number in numbers})))


def parse_duration_ms(text: str) -> int:
    """ISO 8601, as Java reads it: `P7D`, `PT1H30M`, `PT0.5S`."""
    found = _DURATION.fullmatch(text.strip())
    parts = found.groupdict() if found else {}
    is_given = any(parts.get(unit) for unit in ("days", "hours", "minutes", "seconds"))
    if not is_given or text.strip().upper().endswith("T"):
        raise ResetInputError(f"'{text}' is not a duration like P7D, PT12H or PT1H30M")
    seconds = (
        86_400 * int(parts["days"] or 0)
        + 3_600 * int(parts["hours"] or 0)
        + 60 * int(parts["minutes"] or 0)
        + int(parts["seconds"] or 0)
    )
    fraction_ms = int(f"{parts['fraction'] or '0':0<9}") // 1_000_000
    if (parts["seconds"] or "").startswith("-"):
        fraction_ms = -fraction_ms
    duration_ms = seconds * 1000 + fraction_ms
    return -duration_ms if parts["sign"] == "-" else duration_ms


def parse_plan(text: str, group_ids: Sequence[str]) -> dict[str, dict[Place, int]]:
    """Kafka's CSV: `topic,partition,offset` for one group, or `group,topic,partition,offset`."""
    plan: dict[str, dict[Place, int]] = {}
    for number, row in _csv_rows(text):
        if not row:
            continue
        if len(row) == 3 and len(group_ids) == 1:
            group, (topic, partition, offset) = group_ids[0], row
        elif len(row) == 4:
            group, topic, partition, offset = row
        else:
            raise ResetInputError(
                f"line {number} is not topic,partition,offset"
                if len(group_ids) == 1
                else f"line {number} is not group,topic,partition,offset"
            )
        place = (topic, _number(partition, number, "partition"))
        plan.setdefault(group, {})[place] = _number(offset, number, "offset")
    return plan


def format_plan(plan: Mapping[str, Mapping[Place, int]], *, is_single_group: bool) -> str:
    """The CSV that `parse_plan` and Kafka's tool read."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, offsets in plan.items():
        for (topic, partition), offset in offsets.items():
            row = (topic, partition, offset)
            writer.writerow(row if is_single_group else (group, *row))
    return text.getvalue()


def within_log(
    wanted: Mapping[Place, int], bounds: Mapping[Place, Bounds]
) -> dict[Place, NewOffset]:
    """Each wanted offset, moved to the nearest end of its log where it lies outside."""
    found = {}
    for place, offset in wanted.items():
        first, end = bounds[place]
        nearest = min(max(offset, first), end)
        found[place] = NewOffset(nearest, offset if nearest != offset else None)
    return found


def shifted(
    places: Iterable[Place], committed: Mapping[Place, int], by: int
) -> tuple[dict[Place, int], list[Place]]:
    """The committed offsets plus `by`, and the places that have none to shift."""
    wanted, missing = {}, []
    for place in places:
        if place in committed:
            wanted[place] = committed[place] + by
        else:
            missing.append(place)
    return wanted, missing


def _csv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise ResetInputError(f"line {rows.line_num} is not CSV ({error})") from error


def _number(text: str, line: int, what: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or int(text) > OFFSET_MAX:
        raise ResetInputError(f"line {line} has no {what} but '{text}'")
    return int(text)
