"""confluent-kafka as a member of a group, by each of its protocols; see compat/groups.py."""

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from compat.drivers import member

CLASSIC = {"eager": "range", "cooperative": "cooperative-sticky"}


def settings(asked: dict[str, Any]) -> dict[str, Any]:
    found = {
        "bootstrap.servers": asked["bootstrap"],
        "group.id": asked["group"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if asked["instance"] is not None:
        found["group.instance.id"] = asked["instance"]
    if asked["protocol"] == "consumer":
        return {**found, "group.protocol": "consumer"}
    return {
        **found,
        "partition.assignment.strategy": CLASSIC[asked["protocol"]],
        "session.timeout.ms": asked["session_ms"],
        "heartbeat.interval.ms": 500,
    }


def main() -> None:
    asked = member.asked()
    is_over = member.stop_signal()
    reporter = member.Reporter()
    consumer = Consumer(settings(asked))
    has: set[int] = set()

    def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        has.update(one.partition for one in partitions)
        reporter.assigned(has)

    def on_revoke(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        has.difference_update(one.partition for one in partitions)
        reporter.assigned(has)

    consumer.subscribe([asked["topic"]], on_assign=on_assign, on_revoke=on_revoke)
    while not is_over.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            consumer.commit(message=message, asynchronous=False)
            reporter.records([(message.partition() or 0, message.offset() or 0)])
    consumer.close()
    reporter.stopped()


if __name__ == "__main__":
    main()
