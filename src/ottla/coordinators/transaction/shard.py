"""The transactional ids of one partition of `__transaction_state`.

Pure; owned by the shell in coordinator.py. `replay` is the only way in for what the log has
committed, alive and while loading alike. Invariant: two shards that replayed the same records
know the same transactional ids in the same states.
"""

from collections.abc import Iterator

from ottla.coordinators.record_fields import KeyValue
from ottla.coordinators.transaction.metadata import TransactionMetadata
from ottla.coordinators.transaction.records import (
    TransactionRecord,
    decode_key,
    decode_value,
)
from ottla.coordinators.transaction.states import PREPARED, TransactionState
from ottla.coordinators.transaction.transaction import Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.producers import NO_PRODUCER_EPOCH

_NOTHING: tuple[bytes | None, Transaction | None, TransactionMetadata | None] = (b"", None, None)


class TransactionShard:
    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        # What was decided here comes back from the log as the same bytes, and is not read again.
        self._expected: dict[bytes, tuple[bytes | None, Transaction, TransactionMetadata]] = {}

    def get(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def get_or_new(
        self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """The transactional id; one that the log does not hold yet has no epoch."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = self.transactions[transactional_id] = Transaction(
                transactional_id,
                TransactionMetadata(
                    producer_id,
                    NO_PRODUCER_EPOCH,
                    timeout_ms,
                    TransactionState.EMPTY,
                    last_update_ms=now_ms,
                ),
            )
        return transaction

    def prepared(self) -> Iterator[Transaction]:
        """Those whose end is decided and not told to all partitions yet."""
        return iter([one for one in self.transactions.values() if one.state in PREPARED])

    def timed_out(self, now_ms: int) -> list[Transaction]:
        return [one for one in self.transactions.values() if one.is_timed_out(now_ms)]

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        return [
            name for name, one in self.transactions.items() if one.is_expired(now_ms, expiration_ms)
        ]

    def expect(
        self, transaction: Transaction, decided: TransactionMetadata, record: TransactionRecord
    ) -> None:
        """The record is about to be written; nothing else may be decided until it is replayed."""
        transaction.pending = decided
        self._expected[record.key] = (record.value, transaction, decided)

    def replay_decided(self, producer_id: int, record: KeyValue) -> None:
        self.replay(producer_id, record.key, record.value)

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        written, transaction, decided = self._expected.pop(key, _NOTHING)
        if written is value and transaction is not None and decided is not None:
            transaction.replay(decided)
            return
        transactional_id = decode_key(key)
        if transactional_id is None:
            return  # of a version to come
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        committed = decode_value(value)
        known = self.transactions.get(transactional_id)
        if known is None:
            self.transactions[transactional_id] = Transaction(transactional_id, committed)
        else:
            known.replay(committed)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Nobody writes to this topic in transactions."""
