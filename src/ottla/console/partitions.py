"""How far each partition of a topic has come, asked for now: what the view knows is seconds old."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla.console.kafka.model import PartitionView
from ottla.console.kafka.questions import DEBUGGING_REPLICA, LATEST, Offsets, Questions
from ottla.console.sampler import Sampler

_NOTHING = Offsets({}, {})


class PartitionRow(NamedTuple):
    partition: PartitionView
    start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    log_end_offset: int | None
    size_bytes: int | None
    rate: float | None

    @property
    def record_count(self) -> int | None:
        if self.start_offset is None or self.high_watermark is None:
            return None
        return self.high_watermark - self.start_offset


async def partition_rows(questions: Questions, sampler: Sampler, topic: str) -> list[PartitionRow]:
    """Every partition; what its leader does not tell now is shown as last known, or not at all."""
    view = sampler.view
    found = view.metadata.topics.get(topic)
    if found is None:
        return []
    latest = dict.fromkeys([(topic, partition.number) for partition in found.partitions], LATEST)
    stable = watermarks = ends = _NOTHING
    if view.trouble is None:
        # In this order: the later a question, the further its answer may be.
        stable, watermarks, ends = await asyncio.gather(
            questions.offsets(view.metadata, latest, is_committed=True),
            questions.offsets(view.metadata, latest, is_committed=False),
            questions.offsets(
                view.metadata, latest, is_committed=False, replica_id=DEBUGGING_REPLICA
            ),
        )
    rows = []
    for partition in found.partitions:
        key = (topic, partition.number)
        rows.append(
            PartitionRow(
                partition,
                view.start_offsets.get(key),
                _offset(watermarks, key) if key in watermarks.found else view.end_offsets.get(key),
                _offset(stable, key),
                _offset(ends, key),
                view.sizes.get(key),
                sampler.figures.partition_rates.get(key),
            )
        )
    return rows


def _offset(answer: Offsets, key: tuple[str, int]) -> int | None:
    told = answer.found.get(key)
    return None if told is None else told[0]
