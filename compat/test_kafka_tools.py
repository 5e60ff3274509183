"""Apache Kafka's own command-line tools against the broker under test.

Each test is one run of one tool, judged by its exit code and by the words that a person would
look for in its output. They run as Java classes, as Kafka's shell scripts start them.
"""

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.brokers import BrokerProcess, Missing, kafka_jars, run_java

from compat.allow_list import Judge

TOOLS = "org.apache.kafka.tools"
DUMP = f"{TOOLS}.DumpLogSegments"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
RECORDS = 5
# Enough to roll three segments of 1 MB, the least that Kafka allows, with many index entries.
ROLLING_RECORDS = 320
ROLLING_CONFIGS = (("segment.bytes", "1048576"), ("index.interval.bytes", "4096"))


class ToolFailed(AssertionError):
    """A tool exited with an error; what it printed, without its stack trace."""


@pytest.fixture(scope="module", autouse=True)
def jars() -> Path:
    try:
        return kafka_jars()
    except Missing as reason:
        pytest.skip(str(reason))


def tool(main_class: str, *arguments: str, stdin: str | None = None) -> str:
    """What the tool printed; an assertion fails when it exits with an error."""
    done = run_java(main_class, *arguments, stdin=stdin, timeout_s=45)
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "\tat " not in line]
        raise ToolFailed(f"{main_class} exits with {done.returncode}: {' / '.join(said)[:800]}")
    return done.stdout


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A topic of two partitions with five records in the first one."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    with broker.connect() as connection:
        connection.create_topic(name, partitions=2)
        connection.fill(name, [f"value-{number}".encode() for number in range(RECORDS)])
    return name


def test_kafka_topics_creates_describes_alters_and_deletes(
    broker: BrokerProcess, judge: Judge
) -> None:
    name = f"tools-{uuid.uuid4().hex[:8]}"
    server = ("--bootstrap-server", broker.bootstrap)
    command = f"{TOOLS}.TopicCommand"
    with judge.judging("kafka-topics", "create"):
        settings = ("--partitions", "3", "--config", "retention.ms=86400000")
        created = tool(command, *server, "--create", "--topic", name, *settings)
        assert f"Created topic {name}" in created
    with judge.judging("kafka-topics", "list"):
        assert name in tool(command, *server, "--list").split()
    with judge.judging("kafka-topics", "describe"):
        described = tool(command, *server, "--describe", "--topic", name)
        assert "PartitionCount: 3" in described
        assert "retention.ms=86400000" in described
        assert described.count("Isr: 1") == 3
    with judge.judging("kafka-topics", "add partitions"):
        tool(command, *server, "--alter", "--topic", name, "--partitions", "5")
        assert "PartitionCount: 5" in tool(command, *server, "--describe", "--topic", name)
    with judge.judging("kafka-topics", "delete"):
        tool(command, *server, "--delete", "--topic", name)
        assert name not in tool(command, *server, "--list").split()


def test_kafka_configs_alters_and_describes_a_topic(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    entity = (*server, "--entity-type", "topics", "--entity-name", topic)
    command = "kafka.admin.ConfigCommand"
    with judge.judging("kafka-configs", "alter topic"):
        changes = "cleanup.policy=[compact,delete],max.message.bytes=2000000"
        tool(command, *entity, "--alter", "--add-config", changes)
    with judge.judging("kafka-configs", "describe topic"):
        described = tool(command, *entity, "--describe")
        assert "max.message.bytes=2000000" in described
        assert "cleanup.policy=compact,delete" in described
    with judge.judging("kafka-configs", "delete topic config"):
        tool(command, *entity, "--alter", "--delete-config", "max.message.bytes")
        assert "max.message.bytes=2000000" not in tool(command, *entity, "--describe")
    with judge.judging("kafka-configs", "refuse bad value"):
        done = run_java(command, *entity, "--alter", "--add-config", "retention.ms=soon")
        assert done.returncode != 0
        assert "InvalidConfigurationException" in done.stdout + done.stderr


def test_kafka_configs_alters_and_describes_a_broker(broker: BrokerProcess, judge: Judge) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    entity = (*server, "--entity-type", "brokers", "--entity-name", "1")
    command = "kafka.admin.ConfigCommand"
    with judge.judging("kafka-configs", "describe all of broker"):
        described = tool(command, *entity, "--describe", "--all")
        assert "log.segment.bytes=" in described
        assert "STATIC_BROKER_CONFIG:log.dirs=" in described
    with judge.judging("kafka-configs", "alter broker"):
        tool(command, *entity, "--alter", "--add-config", "log.cleaner.threads=2")
        assert "log.cleaner.threads=2" in tool(command, *entity, "--describe")
        tool(command, *entity, "--alter", "--delete-config", "log.cleaner.threads")


def test_kafka_get_offsets_finds_first_last_and_by_time(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    asked = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    command = f"{TOOLS}.GetOffsetShell"
    for name, time, expected in (
        ("latest", "-1", RECORDS),
        ("earliest", "-2", 0),
        ("max-timestamp", "-3", RECORDS - 1),
        ("by time", "1000", 0),
    ):
        with judge.judging("kafka-get-offsets", name):
            assert f"{topic}:0:{expected}\n" in tool(command, *asked, "--time", time)


def test_kafka_log_dirs_tells_size_of_every_partition(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    with judge.judging("kafka-log-dirs", "describe"):
        asked = ("--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic)
        lines = tool(f"{TOOLS}.LogDirsCommand", *asked).splitlines()
        answer = json.loads(next(line for line in lines if line.startswith("{")))
        (directory,) = answer["brokers"][0]["logDirs"]
        assert directory["logDir"] == str(broker.data)
        sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
        assert sizes[f"{topic}-1"] == 0
        assert sizes[f"{topic}-0"] == (broker.data / f"{topic}-0" / f"{0:020d}.log").stat().st_size


def test_kafka_broker_api_versions_lists_what_the_broker_speaks(
    broker: BrokerProcess, judge: Judge
) -> None:
    with judge.judging("kafka-broker-api-versions", "list"):
        answer = tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", broker.bootstrap)
        assert "Produce(0): " in answer
        assert "Fetch(1): " in answer


def test_kafka_metadata_quorum_describes_status_and_replication(
    broker: BrokerProcess, judge: Judge
) -> None:
    command = f"{TOOLS}.MetadataQuorumCommand"
    with judge.judging("kafka-metadata-quorum", "status"):
        status = tool(command, "--bootstrap-server", broker.bootstrap, "describe", "--status")
        assert "LeaderId:" in status
        assert "HighWatermark:" in status
    with judge.judging("kafka-metadata-quorum", "replication"):
        server = ("--bootstrap-server", broker.bootstrap)
        assert "Leader" in tool(command, *server, "describe", "--replication")
    with judge.judging("kafka-metadata-quorum", "status from controller"):
        server = ("--bootstrap-controller", broker.controller_bootstrap)
        assert "LeaderId:" in tool(command, *server, "describe", "--status")


def test_kafka_cluster_and_configs_work_through_the_controller(
    broker: BrokerProcess, judge: Judge
) -> None:
    server = ("--bootstrap-controller", broker.controller_bootstrap)
    with judge.judging("kafka-cluster", "list-endpoints from controller"):
        answer = tool(f"{TOOLS}.ClusterTool", "list-endpoints", *server)
        assert str(broker.ports.controller) in answer
    with judge.judging("kafka-configs", "alter and describe through the controller"):
        command, brokers = "kafka.admin.ConfigCommand", ("--entity-type", "brokers")
        changed = ("--alter", "--add-config", "log.cleaner.threads=2")
        tool(command, *server, *brokers, "--entity-default", *changed)
        answer = tool(command, *server, *brokers, "--entity-default", "--describe")
        assert "log.cleaner.threads=2" in answer


def test_kafka_features_describes_and_updates_finalized_levels(
    broker: BrokerProcess, judge: Judge
) -> None:
    command, server = f"{TOOLS}.FeatureCommand", ("--bootstrap-server", broker.bootstrap)
    with judge.judging("kafka-features", "describe"):
        answer = tool(command, *server, "describe")
        assert "metadata.version" in answer
    with judge.judging("kafka-features", "downgrade"):
        answer = tool(command, *server, "downgrade", "--feature", "share.version=0")
        assert "share.version was downgraded to 0." in answer
    with judge.judging("kafka-features", "upgrade"):
        answer = tool(command, *server, "upgrade", "--feature", "share.version=1")
        assert "share.version was upgraded to 1." in answer
    with judge.judging("kafka-features", "upgrade to a release"):
        answer = tool(command, *server, "upgrade", "--release-version", "4.3")
        assert "kraft.version was upgraded to 1." in answer


def test_kafka_leader_election_finds_the_preferred_leader_in_place(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    command = f"{TOOLS}.LeaderElectionCommand"
    server = ("--bootstrap-server", broker.bootstrap, "--election-type", "PREFERRED")
    with judge.judging("kafka-leader-election", "one partition"):
        answer = tool(command, *server, "--topic", topic, "--partition", "0")
        assert f"Valid replica already elected for partitions {topic}-0" in answer
    with judge.judging("kafka-leader-election", "all partitions"):
        assert "Error" not in tool(command, *server, "--all-topic-partitions")


def test_kafka_cluster_tells_cluster_id(broker: BrokerProcess, judge: Judge) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    with judge.judging("kafka-cluster", "cluster-id"):
        answer = tool(f"{TOOLS}.ClusterTool", "cluster-id", *server)
        properties = (broker.data / "meta.properties").read_text()
        (cluster_id,) = (
            line.split("=", 1)[1] for line in properties.splitlines() if line.startswith("cluster")
        )
        assert f"Cluster ID: {cluster_id}" in answer
    with judge.judging("kafka-cluster", "list-endpoints"):
        answer = tool(f"{TOOLS}.ClusterTool", "list-endpoints", *server)
        assert "unfenced" in answer
    with (
        judge.judging("kafka-cluster", "unregister a stranger"),
        pytest.raises(ToolFailed, match="BrokerIdNotRegisteredException"),
    ):
        tool(f"{TOOLS}.ClusterTool", "unregister", *server, "--id", "77")


def test_kafka_delete_records_moves_the_log_start_offset(
    broker: BrokerProcess, topic: str, tmp_path: Path, judge: Judge
) -> None:
    with judge.judging("kafka-delete-records", "delete"):
        wanted = {"topic": topic, "partition": 0, "offset": 2}
        path = tmp_path / "offsets.json"
        path.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        server = ("--bootstrap-server", broker.bootstrap)
        answer = tool(f"{TOOLS}.DeleteRecordsCommand", *server, "--offset-json-file", str(path))
        assert "low_watermark: 2" in answer
        asked = (*server, "--topic", topic, "--time", "-2")
        assert f"{topic}:0:2\n" in tool(f"{TOOLS}.GetOffsetShell", *asked)


def test_console_producer_and_consumer_pass_lines(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    lines = "one\ntwo\nthree\n"
    with judge.judging("kafka-console-producer", "default (idempotent)"):
        tool(f"{TOOLS}.ConsoleProducer", *server, "--topic", topic, "--sync", stdin=lines)
    with judge.judging("kafka-console-producer", "acks=1 with keys"):
        keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        settings = (
            "--command-property",
            "enable.idempotence=false",
            "--request-required-acks",
            "1",
        )
        arguments = (*server, "--topic", topic, *keyed, *settings)
        tool(f"{TOOLS}.ConsoleProducer", *arguments, stdin="a:four\nb:five\n")
    with judge.judging("kafka-console-consumer", "one partition"):
        asked = (*server, "--topic", topic, "--partition", "0", "--offset", "earliest")
        limits = ("--max-messages", str(RECORDS), "--timeout-ms", "15000")
        read = tool(f"{TOOLS}.consumer.ConsoleConsumer", *asked, *limits).splitlines()
        assert read == [f"value-{number}" for number in range(RECORDS)]
    with judge.judging("kafka-console-consumer", "group"):
        group = (*server, "--topic", topic, "--from-beginning", "--group", f"{topic}-group")
        limits = ("--max-messages", str(RECORDS), "--timeout-ms", "20000")
        read = tool(f"{TOOLS}.consumer.ConsoleConsumer", *group, *limits).splitlines()
        assert len(read) == RECORDS


def test_producer_performance_delivers_every_record(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    count = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    load = (*server, "--topic", topic, *count)
    unsafe = ("--command-property", "acks=1", "enable.idempotence=false")
    for name, settings in (("acks=1", unsafe), ("default (idempotent)", ())):
        with judge.judging("kafka-producer-perf-test", name):
            answer = tool(f"{TOOLS}.ProducerPerformance", *load, *settings)
            assert "2000 records sent" in answer


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """A group without members, at offset 2 of the topic's first partition."""
    from confluent_kafka import Consumer, TopicPartition

    name = f"{topic}-group"
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": name, "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    return name


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str, protocol: str) -> Iterator[str]:
    """A consumer of the group that has its assignment; gives its client id."""
    from confluent_kafka import Consumer

    settings: dict[str, str | int] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "client.id": "member-1",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        yield "member-1"
    finally:
        consumer.close()


def table(text: str) -> list[dict[str, str]]:
    """The rows of what a tool printed, by its headers."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line[0] == "GROUP")
    headers = lines[start]
    return [dict(zip(headers, line, strict=False)) for line in lines[start + 1 :]]


def test_kafka_consumer_groups_lists_describes_and_deletes(
    broker: BrokerProcess, topic: str, group: str, judge: Judge
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    one = (*server, "--group", group)
    name = "kafka-consumer-groups"
    with judge.judging(name, "list"):
        assert group in tool(GROUPS, *server, "--list").split()
    with judge.judging(name, "list with state"):
        rows = table(tool(GROUPS, *server, "--list", "--state", "Empty"))
        assert {"GROUP": group, "STATE": "Empty"} in rows
    with judge.judging(name, "describe offsets"):
        (row,) = table(tool(GROUPS, *one, "--describe"))
        found = (row["TOPIC"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
        assert found == (topic, "2", str(RECORDS), str(RECORDS - 2))
    with judge.judging(name, "describe state"):
        (row,) = table(tool(GROUPS, *one, "--describe", "--state"))
        assert "Empty" in row.values()
    with judge.judging(name, "delete offsets"):
        answer = tool(GROUPS, *one, "--delete-offsets", "--topic", topic)
        assert "Successful" in answer
    with judge.judging(name, "delete"):
        assert "was successful" in tool(GROUPS, *one, "--delete")
        assert group not in tool(GROUPS, *server, "--list").split()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_consumer_groups_shows_members(
    broker: BrokerProcess, topic: str, judge: Judge, protocol: str
) -> None:
    group = f"{topic}-{protocol}"
    one = ("--bootstrap-server", broker.bootstrap, "--group", group)
    name = "kafka-consumer-groups"
    with (
        judge.judging(name, f"describe members ({protocol})"),
        member(broker, group, topic, protocol) as client_id,
    ):
        text = tool(GROUPS, *one, "--describe", "--members", "--verbose")
        (row,) = table(text)
        assert (row["CLIENT-ID"], row["#PARTITIONS"]) == (client_id, "2")
        assert f"{topic}:0,1" in text or f"{topic}(0,1)" in text
        state = tool(GROUPS, *one, "--describe", "--state", "--verbose")
        assert "Stable" in state
        done = run_java(GROUPS, *one, "--reset-offsets", "--to-earliest", "--topic", topic)
        assert "inactive" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), RECORDS),
        (("--to-offset", "4"), 4),
        (("--shift-by", "-1"), 1),
        (("--to-current",), 2),
        (("--by-duration", "P20000D"), 0),
        (("--to-datetime", "2000-01-01T00:00:00.000"), 0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_kafka_consumer_groups_resets_offsets(
    broker: BrokerProcess,
    topic: str,
    group: str,
    judge: Judge,
    form: tuple[str, ...],
    expected: int,
) -> None:
    one = ("--bootstrap-server", broker.bootstrap, "--group", group)
    with judge.judging("kafka-consumer-groups", f"reset {form[0]}"):
        reset = (*one, "--reset-offsets", *form, "--topic", f"{topic}:0", "--execute")
        (row,) = table(tool(GROUPS, *reset))
        assert row["NEW-OFFSET"] == str(expected)
        assert committed(broker, group, topic) == expected


def test_kafka_consumer_groups_exports_and_imports_offsets(
    broker: BrokerProcess, topic: str, group: str, tmp_path: Path, judge: Judge
) -> None:
    one = ("--bootstrap-server", broker.bootstrap, "--group", group)
    path = tmp_path / "offsets.csv"
    with judge.judging("kafka-consumer-groups", "reset --from-file"):
        arguments = ("--reset-offsets", "--all-topics", "--to-current", "--export", "--dry-run")
        exported = tool(GROUPS, *one, *arguments)
        assert f"{topic},0,2" in exported.replace('"', "")
        path.write_text(f"{topic},0,3\n")
        tool(GROUPS, *one, "--reset-offsets", "--from-file", str(path), "--execute")
        assert committed(broker, group, topic) == 3


def committed(broker: BrokerProcess, group: str, topic: str) -> int | None:
    """The committed offset of a topic's first partition, asked for by another client."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    request = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(request)[group].result(30)
    offsets = {(one.topic, one.partition): one.offset for one in found.topic_partitions}
    return offsets.get((topic, 0))


def test_kafka_groups_lists_groups_of_every_type(
    broker: BrokerProcess, topic: str, group: str, judge: Judge
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    command = f"{TOOLS}.GroupsCommand"
    with judge.judging("kafka-groups", "list"):
        rows = {row["GROUP"]: row for row in table(tool(command, *server, "--list"))}
        assert rows[group]["TYPE"] == "Classic"
    with judge.judging("kafka-groups", "list consumer groups"):
        new = f"{topic}-new"
        with member(broker, new, topic, "consumer"):
            text = tool(command, *server, "--list", "--group-type", "consumer")
            rows = {row["GROUP"]: row for row in table(text)}
            assert rows[new]["TYPE"] == "Consumer"
            assert rows[new]["PROTOCOL"] == "consumer"
            assert group not in rows


def test_reassignment_tool_moves_partitions_to_where_they_are(
    broker: BrokerProcess, topic: str, tmp_path: Path, judge: Judge
) -> None:
    command = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    server = ("--bootstrap-server", broker.bootstrap)
    moves, topics = tmp_path / "moves.json", tmp_path / "topics.json"
    move = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    moves.write_text(json.dumps({"version": 1, "partitions": [move]}))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    wanted = ("--reassignment-json-file", str(moves))
    with judge.judging("kafka-reassign-partitions", "generate"):
        asked = ("--topics-to-move-json-file", str(topics), "--broker-list", "1")
        assert "Proposed partition reassignment" in tool(command, *server, *asked, "--generate")
    with judge.judging("kafka-reassign-partitions", "execute"):
        answer = tool(command, *server, *wanted, "--execute")
        assert f"Successfully started partition reassignment for {topic}-0" in answer
    with judge.judging("kafka-reassign-partitions", "verify"):
        answer = tool(command, *server, *wanted, "--verify")
        assert f"Reassignment of partition {topic}-0 is completed." in answer
    with judge.judging("kafka-reassign-partitions", "cancel"):
        answer = tool(command, *server, *wanted, "--cancel")
        assert "None of the specified partition reassignments are active." in answer
    with judge.judging("kafka-reassign-partitions", "list"):
        assert "No partition reassignments found" in tool(command, *server, "--list")


def test_kafka_dump_log_reads_what_the_broker_writes(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    with judge.judging("kafka-dump-log", "segment"):
        segment = str(broker.data / f"{topic}-0" / f"{0:020d}.log")
        dumped = tool(DUMP, "--files", segment, "--print-data-log", "--deep-iteration")
        assert dumped.count("isvalid: true") == RECORDS
        assert f"payload: value-{RECORDS - 1}" in dumped
    with judge.judging("kafka-dump-log", "cluster metadata"):
        metadata = str(broker.data / "__cluster_metadata-0" / f"{0:020d}.log")
        dumped = tool(DUMP, "--files", metadata, "--cluster-metadata-decoder")
        assert f'"name":"{topic}"' in dumped
        assert '"type":"PARTITION_RECORD"' in dumped
        assert "isvalid: false" not in dumped
    with judge.judging("kafka-dump-log", "bootstrap checkpoint"):
        checkpoint = str(broker.data / "__cluster_metadata-0" / f"{0:020d}-{0:010d}.checkpoint")
        dumped = tool(DUMP, "--files", checkpoint, "--cluster-metadata-decoder")
        assert "KRaftVersion" in dumped
        assert "SnapshotHeader" in dumped


def test_kafka_dump_log_finds_indexes_of_closed_segments_sane(
    broker: BrokerProcess, judge: Judge
) -> None:
    """Several segments with index entries; the tool compares each index with its log."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    value = b"x" * 10_000
    with broker.connect() as connection:
        connection.create_topic(name, configs=ROLLING_CONFIGS)
        connection.fill(name, [value] * ROLLING_RECORDS)
    folder = broker.data / f"{name}-0"
    segments = sorted(folder.glob("*.log"))
    with judge.judging("kafka-dump-log", "rolled segments"):
        assert len(segments) >= 3
        files = ",".join(str(path) for path in segments)
        dumped = tool(DUMP, "--files", files)
        assert dumped.count("isvalid: true") == ROLLING_RECORDS
        assert f"baseOffset: {ROLLING_RECORDS - 1} " in dumped
    for suffix, entry in (("index", "offset: "), ("timeindex", "timestamp: ")):
        with judge.judging("kafka-dump-log", suffix):
            files = ",".join(str(path.with_suffix(f".{suffix}")) for path in segments[:2])
            dumped = tool(DUMP, "--files", files, "--verify-index-only")
            assert "Found timestamp mismatch" not in dumped
            assert "Mismatches in" not in dumped
            assert "is broken" not in dumped
            listed = tool(DUMP, "--files", files)
            assert listed.count(entry) >= 2 * len(segments[:2])
            assert "Mismatches in" not in listed
    with judge.judging("kafka-dump-log", "producer snapshot"):
        snapshots = sorted(folder.glob("*.snapshot"))
        assert snapshots
        tool(DUMP, "--files", str(snapshots[-1]))


def test_producer_of_kafka_verifies_its_acknowledgements(
    broker: BrokerProcess, topic: str, judge: Judge
) -> None:
    with judge.judging("kafka-verifiable-producer", "acks=-1"):
        arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
        answer = tool(f"{TOOLS}.VerifiableProducer", *arguments, "--max-messages", "100")
        last = json.loads(answer.strip().splitlines()[-1])
        assert last["sent"] == 100
        assert last["acked"] == 100


def test_a_tool_that_never_ends_is_not_waited_for_forever() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_java(f"{TOOLS}.DumpLogSegments", "--help", timeout_s=0.001)
