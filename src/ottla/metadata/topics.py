"""Which topics may be created, grown or deleted, and the records that do it.

Pure. Each topic of a request succeeds or fails on its own; the response holds one result per
topic, in the order asked. A topic must not differ from another only in `.` against `_`, because
metric names cannot tell those apart.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.config.resources import ConfigResourceType
from ottla.metadata.decision import Decision
from ottla.metadata.image import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    ConfigResource,
    MetadataImage,
    TopicImage,
)
from ottla.metadata.placement import Chance, StripedPlacer, UsableBroker
from ottla.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.raft.wire_records import ZERO_UUID

TOPIC_NAME_LENGTH_MAX = 249  # "-", a partition number and a suffix must fit a file name of 255
PARTITIONS_PER_REQUEST_MAX = 10_000  # one request is one atomic batch of the metadata log
USE_DEFAULT = -1
_TWICE = "The request names this topic twice"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")

ConfigValidator = Callable[[ConfigResource, Mapping[str, str]], None]
"""Raises KafkaError for a configuration that the resource may not have."""

Ids = Callable[[], UUID]


class NewTopic(NamedTuple):
    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()  # partition and its replicas
    configs: Sequence[tuple[str, str | None]] = ()


class TopicDefaults(NamedTuple):
    num_partitions: int = 1
    replication_factor: int = 1


class CreatedTopic(NamedTuple):
    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topic_id: UUID = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}  # what was set; handlers add defaults


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: UUID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class NewPartitions(NamedTuple):
    name: str
    partition_count: int  # in total, the existing ones included
    assignments: Sequence[Sequence[int]] | None = None  # of the new partitions only


class GrownTopic(NamedTuple):
    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


def check_topic_name(name: str) -> None:
    if not name:
        problem = "A topic name must not be empty"
    elif name in (".", ".."):
        problem = f"A topic cannot be named {name!r}"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"A topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, not {len(name)}"
    elif _LEGAL_NAME.fullmatch(name) is None:
        problem = (
            f"Topic name {name!r} has characters other than ASCII letters, digits, '.', '_', '-'"
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _folded(name: str) -> str:
    return name.replace(".", "_")


def decide_create_topics(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    *,
    defaults: TopicDefaults,
    chance: Chance,
    new_id: Ids,
    check_config: ConfigValidator,
    validate_only: bool = False,
) -> Decision[list[CreatedTopic]]:
    """Create each topic that can be; the others get their error."""
    records: list[MetadataRecord] = []
    results: list[CreatedTopic] = []
    names = Counter(topic.name for topic in topics)
    too_many = _too_many_partitions(topics, defaults)
    collisions = _collision_index(image, topics)
    done: set[str] = set()
    for topic in topics:
        if topic.name in done:
            continue  # a name asked for twice gets one refusal
        done.add(topic.name)
        try:
            if names[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names this topic twice")
            if too_many is not None:
                raise too_many
            _check_is_new(image, topic.name, collisions)
            created, topic_records = _create(image, topic, defaults, chance, new_id, check_config)
        except KafkaError as error:
            results.append(CreatedTopic(topic.name, error.code, error.message))
            continue
        collisions.setdefault(_folded(topic.name), topic.name)
        records += topic_records
        results.append(created)
    return Decision(() if validate_only else records, results)


def _too_many_partitions(topics: Sequence[NewTopic], defaults: TopicDefaults) -> KafkaError | None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == USE_DEFAULT:
            total += defaults.num_partitions
        else:
            total += max(topic.num_partitions, 0)
    if total <= PARTITIONS_PER_REQUEST_MAX:
        return None
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"The request creates {total} partitions; one may create {PARTITIONS_PER_REQUEST_MAX}",
    )


def _collision_index(image: MetadataImage, topics: Iterable[NewTopic]) -> dict[str, str]:
    """Existing names by folded form, for those forms that are asked for."""
    wanted = {_folded(topic.name) for topic in topics if "." in topic.name or "_" in topic.name}
    if not wanted:
        return {}
    found: dict[str, str] = {}
    for name in image.topics:
        if ("." in name or "_" in name) and _folded(name) in wanted:
            found.setdefault(_folded(name), name)
    return found


def _check_is_new(image: MetadataImage, name: str, collisions: Mapping[str, str]) -> None:
    check_topic_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = collisions.get(_folded(name))
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with '{other}': metrics cannot tell '.' from '_'",
        )


def _create(
    image: MetadataImage,
    topic: NewTopic,
    defaults: TopicDefaults,
    chance: Chance,
    new_id: Ids,
    check_config: ConfigValidator,
) -> tuple[CreatedTopic, list[MetadataRecord]]:
    configs = _checked_configs(topic, check_config)
    if topic.assignments:
        assignments = _manual_assignments(image, topic)
    else:
        assignments = _placed_assignments(image, topic, defaults, chance)
    topic_id = new_id()
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(
            resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=key, value=value
        )
        for key, value in configs.items()
    ]
    directories = default_directories(image)
    records += [
        new_partition_record(image, topic_id, partition_id, replicas, directories)
        for partition_id, replicas in enumerate(assignments)
    ]
    created = CreatedTopic(
        topic.name,
        topic_id=topic_id,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=configs,
    )
    return created, records


def _checked_configs(topic: NewTopic, check_config: ConfigValidator) -> dict[str, str]:
    configs: dict[str, str] = {}
    for key, value in topic.configs:
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is given without a value")
        configs[key] = value  # the last of those given twice, as in Kafka
    check_config(ConfigResource(ConfigResourceType.TOPIC, topic.name), configs)
    return configs


def _placed_assignments(
    image: MetadataImage, topic: NewTopic, defaults: TopicDefaults, chance: Chance
) -> list[tuple[int, ...]]:
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count, factor = topic.num_partitions, topic.replication_factor
    count = defaults.num_partitions if count == USE_DEFAULT else count
    factor = defaults.replication_factor if factor == USE_DEFAULT else factor
    return place_partitions(image, count, factor, chance)


def place_partitions(
    image: MetadataImage, count: int, replication_factor: int, chance: Chance
) -> list[tuple[int, ...]]:
    placer = StripedPlacer(
        (
            UsableBroker(broker.broker_id, broker.rack, broker.fenced)
            for broker in image.brokers.values()
            if not broker.in_controlled_shutdown and not broker.is_cordoned
        ),
        chance,
    )
    placer.check(replication_factor)
    return [placer.place(replication_factor) for _ in range(count)]


def _manual_assignments(image: MetadataImage, topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != USE_DEFAULT or topic.num_partitions != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With assigned replicas, partition count and replication factor must both be -1",
        )
    by_partition: dict[int, tuple[int, ...]] = {}
    for partition_id, replicas in topic.assignments:
        if partition_id in by_partition:
            raise _bad_assignment(f"Partition {partition_id} is assigned twice")
        by_partition[partition_id] = tuple(replicas)
    if sorted(by_partition) != list(range(len(by_partition))):
        raise _bad_assignment("Assigned partitions must be numbered from 0 without gaps")
    factor = len(by_partition[0])
    for partition_id, assigned in by_partition.items():
        check_assignment(image, partition_id, assigned, replication_factor=factor)
    return [by_partition[partition_id] for partition_id in range(len(by_partition))]


def _bad_assignment(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)


def check_assignment(
    image: MetadataImage, partition_id: int, replicas: tuple[int, ...], *, replication_factor: int
) -> None:
    if not replicas:
        raise _bad_assignment(f"Partition {partition_id} is assigned to no broker")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"Partition {partition_id} is assigned to a broker twice")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise _bad_assignment(
                f"Partition {partition_id} is assigned to broker {broker_id}, which is not"
                " registered"
            )
    if len(replicas) != replication_factor:
        raise _bad_assignment(
            f"Partition {partition_id} has {len(replicas)} replicas, others have"
            f" {replication_factor}"
        )
    if not any(image.brokers[broker_id].is_active for broker_id in replicas):
        raise _bad_assignment(
            f"Every broker that partition {partition_id} is assigned to is fenced or shutting down"
        )


def default_directories(image: MetadataImage) -> Mapping[int, UUID]:
    """Where a new replica lies on each broker, as far as there is no choice to make."""
    directories = {}
    for broker in image.brokers.values():
        choices = broker.open_log_dirs
        if not choices:
            directories[broker.broker_id] = MIGRATING_DIRECTORY
        elif len(choices) == 1:
            directories[broker.broker_id] = choices[0]
        else:
            directories[broker.broker_id] = UNASSIGNED_DIRECTORY
    return directories


def new_partition_record(
    image: MetadataImage,
    topic_id: UUID,
    partition_id: int,
    replicas: tuple[int, ...],
    directories: Mapping[int, UUID],
) -> PartitionRecord:
    """A partition with no history: every active replica is in sync, the first of them leads."""
    brokers = image.brokers
    isr = tuple(replica for replica in replicas if brokers[replica].is_active)
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0] if isr else -1,
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(directories[replica] for replica in replicas),
    )


def decide_delete_topics(
    image: MetadataImage, names: Sequence[str] = (), topic_ids: Sequence[UUID] = ()
) -> Decision[list[DeletedTopic]]:
    """Delete topics by name and by id; one asked for twice is refused."""
    records: list[MetadataRecord] = []
    results: list[DeletedTopic] = []
    asked: Counter[UUID] = Counter(topic_ids)
    asked.update(image.topics[name].topic_id for name in names if name in image.topics)
    times = Counter(names)
    for name in times:
        topic = image.topics.get(name)
        if topic is None:
            results.append(
                DeletedTopic(
                    name,
                    ZERO_UUID,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "This server does not host this topic-partition.",
                )
            )
        elif times[name] > 1:
            results.append(DeletedTopic(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, _TWICE))
        else:
            results.append(_delete(topic, asked[topic.topic_id], records))
    for topic_id in dict.fromkeys(topic_ids):
        topic = image.topic_with_id(topic_id)
        if topic is None:
            results.append(
                DeletedTopic(
                    None,
                    topic_id,
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    "This server does not host this topic ID.",
                )
            )
        elif topic.name in times:
            continue  # refused above
        elif asked[topic_id] > 1:
            results.append(DeletedTopic(None, topic_id, ErrorCode.INVALID_REQUEST, _TWICE))
        else:
            results.append(_delete(topic, 1, records))
    return Decision(records, results)


def _delete(topic: TopicImage, times: int, records: list[MetadataRecord]) -> DeletedTopic:
    if times > 1:
        return DeletedTopic(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, _TWICE)
    records.append(RemoveTopicRecord(topic_id=topic.topic_id))
    return DeletedTopic(topic.name, topic.topic_id)


def decide_create_partitions(
    image: MetadataImage,
    topics: Sequence[NewPartitions],
    *,
    chance: Chance,
    validate_only: bool = False,
) -> Decision[list[GrownTopic]]:
    records: list[MetadataRecord] = []
    results: list[GrownTopic] = []
    names = Counter(topic.name for topic in topics)
    for topic in topics:
        if names[topic.name] > 1:
            if all(result.name != topic.name for result in results):
                results.append(
                    GrownTopic(
                        topic.name, ErrorCode.INVALID_REQUEST, "The request names this topic twice"
                    )
                )
            continue
        try:
            added = _grow(image, topic, chance)
            if len(records) + len(added) > PARTITIONS_PER_REQUEST_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"One request may create {PARTITIONS_PER_REQUEST_MAX} partitions",
                )
        except KafkaError as error:
            results.append(GrownTopic(topic.name, error.code, error.message))
            continue
        records += added
        results.append(GrownTopic(topic.name))
    return Decision(() if validate_only else records, results)


def _grow(image: MetadataImage, wanted: NewPartitions, chance: Chance) -> list[MetadataRecord]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    current = len(topic.partitions)
    if wanted.partition_count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if wanted.partition_count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {current} partition(s);"
            f" {wanted.partition_count} would not be an increase.",
        )
    added = wanted.partition_count - current
    if added > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request creates {added} partitions; one may create {PARTITIONS_PER_REQUEST_MAX}",
        )
    replication_factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        assignments = place_partitions(image, added, replication_factor, chance)
    else:
        if len(wanted.assignments) != added:
            raise _bad_assignment(
                f"{added} partitions are added, but {len(wanted.assignments)} are assigned"
            )
        assignments = [tuple(replicas) for replicas in wanted.assignments]
        for number, replicas in enumerate(assignments):
            check_assignment(
                image, current + number, replicas, replication_factor=replication_factor
            )
    directories = default_directories(image)
    return [
        new_partition_record(image, topic.topic_id, current + number, replicas, directories)
        for number, replicas in enumerate(assignments)
    ]
