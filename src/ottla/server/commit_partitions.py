"""The partitions of a commit of offsets, and the code that each is answered with. Pure.

A partition that is not there is answered at once; the group coordinator is asked about the others.
OffsetCommit and TxnOffsetCommit name and answer them alike.
"""

from collections.abc import Sequence
from typing import Any

from ottla.coordinators.group.shard import WantedOffset
from ottla.metadata.image import TopicImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Fields


class CommitPartitions:
    __slots__ = ("_codes", "_topics", "wanted")

    def __init__(self) -> None:
        self._topics: list[Any] = []
        # In the order asked; None where the coordinator decides.
        self._codes: list[ErrorCode | None] = []
        self.wanted: list[WantedOffset] = []

    @property
    def are_all_there(self) -> bool:
        return len(self.wanted) == len(self._codes)

    def add(self, topic: Any, image: TopicImage | None, unknown: ErrorCode) -> None:
        """A topic as it was asked; `unknown` is what is wrong if it is not there."""
        self._topics.append(topic)
        for one in topic.partitions:
            if image is None or one.partition_index not in image.partitions:
                self._codes.append(unknown)
                continue
            self._codes.append(None)
            self.wanted.append(
                WantedOffset(
                    image.name,
                    image.topic_id,
                    one.partition_index,
                    one.committed_offset,
                    given(one, "committed_leader_epoch", -1),
                    one.committed_metadata,
                )
            )

    def answer(self, decided: Sequence[ErrorCode]) -> Fields:
        """The response, with one code for each wanted offset."""
        found = iter(self._codes)
        rest = iter(decided)
        topics = []
        for topic in self._topics:
            partitions = []
            for one in topic.partitions:
                code = next(found)
                if code is None:
                    code = next(rest)
                partitions.append({"partition_index": one.partition_index, "error_code": code})
            topics.append(
                {
                    "name": given(topic, "name", ""),
                    "topic_id": given(topic, "topic_id", None),
                    "partitions": partitions,
                }
            )
        return {"topics": topics}
