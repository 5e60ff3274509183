"""From what a person asked for to the moves of a reset, from offsets asked for now. Shell.

A partition whose bounds nobody tells now is named: a reset that silently left it out would leave a
group half moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.console.errors import BadRequestError
from ottla.console.kafka.model import ClusterView, TopicPartition
from ottla.console.kafka.questions import EARLIEST, LATEST, Questions
from ottla.console.numbers import integer
from ottla.console.resets import PARTITIONS_MAX, STRATEGIES, Move, plan
from ottla.console.seeking import parse_time_ms

_SHIFT_MAX = 2**62


class ResetPlan(NamedTuple):
    moves: list[Move]
    time_ms: int | None  # the moment that was asked for
    untold: list[TopicPartition]  # partitions whose leader did not answer; they are left alone


async def plan_reset(
    questions: Questions,
    view: ClusterView,
    group_id: str,
    *,
    strategy: str,
    amount: str = "",
    time: str = "",
    topic: str = "",
) -> ResetPlan:
    """Where a group's offsets would be."""
    if strategy not in STRATEGIES:
        raise BadRequestError(f"A reset goes to one of {', '.join(STRATEGIES)}.")
    time_ms = parse_time_ms(time) if strategy == "time" else None
    number = 0
    if strategy in ("offset", "shift"):
        least = 0 if strategy == "offset" else -_SHIFT_MAX
        number = integer(amount, "The number", least=least, most=_SHIFT_MAX)
    committed = view.committed.get(group_id, {})
    partitions = dict.fromkeys(key for key in committed if not topic or key[0] == topic)
    if topic and topic in view.metadata.topics:
        found = view.metadata.topics[topic]
        partitions.update(dict.fromkeys((topic, one.number) for one in found.partitions))
    if len(partitions) > PARTITIONS_MAX:
        raise BadRequestError(f"That is more than {PARTITIONS_MAX:,} partitions: choose a topic.")

    async def offsets(at: int) -> Mapping[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, at)
        told = await questions.offsets(view.metadata, wanted, is_committed=False)
        return {key: offset for key, (offset, _) in told.found.items()}

    ends = await offsets(LATEST)
    starts = await offsets(EARLIEST)
    at_time = {} if time_ms is None else await offsets(time_ms)
    told = ends.keys() & starts.keys()
    if time_ms is not None:
        told &= at_time.keys()
    moves = plan(
        strategy,
        number,
        told,
        committed=committed,
        starts=starts,
        ends=ends,
        at_time=at_time,
    )
    untold = sorted(partitions.keys() - told)
    if not moves:
        why = "No leader answers." if untold else "There is nothing to reset."
        raise BadRequestError(why)
    return ResetPlan(moves, time_ms, untold)
