"""One transactional id: what may happen to it next, as records to write.

A transaction spans partitions on several brokers, and each step of it must survive whoever
coordinates it. So every step is a record first; this object decides the record from what the log
has committed so far, and only `replay` changes what it knows. While a step is being written all
others are told to come back (CONCURRENT_TRANSACTIONS).

A producer that was replaced, or that took too long, must not end or extend the transaction of
its successor. It is known by its epoch. Up to transactions v1 the epoch changes when a producer
begins, so a message of an earlier transaction of the same producer cannot be told from one of
the present transaction; since v2 it changes with every transaction (KIP-890), and an EndTxn that
comes late, or twice, is recognised by the epoch it was sent with.

A transaction that an outside coordinator prepared outlives its producer: the next one asks to keep
it and is only there to end it (KIP-939). Then two identities are known, whose transaction it is and
who the client is by now (`TransactionMetadata.client`); whoever came before is fenced.

Pure; owned by the shard. Invariants: an epoch never goes back while the producer id stays; a
state is entered only from those that `states.PREVIOUS` names; only one step is under way.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.coordinators.transaction.metadata import (
    EXHAUSTED_FROM,
    NO_TIMEOUT_MS,
    NO_TIMESTAMP,
    ProducerIdentity,
    TransactionMetadata,
)
from ottla.coordinators.transaction.states import EXPIRABLE, PREPARED, PREVIOUS, TransactionState
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.producers import EPOCH_BUMPING_VERSION, NO_PRODUCER_EPOCH, PRODUCER_EPOCH_MAX


class ProducerIdNeeded(Exception):
    """The decision wants a producer id that was never used; ask again with one."""


class EndRequest(NamedTuple):
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int


class Transaction:
    __slots__ = ("current", "pending", "transactional_id")

    def __init__(self, transactional_id: str, current: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.current = current
        self.pending: TransactionMetadata | None = None  # on its way to the log

    @property
    def state(self) -> TransactionState:
        return self.current.state

    def replay(self, committed: TransactionMetadata) -> None:
        """The log holds this now."""
        self.current = committed
        self.pending = None

    # Beginning as a producer

    def decide_init(
        self,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        spare_producer_id: int | None,
        now_ms: int,
    ) -> TransactionMetadata:
        """The producer begins anew, or goes on after an error as who it says it is (KIP-360).

        Not while its transaction is open: see `check_open`.
        """
        current = self.current
        self._check_idle()
        self._check_expected(expected)
        if current.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        begun = current._replace(
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
            previous_producer_id=current.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            client_version=0,
        )
        client, last = self._next_client(expected, spare_producer_id)
        return self._enter(
            begun._replace(
                producer_id=client.producer_id,
                producer_epoch=client.producer_epoch,
                last_producer_epoch=last,
            )
        )

    def decide_keep(
        self,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        spare_producer_id: int | None,
        now_ms: int,
    ) -> TransactionMetadata:
        """Another producer begins and may only end what is open, with who it is from now on."""
        client, last = self._next_client(expected, spare_producer_id)
        return self._enter(
            self.current._replace(
                timeout_ms=timeout_ms,
                last_update_ms=now_ms,
                previous_producer_id=self.current.client.producer_id,
                next_producer_id=client.producer_id,
                next_producer_epoch=client.producer_epoch,
                last_producer_epoch=last,
            )
        )

    def check_open(self, expected: ProducerIdentity | None) -> bool:
        """Whether a transaction of the producer before is open; raises what refuses the new one."""
        self._check_idle()
        self._check_expected(expected)
        return self.state is TransactionState.ONGOING

    def _check_expected(self, expected: ProducerIdentity | None) -> None:
        client = self.current.client
        if (
            expected is None
            or client.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == client.producer_id
        ):
            return
        # Its epochs ran out, it was given another id, and never heard of it.
        if (
            expected.producer_id != self.current.previous_producer_id
            or expected.producer_epoch < EXHAUSTED_FROM
        ):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def _next_client(
        self, expected: ProducerIdentity | None, spare_producer_id: int | None
    ) -> tuple[ProducerIdentity, int]:
        """Who begins, and the epoch to remember as the producer's last."""
        (producer_id, epoch), last = self.current.client, self.current.last_producer_epoch
        if epoch >= EXHAUSTED_FROM and (
            expected is None or expected.producer_epoch in (epoch, last)
        ):
            if spare_producer_id is None:
                raise ProducerIdNeeded
            following = ProducerIdentity(spare_producer_id, 0)
            return following, NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        if expected is None:
            return ProducerIdentity(producer_id, epoch + 1), NO_PRODUCER_EPOCH
        if epoch == NO_PRODUCER_EPOCH or expected.producer_epoch == epoch:
            return ProducerIdentity(producer_id, epoch + 1), epoch
        if expected.producer_epoch == last:
            # It asks again, as it did not get the answer.
            return ProducerIdentity(producer_id, epoch), last
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # Partitions

    def decide_add(
        self,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        now_ms: int,
    ) -> TransactionMetadata | None:
        """The transaction with these partitions; None if it has them already."""
        current = self.current
        # A pending step may be the change to another producer id, so it is awaited first.
        self._check_idle()
        self._check_producer(producer)
        self._check_extensible()
        is_open = current.state is TransactionState.ONGOING
        if is_open and partitions <= current.partitions:
            return None
        return self._enter(
            current._replace(
                state=TransactionState.ONGOING,
                partitions=current.partitions | partitions,
                start_ms=current.start_ms if is_open else now_ms,
                last_update_ms=now_ms,
                previous_producer_id=current.producer_id,
                client_version=client_version,
            )
        )

    def verify(
        self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each belongs to the transaction that is open."""
        self._check_producer(producer)
        self._check_extensible()
        held = self.current.partitions
        return {
            one: ErrorCode.NONE if one in held else ErrorCode.TRANSACTION_ABORTABLE
            for one in partitions
        }

    def _check_producer(self, producer: ProducerIdentity) -> None:
        current = self.current
        client = current.client
        if producer.producer_id not in (client.producer_id, current.producer_id):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer != client or client.producer_epoch == PRODUCER_EPOCH_MAX:
            # The last epoch fences and is told to nobody, so who claims it was not told.
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def _check_extensible(self) -> None:
        if self.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if self.current.is_kept:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    # Ending

    def decide_end(
        self, request: EndRequest, *, spare_producer_id: int | None, now_ms: int
    ) -> TransactionMetadata | None:
        """The prepared transaction; None if it has ended just so already."""
        if request.client_version >= EPOCH_BUMPING_VERSION:
            return self._decide_end_with_bump(request, spare_producer_id, now_ms)
        return self._decide_end_without_bump(request, now_ms)

    def _decide_end_without_bump(
        self, request: EndRequest, now_ms: int
    ) -> TransactionMetadata | None:
        self._check_producer(ProducerIdentity(request.producer_id, request.producer_epoch))
        self._check_idle()
        state = self.state
        if state is TransactionState.ONGOING:
            return self._prepared(request, None, now_ms)
        if state is _complete(request.is_commit):
            return None
        if state is _prepared_state(request.is_commit):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def _decide_end_with_bump(
        self, request: EndRequest, spare_producer_id: int | None, now_ms: int
    ) -> TransactionMetadata | None:
        self._check_idle()
        current, state, epoch = self.current, self.state, request.producer_epoch
        client = current.client
        is_after_overflow = (
            current.previous_producer_id == request.producer_id
            and epoch == EXHAUSTED_FROM
            and client.producer_epoch == 0
        )
        is_of_client = request.producer_id == client.producer_id
        is_repeated = is_after_overflow or (
            is_of_client and current.bumps_epoch and client.producer_epoch == epoch + 1
        )
        if not (is_of_client or is_after_overflow or request.producer_id == current.producer_id):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_present = is_of_client and epoch == client.producer_epoch != PRODUCER_EPOCH_MAX
        may_be_repeated = state in PREPARED or state in _COMPLETE
        may_be_present = state not in PREPARED
        if not ((is_present and may_be_present) or (is_repeated and may_be_repeated)):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if state is TransactionState.ONGOING:
            return self._prepared(request, spare_producer_id, now_ms)
        if state in PREPARED:
            if state is _prepared_state(request.is_commit):
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if is_repeated:
            if state is _complete(request.is_commit):
                return None
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if request.is_commit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        # Nothing was added yet; a produce of this epoch that is still on its way is fenced.
        return self._prepared(request, spare_producer_id, now_ms)

    def decide_fencing_abort(self, *, server_version: int, now_ms: int) -> TransactionMetadata:
        """Abort the open transaction and fence its producer: a successor came, or its time is up.

        The epoch is told to nobody: whoever begins next gets a later one.
        """
        self._check_idle()
        current = self.current
        bumps = server_version >= EPOCH_BUMPING_VERSION
        return self._enter(
            current._replace(
                producer_epoch=min(current.producer_epoch + 1, PRODUCER_EPOCH_MAX),
                state=TransactionState.PREPARE_ABORT,
                last_update_ms=now_ms,
                previous_producer_id=current.client.producer_id,
                next_producer_epoch=min(current.next_producer_epoch + 1, PRODUCER_EPOCH_MAX)
                if current.is_kept
                else NO_PRODUCER_EPOCH,
                last_producer_epoch=current.client.producer_epoch if bumps else NO_PRODUCER_EPOCH,
                client_version=server_version if bumps else 0,
            )
        )

    def decide_complete(self, *, now_ms: int) -> TransactionMetadata:
        """Every partition has its marker."""
        self._check_idle()
        current = self.current
        producer_id, epoch = current.client
        return self._enter(
            current._replace(
                producer_id=producer_id,
                producer_epoch=epoch,
                state=_complete(self.state is TransactionState.PREPARE_COMMIT),
                partitions=frozenset(),
                last_update_ms=now_ms,
                previous_producer_id=current.previous_producer_id
                if current.is_kept
                else current.producer_id,
                next_producer_id=NO_PRODUCER_ID,
                next_producer_epoch=NO_PRODUCER_EPOCH,
            )
        )

    def _prepared(
        self, request: EndRequest, spare_producer_id: int | None, now_ms: int
    ) -> TransactionMetadata:
        current = self.current
        bumps = request.client_version >= EPOCH_BUMPING_VERSION
        is_open = current.state is TransactionState.ONGOING
        prepared = current._replace(
            producer_epoch=current.producer_epoch + bumps,
            state=_prepared_state(request.is_commit),
            start_ms=current.start_ms if is_open else now_ms,
            last_update_ms=now_ms,
            previous_producer_id=current.client.producer_id,
            client_version=request.client_version,
        )
        return self._enter(self._succeeded(prepared, spare_producer_id) if bumps else prepared)

    def _succeeded(
        self, prepared: TransactionMetadata, spare_producer_id: int | None
    ) -> TransactionMetadata:
        """The prepared transaction with who its producer is afterwards.

        Also one that is there only to end it gets another epoch: its EndTxn, if it comes again,
        must not end a later transaction.
        """
        producer_id, epoch = self.current.client
        is_kept = self.current.is_kept
        if epoch >= EXHAUSTED_FROM:
            if spare_producer_id is None:
                raise ProducerIdNeeded
            following = ProducerIdentity(spare_producer_id, 0 if is_kept else NO_PRODUCER_EPOCH)
        elif is_kept:
            following = ProducerIdentity(producer_id, epoch + 1)
        else:
            following = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)  # this one goes on
        return prepared._replace(
            next_producer_id=following.producer_id,
            next_producer_epoch=following.producer_epoch,
            last_producer_epoch=epoch,
        )

    # Time

    def is_timed_out(self, now_ms: int) -> bool:
        current = self.current
        return (
            current.state is TransactionState.ONGOING
            and self.pending is None
            and current.timeout_ms != NO_TIMEOUT_MS
            and current.start_ms + current.timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        current = self.current
        return (
            current.state in EXPIRABLE
            and self.pending is None
            and current.last_update_ms + expiration_ms <= now_ms
        )

    # Small steps

    def _check_idle(self) -> None:
        if self.pending is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _enter(self, following: TransactionMetadata) -> TransactionMetadata:
        if self.state not in PREVIOUS[following.state]:
            raise InvariantError(
                f"transactional id {self.transactional_id!r} cannot go from {self.state.label}"
                f" to {following.state.label}"
            )
        return following


_COMPLETE = frozenset((TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))


def _complete(is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT


def _prepared_state(is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
