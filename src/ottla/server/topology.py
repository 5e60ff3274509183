"""How the cluster is shown to clients: brokers as one listener reaches them, partitions' leaders.

Pure functions of the metadata image; shared by the APIs that describe the cluster.
"""

from typing import Any

from ottla.metadata.image import BrokerImage, ControllerImage, MetadataImage, PartitionImage
from ottla.metadata.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError

NO_LEADER = -1


def endpoint(node: BrokerImage | ControllerImage, listener: str) -> tuple[str, int] | None:
    """Where clients of `listener` reach this node."""
    for one in node.endpoints:
        if one.name == listener:
            return one.host, one.port
    return None


def broker_fields(image: MetadataImage, listener: str, *, fenced: bool = False) -> list[Any]:
    """The brokers that this listener's clients can reach; `fenced` adds those out of service.

    If all are out of service so is whoever answers, which is about to go and will be back. A client
    that is told of nobody may forget it for good: librdkafka does.
    """
    found = []
    is_nobody_left = all(broker.fenced for broker in image.brokers.values())
    for broker in image.brokers.values():
        address = endpoint(broker, listener)
        if address is not None and (fenced or is_nobody_left or not broker.fenced):
            found.append(
                {
                    "node_id": broker.broker_id,
                    "broker_id": broker.broker_id,
                    "host": address[0],
                    "port": address[1],
                    "rack": broker.rack,
                    "is_fenced": broker.fenced,
                }
            )
    return found


def controller_fields(image: MetadataImage, listener: str) -> list[Any]:
    """The controllers that this listener's clients can reach."""
    found = []
    for controller in image.controllers.values():
        address = endpoint(controller, listener)
        if address is not None:
            host, port = address
            found.append({"broker_id": controller.controller_id, "host": host, "port": port})
    return found


def controller_id(image: MetadataImage) -> int:
    """A broker that takes requests for the controller: any live one does, it forwards them."""
    return next((one.broker_id for one in image.brokers.values() if not one.fenced), -1)


def partition_fields(
    image: MetadataImage, listener: str, index: int, partition: PartitionImage
) -> dict[str, Any]:
    error = ErrorCode.NONE
    if partition.leader == NO_LEADER:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif endpoint(image.brokers[partition.leader], listener) is None:
        error = ErrorCode.LISTENER_NOT_FOUND
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [
            one for one in partition.replicas if is_offline(image, partition, one)
        ],
        "eligible_leader_replicas": partition.eligible_leader_replicas,
        "last_known_elr": partition.last_known_elr,
    }


def is_offline(image: MetadataImage, partition: PartitionImage, broker_id: int) -> bool:
    """Whether this replica is out of service, with its broker or its log directory."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return True
    return not broker.has_online_directory(partition.directory_of(broker_id))


def error_of_unknown(topic: str) -> ErrorCode:
    """Why there is no such topic: nobody made it, or nobody could."""
    try:
        check_topic_name(topic)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
