"""What leaders, brokers and people may change about a partition that exists.

Leaders report who is in sync (AlterPartition), people ask for another leader (ElectLeaders) or
other replicas (AlterPartitionReassignments). A leader's report carries the epochs it was made in,
and one from an epoch that is over must not undo what came after.

Pure. Each partition succeeds or fails on its own, in the order asked.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.brokers import registered_broker
from ottla.metadata.decision import Decision
from ottla.metadata.elections import (
    RECOVERED,
    RECOVERING,
    Election,
    Targets,
    decide_partition,
)
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    MetadataRecord,
    PartitionChangeRecord,
)
from ottla.metadata.topics import check_assignment, default_directories
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition

ANY_BROKER_EPOCH = -1


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int = ANY_BROKER_EPOCH


class PartitionAlteration(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    new_isr: Sequence[IsrMember]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


class AlteredPartition(NamedTuple):
    topic_id: UUID
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    state: PartitionImage | None = None  # after the change; None with an error


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class ElectedPartition(NamedTuple):
    topic_partition: TopicPartition
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class Reassignment(NamedTuple):
    topic_partition: TopicPartition
    replicas: Sequence[int] | None  # None stops the one under way


class ReassignedPartition(NamedTuple):
    topic_partition: TopicPartition
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


def _is_active(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def _by_id(image: MetadataImage, topic_id: UUID, partition: int) -> TopicImage:
    topic = image.topic_with_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {topic_id}")
    if partition not in topic.partitions:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {topic.name}-{partition}"
        )
    return topic


def _by_name(image: MetadataImage, topic_partition: TopicPartition) -> TopicImage:
    topic = image.topics.get(topic_partition.topic)
    if topic is None or topic_partition.partition not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {topic_partition}")
    return topic


def decide_alter_partition(
    image: MetadataImage,
    alterations: Sequence[PartitionAlteration],
    *,
    broker_id: int,
    broker_epoch: int,
) -> Decision[list[AlteredPartition]]:
    """Take over what leaders say about their in-sync replicas.

    No handler asks for it as long as one broker leads everything; several brokers will.
    """
    registered_broker(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    results: list[AlteredPartition] = []
    for asked in alterations:
        try:
            topic = _by_id(image, asked.topic_id, asked.partition)
            partition = topic.partitions[asked.partition]
            _check_alteration(image, partition, asked, broker_id)
            targets = Targets.of(partition)._replace(
                isr=tuple(member.broker_id for member in asked.new_isr),
                leader_recovery_state=asked.leader_recovery_state,
            )
            record = decide_partition(
                image,
                topic,
                asked.partition,
                targets,
                can_lead=lambda other: _is_active(image, other),
            )
        except KafkaError as error:
            results.append(AlteredPartition(asked.topic_id, asked.partition, error.code))
            continue
        if record is None:
            results.append(AlteredPartition(asked.topic_id, asked.partition, state=partition))
            continue
        records.append(record)
        if record.leader not in (NO_LEADER_CHANGE, broker_id):
            # A reassignment ended with this change, and with it the asking broker's lead.
            code = ErrorCode.NEW_LEADER_ELECTED
            if broker_id not in (record.replicas or partition.replicas):
                code = ErrorCode.FENCED_LEADER_EPOCH
            results.append(AlteredPartition(asked.topic_id, asked.partition, code))
            continue
        after = partition.changed_by(record)
        results.append(AlteredPartition(asked.topic_id, asked.partition, state=after))
    return Decision(records, results)


def _check_alteration(
    image: MetadataImage, partition: PartitionImage, asked: PartitionAlteration, broker_id: int
) -> None:
    isr = [member.broker_id for member in asked.new_isr]
    if (
        asked.leader_epoch > partition.leader_epoch
        or asked.partition_epoch > partition.partition_epoch
    ):
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The leader knows of later changes")
    if asked.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "The leader's epoch is over")
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} does not lead")
    if asked.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "The partition has changed since")
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The ISR must be made of replicas, once each")
    if broker_id not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The leader must be in the ISR")
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The recovery state is unknown")
    if asked.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A recovering leader is alone in the ISR")
    for member in asked.new_isr:
        broker = image.brokers.get(member.broker_id)
        if (
            broker is None
            or not broker.is_active
            or member.broker_epoch not in (ANY_BROKER_EPOCH, broker.epoch)
        ):
            raise KafkaError(
                ErrorCode.INELIGIBLE_REPLICA, f"Broker {member.broker_id} may not be in the ISR"
            )


def decide_elect_leaders(
    image: MetadataImage,
    election_type: int,
    topic_partitions: Sequence[TopicPartition] | None,
) -> Decision[list[ElectedPartition]]:
    """Elect the preferred leader, or any; None asks for all and tells only what changed."""
    if election_type not in list(ElectionType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{election_type} is no type of election")
    is_everything = topic_partitions is None
    if topic_partitions is None:
        topic_partitions = [
            TopicPartition(topic.name, partition_id)
            for topic in image.topics.values()
            for partition_id in topic.partitions
        ]
    records: list[MetadataRecord] = []
    results: list[ElectedPartition] = []
    for topic_partition in topic_partitions:
        try:
            records.append(_elect(image, topic_partition, ElectionType(election_type)))
        except KafkaError as error:
            if not (is_everything and error.code is ErrorCode.ELECTION_NOT_NEEDED):
                results.append(ElectedPartition(topic_partition, error.code, error.message))
            continue
        results.append(ElectedPartition(topic_partition))
    return Decision(records, results)


def _elect(
    image: MetadataImage, topic_partition: TopicPartition, election_type: ElectionType
) -> PartitionChangeRecord:
    topic = _by_name(image, topic_partition)
    partition = topic.partitions[topic_partition.partition]
    is_preferred = election_type is ElectionType.PREFERRED
    if is_preferred:
        is_needed = partition.leader != partition.replicas[0]
    else:
        is_needed = partition.leader == NO_LEADER
    if not is_needed:
        raise KafkaError(
            ErrorCode.ELECTION_NOT_NEEDED, f"{topic_partition} has the leader that it should have"
        )
    record = decide_partition(
        image,
        topic,
        topic_partition.partition,
        Targets.of(partition),
        can_lead=lambda other: _is_active(image, other),
        election=Election.PREFERRED if is_preferred else Election.UNCLEAN,
    )
    wanted = partition.replicas[0] if is_preferred else None
    if record is None or record.leader < 0 or wanted not in (None, record.leader):
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if is_preferred:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        raise KafkaError(code, f"No replica of {topic_partition} can take over as asked")
    return record


def decide_alter_partition_reassignments(
    image: MetadataImage,
    reassignments: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> Decision[list[ReassignedPartition]]:
    """Begin to move partitions to other brokers, or stop doing so."""
    records: list[MetadataRecord] = []
    results: list[ReassignedPartition] = []
    for asked in reassignments:
        try:
            record = _reassign(image, asked, may_resize=allow_replication_factor_change)
        except KafkaError as error:
            results.append(ReassignedPartition(asked.topic_partition, error.code, error.message))
            continue
        if record is not None:
            records.append(record)
        results.append(ReassignedPartition(asked.topic_partition))
    return Decision(records, results)


def _reassign(
    image: MetadataImage, asked: Reassignment, *, may_resize: bool
) -> PartitionChangeRecord | None:
    topic = _by_name(image, asked.topic_partition)
    partition_id = asked.topic_partition.partition
    partition = topic.partitions[partition_id]
    if asked.replicas is None:
        targets = _targets_of_revert(partition)
    else:
        replicas = tuple(asked.replicas)
        check_assignment(image, partition_id, replicas, replication_factor=len(replicas))
        before = [one for one in partition.replicas if one not in partition.adding_replicas]
        if not may_resize and len(replicas) != len(before):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{asked.topic_partition} has {len(before)} replicas, and would get"
                f" {len(replicas)}",
            )
        targets = _targets_of_move(image, partition, replicas)
    return decide_partition(
        image, topic, partition_id, targets, can_lead=lambda other: _is_active(image, other)
    )


def _targets_of_revert(partition: PartitionImage) -> Targets:
    if not partition.adding_replicas and not partition.removing_replicas:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment of the partition is under way"
        )
    adding = set(partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Only replicas that were added are in sync"
        )
    kept = [
        (replica, directory)
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if replica not in adding
    ]
    return Targets(
        isr,
        tuple(replica for replica, _ in kept),
        tuple(directory for _, directory in kept),
    )


def _targets_of_move(
    image: MetadataImage, partition: PartitionImage, replicas: tuple[int, ...]
) -> Targets:
    """Old and new replicas together, until the new ones are in sync."""
    before = set(partition.replicas)
    removing = tuple(sorted(before - set(replicas)))
    adding = tuple(sorted(set(replicas) - before))
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    defaults = default_directories(image)
    merged = (*replicas, *removing)
    return Targets(
        partition.isr,
        merged,
        tuple(known[r] if r in known else defaults[r] for r in merged),
        removing,
        adding,
    )
