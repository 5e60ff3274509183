"""InitProducerId: an identity for an idempotent producer.

Versions 0 to 5. Without a transactional id each request gets a fresh id at epoch 0, also when
the producer names the one that it had: its old sequence numbers are not continued (KIP-360).
"""

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

_REFUSED = {"producer_id": -1, "producer_epoch": -1}


async def handle(services: Services, call: Call, request: Any) -> Fields:
    had = given(request, "producer_id", -1), given(request, "producer_epoch", -1)
    if request.transactional_id == "" or (had[0] == -1) != (had[1] == -1):
        return {"error_code": ErrorCode.INVALID_REQUEST, **_REFUSED}
    if request.transactional_id is not None:
        # No transaction coordinator is advertised, so no client that looks gets here.
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, **_REFUSED}
    return {
        "error_code": ErrorCode.NONE,
        "producer_id": await services.producer_ids.next(),
        "producer_epoch": 0,
    }
