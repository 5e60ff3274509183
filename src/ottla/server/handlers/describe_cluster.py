"""DescribeCluster: the cluster's id, its controller and its brokers.

Versions 0 to 2. Asked for controllers (version 1) on a broker's listener, it is refused as Kafka
refuses it; asked for fenced brokers (version 2), it lists those too.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.operations import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.server.services import Services
from ottla.server.topology import broker_fields, controller_id

BROKERS = 1
CONTROLLERS = 2


def handle(services: Services, call: Call, request: Any) -> Fields:
    endpoint_type = given(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": "This listener serves brokers; ask a controller for controllers",
            "cluster_authorized_operations": NOT_ASKED,
        }
    image = services.image
    fenced = given(request, "include_fenced_brokers", False)
    return {
        "error_code": ErrorCode.NONE,
        "endpoint_type": BROKERS,
        "cluster_id": services.cluster_id,
        "controller_id": controller_id(image),
        "brokers": broker_fields(image, call.listener, fenced=fenced),
        "cluster_authorized_operations": CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    }
