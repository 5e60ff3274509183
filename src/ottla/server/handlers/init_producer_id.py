"""InitProducerId: an identity for an idempotent or a transactional producer.

Versions 0 to 5, and 6 where unstable versions are offered. Without a transactional id each request
gets a fresh id at epoch 0, also when the producer names the one that it had: its old sequence
numbers are not continued (KIP-360). With one, whoever used it before is fenced, and what that one
left open is aborted first. Version 6 can ask for transactions that an outside coordinator ends
(KIP-939), which have no timeout, and, after such a producer died, for the transaction that it left
open to be kept: the answer says whose it is, and the new producer may only end it. Apache Kafka 4.3
refuses the latter.
"""

from typing import Any

from ottla.coordinators.transaction.metadata import NOBODY, ProducerIdentity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import NO_PRODUCER_ID
from ottla.protocol.messages import duration_ms, given
from ottla.protocol.producers import NO_PRODUCER_EPOCH
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

PRODUCER_FENCED_FROM = 4
UNSTABLE_VERSION = 6
_REFUSED = NOBODY._asdict()


async def handle(services: Services, call: Call, request: Any) -> Fields:
    had = ProducerIdentity(
        given(request, "producer_id", NO_PRODUCER_ID),
        given(request, "producer_epoch", NO_PRODUCER_EPOCH),
    )
    if (had.producer_id == NO_PRODUCER_ID) != (had.producer_epoch == NO_PRODUCER_EPOCH):
        return {"error_code": ErrorCode.INVALID_REQUEST, **_REFUSED}
    if request.transactional_id is None:
        return {
            "error_code": ErrorCode.NONE,
            "producer_id": await services.producer_ids.next(),
            "producer_epoch": 0,
        }
    result = await services.transactions.init_producer(
        request.transactional_id,
        timeout_ms=duration_ms(request.transaction_timeout),
        expected=None if had == NOBODY else had,
        is_two_phase=given(request, "enable2_pc", False),
        keeps_prepared=given(request, "keep_prepared_txn", False),
    )
    code = result.error_code
    if code is ErrorCode.PRODUCER_FENCED and call.version < PRODUCER_FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    fields = {"error_code": code, **result.producer._asdict()}
    if call.version >= UNSTABLE_VERSION:
        fields["ongoing_txn_producer_id"] = result.ongoing.producer_id
        fields["ongoing_txn_producer_epoch"] = result.ongoing.producer_epoch
    return fields
