"""A first batch that waits for the transaction before it is written with a guard that holds."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

from ottla.coordinators.transaction.metadata import ProducerIdentity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import TopicPartition
from ottla.server.transaction_guards import FirstBatch, Operation, guards_for
from ottla.storage.core.producer_state import NO_VERIFICATION_GUARD

AT = TopicPartition("t", 0)
BATCH = FirstBatch(AT, ProducerIdentity(7, 1), 0)


class World:
    """One partition whose guard changes with every marker, and a coordinator with answers."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.guard = 5
        self._codes = list(codes)
        config = SimpleNamespace(
            transaction_partition_verification_enable=True,
            add_partitions_to_txn_retry_backoff_ms=1,
            add_partitions_to_txn_retry_backoff_max_ms=1_000,
        )
        clock = SimpleNamespace(wall_ms=lambda: 0, monotonic=lambda: 0.0)
        partition = SimpleNamespace(begin_verification=lambda *_, **__: self.guard)
        self.services: Any = SimpleNamespace(
            config=config,
            runtime=SimpleNamespace(clock=clock),
            replicas=SimpleNamespace(partition=lambda *_: partition),
            transactions=SimpleNamespace(add_partitions=self._answer, verify=self._verify),
        )

    def _answer(self, *_: object, **__: object) -> ErrorCode:
        return self._codes.pop(0)

    def _verify(self, _id: str, _producer: object, at: frozenset[TopicPartition]) -> dict[Any, Any]:
        return dict.fromkeys(at, self._codes.pop(0))

    async def guards(self, operation: Operation, *, marker_voids: bool = False) -> Any:
        found = guards_for(self.services, "id", [BATCH], operation)
        if marker_voids:
            self.guard += 1
        return await found if isinstance(found, Awaitable) else found


def test_guard_is_taken_anew_after_the_marker_of_the_transaction_before() -> None:
    for operation in (Operation.ADD, Operation.VERIFY):
        world = World(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE)
        assert asyncio.run(world.guards(operation, marker_voids=True)) == {AT: 6}


def test_guard_is_given_at_once_when_the_coordinator_agrees() -> None:
    assert guards_for(World(ErrorCode.NONE).services, "id", [BATCH], Operation.ADD) == {AT: 5}


def test_coordinator_is_not_asked_about_a_transaction_that_is_open_in_the_log() -> None:
    world = World()
    world.guard = NO_VERIFICATION_GUARD
    found = guards_for(world.services, "id", [BATCH], Operation.ADD)
    assert found == {AT: NO_VERIFICATION_GUARD}


def test_batch_is_refused_with_what_the_coordinator_says() -> None:
    guards = asyncio.run(World(ErrorCode.PRODUCER_FENCED).guards(Operation.ADD))
    assert guards[AT].code is ErrorCode.INVALID_PRODUCER_EPOCH
