"""A key that is called obeyed is read somewhere outside the config room."""

import re
from pathlib import Path

import ottla
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.topic_table import TOPIC_TABLE

SOURCE = Path(ottla.__file__).parent
CODE = "\n".join(
    path.read_text()
    for path in SOURCE.rglob("*.py")
    if "config" not in path.relative_to(SOURCE).parts
)
# Obeyed inside the config room itself, which turns them into something else.
DECIDED_IN_CONFIG = {
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "inter.broker.listener.name",
    "internal.segment.bytes",
    "listener.security.protocol.map",
}


def is_read(name: str, attribute: str) -> bool:
    return f'"{name}"' in CODE or re.search(rf"\.{attribute}\b", CODE) is not None


def test_every_obeyed_key_has_a_reader() -> None:
    stand_for_topics = {
        synonym for key in TOPIC_TABLE.keys.values() if key.used for synonym in key.synonyms
    }
    unread = [
        name
        for table in (BROKER_TABLE, TOPIC_TABLE)
        for name, key in table.keys.items()
        if key.used and not is_read(name, key.attribute)
    ]
    assert set(unread) - stand_for_topics <= DECIDED_IN_CONFIG | {"broker.id", "log.dir"}
