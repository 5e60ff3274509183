"""Elections against Apache Kafka 4.3.1's own PartitionChangeBuilder, case by case.

Each line of oracle/kafka_elections.txt is a partition and what is wanted of it, then the record
that Kafka built: fields separated by `;`, replicas by `,`. Kafka leaves replicas that were moved
away among the eligible ones; ours are always replicas, so both are cut to those.
"""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from metadata_worlds import World

from ottla.metadata.elections import (
    Election,
    Targets,
    allows_unclean_election,
    decide_partition,
    min_insync_replicas,
)
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.records import ConfigRecord, MetadataRecord, PartitionChangeRecord

CASES = (Path(__file__).parent / "oracle" / "kafka_elections.txt").read_text().splitlines()


def replicas(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",")) if text else ()


def changed(text: str) -> tuple[int, ...] | None:
    return None if text == "null" else replicas(text)


def directories(replica_ids: tuple[int, ...]) -> tuple[UUID, ...]:
    return tuple(UUID(int=replica_id) for replica_id in replica_ids)


def kafkas_record(text: str, topic_id: UUID) -> PartitionChangeRecord:
    if text == "none":
        return PartitionChangeRecord(partition_id=0, topic_id=topic_id)
    isr, leader, moved, removing, adding, recovery, elr, last_known = text.split(";")
    return PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id,
        isr=changed(isr),
        leader=int(leader),
        replicas=changed(moved),
        removing_replicas=changed(removing),
        adding_replicas=changed(adding),
        leader_recovery_state=int(recovery),
        eligible_leader_replicas=changed(elr),
        last_known_elr=changed(last_known),
    )


def outcome(partition: PartitionImage, record: PartitionChangeRecord | None) -> PartitionImage:
    if record is None:
        return partition
    after = partition.changed_by(record)
    elr = sorted(r for r in after.eligible_leader_replicas if r in after.replicas)
    return after._replace(eligible_leader_replicas=tuple(elr), directories=(), partition_epoch=0)


def world_of(elr_enabled: bool, min_isr: str) -> World:
    world = World() if elr_enabled else World(features={"metadata.version": 30})
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=min_isr)
    ]
    world.replay(records)
    return world


def test_every_case_ends_as_it_does_in_kafka() -> None:
    for case in CASES:
        given, _, expected = case.partition(" => ")
        fields = given.split(";")
        before = [replicas(text) for text in fields[:4]]
        partition = PartitionImage(
            before[0],
            directories(before[0]),
            before[1],
            replicas(fields[6]),
            replicas(fields[7]),
            before[2],
            before[3],
            int(fields[4]),
            int(fields[5]),
            5,
            9,
        )
        active = set(replicas(fields[8]))
        targets = Targets(
            replicas(fields[9]),
            replicas(fields[14]),
            directories(replicas(fields[14])),
            replicas(fields[15]),
            replicas(fields[16]),
            int(fields[17]) if fields[17] else None,
            frozenset(replicas(fields[10])),
        )
        topic = TopicImage("t", UUID(int=1), {0: partition})
        record = decide_partition(
            world_of(fields[12] == "1", fields[13]).image,
            topic,
            0,
            targets,
            can_lead=active.__contains__,
            election=Election[fields[11]],
        )
        kafkas = kafkas_record(expected, topic.topic_id)
        ours = record or PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id)
        assert outcome(partition, ours) == outcome(partition, kafkas), case
        assert (ours.leader, ours.isr) == (kafkas.leader, kafkas.isr), case


@pytest.mark.parametrize(
    ("cluster", "topic", "expected"),
    [(None, None, 1), ("2", None, 2), ("2", "3", 3), (None, "3", 3)],
)
def test_min_insync_replicas_of_a_topic_comes_before_the_clusters(
    cluster: str | None, topic: str | None, expected: int
) -> None:
    world = World()
    for kind, name, value in ((4, "", cluster), (2, "t", topic)):
        if value is not None:
            world.replay(
                [
                    ConfigRecord(
                        resource_type=kind,
                        resource_name=name,
                        name="min.insync.replicas",
                        value=value,
                    )
                ]
            )
    assert min_insync_replicas(world.image, "t") == expected
    of_this_node = replace(world.image, static_configs={"unclean.leader.election.enable": "true"})
    assert allows_unclean_election(of_this_node, "t")
    assert not allows_unclean_election(world.image, "t")
