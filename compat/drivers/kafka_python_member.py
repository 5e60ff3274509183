"""kafka-python as a member of a group, by each of its protocols; see compat/groups.py."""

from collections.abc import Iterable

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from compat.drivers import member

ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, reporter: member.Reporter) -> None:
        self._reporter = reporter
        self._has: set[int] = set()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._has.difference_update(one.partition for one in revoked)
        self._reporter.assigned(self._has)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Cooperatively only what is new is named."""
        self._has.update(one.partition for one in assigned)
        self._reporter.assigned(self._has)


def main() -> None:
    asked = member.asked()
    is_over = member.stop_signal()
    reporter = member.Reporter()
    consumer = KafkaConsumer(
        bootstrap_servers=asked["bootstrap"],
        group_id=asked["group"],
        group_instance_id=asked["instance"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=asked["session_ms"],
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[ASSIGNORS[asked["protocol"]]],
    )
    consumer.subscribe([asked["topic"]], listener=Listener(reporter))
    while not is_over.is_set():
        found = consumer.poll(timeout_ms=100)
        if found:
            consumer.commit()
            for partition, records in found.items():
                reporter.records([(partition.partition, one.offset) for one in records])
    consumer.close()
    reporter.stopped()


if __name__ == "__main__":
    main()
