"""The end of a producer id's epochs: another id follows, and the last epoch stays untold."""

import pytest

from ottla.coordinators.transaction.metadata import (
    EXHAUSTED_FROM,
    ProducerIdentity,
    TransactionMetadata,
)
from ottla.coordinators.transaction.states import TransactionState
from ottla.coordinators.transaction.transaction import EndRequest, ProducerIdNeeded, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.producers import EPOCH_BUMPING_VERSION, PRODUCER_EPOCH_MAX

HERE = frozenset((TopicPartition("t", 0),))
LAST = ProducerIdentity(42, EXHAUSTED_FROM)


def timed_out() -> Transaction:
    """The transaction of a producer in its last epoch took too long, and was aborted."""
    transaction = Transaction(
        "id",
        TransactionMetadata(*LAST, 100, TransactionState.ONGOING, HERE, 1, 1, client_version=2),
    )
    transaction.replay(
        transaction.decide_fencing_abort(server_version=EPOCH_BUMPING_VERSION, now_ms=2)
    )
    transaction.replay(transaction.decide_complete(now_ms=3))
    assert transaction.current.client == (42, PRODUCER_EPOCH_MAX)
    return transaction


def init(transaction: Transaction, expected: ProducerIdentity, spare: int | None) -> None:
    transaction.replay(
        transaction.decide_init(
            timeout_ms=100, expected=expected, spare_producer_id=spare, now_ms=4
        )
    )


def test_a_producer_that_took_too_long_in_its_last_epoch_goes_on_under_another_id() -> None:
    transaction = timed_out()
    with pytest.raises(ProducerIdNeeded):
        init(transaction, LAST, None)
    init(transaction, LAST, 43)
    assert transaction.current.client == (43, 0)
    init(transaction, LAST, None)  # the answer was lost
    assert transaction.current.client == (43, 0)


@pytest.mark.parametrize("version", [0, EPOCH_BUMPING_VERSION])
@pytest.mark.parametrize("is_commit", [True, False])
def test_who_claims_the_epoch_that_was_told_to_nobody_is_fenced(
    version: int, is_commit: bool
) -> None:
    transaction = timed_out()
    liar = transaction.current.client
    request = EndRequest(*liar, is_commit, version)
    with pytest.raises(KafkaError) as refused:
        transaction.decide_end(request, spare_producer_id=43, now_ms=4)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
    with pytest.raises(KafkaError) as refused:
        transaction.decide_add(liar, HERE, client_version=version, now_ms=4)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
