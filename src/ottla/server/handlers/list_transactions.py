"""ListTransactions: the transactional ids that this broker coordinates.

Versions 0 to 2. Filters narrow the list: states, producer ids, from 1 on for how long the
transaction is open, from 2 on a pattern that the whole id must match (KIP-1152).
"""

from typing import Any

from ottla.coordinators.regexes import Regex, compile_regex
from ottla.coordinators.transaction.states import LABELS, TransactionState
from ottla.coordinators.transaction.transaction import Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

ANY_AGE = -1


def handle(services: Services, call: Call, request: Any) -> Fields:
    states = {LABELS[one] for one in request.state_filters if one in LABELS}
    unknown = [one for one in request.state_filters if one not in LABELS]
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = given(request, "duration_filter", ANY_AGE)
    now_ms = services.runtime.clock.wall_ms()
    try:
        pattern = _pattern(given(request, "transactional_id_pattern", None))
        found = list(services.transactions.list_transactions())
    except KafkaError as error:
        return {"error_code": error.code, "unknown_state_filters": [], "transaction_states": []}

    def is_wanted(one: Transaction) -> bool:
        current = one.current
        return (
            current.state is not TransactionState.DEAD
            and (not producer_ids or current.producer_id in producer_ids)
            and (not request.state_filters or current.state in states)
            and (duration_ms < 0 or now_ms - current.start_ms > duration_ms)
            and (pattern is None or pattern.matches(one.transactional_id))
        )

    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.current.producer_id,
                "transaction_state": one.current.state.label,
            }
            for one in found
            if is_wanted(one)
        ],
    }


def _pattern(text: str | None) -> Regex | None:
    return compile_regex(text) if text else None
