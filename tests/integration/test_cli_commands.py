"""The command line against a real broker: Ottla's, and Apache Kafka's.

Commands run in this process, so that hundreds of them take seconds; what only a process can show
(pipes, signals, stray output) is in test_cli_process.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

from ottla.cli.main import root
from support.cli_runs import Cli, free_port, until


def test_a_topic_lives_through_create_describe_alter_and_delete(cli: Cli) -> None:
    created = cli("topic", "create", "life", "-p", "2", "-c", "retention.ms=60000")
    assert created == (0, b"", "Created topic 'life'.\n")
    assert "life" in cli("topic", "list", "-q").lines

    again = cli("topic", "create", "life")
    assert again.code == 1
    assert "exists already" in again.err
    assert cli("topic", "create", "life", "--if-not-exists").code == 0

    (described,) = cli("topic", "describe", "life", "-o", "json").json
    assert described["partition_count"] == 2
    assert described["configs"]["retention.ms"] == "60000"
    assert [p["partition"] for p in described["partitions"]] == [0, 1]
    assert not any(p["under_replicated"] or p["unavailable"] for p in described["partitions"])

    assert cli("topic", "alter", "life", "-p", "4", "-c", "retention.ms=1000").code == 0
    (altered,) = cli("topic", "describe", "life", "-o", "json").json
    assert altered["partition_count"] == 4
    assert altered["configs"]["retention.ms"] == "1000"
    assert altered["topic_id"] == described["topic_id"]
    assert cli("topic", "alter", "life", "-p", "3").code == 1
    assert cli("topic", "alter", "life", "--delete-config", "retention.ms").code == 0
    (restored,) = cli("topic", "describe", "life", "-o", "json").json
    assert "retention.ms" not in restored["configs"]

    assert cli("topic", "delete", "life", "--yes").code == 0
    assert cli("topic", "describe", "life").code == 3


def test_a_dry_run_creates_nothing(cli: Cli) -> None:
    assert cli("topic", "create", "dry", "--dry-run").code == 0
    assert "dry" not in cli("topic", "list", "-q").lines


def test_tables_have_the_columns_of_kafkas_tools(cli: Cli, topic: str) -> None:
    assert cli("topic", "list").lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"]
    assert "PARTITION  LEADER  REPLICAS  ISR" in cli("topic", "describe", topic).lines
    header = cli("topic", "offsets", topic).lines[0]
    assert header.split() == [
        "TOPIC",
        "PARTITION",
        "LOG-START-OFFSET",
        "LOG-END-OFFSET",
        "OFFSETS",
    ]


def test_healthy_topics_have_no_troubled_partitions(cli: Cli, topic: str) -> None:
    for flag in ("--under-replicated", "--under-min-isr", "--unavailable"):
        assert cli("topic", "describe", topic, flag, "-o", "json").json == []
    assert len(cli("topic", "describe", topic, "--at-min-isr", "-o", "json").json) == 3


def test_lines_come_out_as_they_went_in(cli: Cli, topic: str) -> None:
    wrote = cli("produce", topic, "-p", "0", stdin=b"one\ntwo\nthree")
    assert wrote == (0, b"", f"Wrote 3 records to '{topic}'.\n")
    assert cli("consume", topic, "-e").out == b"one\ntwo\nthree\n"


def test_json_lines_copy_a_topic_exactly(cli: Cli, topic: str) -> None:
    lines = [
        {"key": None, "value": "plain", "headers": [], "timestamp": 1_700_000_000_001},
        {"key": "k", "value": None, "headers": [{"key": "h", "value": "1"}] * 2},
        {"key": "", "value": "", "headers": [{"key": "n", "value": None}]},
        {"key_base64": "/w==", "value_base64": "AP8=", "headers": []},
    ]
    given = "".join(json.dumps({"partition": i % 3, **line}) + "\n" for i, line in enumerate(lines))
    produced = cli("produce", topic, "--input", "jsonl", "--keep-partitions", stdin=given.encode())
    assert produced.code == 0, produced.err

    first = cli("consume", topic, "-e", "-o", "jsonl")
    copy = f"{topic}-copy"
    cli("topic", "create", copy, "-p", "3")
    cli("produce", copy, "--input", "jsonl", "--keep-partitions", stdin=first.out)
    second = cli("consume", copy, "-e", "-o", "jsonl")

    def order(record: dict[str, Any]) -> tuple[int, int]:
        return record["partition"], record["offset"]

    found = sorted(first.jsonl, key=order)
    assert sorted(second.jsonl, key=order) == [{**r, "topic": copy} for r in found]
    by_place = {order(record): record for record in found}
    for at, line in zip([(0, 0), (1, 0), (2, 0), (0, 1)], lines, strict=True):
        assert line.items() <= by_place[at].items()


def test_a_format_prints_what_the_same_format_reads(cli: Cli, topic: str) -> None:
    layout = r"%k{hex}:%v{base64};%h|"
    given = b"6b:dg==;a=1|:;|"
    assert cli("produce", topic, "-p", "1", "-f", layout, stdin=given).code == 0
    assert cli("consume", topic, "-e", "-f", layout).out == given


def test_flags_fill_in_keys_headers_and_compression(cli: Cli, topic: str) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert cli("produce", topic, "-k", codec, "-H", "x=1", "-z", codec, stdin=b"v").code == 0
    found = cli("consume", topic, "-e", "-f", r"%k %v %h\n").lines
    assert sorted(found) == ["gzip v x=1", "lz4 v x=1", "snappy v x=1", "zstd v x=1"]


def test_keys_go_where_javas_partitioner_sends_them(cli: Cli, topic: str) -> None:
    keys = [f"key-{i}" for i in range(12)]
    text = "".join(f"{key}\tv\n" for key in keys).encode()
    cli("produce", topic, "-f", r"%k\t%v\n", stdin=text)
    found = {
        line.split()[0]: line.split()[1]
        for line in cli("consume", topic, "-e", "-f", r"%k %p\n").lines
    }
    # From org.apache.kafka.common.utils.Utils: toPositive(murmur2(key)) % 3.
    assert found == {key: str(java_partition(key.encode(), 3)) for key in keys}


def java_partition(key: bytes, partitions: int) -> int:
    """Murmur2 as Apache Kafka's default partitioner computes it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions


def test_reading_starts_where_it_was_told_to(cli: Cli, topic: str) -> None:
    lines = "".join(f"{1000 + i * 1000} {i}\n" for i in range(5)).encode()
    cli("produce", topic, "-p", "0", "-f", r"%d %v\n", stdin=lines)

    def values(*args: str) -> list[str]:
        return cli("consume", topic, "-e", *args).lines

    assert values() == ["0", "1", "2", "3", "4"]
    assert values("--from", "3") == ["3", "4"]
    assert values("--from", "-2") == ["3", "4"]
    assert values("--from", "@2500") == ["2", "3", "4"]
    assert values("--from", "@1970-01-01T00:00:05Z") == ["4"]
    assert values("--from", "end") == []
    assert values("-n", "2") == ["0", "1"]
    assert values("-p", "1") == []


def test_an_empty_topic_ends_at_once(cli: Cli, topic: str) -> None:
    assert cli("consume", topic, "-e") == (0, b"", "")
    assert cli("consume", topic, "-e", "-o", "json").json == []


def test_structured_outputs_hold_the_same_records(cli: Cli, topic: str) -> None:
    import yaml

    cli("produce", topic, "-p", "0", stdin=b"a\nb\n")
    lines = cli("consume", topic, "-e", "-o", "jsonl").jsonl
    assert cli("consume", topic, "-e", "-o", "json").json == lines
    assert yaml.safe_load(cli("consume", topic, "-e", "-o", "yaml").out) == lines
    assert len(cli("consume", topic, "-e", "-o", "table").lines) == 3


def test_consuming_leaves_no_group_behind(cli: Cli, topic: str, address: str) -> None:
    from confluent_kafka.admin import AdminClient

    cli("produce", topic, stdin=b"x\n")
    assert cli("consume", topic, "-e").out == b"x\n"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    groups = admin.list_consumer_groups(request_timeout=10).result()
    assert groups.valid == []


def test_the_delivery_report_says_where_each_record_went(cli: Cli, topic: str) -> None:
    reports = cli("produce", topic, "-p", "2", "-o", "jsonl", "-q", stdin=b"a\nb\n")
    assert reports.err == ""
    assert [(r["topic"], r["partition"], r["offset"]) for r in reports.jsonl] == [
        (topic, 2, 0),
        (topic, 2, 1),
    ]


def test_records_that_the_broker_refuses_are_counted(cli: Cli) -> None:
    cli("topic", "create", "small", "-c", "max.message.bytes=200")
    lines = b"x" * 500 + b"\n" + b"fits\n"
    done = cli("produce", "small", "-X", "linger.ms=0", "-X", "batch.num.messages=1", stdin=lines)
    assert done.code == 1
    assert "Wrote 1 record to" in done.err
    assert "1 record was not written" in done.err
    assert cli("consume", "small", "-e").out == b"fits\n"


def test_input_that_breaks_the_format_keeps_what_came_before_it(cli: Cli, topic: str) -> None:
    done = cli("produce", topic, "-f", r"%k=%v\n", stdin=b"a=1\nnothing\nb=2\n")
    assert done.code == 1
    assert "record 2 has no" in done.err
    assert cli("consume", topic, "-e", "-f", "%k%v;").out == b"a1;"


def test_deleted_records_are_gone_and_offsets_say_so(cli: Cli, topic: str) -> None:
    cli("produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    deleted = cli(
        "topic", "delete-records", topic, "--before", "2", "-p", "0", "--yes", "-o", "json"
    )
    assert deleted.json == [{"topic": topic, "partition": 0, "log_start_offset": 2}]
    rows = cli("topic", "offsets", topic, "-p", "0", "-o", "json").json
    assert (rows[0]["log_start_offset"], rows[0]["log_end_offset"]) == (2, 3)
    assert cli("consume", topic, "-e").out == b"c\n"
    assert cli("topic", "delete-records", topic, "--before", "99", "-p", "0", "--yes").code == 1


def settings(cli: Cli, entity: str, name: str) -> dict[str, tuple[str, str]]:
    """What is set there, with where it comes from."""
    rows = cli("config", "describe", entity, name, "-o", "json").json
    return {row["name"]: (row["value"], row["source"]) for row in rows}


def test_settings_of_a_topic_are_described_and_altered(cli: Cli, topic: str) -> None:
    assert settings(cli, "topic", topic) == {}
    assert cli("config", "alter", "topic", topic, "-c", "segment.ms=60000").code == 0
    until(
        lambda: settings(cli, "topic", topic) == {"segment.ms": ("60000", "DYNAMIC_TOPIC_CONFIG")}
    )
    everything = cli("config", "describe", "topic", topic, "--all", "-o", "json").json
    assert {"retention.ms", "cleanup.policy"} <= {row["name"] for row in everything}
    refused = cli("config", "alter", "topic", topic, "-c", "segment.ms=x")
    assert refused.code == 1
    assert "segment.ms" in refused.err
    assert cli("config", "alter", "topic", topic, "-c", "no.such.key=1").code == 1
    assert cli("config", "describe", "topic", topic, "no.such.key").code == 3


def test_settings_of_all_brokers_groups_and_client_metrics(cli: Cli, topic: str) -> None:
    for entity, name, key, value, source in (
        ("broker", "default", "log.cleaner.threads", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("broker", "1", "log.cleaner.threads", "2", "DYNAMIC_BROKER_CONFIG"),
        ("group", topic, "consumer.session.timeout.ms", "50000", "DYNAMIC_GROUP_CONFIG"),
        ("client-metrics", topic, "interval.ms", "5000", "DYNAMIC_CLIENT_METRICS_CONFIG"),
    ):

        def found(entity: str = entity, name: str = name, key: str = key) -> Any:
            return settings(cli, entity, name).get(key)

        assert cli("config", "alter", entity, name, "-c", f"{key}={value}").code == 0
        until(lambda: found() == (value, source))  # noqa: B023  called before the next round
        (row,) = cli("config", "describe", entity, name, key, "-o", "json").json
        assert (row["value"], row["source"]) == (value, source)
        if entity in ("group", "client-metrics"):
            names = [row["name"] for row in cli("config", "list", entity, "-o", "json").json]
            assert topic in names
        assert cli("config", "alter", entity, name, "--delete-config", key).code == 0
        until(lambda: found() is None)
    assert cli("config", "describe", "broker", "seven").code == 2
    assert cli("config", "describe", "broker", "77").code == 3


def test_levels_of_loggers_are_described_and_altered(cli: Cli) -> None:
    rows = cli("config", "describe", "broker-logger", "1", "-o", "json").json
    level = next(row["value"] for row in rows if row["name"] == "root")
    changed = cli("config", "alter", "broker-logger", "1", "-c", f"root={level}")
    assert changed.code == 0, changed.err


def test_documentation_is_shown_where_it_is_asked_for(cli: Cli, topic: str) -> None:
    (row,) = cli("config", "describe", "topic", topic, "retention.ms", "--docs", "-o", "json").json
    assert (row["type"], len(row["documentation"]) > 20) == ("LONG", True)
    shown = cli("config", "describe", "topic", topic, "retention.ms", "--docs").out.decode()
    assert shown.startswith("retention.ms = 604800000  (DEFAULT_CONFIG, long)\n    ")


@pytest.mark.usefixtures("patient_completion")
@pytest.mark.parametrize(
    ("args", "typed", "offered"),
    [
        (["config", "describe", "topic"], "", "{topic}"),
        (["config", "describe", "broker"], "", "default"),
        (["config", "describe", "broker"], "", "1"),
        (["config", "describe", "broker-logger"], "", "1"),
        (["config", "describe", "topic", "{topic}"], "retention", "retention.ms"),
        (["config", "alter", "topic", "{topic}", "-c"], "retention", "retention.ms="),
        (["config", "alter", "broker", "default", "--delete-config"], "num.i", "num.io.threads"),
        (["topic", "alter", "{topic}", "-c"], "clean", "cleanup.policy="),
        (["topic", "create", "new", "-c"], "clean", "cleanup.policy="),
        (["group", "reset", "g", "--topic"], "", "{topic}"),
        (["broker", "describe"], "", "1"),
        (["transactions", "find-hanging", "--broker-id"], "", "1"),
        (["topic", "list", "--context"], "ne", "near"),
        (["context", "use"], "", "near"),
        (["context", "delete"], "", "near"),
    ],
)
def test_the_shell_offers_live_names(
    cli: Cli, address: str, topic: str, args: list[str], typed: str, offered: str
) -> None:
    assert cli("context", "create", "near", "-b", address).code == 0
    complete = BashComplete(root, {}, "ottla", "_OTTLA_COMPLETE")
    words = [word.format(topic=topic) for word in args]
    found = [item.value for item in complete.get_completions(words, typed)]
    assert offered.format(topic=topic) in found


def test_a_list_setting_grows_and_shrinks(cli: Cli, topic: str) -> None:
    def policy() -> str:
        return str(
            cli("config", "describe", "topic", topic, "cleanup.policy", "-o", "json").json[0][
                "value"
            ]
        )

    assert cli("config", "alter", "topic", topic, "--append", "cleanup.policy=compact").code == 0
    until(lambda: policy() == "delete,compact")
    assert cli("config", "alter", "topic", topic, "--subtract", "cleanup.policy=delete").code == 0
    until(lambda: policy() == "compact")


def test_brokers_and_cluster_are_described(cli: Cli, topic: str) -> None:
    cluster = cli("cluster", "describe", "-o", "json").json
    assert cluster["cluster_id"]
    (broker,) = cluster["brokers"]
    listed = cli("broker", "list", "-o", "jsonl").jsonl
    assert [row["id"] for row in listed] == [broker["id"]]
    assert listed[0]["leaders"] >= 3
    cli("produce", topic, "-p", "0", stdin=b"stored\n")
    described = cli("broker", "describe", str(broker["id"]), "-o", "json").json
    (directory,) = described["log_dirs"]
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    assert directory["cordoned"] is False
    sizes = {(r["topic"], r["partition"]): r["size_bytes"] for r in directory["replicas"]}
    assert sizes[topic, 0] > 0
    assert sizes[topic, 1] == 0
    assert cli("broker", "describe", "77").code == 3
    settings = cli("config", "describe", "broker", str(broker["id"]), "-o", "json").json
    assert "log.dirs" in {row["name"] for row in settings}


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "describe", "absent"),
        ("topic", "alter", "absent", "-p", "9"),
        ("topic", "offsets", "absent"),
        ("topic", "delete", "absent", "--yes"),
        ("consume", "absent"),
        ("config", "describe", "topic", "absent"),
        ("config", "alter", "topic", "absent", "-c", "retention.ms=1"),
    ],
)
def test_a_topic_that_is_not_there_is_exit_code_3(cli: Cli, args: tuple[str, ...]) -> None:
    done = cli(*args)
    assert done.code == 3
    assert done.err == (
        "Error: Topic 'absent' does not exist; 'ottla topic list' shows those that do.\n"
    )
    assert "absent" not in cli("topic", "list", "-q").lines


@pytest.mark.parametrize(
    "args", [("topic", "list"), ("cluster", "describe"), ("produce", "t"), ("consume", "t")]
)
def test_a_cluster_that_is_not_there_is_exit_code_5(cli: Cli, args: tuple[str, ...]) -> None:
    done = cli(*args, "-b", f"127.0.0.1:{free_port()}", stdin=b"x\n")
    assert done.code == 5
    assert "Connection refused" in done.err
    assert done.err.count("\n") == 1


def test_a_context_names_the_cluster(cli: Cli, address: str) -> None:
    assert cli("context", "create", "here", "-b", address).code == 0
    assert cli("context", "create", "nowhere", "-b", f"127.0.0.1:{free_port()}", "--use").code == 0
    assert cli("topic", "list", "-q", "--context", "here").code == 0
    assert cli("topic", "list", "-q", "--context", "nowhere").code == 5
    assert cli("topic", "list", "-q", "--context", "absent").code == 3


def test_a_segment_that_the_broker_wrote_can_be_dumped(cli: Cli, topic: str) -> None:
    cli("produce", topic, "-p", "0", "-k", "k", stdin=b"a\nb\n")
    broker_id = cli("broker", "list", "-o", "jsonl").jsonl[0]["id"]
    (directory,) = cli("broker", "describe", str(broker_id), "-o", "json").json["log_dirs"]
    segment = Path(directory["log_dir"]) / f"{topic}-0" / "00000000000000000000.log"
    batches = cli("log", "dump", str(segment), "-o", "jsonl").jsonl
    assert sum(batch["count"] for batch in batches) == 2
    assert all(batch["problem"] is None for batch in batches)
    records = cli("log", "dump", str(segment), "--deep", "-o", "jsonl").jsonl
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [(0, "k", "a"), (1, "k", "b")]
    metadata = Path(directory["log_dir"]) / "__cluster_metadata-0" / "00000000000000000000.log"
    names = [
        record["value"].get("name")
        for record in cli("log", "dump", str(metadata), "--deep", "-o", "jsonl").jsonl
        if record["key"] == "TopicRecord"
    ]
    assert topic in names
