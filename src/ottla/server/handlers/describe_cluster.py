"""DescribeCluster: the cluster's id, its controller and its brokers.

Versions 0 to 2. A broker's listener tells of brokers, a controller's of controllers (version 1,
KIP-919), and refuses to tell of the others as Kafka does; asked for fenced brokers (version 2), it
lists those too.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.operations import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.server.services import Services
from ottla.server.topology import broker_fields, controller_fields, controller_id

BROKERS = 1
CONTROLLERS = 2


def handle(services: Services, call: Call, request: Any) -> Fields:
    asked = given(request, "endpoint_type", BROKERS)
    is_controller = call.listener in services.config.controller_listener_names
    if asked != (CONTROLLERS if is_controller else BROKERS):
        here, other = ("controllers", "a broker") if is_controller else ("brokers", "a controller")
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if asked in (BROKERS, CONTROLLERS)
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"This listener tells of {here}; ask {other} for the others",
            "cluster_authorized_operations": NOT_ASKED,
        }
    image = services.image
    fenced = given(request, "include_fenced_brokers", False)
    return {
        "error_code": ErrorCode.NONE,
        "endpoint_type": asked,
        "cluster_id": services.cluster_id,
        "controller_id": services.metadata.node_id if is_controller else controller_id(image),
        "brokers": controller_fields(image, call.listener)
        if is_controller
        else broker_fields(image, call.listener, fenced=fenced),
        "cluster_authorized_operations": CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    }
