"""The tables and parsers against Apache Kafka itself.

Each set of exceptions says why Ottla differs; anything else that differs is a defect.
"""

import base64
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.broker_table import BROKER_TABLE
from ottla.config.definitions import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    UpdateMode,
    render,
)
from ottla.config.properties import read, write
from ottla.config.resource_tables import CLIENT_METRICS_TABLE, GROUP_TABLE
from ottla.config.topic_table import TOPIC_TABLE

Ask = Callable[[list[str]], list[str | None]]

TABLES: dict[str, ConfigTable] = {
    "broker": BROKER_TABLE,
    "topic": TOPIC_TABLE,
    "group": GROUP_TABLE,
    "client-metrics": CLIENT_METRICS_TABLE,
}

TEXTS = (
    *("", " ", "0", "1", "-1", "-2", "+5", "2", "5", "6", "9", "10", "17", "18", "22", "23"),
    *("25", "99", "100", "999", "1000", "1023", "1024", "2000", "10000", "524287", "524288"),
    *("1048575", "1048576", "8388607", "8388608", "32767", "32768", "2147483647", "2147483648"),
    *("-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-131072"),
    *("-131073", "1_000", "0x10", "1e3", "1.0", "0.5", ".5", "5.", "1.5d", "2f", "Infinity"),
    *("-Infinity", "nan", "inf", "1e400", "1L", "true", "TRUE", "false", "yes", " true ", "t"),
    *("delete", "compact", "compact, delete", "delete,delete", "delete,", "delete,,compact"),
    *("a", "a,b", "a,a", " a , b ", "producer", "Producer", "gzip", "CreateTime", "createtime"),
    *("*", "0:1", "0:1,1:2", "*,0:1", "0:x", "broker", "broker,controller", "classic"),
    *("disabled", "UPGRADE", "PLAINTEXT", "SSL", "1@h:1", "1@h:1,2@h:2", "x@h:1", "1@h"),
    *("1@[::1]:9", "h:1", "h:1,g:2", "h", "[::1]:9092", "h:65536", "es256", "requested"),
    *("read_committed", "latest", "by_duration:PT1H", "by_duration:x", "\x01 5 \x02", "\u00a05"),
)

# Keys whose default is not Kafka's: (Kafka's, Ottla's), both held to.
OTHER_DEFAULTS = {
    # docs/adr/0009-socket-buffers.md
    "socket.receive.buffer.bytes": ("102400", "-1"),
    "socket.send.buffer.bytes": ("102400", "212992"),
}

COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
BROKER = COMBINED | {"process.roles": "broker", "listeners": "PLAINTEXT://h:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://h:9093"}

CHANGES: tuple[dict[str, str], ...] = (
    {},
    {"broker.id": "2"},
    {"node.id": "-1"},
    {"controller.listener.names": "OTHER"},
    {"controller.listener.names": "controller"},
    {"controller.listener.names": "CONTROLLER,PLAINTEXT"},
    {"controller.quorum.bootstrap.servers": ""},
    {"controller.quorum.voters": "1@h:1,2@h:2"},
    {"controller.quorum.voters": "2@h:1"},
    {"controller.quorum.auto.join.enable": "true"},
    {"listeners": "PLAINTEXT://:9092"},
    {"listeners": "CONTROLLER://:9092"},
    {"listeners": "plaintext://:9092,controller://:9093"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
    {"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"},
    {"listeners": "FOO://:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093"},
    {"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"},
    {"advertised.listeners": ""},
    {"advertised.listeners": "PLAINTEXT://h:1"},
    {"advertised.listeners": "PLAINTEXT://h:1,CONTROLLER://h:1"},
    {"advertised.listeners": "CONTROLLER://g:2"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "FOO://h:1"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listener.security.protocol.map": "plaintext:plaintext,controller:plaintext"},
    {"listener.security.protocol.map": "PLAINTEXT:FOO,CONTROLLER:PLAINTEXT"},
    {"inter.broker.listener.name": "plaintext"},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"inter.broker.listener.name": "FOO"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "SSL"},
    {"early.start.listeners": "FOO"},
    {"log.dirs": ""},
    {"log.dirs": "/a,/a"},
    {"cordoned.log.dirs": "*"},
    {"cordoned.log.dirs": "/x"},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-2"},
    {"log.retention.minutes": "0"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.cleaner.threads": "0"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"log.cleaner.dedupe.buffer.size": "2097152"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.lag.time.max.ms": "400"},
    {"queued.max.request.bytes": "5"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:100"},
    {"max.connections.per.ip.overrides": "127.0.0.#:100"},
    {"connections.max.idle.ms": "50"},
    {"connections.max.idle.ms": "-1"},
    {"offsets.topic.compression.codec": "9"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"group.consumer.assignors": "range"},
    {"group.consumer.assignors": "com.acme.MyAssignor"},
    {"group.consumer.assignors": "uniform,com.acme.MyAssignor"},
    {"group.consumer.assignors": "Uniform"},
    {"group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor"},
    {"group.min.session.timeout.ms": "60000", "group.max.session.timeout.ms": "50000"},
    {"group.share.max.size": "5", "group.share.max.share.sessions": "1"},
    {"group.consumer.heartbeat.interval.ms": "15001"},
    {"group.consumer.session.timeout.ms": "44999"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.share.delivery.count.limit": "1"},
)


@pytest.fixture
def ask(jars: Path) -> Ask:
    """Kafka's answers, None for a refusal."""
    oracle = Path(__file__).with_name("KafkaConfigOracle.java")

    def answers(questions: list[str]) -> list[str | None]:
        done = subprocess.run(
            ["java", "-Xmx300m", "-cp", f"{jars}/*", str(oracle)],
            input="".join(f"{question}\n" for question in questions),
            capture_output=True,
            text=True,
            timeout=110,
            check=True,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
        assert len(lines) == len(questions), done.stderr
        return [
            line.removeprefix("answer OK").lstrip() if line.startswith("answer OK") else None
            for line in lines
        ]

    return answers


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(word: str) -> str:
    return base64.b64decode(word).decode()


def described(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        default = "required"
    else:
        text = render(key.default_value)
        default = "none" if text is None else encoded(text)
    is_internal = str(key.internal).lower()
    mode = key.update_mode.value
    return "|".join((key.name, key.type.name, default, key.importance.name, is_internal, mode))


def test_every_key_has_kafkas_type_default_importance_and_update_mode(ask: Ask) -> None:
    for (name, table), answer in zip(
        TABLES.items(), ask([f"keys {name}" for name in TABLES]), strict=True
    ):
        assert answer is not None
        theirs = set(answer.split(" "))
        ours = {described(key) for key in table.keys.values()}
        if name == "broker":
            for key, (kafkas, ottlas) in OTHER_DEFAULTS.items():
                (line,) = (line for line in theirs if line.startswith(f"{key}|"))
                assert f"|{encoded(kafkas)}|" in line
                theirs ^= {line, line.replace(encoded(kafkas), encoded(ottlas))}
        if name != "broker":
            # Only broker keys have an update mode; some topic keys share their names.
            theirs = {line.rpartition("|")[0] for line in theirs}
            ours = {line.rpartition("|")[0] for line in ours}
        assert ours == theirs, name


def test_every_value_is_read_or_refused_as_kafka_does(ask: Ask) -> None:
    asked = [
        (name, key, text)
        for name, table in TABLES.items()
        for key in table.keys.values()
        # Kafka loads the class that a value names; Ottla has none to load.
        if key.type is not ConfigType.CLASS
        for text in TEXTS
    ]
    answers = ask([f"value {name} {key.name} {encoded(text)}" for name, key, text in asked])
    differing = []
    for (name, key, text), answer in zip(asked, answers, strict=True):
        ours: str | None
        try:
            ours = render(key.parse(text))
        except ConfigError:
            ours = None
        theirs = None if answer is None else decoded(answer)
        if ours != theirs:
            differing.append((name, key.name, text, ours, theirs))
    assert differing == []


def test_a_node_is_started_or_refused_as_kafka_does(ask: Ask) -> None:
    nodes = [base | change for base in (COMBINED, BROKER, CONTROLLER) for change in CHANGES]
    nodes += [
        {name: text for name, text in COMBINED.items() if name != absent} for absent in COMBINED
    ]
    answers = ask([f"broker {encoded(write(node))}" for node in nodes])
    for node, answer in zip(nodes, answers, strict=True):
        try:
            BrokerConfig.from_properties(node)
            is_accepted = True
        except ConfigError:
            is_accepted = False
        assert is_accepted == (answer is not None), node


def test_properties_are_read_as_java_reads_them(ask: Ask) -> None:
    chosen = random.Random(1)
    alphabet = "ab=: \t\f\\\n\r#!u0041é,"
    texts = ["".join(chosen.choices(alphabet, k=chosen.randrange(40))) for _ in range(3000)]
    # Java reads an empty key from a last line that is only a backslash, except before CR LF.
    texts = [text for text in texts if not text.endswith("\\\r\n")]
    answers = ask([f"properties {encoded(text)}" for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        try:
            ours: dict[str, str] | None = read(text)
        except ConfigError:
            ours = None
        theirs = None
        if answer is not None:
            pairs = [pair.partition(":") for pair in answer.split(" ") if pair]
            theirs = {decoded(name): decoded(value) for name, _, value in pairs}
        assert ours == theirs, repr(text)


def test_update_modes_are_spelt_as_kafka_spells_them() -> None:
    assert [mode.value for mode in UpdateMode] == ["read-only", "per-broker", "cluster-wide"]
