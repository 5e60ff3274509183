"""Integers that must not be mixed up, as types of their own. Pure."""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)

NO_EPOCH = Epoch(-1)
NO_OFFSET = Offset(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_BROKER = BrokerId(-1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
