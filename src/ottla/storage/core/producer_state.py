"""Who wrote last to one partition: duplicates, lost batches, zombies, open transactions.

A producer that retries cannot know whether its first try was written. With idempotence it
numbers its records, and the partition leader refuses what is out of order and recognises
what it has already written, as long as it remembers the producer (KIP-98). For transactions
it also remembers where each open one began: readers of committed records stop there.

Five batches are remembered for each producer, as that is how many requests a client may have
in flight. An older duplicate is answered OUT_OF_ORDER_SEQUENCE_NUMBER, as in Kafka; Kafka 4
answers neither DUPLICATE_SEQUENCE_NUMBER nor UNKNOWN_PRODUCER_ID: a producer that retention
or expiry has forgotten may start at any sequence.

Pure, owned by the log. Order of duties: `check*` before the write, `apply*` after it with the
same values, then `end_offset` is set to the log's. Nothing is to happen between the two.

Invariants: `_ongoing` is ordered by first offset and holds each producer with an open
transaction exactly once; a producer whose transaction is open never expires.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.ids import Offset, ProducerId
from ottla.protocol.producers import (
    EPOCH_BUMPING_VERSION,
    NO_PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
)
from ottla.storage.core.append_origin import AppendOrigin

SEQUENCE_MAX = 2**31 - 1
NO_SEQUENCE = -1
NO_TIMESTAMP_MS = -1
NO_VERIFICATION_GUARD = 0
FIRST_OFFSET = Offset(0)

# max.in.flight.requests.per.connection of an idempotent client is at most this.
BATCHES_KEPT_MAX = 5

# A transaction is called late only when its coordinator has had this long to abort it.
LATE_TRANSACTION_GRACE_MS = 5 * 60 * 1000


_VERIFIED_ORIGINS = (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)


class Batch(NamedTuple):
    base_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int  # last offset - base offset
    timestamp_ms: int


class Duplicate(NamedTuple):
    """What the first try was given."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the marker
    is_aborted: bool
    last_stable_offset: Offset  # as the transaction index wants it


class ActiveProducer(NamedTuple):
    """A line of DescribeProducers."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: Offset  # -1 if none is open


def last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """The sequence of a batch's last record; none if the batch has none."""
    if base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (base_sequence + last_offset_delta) & SEQUENCE_MAX


class ProducerEntry:
    """What is remembered of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_consecutive",
        "last_sequence",
        "last_timestamp_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: ProducerId) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = NO_TIMESTAMP_MS
        self.transaction_first_offset: Offset | None = None
        self.last_sequence = NO_SEQUENCE
        self.batches: list[Batch] = []
        # Whether no remembered batch can begin where the next one should. Coordinators write
        # without sequences and a follower takes any, so that is not always so.
        self.is_consecutive = True

    def adopt_epoch(self, epoch: int) -> None:
        """Sequences start again with a new epoch, so the old batches say nothing more."""
        self.epoch = epoch
        self.batches.clear()
        self.last_sequence = NO_SEQUENCE
        self.is_consecutive = True

    def recall(self, epoch: int, batch: Batch) -> bool:
        """Remember a batch from before the remembered ones; whether the one before it matters."""
        oldest = self.batches[0]
        if batch.last_offset >= oldest.last_offset:
            return True  # nothing new
        follows = (batch.last_sequence + 1) & SEQUENCE_MAX == oldest.base_sequence
        if epoch != self.epoch or batch.base_sequence == NO_SEQUENCE or not follows:
            return False
        self.batches.insert(0, batch)
        return self.has_batches_before

    @property
    def has_batches_before(self) -> bool:
        """Whether a client may send a batch again that is older than the remembered ones."""
        return 0 < len(self.batches) < BATCHES_KEPT_MAX and self.batches[0].base_sequence > 0

    def duplicate_of(self, base_sequence: int, last_sequence: int) -> Duplicate | None:
        """The remembered batch with exactly these sequences."""
        for batch in self.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return Duplicate(
                    Offset(batch.last_offset - batch.offset_delta),
                    batch.last_offset,
                    batch.timestamp_ms,
                )
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"ProducerEntry({fields})"


class _Verification:
    """A transaction coordinator is being asked whether this producer's transaction is open."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(
        self, guard: int, sequence: int, epoch: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> None:
        self.guard = guard
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.started_ms = now_ms
        self.supports_epoch_bump = supports_epoch_bump


class ProducerState:
    """Every producer that one partition remembers."""

    __slots__ = (
        "_guard_last",
        "_ongoing",
        "_producers",
        "_unreplicated",
        "_verifications",
        "end_offset",
        "expiration_ms",
        "is_verification_required",
    )

    def __init__(
        self,
        *,
        expiration_ms: int,
        is_verification_required: bool = False,
        end_offset: Offset = FIRST_OFFSET,
    ) -> None:
        self.expiration_ms = expiration_ms  # producer.id.expiration.ms
        self.is_verification_required = is_verification_required
        self.end_offset = end_offset  # the log end offset that this state is of
        self._producers: dict[ProducerId, ProducerEntry] = {}
        self._ongoing: OrderedDict[Offset, ProducerId] = OrderedDict()
        # A heap of (first offset, marker's offset). Entries whose marker is replicated are
        # dropped when they come to the top, so only the top is known to matter.
        self._unreplicated: list[tuple[Offset, Offset]] = []
        self._verifications: dict[ProducerId, _Verification] = {}
        self._guard_last = NO_VERIFICATION_GUARD

    def __len__(self) -> int:
        return len(self._producers)

    def entry(self, producer_id: ProducerId) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def entries(self) -> Iterator[ProducerEntry]:
        """Every producer, for a snapshot."""
        return iter(self._producers.values())

    def check(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        is_transactional: bool = False,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: int = NO_VERIFICATION_GUARD,
    ) -> Duplicate | None:
        """Whether a data batch may be written: None if it is new and may.

        A duplicate is answered with what the first try was given and not written. Anything
        else raises KafkaError. `guard` is what `maybe_start_verification` gave the request.
        """
        if producer_id < 0:
            return None
        entry = self._producers.get(producer_id)
        if (
            entry is not None
            and entry.epoch == producer_epoch
            and entry.last_sequence + 1 == base_sequence
            and entry.is_consecutive
            and is_transactional is (entry.transaction_first_offset is not None)
            and not self._verifications
        ):
            return None
        return self._check_slowly(
            entry or ProducerEntry(producer_id),
            producer_epoch,
            base_sequence,
            last_offset_delta,
            is_transactional=is_transactional,
            origin=origin,
            guard=guard,
        )

    def _check_slowly(
        self,
        entry: ProducerEntry,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        *,
        is_transactional: bool,
        origin: AppendOrigin,
        guard: int,
    ) -> Duplicate | None:
        if origin is AppendOrigin.CLIENT and entry.epoch == epoch:
            last_sequence = last_sequence_of(base_sequence, last_offset_delta)
            duplicate = entry.duplicate_of(base_sequence, last_sequence)
            if duplicate is not None:
                return duplicate
        if origin is not AppendOrigin.REPLICATION and epoch < entry.epoch:
            raise _stale_epoch(entry, epoch)
        if (
            is_transactional
            and origin in _VERIFIED_ORIGINS
            and not self._is_verified(entry, epoch, guard)
        ):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
            )
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, epoch, base_sequence)
        if entry.transaction_first_offset is not None and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected a transactional write from producer {entry.producer_id}",
            )
        return None

    def _check_sequence(self, entry: ProducerEntry, epoch: int, base_sequence: int) -> None:
        verification = self._verifications.get(entry.producer_id)
        is_next_known = entry.epoch == epoch and entry.batches
        if (
            verification is not None
            and not is_next_known
            and (
                (verification.supports_epoch_bump and base_sequence != 0)
                or base_sequence > verification.lowest_sequence
            )
        ):
            # Another batch of this transaction came first and waits to be verified. Where the next
            # sequence is known that is no question: what waits may be a late copy of an old batch.
            raise _out_of_order(entry, epoch, base_sequence, verification.lowest_sequence - 1)
        if entry.epoch == NO_PRODUCER_EPOCH:
            return  # forgotten or new: any sequence will do
        if epoch != entry.epoch:
            if base_sequence != 0:
                raise _out_of_order(entry, epoch, base_sequence, NO_SEQUENCE)
            return
        last_sequence = entry.last_sequence
        if base_sequence != last_sequence + 1 and not (
            base_sequence == 0 and last_sequence == SEQUENCE_MAX
        ):
            raise _out_of_order(entry, epoch, base_sequence, last_sequence)

    def _is_verified(self, entry: ProducerEntry, epoch: int, guard: int) -> bool:
        if not self.is_verification_required:
            return True
        if entry.transaction_first_offset is not None and entry.epoch == epoch:
            return True
        verification = self._verifications.get(entry.producer_id)
        return verification is not None and verification.guard == guard

    def apply(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        base_sequence: int,
        base_offset: Offset,
        last_offset: Offset,
        max_timestamp_ms: int,
        is_transactional: bool = False,
    ) -> None:
        """Remember a data batch that was written, here or by the leader this log follows."""
        if producer_id < 0:
            return
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != producer_epoch:
            entry.adopt_epoch(producer_epoch)
        batches = entry.batches
        delta = last_offset - base_offset
        last_sequence = NO_SEQUENCE
        if base_sequence != NO_SEQUENCE:
            last_sequence = (base_sequence + delta) & SEQUENCE_MAX
        if base_sequence != entry.last_sequence + 1 and batches:
            entry.is_consecutive = False
        if len(batches) == BATCHES_KEPT_MAX:
            del batches[0]
        batches.append(Batch(base_sequence, last_sequence, last_offset, delta, max_timestamp_ms))
        entry.last_sequence = last_sequence
        entry.last_timestamp_ms = max_timestamp_ms
        if is_transactional:
            if entry.transaction_first_offset is None:
                entry.transaction_first_offset = base_offset
                self._ongoing[base_offset] = producer_id
            if self._verifications:
                self._verifications.pop(producer_id, None)

    def check_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        origin: AppendOrigin,
        transaction_version: int = 0,
    ) -> None:
        """Raise KafkaError unless this transaction marker may be written."""
        entry = self._producers.get(producer_id)
        if entry is None or origin is AppendOrigin.REPLICATION:
            return
        if transaction_version >= EPOCH_BUMPING_VERSION:
            # A coordinator that got no answer sends its marker again.
            is_repeated = producer_epoch == entry.epoch and (
                entry.transaction_first_offset is None or producer_epoch == PRODUCER_EPOCH_MAX
            )
            is_fenced = producer_epoch <= entry.epoch and not is_repeated
        else:
            is_fenced = producer_epoch < entry.epoch
        if is_fenced:
            raise _stale_epoch(entry, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} for producer {producer_id} is a zombie's:"
                f" the last seen is {entry.coordinator_epoch}",
            )

    def apply_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        offset: Offset,
        timestamp_ms: int,
        is_abort: bool,
    ) -> CompletedTransaction | None:
        """Remember a written marker; the transaction it ended, if that had any records.

        The caller adds an aborted one to the transaction index of the marker's segment.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != producer_epoch:
            entry.adopt_epoch(producer_epoch)
        first_offset = entry.transaction_first_offset
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.transaction_first_offset = None
        self._verifications.pop(producer_id, None)
        if first_offset is None:
            return None
        if self._ongoing.pop(first_offset, None) != producer_id:
            raise InvariantError(
                f"producer {producer_id} ends a transaction at {first_offset} that nobody began"
            )
        heappush(self._unreplicated, (first_offset, offset))
        undecided = self.first_undecided_offset
        return CompletedTransaction(
            producer_id,
            first_offset,
            offset,
            is_abort,
            Offset(offset + 1) if undecided is None else undecided,
        )

    @property
    def first_undecided_offset(self) -> Offset | None:
        """Where the oldest open transaction began."""
        return next(iter(self._ongoing)) if self._ongoing else None

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first offset that readers of committed records must not pass.

        Either undecided, or decided by a marker that a lost leader would take with it
        because it lies above the high watermark.
        """
        undecided = next(iter(self._ongoing)) if self._ongoing else None
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][0]
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def on_high_watermark_updated(self, high_watermark: Offset) -> None:
        """Markers below the high watermark cannot be lost any more."""
        heap = self._unreplicated
        while heap and heap[0][1] < high_watermark:
            heappop(heap)

    def on_log_start_offset_incremented(self, log_start_offset: Offset) -> None:
        """Producers stay known although their records are deleted, until they expire."""
        self.on_high_watermark_updated(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def has_ongoing_transaction(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset is not None
            and entry.epoch == producer_epoch
        )

    def has_late_transaction(self, now_ms: int, *, transaction_timeout_ms_max: int) -> bool:
        """Whether the oldest open transaction should have been aborted by now."""
        if not self._ongoing:
            return False
        oldest = self._producers[next(iter(self._ongoing.values()))].last_timestamp_ms
        return 0 < oldest < now_ms - transaction_timeout_ms_max - LATE_TRANSACTION_GRACE_MS

    def maybe_start_verification(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> int:
        """The guard with which `check` lets a transaction begin once its coordinator agrees.

        NO_VERIFICATION_GUARD if the transaction is open here already. A marker written
        meanwhile takes the guard away: the answer is then about a transaction that is over.
        """
        entry = self._producers.get(producer_id)
        if entry is not None and producer_epoch < entry.epoch:
            raise _stale_epoch(entry, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return NO_VERIFICATION_GUARD
        verification = self._verifications.get(producer_id)
        if verification is None:
            self._guard_last += 1
            verification = self._verifications[producer_id] = _Verification(
                self._guard_last,
                base_sequence,
                producer_epoch,
                now_ms,
                supports_epoch_bump=supports_epoch_bump,
            )
        elif producer_epoch > verification.epoch or (
            producer_epoch == verification.epoch and base_sequence < verification.lowest_sequence
        ):
            verification.epoch = producer_epoch
            verification.lowest_sequence = base_sequence
        return verification.guard

    def expire(self, now_ms: int) -> int:
        """Forget producers idle for `expiration_ms`, and stale verifications; how many."""
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if self._is_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.started_ms >= self.expiration_ms:
                del self._verifications[producer_id]
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.transaction_first_offset is None
            and now_ms - entry.last_timestamp_ms >= self.expiration_ms
        )

    def describe(self) -> list[ActiveProducer]:
        """The lines of DescribeProducers."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                Offset(-1)
                if entry.transaction_first_offset is None
                else entry.transaction_first_offset,
            )
            for entry in self._producers.values()
        ]

    def clear_and_start_at(self, offset: Offset) -> None:
        """Forget everything: the log is to be empty and continue at `offset`."""
        self.reload((), offset, now_ms=0)

    def reload(self, entries: Iterable[ProducerEntry], offset: Offset, *, now_ms: int) -> None:
        """Be what a snapshot taken at `offset` says; the caller replays the log from there."""
        self._producers.clear()
        self._unreplicated.clear()
        self._ongoing.clear()
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self._producers[entry.producer_id] = entry
        open_entries = [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self._producers.values()
            if entry.transaction_first_offset is not None
        ]
        self._ongoing.update(sorted(open_entries))
        self.end_offset = offset


def _stale_epoch(entry: ProducerEntry, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {entry.producer_id} is stale: the last seen is {entry.epoch}",
    )


def _out_of_order(
    entry: ProducerEntry, epoch: int, base_sequence: int, last_sequence: int
) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number {base_sequence} in epoch {epoch} of producer"
        f" {entry.producer_id}: the last one is {last_sequence} in epoch {entry.epoch}",
    )
