"""In which log directory of its broker each replica lies, and what follows when one fails.

With one disk per broker a dead disk is a dead broker, and fencing says all there is to say. With
several (JBOD) the controller must know where each replica lies, or it could not tell which
partitions a dead disk took along (KIP-858). A broker with one directory leaves no choice, so
creating a topic records it; with several, the broker places the replica and says so afterwards.

Pure. Invariants: a replica in a directory that its broker does not name online neither leads nor
is elected; the last directory of a broker is never taken away, as an empty list means that it
never named any (such a broker stops, and is fenced).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.brokers import registered_broker
from ottla.metadata.decision import Decision
from ottla.metadata.elections import Targets, changes_when_directories_fail, decide_partition
from ottla.metadata.features import CORDONED_DIRECTORIES_SINCE, DIRECTORIES_SINCE, METADATA_VERSION
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from ottla.protocol.errors import ErrorCode, KafkaError


class ReplicaDirectory(NamedTuple):
    """A broker's word that its replica of this partition lies in this directory."""

    topic_id: UUID
    partition: int
    directory: UUID


def knows_directories(image: MetadataImage) -> bool:
    """Whether the cluster's metadata version has a place for directories."""
    return image.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE


def decide_assign_replicas(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    replicas: Sequence[ReplicaDirectory],
) -> Decision[list[ErrorCode]]:
    """Record where replicas lie; the response has one code for each, in the order given."""
    _check_version(image)
    broker = registered_broker(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    codes: list[ErrorCode] = []
    decided: set[tuple[UUID, int]] = set()
    for replica in replicas:
        key = (replica.topic_id, replica.partition)
        if key in decided:
            # Two changes decided from one image would undo each other.
            codes.append(ErrorCode.INVALID_REQUEST)
            continue
        decided.add(key)
        try:
            record = _assignment(image, broker, replica)
        except KafkaError as error:
            codes.append(error.code)
            continue
        codes.append(ErrorCode.NONE)
        if record is not None:
            records.append(record)
    return Decision(records, codes)


def _assignment(
    image: MetadataImage, broker: BrokerImage, replica: ReplicaDirectory
) -> PartitionChangeRecord | None:
    topic = image.topic_with_id(replica.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(replica.partition)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker.broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.directory_of(broker.broker_id) == replica.directory:
        return None
    targets = Targets.of(partition)._replace(
        directories=_directories_with(partition, broker.broker_id, replica.directory)
    )
    if not broker.has_online_directory(replica.directory):
        targets = targets._replace(isr=tuple(r for r in targets.isr if r != broker.broker_id))
    return decide_partition(
        image,
        topic,
        replica.partition,
        targets,
        can_lead=lambda other: other in image.brokers and image.brokers[other].is_active,
    )


def _directories_with(
    partition: PartitionImage, broker_id: int, directory: UUID
) -> tuple[UUID, ...]:
    return tuple(
        directory if replica == broker_id else known
        for replica, known in zip(partition.replicas, partition.directories, strict=True)
    )


def decide_directories_offline(
    image: MetadataImage, *, broker_id: int, broker_epoch: int, offline: Collection[UUID]
) -> Decision[tuple[UUID, ...]]:
    """Take failed directories out of service; the response names those that were in it.

    The replicas there leave the ISR and the lead. Directories that are offline already change
    nothing, so that a broker may repeat itself.
    """
    _check_version(image)
    broker = registered_broker(image, broker_id, broker_epoch)
    failed = tuple(one for one in broker.log_dirs if one in offline)
    remaining = tuple(one for one in broker.log_dirs if one not in offline)
    if not failed:
        return Decision((), ())
    records: list[MetadataRecord] = list(changes_when_directories_fail(image, broker_id, failed))
    if remaining:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker_epoch, log_dirs=remaining
            )
        )
    return Decision(records, failed)


def decide_cordon_directories(
    image: MetadataImage, *, broker_id: int, broker_epoch: int, cordoned: Collection[UUID]
) -> Decision[None]:
    """Record which directories take no new partitions; an old cluster has no place for that."""
    broker = registered_broker(image, broker_id, broker_epoch)
    is_known = image.features.get(METADATA_VERSION, 0) >= CORDONED_DIRECTORIES_SINCE
    if not is_known or set(broker.cordoned_log_dirs or ()) == set(cordoned):
        return Decision((), None)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        cordoned_log_dirs=tuple(sorted(cordoned)),
    )
    return Decision([record], None)


def _check_version(image: MetadataImage) -> None:
    if not knows_directories(image):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The cluster's {METADATA_VERSION} knows no log directories; 3.7-IV2 and later do",
        )
