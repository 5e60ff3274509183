"""EndTxn: commit or abort the producer's transaction.

Versions 0 to 5. From 5 on every transaction has an epoch of its own, and the answer says which one
the next has (KIP-890).
"""

from collections.abc import Awaitable
from typing import Any

from ottla.coordinators.transaction.coordinator import EndResult
from ottla.coordinators.transaction.transaction import EndRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.producers import EPOCH_BUMPING_VERSION
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

PRODUCER_FENCED_FROM = 2
EPOCH_BUMPING_FROM = 5


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    ended = services.transactions.end(
        request.transactional_id,
        EndRequest(
            request.producer_id,
            request.producer_epoch,
            request.committed,
            EPOCH_BUMPING_VERSION if call.version >= EPOCH_BUMPING_FROM else 0,
        ),
    )
    if isinstance(ended, EndResult):
        return _answer(call, ended)
    return _answer_later(call, ended)


async def _answer_later(call: Call, ended: Awaitable[EndResult]) -> Fields:
    return _answer(call, await ended)


def _answer(call: Call, ended: EndResult) -> Fields:
    code = ended.error_code
    if code is ErrorCode.PRODUCER_FENCED and call.version < PRODUCER_FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {**ended._asdict(), "error_code": code}
