"""Transactions that nobody will ever end.

A partition that believes a transaction is open, while its coordinator does not, keeps readers of
committed records waiting for ever (KIP-664). Leaders are asked first which producers have one open,
and the coordinators after: the other way round, every transaction that begins in between would look
as if nobody knew it. As Apache Kafka's own tool does, only what has been silent for longer than a
transaction may last is suspected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.console.kafka.model import Metadata, ProducerView, TransactionView
from ottla.console.kafka.transaction_questions import TransactionQuestions

# Kafka's transaction.max.timeout.ms unless it was changed: nothing may be open for longer.
OLDER_DEFAULT = "15m"


class Hanging(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int


class Search(NamedTuple):
    """What hangs, and of how much that can be said."""

    found: list[Hanging]
    partition_count: int  # that were looked at
    untold_count: int  # that could not be
    troubles: dict[int, str]  # brokers that did not answer, and why


async def find_hanging(
    questions: TransactionQuestions, metadata: Metadata, *, now_ms: int, age_ms_min: int
) -> Search:
    """Open on a partition for that long, unknown to its coordinator."""
    producers = await questions.producers(metadata)
    suspects = suspected(producers.found, now_ms - age_ms_min)
    troubles = dict(producers.troubles)
    found: list[Hanging] = []
    if suspects:
        ids = {producer.producer_id for producer in suspects}
        known = await questions.transactions(metadata, producer_ids=ids)
        troubles.update(known.troubles)
        # A coordinator that does not answer may know all of them.
        found = [] if known.troubles else unknown(suspects, known.found)
    return Search(found, producers.asked, producers.untold, troubles)


def suspected(producers: Iterable[ProducerView], before_ms: int) -> list[ProducerView]:
    """The producers with a transaction open that wrote nothing since."""
    return [
        producer
        for producer in producers
        if producer.transaction_start_offset >= 0 and producer.last_timestamp_ms <= before_ms
    ]


def unknown(
    suspects: Iterable[ProducerView], transactions: Iterable[TransactionView]
) -> list[Hanging]:
    """Those of the suspects that no coordinator has open on their partition."""
    known = {
        (transaction.producer_id, topic, partition)
        for transaction in transactions
        for topic, partition in transaction.partitions
    }
    return [
        Hanging(
            one.topic,
            one.partition,
            one.producer_id,
            one.producer_epoch,
            one.transaction_start_offset,
            one.last_timestamp_ms,
        )
        for one in suspects
        if (one.producer_id, one.topic, one.partition) not in known
    ]
