"""Consumers of one group in one process, for test_groups_kill9.py; what they do, as JSON lines.

    python group_worker.py BOOTSTRAP GROUP TOPIC PROTOCOL NAME COUNT

`batch` tells which offsets of a partition were read, `commit` which offsets the broker has
acknowledged. Ends when standard input is closed.
"""

import json
import sys
import threading
from typing import Any

from confluent_kafka import Consumer, KafkaException

CONSUME_RECORDS_MAX = 500
CONSUME_S = 0.2
SESSION_TIMEOUT_MS = 45_000


def say(lock: threading.Lock, fields: dict[str, Any]) -> None:
    line = json.dumps(fields)
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def work(arguments: list[str], name: str, ending: threading.Event, lock: threading.Lock) -> None:
    bootstrap, group, topic, protocol = arguments
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": name,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.max.ms": 500,
        "queued.min.messages": 1000,
        "log_level": 0,
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
        settings["heartbeat.interval.ms"] = 1000
        settings["partition.assignment.strategy"] = "range"
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not ending.is_set():
        batches: dict[int, list[int]] = {}
        for message in consumer.consume(CONSUME_RECORDS_MAX, timeout=CONSUME_S):
            found: Any = message
            if found.error() is None:
                batches.setdefault(found.partition(), []).append(found.offset())
        for partition, offsets in batches.items():
            fields = {"name": name, "kind": "batch", "partition": partition}
            say(lock, {**fields, "first": offsets[0], "last": offsets[-1]})
        if not batches:
            continue
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException as error:
            say(lock, {"name": name, "kind": "error", "error": str(error.args[0])})
            continue
        offsets_by = {str(one.partition): one.offset for one in committed if one.error is None}
        say(lock, {"name": name, "kind": "commit", "offsets": offsets_by})
    consumer.close()


def main() -> None:
    *arguments, name, count = sys.argv[1:]
    ending, lock = threading.Event(), threading.Lock()
    threads = [
        threading.Thread(target=work, args=(arguments, f"{name}-{number}", ending, lock))
        for number in range(int(count))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ending.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
