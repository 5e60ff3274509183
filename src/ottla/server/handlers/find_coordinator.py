"""FindCoordinator: which broker coordinates a group or a transactional id.

Versions 0 to 6; from 4 on for many keys at once. The broker that leads the key's partition of the
internal topic is the one. The topic is created when it is first asked for. Share groups are not
served.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services
from ottla.server.topology import endpoint

GROUP = 0
TRANSACTION = 1
BATCHED_FROM = 4


async def handle(services: Services, call: Call, request: Any) -> Fields:
    key_type = given(request, "key_type", GROUP)
    if call.version >= BATCHED_FROM:
        return {
            "coordinators": [
                {"key": key, **await _find(services, call, key_type, key)}
                for key in dict.fromkeys(request.coordinator_keys)
            ]
        }
    return await _find(services, call, key_type, request.key)


async def _find(services: Services, call: Call, key_type: int, key: str) -> Fields:
    try:
        if key_type == TRANSACTION:
            topic, index = TRANSACTION_TOPIC, await services.transactions.locate(key)
        elif key_type == GROUP:
            topic, index = OFFSETS_TOPIC, await services.groups.locate(key)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not served")
        image = services.image
        partition = image.partition(topic, index)
        broker = None if partition is None else image.brokers.get(partition.leader)
        address = None if broker is None else endpoint(broker, call.listener)
        if broker is None or address is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return {
            "error_code": error.code,
            "error_message": error.message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "node_id": broker.broker_id,
        "host": address[0],
        "port": address[1],
    }
