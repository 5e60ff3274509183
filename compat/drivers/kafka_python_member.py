"""kafka-python as a member of a group; see compat/groups.py."""

from collections.abc import Iterable

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from compat.drivers import member


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, reporter: member.Reporter) -> None:
        self._reporter = reporter

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._reporter.assigned([])

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._reporter.assigned(one.partition for one in assigned)


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
        partition_assignment_strategy=[RangePartitionAssignor],
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
