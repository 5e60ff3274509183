"""A key that is called obeyed is read from a config somewhere outside the config room."""

import ast
from pathlib import Path

import ottla
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.not_obeyed import why_not_obeyed
from ottla.config.topic_table import TOPIC_TABLE

SOURCE = Path(ottla.__file__).parent
# The rooms that a broker is made of, and the commands that start one.
ROOMS = ("server", "coordinators", "replication", "metadata", "raft", "storage", "cli")

# Obeyed without being an attribute that somebody reads, and where.
ELSEWHERE = {
    "broker.id": "config/broker.py: the same as node.id",
    "group.consumer.max.assignment.interval.ms": "config/dynamic.py: bounds of group configs",
    "group.consumer.max.heartbeat.interval.ms": "config/dynamic.py: bounds of group configs",
    "group.consumer.max.session.timeout.ms": "config/dynamic.py: bounds of group configs",
    "group.consumer.min.assignment.interval.ms": "config/dynamic.py: bounds of group configs",
    "group.consumer.min.heartbeat.interval.ms": "config/dynamic.py: bounds of group configs",
    "group.consumer.min.session.timeout.ms": "config/dynamic.py: bounds of group configs",
    "internal.metadata.log.segment.bytes": "config/broker.py: metadata_log_segment_bytes",
    "internal.segment.bytes": "config/topic.py: becomes segment_bytes",
    "listener.security.protocol.map": "config/listeners.py: PLAINTEXT is all there is",
    "log.dir": "config/broker.py: log_dirs where those are not given",
    "security.inter.broker.protocol": "config/broker.py: the inter-broker listener's name",
    "unclean.leader.election.enable": "metadata/elections.py: by its name, as metadata has it",
}


def attributes_read() -> set[str]:
    """Attributes of whatever is called a config, read in code and not merely mentioned."""
    found = set()
    for room in ROOMS:
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and is_config(node.value):
                    found.add(node.attr)
    return found


def is_config(node: ast.expr) -> bool:
    """Whether an expression is a config by its name: `config`, `x.config`, `self._config()`."""
    if isinstance(node, ast.Call):
        node = node.func
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lstrip("_") == "config"


READ = attributes_read()


def test_every_obeyed_key_has_a_reader() -> None:
    for_topics = {
        synonym for key in TOPIC_TABLE.keys.values() if key.used for synonym in key.synonyms
    }
    unread = {
        name
        for table in (BROKER_TABLE, TOPIC_TABLE)
        for name, key in table.keys.items()
        if key.used and key.attribute not in READ
    }
    assert unread - for_topics - ELSEWHERE.keys() == set()
    assert ELSEWHERE.keys() <= unread, "these have readers by now"


def test_no_key_is_read_that_is_called_not_obeyed() -> None:
    read = {name for name, key in BROKER_TABLE.keys.items() if key.attribute in READ}
    assert {name for name in read if not BROKER_TABLE.keys[name].used} == set()


def test_every_key_that_is_not_obeyed_has_a_reason() -> None:
    unused = [name for name, key in BROKER_TABLE.keys.items() if not key.used]
    assert [name for name in unused if why_not_obeyed(name) is None] == []
