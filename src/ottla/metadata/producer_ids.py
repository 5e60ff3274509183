"""Who may hand out which producer ids. Pure.

Producer ids must never repeat in the life of a cluster, so brokers take them from the controller
in blocks that the metadata log remembers as used, whether or not they are ever given out.
"""

from typing import NamedTuple

from ottla.metadata.brokers import registered_broker
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ProducerIdsRecord
from ottla.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    first_producer_id: int
    size: int


def decide_allocate_producer_ids(
    image: MetadataImage, *, broker_id: int, broker_epoch: int
) -> Decision[ProducerIdBlock]:
    registered_broker(image, broker_id, broker_epoch)
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"No producer ids are left after {first - 1}"
        )
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], ProducerIdBlock(first, BLOCK_SIZE))
