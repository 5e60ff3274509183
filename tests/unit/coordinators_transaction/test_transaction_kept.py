"""A prepared transaction outlives its producer: the next one may only end it (KIP-939)."""

import pytest

from ottla.coordinators.transaction.metadata import (
    EXHAUSTED_FROM,
    NO_TIMEOUT_MS,
    ProducerIdentity,
    TransactionMetadata,
)
from ottla.coordinators.transaction.states import TransactionState
from ottla.coordinators.transaction.transaction import EndRequest, ProducerIdNeeded, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition

HERE = frozenset((TopicPartition("t", 0),))


def opened(epoch: int = 100) -> Transaction:
    current = TransactionMetadata(
        42, epoch, NO_TIMEOUT_MS, TransactionState.ONGOING, HERE, 1, 1, 42, client_version=2
    )
    return Transaction("id", current)


def keep(
    transaction: Transaction,
    *,
    expected: ProducerIdentity | None = None,
    spare_producer_id: int | None = None,
) -> ProducerIdentity:
    assert transaction.check_open(expected)
    decided = transaction.decide_keep(
        timeout_ms=NO_TIMEOUT_MS, expected=expected, spare_producer_id=spare_producer_id, now_ms=2
    )
    transaction.replay(decided)
    return transaction.current.client


def end(
    transaction: Transaction,
    producer: ProducerIdentity,
    *,
    is_commit: bool = True,
    version: int = 2,
    spare_producer_id: int | None = None,
) -> TransactionMetadata | None:
    decided = transaction.decide_end(
        EndRequest(*producer, is_commit, version), spare_producer_id=spare_producer_id, now_ms=3
    )
    if decided is not None:
        transaction.replay(decided)
    return decided


def complete(transaction: Transaction) -> ProducerIdentity:
    transaction.replay(transaction.decide_complete(now_ms=4))
    return transaction.current.identity


def refusal(call: object, *arguments: object, **named: object) -> ErrorCode:
    assert callable(call)
    with pytest.raises(KafkaError) as refused:
        call(*arguments, **named)
    return refused.value.code


def test_the_successor_ends_what_its_predecessor_prepared() -> None:
    transaction = opened()
    successor = keep(transaction)
    assert successor == (42, 101)
    assert transaction.current.identity == (42, 100)
    assert transaction.state is TransactionState.ONGOING
    end(transaction, successor)
    assert transaction.state is TransactionState.PREPARE_COMMIT
    assert transaction.current.identity == (42, 101)  # the marker's: above that of the records
    assert transaction.current.client == (42, 102)
    assert complete(transaction) == (42, 102)
    assert not transaction.current.is_kept


def test_everybody_before_the_successor_is_fenced() -> None:
    transaction = opened()
    first = keep(transaction)
    second = keep(transaction)
    for zombie in (ProducerIdentity(42, 100), first):
        assert refusal(end, transaction, zombie) is ErrorCode.PRODUCER_FENCED
        assert refusal(end, transaction, zombie, version=0) is ErrorCode.PRODUCER_FENCED
        assert refusal(transaction.verify, zombie, HERE) is ErrorCode.PRODUCER_FENCED
        more = {"client_version": 2, "now_ms": 3}
        assert refusal(transaction.decide_add, zombie, HERE, **more) is ErrorCode.PRODUCER_FENCED
    stranger = ProducerIdentity(7, 0)
    assert refusal(end, transaction, stranger) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(transaction, second, is_commit=False) is not None


def test_the_successor_cannot_extend_it() -> None:
    transaction = opened()
    successor = keep(transaction)
    code = refusal(transaction.decide_add, successor, HERE, client_version=2, now_ms=3)
    assert code is ErrorCode.INVALID_TXN_STATE
    assert refusal(transaction.verify, successor, HERE) is ErrorCode.INVALID_TXN_STATE


def test_an_end_that_comes_again_is_answered_alike() -> None:
    transaction = opened()
    successor = keep(transaction)
    end(transaction, successor)
    assert refusal(end, transaction, successor) is ErrorCode.CONCURRENT_TRANSACTIONS
    complete(transaction)
    assert end(transaction, successor) is None
    assert refusal(end, transaction, successor, is_commit=False) is ErrorCode.INVALID_TXN_STATE
    begun = transaction.decide_add(transaction.current.client, HERE, client_version=2, now_ms=5)
    assert begun is not None
    transaction.replay(begun)
    assert refusal(end, transaction, successor) is ErrorCode.PRODUCER_FENCED


def test_a_client_of_the_first_version_ends_it_as_who_it_is() -> None:
    transaction = opened()
    successor = keep(transaction)
    end(transaction, successor, version=0)
    assert complete(transaction) == successor
    assert end(transaction, successor, version=0) is None


@pytest.mark.parametrize("keeps", [1, 2])
def test_epochs_that_run_out_make_place_for_another_producer_id(keeps: int) -> None:
    transaction = opened(EXHAUSTED_FROM)
    with pytest.raises(ProducerIdNeeded):
        keep(transaction)
    successor = keep(transaction, spare_producer_id=43)
    assert successor == (43, 0)
    if keeps == 2:
        successor = keep(transaction)
        assert successor == (43, 1)
    assert refusal(end, transaction, ProducerIdentity(42, EXHAUSTED_FROM)) is (
        ErrorCode.PRODUCER_FENCED
    )
    end(transaction, successor)
    assert transaction.current.identity == (42, EXHAUSTED_FROM + 1)
    assert complete(transaction) == (43, keeps)


def test_epochs_may_run_out_at_its_end_too() -> None:
    transaction = opened(EXHAUSTED_FROM)
    keep(transaction, spare_producer_id=43)
    transaction.replay(transaction.current._replace(next_producer_epoch=EXHAUSTED_FROM))
    successor = transaction.current.client
    end(transaction, successor, spare_producer_id=44)
    assert refusal(end, transaction, successor) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert complete(transaction) == (44, 0)
    assert end(transaction, successor) is None


def test_who_begins_without_keeping_it_aborts_it_and_fences_the_successor() -> None:
    transaction = opened()
    successor = keep(transaction)
    aborted = transaction.decide_fencing_abort(server_version=2, now_ms=3)
    transaction.replay(aborted)
    assert aborted.identity == (42, 101)
    assert refusal(end, transaction, successor, is_commit=True) is ErrorCode.INVALID_TXN_STATE
    assert complete(transaction) == (42, 102)
    begun = transaction.decide_init(timeout_ms=1, expected=None, spare_producer_id=None, now_ms=4)
    assert begun.identity == (42, 103)
    assert begun.client == begun.identity


def test_a_successor_that_did_not_get_the_answer_may_ask_again() -> None:
    transaction = opened()
    before = transaction.current.client
    successor = keep(transaction, expected=before)
    assert keep(transaction, expected=before) == successor
    assert keep(transaction, expected=successor) == (42, 102)
    assert refusal(keep, transaction, expected=before) is ErrorCode.PRODUCER_FENCED
    assert refusal(keep, transaction, expected=ProducerIdentity(9, 9)) is (
        ErrorCode.PRODUCER_FENCED
    )
