"""Whether a batch may begin a transaction in a partition: the coordinator knows.

A produce that was held up on its way must not open a transaction that its coordinator has ended,
or never began: nobody would end it, and readers of committed records would wait for ever. So the
first batch of a transaction in a partition is written only after the coordinator agreed, and only
if no marker came in between; the guard that the log gave before the question stands for that
(KIP-890). Newer clients do not add partitions beforehand: the question adds them.

Later batches find the transaction open in the log and cost no question. Owned by the event loop's
thread.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from ottla.coordinators.transaction.metadata import ProducerIdentity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.producers import EPOCH_BUMPING_VERSION
from ottla.server.services import Services
from ottla.storage.core.producer_state import NO_VERIFICATION_GUARD

Guards: TypeAlias = Mapping[TopicPartition, int | KafkaError]
"""What to append each partition's batch with, or why not to."""

Codes: TypeAlias = Mapping[TopicPartition, ErrorCode]


class Operation(Enum):
    """What the client's version lets the broker do, and tell it."""

    VERIFY = auto()
    VERIFY_WITH_ABORTABLE = auto()  # it knows TRANSACTION_ABORTABLE
    ADD = auto()


class FirstBatch(NamedTuple):
    """A batch that may be the first of its transaction in a partition."""

    at: TopicPartition
    producer: ProducerIdentity
    base_sequence: int


def guards_for(
    services: Services,
    transactional_id: str,
    batches: Sequence[FirstBatch],
    operation: Operation,
) -> Guards | Awaitable[Guards]:
    """The guards of batches that are all of one producer."""
    if (
        operation is not Operation.ADD
        and not services.config.transaction_partition_verification_enable
    ):
        return dict.fromkeys((one.at for one in batches), NO_VERIFICATION_GUARD)
    asked = _Question(services, transactional_id, tuple(batches), operation)
    found, unverified = asked.begin()
    if not unverified:
        return found
    codes = asked.ask(unverified)
    if isinstance(codes, Awaitable) or ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
        return asked.answered_later(found, codes)
    return asked.answered(found, codes)


class _Question(NamedTuple):
    services: Services
    transactional_id: str
    batches: tuple[FirstBatch, ...]
    operation: Operation

    def begin(self) -> tuple[dict[TopicPartition, int | KafkaError], frozenset[TopicPartition]]:
        """The guards of now, and which partitions the coordinator must be asked about."""
        found: dict[TopicPartition, int | KafkaError] = {}
        now_ms = self.services.runtime.clock.wall_ms()
        adds = self.operation is Operation.ADD
        unverified = []
        for one in self.batches:
            try:
                partition = self.services.replicas.partition(*one.at)
                guard = partition.begin_verification(
                    *one.producer, one.base_sequence, now_ms=now_ms, supports_epoch_bump=adds
                )
            except KafkaError as error:
                found[one.at] = error
                continue
            found[one.at] = guard
            if guard != NO_VERIFICATION_GUARD:
                unverified.append(one.at)
        return found, frozenset(unverified)

    def ask(self, partitions: frozenset[TopicPartition]) -> Codes | Awaitable[Codes]:
        transactions = self.services.transactions
        producer = self.batches[0].producer
        if self.operation is not Operation.ADD:
            return transactions.verify(self.transactional_id, producer, partitions)
        code = transactions.add_partitions(
            self.transactional_id, producer, partitions, client_version=EPOCH_BUMPING_VERSION
        )
        if isinstance(code, Awaitable):
            return self._for_each(partitions, code)
        return dict.fromkeys(partitions, code)

    async def _for_each(
        self, partitions: frozenset[TopicPartition], code: Awaitable[ErrorCode]
    ) -> Codes:
        return dict.fromkeys(partitions, await code)

    def answered(self, guards: dict[TopicPartition, int | KafkaError], codes: Codes) -> Guards:
        for at, code in codes.items():
            told = _told(code, self.operation)
            if told is not ErrorCode.NONE:
                guards[at] = KafkaError(told)
        return guards

    async def answered_later(
        self, guards: dict[TopicPartition, int | KafkaError], codes: Codes | Awaitable[Codes]
    ) -> Guards:
        """The transaction before is being completed: that takes a moment, so try for one.

        Its marker voids the guards that were taken before it, so each try takes new ones.
        """
        config = self.services.config
        clock = self.services.runtime.clock
        deadline = clock.monotonic() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            known = await codes if isinstance(codes, Awaitable) else codes
            if (
                ErrorCode.CONCURRENT_TRANSACTIONS not in known.values()
                or clock.monotonic() >= deadline
            ):
                return self.answered(guards, known)
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            guards, unverified = self.begin()
            if not unverified:
                return guards
            codes = self.ask(unverified)


def _told(code: ErrorCode, operation: Operation) -> ErrorCode:
    """In terms that every producer knows."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return code
