"""All partitions that this broker holds, and the two things done to them: append and read.

It follows the metadata: `on_metadata` takes the delta that the publisher hands out and
creates, changes or drops partitions, never rescanning the whole image. A log directory that
fails takes its partitions with it and nothing else.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import BrokerId, Offset, TopicPartition
from ottla.replication.partition import Partition, PartitionState
from ottla.replication.purgatory import DelayedOperation
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.producer_state import NO_VERIFICATION_GUARD
from ottla.storage.failures import DiskFull, LogBusy, LogDirFailure
from ottla.storage.log import AppendResult, PartitionLog
from ottla.storage.log_directory import LogHandle
from ottla.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class AssignedPartition(NamedTuple):
    """A partition that the metadata places on this broker."""

    topic: str
    partition: int
    topic_id: UUID
    state: PartitionState
    directory_id: UUID | None = None  # as far as the metadata knows
    is_new: bool = True  # False if it may have been here before


class ReplicaManager:
    def __init__(
        self,
        *,
        broker_id: BrokerId,
        logs: LogManager,
    ) -> None:
        self.broker_id = broker_id
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._logs = logs

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions.values())

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, or the error that a client gets for asking here."""
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def append(
        self,
        topic: str,
        index: int,
        records: memoryview | bytearray,
        *,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> tuple[Partition, AppendResult]:
        """Append one partition's batch of a produce request; raises KafkaError as its answer."""
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition, partition.append_as_leader(records, acks=acks, origin=origin)

    def append_guarded(
        self,
        topic: str,
        index: int,
        records: memoryview | bytearray,
        *,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: int = NO_VERIFICATION_GUARD,
        transaction_version: int = 0,
    ) -> tuple[Partition, AppendResult]:
        """As `append`, for what concerns transactions: records and the markers that end them."""
        partition = self.partition(topic, index)
        return partition, partition.append_guarded(
            records,
            acks=acks,
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
        )

    def await_commit(
        self,
        waiting: Iterable[tuple[Partition, Offset]],
        timeout_ms: int,
        on_done: Callable[[bool], None],
    ) -> DelayedOperation:
        """Call `on_done(expired)` once each partition's high watermark reaches its offset."""
        needs = list(waiting)

        def try_complete(expired: bool) -> bool:
            missing = any(
                partition.failure is None and partition.high_watermark < offset
                for partition, offset in needs
            )
            if missing and not expired:
                return False
            on_done(missing)
            return True

        return DelayedOperation(
            asyncio.get_running_loop(),
            [partition for partition, _ in needs],
            timeout_ms / 1000,
            try_complete,
        )

    def assign(self, assigned: AssignedPartition) -> None:
        """Hold this partition from now on, or follow a change to it."""
        key = (assigned.topic, assigned.partition)
        partition = self.partitions.get(key)
        if partition is None or partition.topic_id != assigned.topic_id:
            if partition is not None:
                self.remove(*key)
            partition = self.partitions[key] = self._create(assigned)
        try:
            partition.apply(assigned.state)
        except LogDirFailure as failure:
            # The log manager has told the broker; the metadata must go on to other partitions.
            partition.failure = failure
        partition.wake_watchers()

    def on_directory_failure(self, failure: LogDirFailure) -> None:
        """Its partitions answer with the failure from now on, also those who wait for them."""
        for (topic, index), partition in self.partitions.items():
            handle = self._logs.find(TopicPartition(topic, index))
            if handle is not None and handle.directory.failure is not None:
                partition.failure = handle.directory.failure
                partition.wake_watchers()

    def remove(self, topic: str, index: int) -> None:
        """The topic is gone: drop the partition and set its directory aside for deletion."""
        partition = self.partitions.pop((topic, index), None)
        if partition is None:
            return
        partition.wake_watchers()
        if TopicPartition(topic, index) not in self._logs:
            return  # there was never a directory that could take it
        try:
            self._logs.delete(TopicPartition(topic, index))
        except LogDirFailure as failure:
            log.error("%s-%d was not deleted: %s", topic, index, failure)

    def on_configs_changed(self, topics: Collection[str] | None) -> None:
        """Open logs take the new settings; None means that every topic may be affected."""
        if topics is None or topics:
            self._logs.on_configs_changed(topics)

    def high_watermarks(self) -> Iterator[tuple[TopicPartition, int]]:
        """For the checkpoint: only logs that were opened can have moved."""
        for (topic, index), partition in self.partitions.items():
            if partition.is_open:
                yield TopicPartition(topic, index), partition.in_sync.high_watermark

    def _create(self, assigned: AssignedPartition) -> Partition:
        topic_partition = TopicPartition(assigned.topic, assigned.partition)

        def place(*, is_new: bool) -> LogHandle:
            return self._logs.create(
                topic_partition,
                assigned.topic_id,
                directory_id=assigned.directory_id,
                is_new=is_new,
            )

        failure = None
        try:
            failure = place(is_new=assigned.is_new).directory.failure
        except LogDirFailure as nowhere:
            log.error("%s has no directory: %s", topic_partition, nowhere)
            failure = nowhere
        except (DiskFull, LogBusy) as refusal:
            log.error("%s has no directory yet: %s", topic_partition, refusal)

        def replace_if_foreign(found: PartitionLog) -> bool:
            """A topic of this name was deleted while the broker was away."""
            if found.topic_id is None:
                self._logs.name_topic(topic_partition, assigned.topic_id)  # never synced, or lost
            if found.topic_id in (None, assigned.topic_id):
                return False
            self._logs.delete(topic_partition)
            place(is_new=True)
            return True

        def open_log() -> PartitionLog:
            place(is_new=assigned.is_new)  # it may have found none so far
            found = self._logs.get(topic_partition)
            return self._logs.get(topic_partition) if replace_if_foreign(found) else found

        async def open_in_thread() -> PartitionLog:
            place(is_new=assigned.is_new)
            while True:
                epoch = partition.leader_epoch if partition.is_leader else None
                found = await self._logs.open(topic_partition, leader_epoch=epoch)
                if self.partitions.get((assigned.topic, assigned.partition)) is not partition:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # deleted meanwhile
                if not replace_if_foreign(found):
                    return found

        partition = Partition(
            assigned.topic,
            assigned.partition,
            assigned.topic_id,
            local_id=self.broker_id,
            high_watermark=Offset(self._logs.high_watermark_of(topic_partition)),
            open_log=open_log,
            open_in_thread=open_in_thread,
        )
        partition.failure = failure
        return partition
