"""UnregisterBroker: forget a broker that will not come back.

Version 0. Its partitions lose it as a leader and from their in-sync replicas. As in Kafka, nobody
is kept from unregistering a broker that runs: it leads nothing until it starts again.
"""

from typing import Any

from ottla.metadata.brokers import decide_unregister_broker
from ottla.protocol.errors import ErrorCode
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    await services.metadata.submit(lambda image: decide_unregister_broker(image, request.broker_id))
    return {"error_code": ErrorCode.NONE, "error_message": ""}
