"""One partition as this broker holds it: who leads it, who is in sync, what may be read.

The metadata image says who leads and who is in sync; `apply` takes its word. Everything
else (the high watermark, what a consumer may see, whether a write has enough replicas) is
decided here from the log and the followers' positions.

The log behind it is opened when it is first needed, by a thread where one may be awaited: a
broker with ten thousand quiet partitions starts like one with ten.

Owned by the event loop's thread.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import NO_BROKER, NO_EPOCH, BrokerId, Epoch, Offset, ProducerId
from ottla.replication.in_sync import InSyncReplicas
from ottla.replication.purgatory import Watchable
from ottla.runtime.interfaces import Offload
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.producer_state import NO_VERIFICATION_GUARD
from ottla.storage.failures import DiskFull, LogDirFailure
from ottla.storage.log import AppendResult, PartitionLog
from ottla.storage.slices import LogSlice
from ottla.storage.would_wait import WouldWait

CONSUMER_REPLICA_ID = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class PartitionState(NamedTuple):
    """What the metadata image says of a partition."""

    leader: BrokerId
    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class ReadResult(NamedTuple):
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: LogSlice | None
    aborted: list[tuple[int, int]] | None  # (producer id, first offset), in offset order
    diverging: EpochEndOffset | None


class Partition(Watchable):
    __slots__ = (
        "_log",
        "_open_in_thread",
        "_open_log",
        "_opening",
        "failure",
        "in_sync",
        "index",
        "leader_epoch",
        "local_id",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        *,
        local_id: BrokerId,
        high_watermark: Offset,
        open_log: Callable[[], PartitionLog],
        open_in_thread: Callable[[], Coroutine[Any, Any, PartitionLog]],
    ) -> None:
        """`open_log` waits for the disk, `open_in_thread` has a thread wait."""
        super().__init__()
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.local_id = local_id
        self.in_sync = InSyncReplicas(local_id, high_watermark)
        self.state = PartitionState(NO_BROKER, NO_EPOCH, -1, (), ())
        self.leader_epoch = NO_EPOCH
        self.failure: LogDirFailure | None = None  # of the log directory that it lies in
        self._open_log = open_log
        self._open_in_thread = open_in_thread
        self._opening: asyncio.Task[None] | None = None
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        """The log, for those who cannot await it; see `open`."""
        log = self._log
        if log is None:
            log = self._log = self._open_log()
            self._on_log_opened(log)
        return log

    async def open(self) -> PartitionLog:
        """The log. If nobody has used it yet, a thread opens it, once for all who ask."""
        while self._log is None:
            if self._opening is None:
                self._opening = asyncio.create_task(self._open())
            await asyncio.shield(self._opening)
        return self._log

    async def prepare(self, _: Offload) -> None:
        """`open`, for who only wants that to be done."""
        await self.open()

    async def _open(self) -> None:
        try:
            log = await self._open_in_thread()
            if self._log is None:
                self._log = log
                self._on_log_opened(log)
        finally:
            self._opening = None

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def can_be_opened(self) -> bool:
        """Whether requests for its records may be answered here."""
        return self.state.leader == self.local_id and self.failure is None

    @property
    def is_leader(self) -> bool:
        return self.state.leader == self.local_id

    @property
    def high_watermark(self) -> Offset:
        if self._log is None:
            _ = self.log  # a log that was never opened does not know how far it reaches
        return self.in_sync.high_watermark

    @property
    def last_stable_offset(self) -> int:
        high_watermark = self.high_watermark
        first_unstable = self.log.first_unstable_offset
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    def apply(self, state: PartitionState) -> None:
        """Follow a committed change of leader, epoch or in-sync replicas."""
        is_new_epoch = state.leader_epoch != self.leader_epoch
        self.state = state
        self.leader_epoch = state.leader_epoch
        self.in_sync.assign(state.isr, is_new_epoch=is_new_epoch)
        log = self._log
        if log is not None and self.is_leader and self.failure is None:
            if is_new_epoch:
                self._begin_epoch(log)
            self._advance(log)

    def _begin_epoch(self, log: PartitionLog) -> None:
        try:
            log.assign_epoch(self.leader_epoch, log.log_end_offset)
        except DiskFull:
            return  # there is something to read; the next append tries again, or is refused

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose metadata is older or newer than ours, or who found no leader."""
        if self.failure is not None:
            raise self.failure
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.state.leader != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_as_leader(
        self,
        records: memoryview | bytearray,
        *,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        if self.state.leader != self.local_id:
            raise self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log or self.log
        wanted = log.config.min_insync_replicas
        if acks == -1 and len(self.in_sync.isr) < wanted and not self.has_enough_replicas():
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin)
        if self.in_sync.maybe_advance(Offset(log.log_end_offset)):
            log.on_high_watermark_updated(self.in_sync.high_watermark)
            if self.watchers:
                self.wake_watchers()
        return result

    def append_guarded(
        self,
        records: memoryview | bytearray,
        *,
        acks: int,
        origin: AppendOrigin,
        guard: int = NO_VERIFICATION_GUARD,
        transaction_version: int = 0,
    ) -> AppendResult:
        """As `append_as_leader`, with what a log wants to know of transactions.

        Apart from it, so that most batches do not pay for arguments that concern few.
        """
        if self.state.leader != self.local_id:
            raise self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log or self.log
        wanted = log.config.min_insync_replicas
        if acks == -1 and len(self.in_sync.isr) < wanted and not self.has_enough_replicas():
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
        )
        self._advance(log)
        return result

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        now_ms: int,
        supports_epoch_bump: bool,
    ) -> int:
        """The guard for a batch whose transaction must be looked up; none if it is open here."""
        if self.state.leader != self.local_id:
            raise self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log.producers.maybe_start_verification(
            ProducerId(producer_id),
            producer_epoch,
            base_sequence,
            now_ms,
            supports_epoch_bump=supports_epoch_bump,
        )

    def has_enough_replicas(self) -> bool:
        """A partition with fewer replicas than `min.insync.replicas` needs all it has (KIP-966)."""
        wanted = min(self.log.config.min_insync_replicas, len(self.state.replicas))
        return len(self.in_sync.isr) >= wanted

    def read_small(
        self,
        fetch_offset: int,
        bytes_max: int,
        current_leader_epoch: int,
        *,
        is_read_committed: bool,
    ) -> tuple[int, int, int, bytes | bytearray] | None:
        """High watermark, last stable offset, log start offset and the records for a consumer.

        Only where there is nothing to decide and little to read, which is what most fetches of
        a consumer that keeps up find; None sends it through `read`.
        """
        log = self._log
        if (
            log is None
            or self.failure is not None
            or self.state.leader != self.local_id
            or (current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch)
            or log.first_unstable_offset is not None
        ):
            return None
        high_watermark = self.in_sync.high_watermark
        records = log.read_small(fetch_offset, bytes_max, high_watermark)
        if records is None or (
            is_read_committed and log.aborted_transactions(fetch_offset, high_watermark)
        ):
            return None
        return high_watermark, high_watermark, log.log_start_offset, records

    def read(
        self,
        fetch_offset: int,
        bytes_max: int,
        *,
        isolation: Isolation,
        at_least_one: bool,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        replica_id: int = CONSUMER_REPLICA_ID,
        may_wait: bool = True,
    ) -> ReadResult:
        """What a fetch at `fetch_offset` may see; raises KafkaError as the fetch's answer.

        WouldWait if the disk must be waited for, unless it `may_wait`.
        """
        # Fetch takes any negative number for none, unlike the other APIs.
        self.check_epoch(current_leader_epoch if current_leader_epoch >= 0 else NO_EPOCH)
        log = self._log
        if log is None:
            if not may_wait:
                raise WouldWait(self.prepare)
            log = self.log
        in_sync = self.in_sync
        if replica_id >= 0:
            self._check_replica(replica_id)
        high_watermark = in_sync.high_watermark
        first_unstable = log.first_unstable_offset
        last_stable = (
            high_watermark if first_unstable is None else min(high_watermark, first_unstable)
        )
        if last_fetched_epoch >= 0:
            diverging = self._diverging(log, fetch_offset, last_fetched_epoch)
            if diverging is not None:
                return ReadResult(
                    high_watermark, last_stable, log.log_start_offset, None, None, diverging
                )
        if replica_id >= 0:
            end_offset = log.log_end_offset
            in_sync.on_follower_fetch(BrokerId(replica_id), Offset(fetch_offset))
            self._advance(log)
        elif isolation is Isolation.READ_COMMITTED:
            end_offset = last_stable
        else:
            end_offset = high_watermark
        records = log.read(
            fetch_offset,
            bytes_max,
            end_offset=end_offset,
            at_least_one=at_least_one,
            may_wait=may_wait,
        )
        aborted = None
        if isolation is Isolation.READ_COMMITTED and replica_id < 0:
            aborted = _aborted(log, records, fetch_offset, end_offset) if records.length else []
        return ReadResult(high_watermark, last_stable, log.log_start_offset, records, aborted, None)

    def _on_log_opened(self, log: PartitionLog) -> None:
        if self.in_sync.high_watermark < log.log_start_offset:
            self.in_sync.high_watermark = Offset(log.log_start_offset)
        self.in_sync.on_truncated(Offset(log.log_end_offset))
        if self.is_leader:
            self._begin_epoch(log)
            self.in_sync.maybe_advance(Offset(log.log_end_offset))
        log.on_high_watermark_updated(self.in_sync.high_watermark)

    def _advance(self, log: PartitionLog) -> None:
        if self.in_sync.maybe_advance(Offset(log.log_end_offset)):
            log.on_high_watermark_updated(self.in_sync.high_watermark)
            if self.watchers:
                self.wake_watchers()

    def _check_replica(self, replica_id: int) -> None:
        if replica_id == self.local_id or replica_id not in self.state.replicas:
            # A client that poses as a replica must not move the high watermark.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _diverging(
        self, log: PartitionLog, fetch_offset: int, last_fetched_epoch: int
    ) -> EpochEndOffset | None:
        end = log.end_of_epoch(last_fetched_epoch)
        if end is None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return EpochEndOffset(end.epoch, end.end_offset)
        return None


def _aborted(
    log: PartitionLog, records: LogSlice, fetch_offset: int, end_offset: int
) -> list[tuple[int, int]]:
    """Clients match the list against batches as they read, so it goes by first offset.

    Only what touches these records: a topic may hold more aborted transactions than an answer.
    """
    bound = log.end_bound_of(records, fetch_offset, end_offset)
    found = log.aborted_transactions(fetch_offset, bound)
    return sorted(((one.producer_id, one.first_offset) for one in found), key=lambda one: one[1])
