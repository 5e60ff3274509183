"""Transactions that nobody will ever end.

A partition that believes a transaction is open, while its coordinator does not, keeps readers of
committed records waiting for ever (KIP-664). Each leader is asked which producers have one open,
and each coordinator which transactions are; what only the leader knows is hanging.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.console.kafka.model import Metadata, ProducerView, TransactionView
from ottla.console.kafka.questions import Questions

# One request per leader and topic; a person waits for this page.
TOPICS_MAX = 500


class Hanging(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int


async def find_hanging(
    questions: Questions, metadata: Metadata, transactions: list[TransactionView]
) -> list[Hanging]:
    """Open on a partition, unknown to its coordinator."""
    found: list[Hanging] = []
    for topic in list(metadata.topics)[:TOPICS_MAX]:
        found += compare(topic, await questions.producers(metadata, topic), transactions)
    return found


def compare(
    topic: str, producers: Iterable[ProducerView], transactions: Iterable[TransactionView]
) -> list[Hanging]:
    """The producers of a topic with a transaction open that no coordinator has open there."""
    known = {
        (transaction.producer_id, partition)
        for transaction in transactions
        for name, partition in transaction.partitions
        if name == topic
    }
    return [
        Hanging(
            topic,
            producer.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.transaction_start_offset,
            producer.last_timestamp_ms,
        )
        for producer in producers
        if producer.transaction_start_offset >= 0
        and (producer.producer_id, producer.partition) not in known
    ]
