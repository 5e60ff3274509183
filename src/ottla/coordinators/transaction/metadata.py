"""What is known of one transactional id: its producer, and the transaction that it has open.

Pure data. What the log does not hold is `last_producer_epoch`: it lets a producer repeat an
InitProducerId whose answer was lost, as long as this coordinator lives, as in Apache Kafka.
"""

from typing import NamedTuple

from ottla.coordinators.transaction.states import TransactionState
from ottla.protocol.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.producers import (
    EPOCH_BUMPING_VERSION,
    NO_PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
)

NO_TIMESTAMP = -1
# The last number is kept back, so that a producer can always be fenced.
EXHAUSTED_FROM = PRODUCER_EPOCH_MAX - 1
# A transaction that an outside coordinator will end has no time to be aborted at (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TransactionMetadata(NamedTuple):
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # takes over when this transaction is complete
    next_producer_epoch: int = NO_PRODUCER_EPOCH  # with it; none is 0, as after an overflow
    last_producer_epoch: int = NO_PRODUCER_EPOCH  # that the producer had before; not in the log
    client_version: int = 0  # of transactions, as the client spoke when it came to this state

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMPING_VERSION

    @property
    def identity(self) -> ProducerIdentity:
        """Whose transaction it is: its records and its markers bear this."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def client(self) -> ProducerIdentity:
        """Who the producer is by now: another than `identity` once its successor is decided."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.identity
        return ProducerIdentity(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_kept(self) -> bool:
        """A later producer found the transaction open and is there only to end it (KIP-939)."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH
