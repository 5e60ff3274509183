"""`ottla group` against Ottla, and against Apache Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.cli_runs import Cli

RECORDS = 10  # in each of the three partitions
JOIN_S_MAX = 30.0
OFFSET_COLUMNS = [
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID"),
]
MEMBER_COLUMNS = [
    *("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID"),
    *("#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"),
]


@pytest.fixture
def filled(address: str, topic: str) -> str:
    """A topic whose partitions hold ten records each, one second apart, from 10^12 ms on."""
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for number in range(RECORDS):
        for partition in range(3):
            producer.produce(topic, b"v", partition=partition, timestamp=10**12 + 1000 * number)
    assert producer.flush(10) == 0
    return topic


@pytest.fixture
def group(address: str, filled: str, cli: Cli) -> Iterator[str]:
    """A group without members that is at offset 4 of partitions 0 and 1."""
    name = f"g-{uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": address, "group.id": name, "log_level": 0})
    offsets = [TopicPartition(filled, partition, 4) for partition in (0, 1)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    yield name
    cli("group", "delete", name, "--yes")


@contextmanager
def member(address: str, group: str, topic: str, **settings: str) -> Iterator[Consumer]:
    """A consumer that has its assignment."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:
        assert consumer.poll(JOIN_S_MAX) is not None
        yield consumer
    finally:
        consumer.close()


def new_offsets(cli: Cli, *args: str) -> dict[int, int]:
    done = cli("group", "reset", *args, "-o", "json")
    assert done.code == 0, done.err
    return {row["partition"]: row["new_offset"] for row in done.json}


def committed(cli: Cli, group: str) -> dict[int, int]:
    rows = cli("group", "describe", group, "-o", "json").json
    return {row["partition"]: row["current_offset"] for row in rows}


def test_offsets_and_lag_have_the_columns_of_kafkas_tool(
    cli: Cli, address: str, group: str, filled: str
) -> None:
    done = cli("group", "describe", group)
    assert done.lines[0].split() == OFFSET_COLUMNS
    assert done.lines[1].split() == [group, filled, "0", "4", "10", "6", "-", "-", "-"]
    assert done.err == f"Group '{group}' has no active members.\n"
    with member(address, group, filled):
        rows = cli("group", "describe", group, "-o", "json").json
    assert [(row["partition"], row["current_offset"], row["lag"]) for row in rows] == [
        (0, 4, 6),
        (1, 4, 6),
        (2, None, None),
    ]
    assert {row["client_id"] for row in rows} == {"reader"}
    assert all(row["consumer_id"].startswith("reader-") for row in rows)


def test_members_and_state_have_the_columns_of_kafkas_tool(
    cli: Cli, address: str, group: str, filled: str
) -> None:
    with member(address, group, filled, **{"group.instance.id": "static-1"}):
        members = cli("group", "describe", group, "--members", "--verbose")
        state = cli("group", "describe", group, "--state")
        stable = cli("group", "list", "--state", "Stable", "-q").lines
    assert members.lines[0].split() == MEMBER_COLUMNS
    row = members.lines[1].split()
    assert (row[0], row[2], row[4:]) == (
        group,
        "static-1",
        ["reader", "3", "-", f"{filled}:0,1,2", "-", "-"],
    )
    assert state.lines[0] == (
        state.lines[0][: state.lines[0].index("COORDINATOR")]
        + "COORDINATOR (ID)     ASSIGNMENT-STRATEGY  STATE   #MEMBERS"
    )
    assert state.lines[1].split() == [group, address, "(1)", "range", "Stable", "1"]
    assert group in stable


def test_a_group_of_the_new_protocol_shows_its_epochs(
    cli: Cli, address: str, group: str, filled: str
) -> None:
    with member(address, group, filled, **{"group.protocol": "consumer"}):
        (row,) = cli("group", "describe", group, "--members", "-o", "json").json
        (state,) = cli("group", "describe", group, "--state", "-o", "json").json
        offsets = cli("group", "describe", group, "--verbose").lines
        stateful = cli("group", "describe", group, "--state", "-v").lines
        listed = cli("group", "list", "--type", "consumer", "-q").lines
    assert row["current_assignment"] == row["target_assignment"] == {filled: [0, 1, 2]}
    assert row["current_epoch"] == row["target_epoch"] == state["group_epoch"] > 0
    assert (state["type"], state["assignor"]) == ("Consumer", "uniform")
    assert offsets[0].split()[:5] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "LEADER-EPOCH",
        "CURRENT-OFFSET",
    ]
    assert stateful[0].split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert group in listed


def test_a_group_is_listed_with_type_and_state(cli: Cli, group: str) -> None:
    assert cli("group", "list").lines[0].split() == ["GROUP", "TYPE", "STATE"]
    rows = {row["group"]: row for row in cli("group", "list", "-o", "json").json}
    assert rows[group] == {"group": group, "type": "Classic", "state": "Empty", "simple": True}
    assert group in cli("group", "list", "--state", "empty", "--type", "classic", "-q").lines
    assert group not in cli("group", "list", "--state", "Stable", "-q").lines
    assert group not in cli("group", "list", "--type", "Consumer", "-q").lines


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0, 2: 0}),
        (("--to-latest",), {0: 10, 1: 10, 2: 10}),
        (("--to-offset", "7"), {0: 7, 1: 7, 2: 7}),
        (("--to-offset", "99"), {0: 10, 1: 10, 2: 10}),
        (("--to-current",), {0: 4, 1: 4, 2: 10}),
        (("--to-datetime", "2001-09-09T01:46:43.000"), {0: 3, 1: 3, 2: 3}),
        (("--to-datetime", "2001-09-09T03:46:43.500+02:00"), {0: 4, 1: 4, 2: 4}),
        (("--to-datetime", "2030-01-01T00:00:00"), {0: 10, 1: 10, 2: 10}),
        (("--by-duration", "P9000D"), {0: 10, 1: 10, 2: 10}),
        (("--by-duration", "P15000D"), {0: 0, 1: 0, 2: 0}),
    ],
)
def test_every_form_of_a_reset_is_a_dry_run_by_default(
    cli: Cli, group: str, filled: str, form: tuple[str, ...], expected: dict[int, int]
) -> None:
    assert new_offsets(cli, group, "--topic", filled, *form) == expected
    assert committed(cli, group) == {0: 4, 1: 4}


def test_shifting_stays_within_the_log(cli: Cli, group: str, filled: str) -> None:
    for shift, expected in (("3", 7), ("-3", 1), ("-9", 0), ("100", 10)):
        assert new_offsets(cli, group, "--all-topics", "--shift-by", shift) == {
            0: expected,
            1: expected,
        }
    refused = cli("group", "reset", group, "--topic", filled, "--shift-by", "1")
    assert refused.code == 1
    assert "no offset of" in refused.err


def test_execute_moves_only_the_chosen_partitions(cli: Cli, group: str, filled: str) -> None:
    done = cli("group", "reset", group, "--topic", f"{filled}:1,2", "--to-offset", "6", "--execute")
    assert done.lines[0].split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert done.err == ""
    assert committed(cli, group) == {0: 4, 1: 6, 2: 6}


def test_an_exported_plan_brings_a_group_back(
    cli: Cli, group: str, filled: str, tmp_path: Path
) -> None:
    plan = tmp_path / "offsets.csv"
    exported = cli("group", "reset", group, "--all-topics", "--to-current", "--export")
    assert exported.out.decode() == f"{filled},0,4\n{filled},1,4\n"
    plan.write_bytes(exported.out)
    cli("group", "reset", group, "--all-topics", "--to-latest", "--execute")
    assert committed(cli, group) == {0: 10, 1: 10}
    assert cli("group", "reset", group, "--from-file", str(plan), "--execute").code == 0
    assert committed(cli, group) == {0: 4, 1: 4}

    plan.write_text(f"{group},{filled},0,2\nother,{filled},0,3\n")
    both = (group, "other", "--from-file", str(plan), "--execute")
    assert cli("group", "reset", *both).code == 0
    assert committed(cli, group) == {0: 2, 1: 4}
    assert committed(cli, "other") == {0: 3}
    assert cli("group", "delete", "other", "-y").code == 0


def test_offsets_of_one_topic_are_forgotten(cli: Cli, group: str, filled: str) -> None:
    done = cli("group", "delete-offsets", group, "--topic", f"{filled}:0", "--yes")
    assert done.code == 0
    assert done.lines[1].split() == [filled, "0", "Successful"]
    assert committed(cli, group) == {1: 4}


def test_an_active_group_is_neither_moved_nor_deleted(
    cli: Cli, address: str, group: str, filled: str
) -> None:
    with member(address, group, filled):
        moved = cli("group", "reset", group, "--all-topics", "--to-latest", "--execute")
        deleted = cli("group", "delete", group, "--yes")
        forgotten = cli("group", "delete-offsets", group, "--topic", filled, "--yes")
        assert committed(cli, group)[0] == 4
    assert (moved.code, deleted.code, forgotten.code) == (1, 1, 1)
    assert moved.err == (
        f"Error: Group '{group}' is active (Stable); stop its consumers, then try again.\n"
    )
    assert "has members" in deleted.err
    assert b"GROUP_SUBSCRIBED_TO_TOPIC" in forgotten.out


def test_several_groups_are_described_and_deleted_at_once(
    cli: Cli, group: str, filled: str
) -> None:
    other = f"{group}-2"
    cli("group", "reset", other, "--topic", f"{filled}:0", "--to-latest", "--execute")
    rows = cli("group", "describe", group, other, "-o", "jsonl").jsonl
    assert [(row["group"], row["lag"]) for row in rows] == [(group, 6), (group, 6), (other, 0)]
    everything = cli("group", "describe", "--all-groups", "--state", "-o", "json").json
    assert {group, other} <= {row["group"] for row in everything}
    done = cli("group", "delete", other, "no-such-group", "--yes")
    assert done.code == 3
    assert f"Deleted group '{other}'." in done.err
    assert other not in cli("group", "list", "-q").lines


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("describe", "no-such-group"), 3, "does not exist"),
        (("describe",), 2, "--all-groups"),
        (("describe", "g", "--all-groups"), 2, "not both"),
        (("delete", "no-such-group", "-y"), 3, "does not exist"),
        (("delete-offsets", "no-such-group", "--topic", "t", "-y"), 3, "does not exist"),
        (("reset", "g", "--to-latest"), 2, "--topic"),
        (("reset", "g", "--all-topics"), 2, "exactly one"),
        (("reset", "g", "--all-topics", "--to-latest", "--to-earliest"), 2, "exactly one"),
        (("reset", "g", "--topic", "t:x", "--to-latest"), 2, "partitions"),
        (("reset", "g", "--topic", "t", "--to-datetime", "yesterday"), 2, "is not a time"),
        (("reset", "g", "--topic", "t", "--by-duration", "1h"), 2, "is not a duration"),
        (("reset", "g", "--topic", "t", "--to-offset", "-1"), 2, "--to-offset"),
        (("reset", "g", "--topic", "no-such-topic", "--to-latest"), 3, "does not exist"),
        (("reset", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"), 2, "not both"),
        (("reset", "g", "--from-file", "/no/such/file"), 2, "does not exist"),
    ],
)
def test_bad_input_is_one_sentence_and_its_exit_code(
    cli: Cli, args: tuple[str, ...], code: int, words: str
) -> None:
    done = cli("group", *args)
    assert done.code == code, done.err
    assert words in done.err
    assert done.out == b""


def test_a_bad_plan_is_named_by_its_line(cli: Cli, group: str, tmp_path: Path) -> None:
    plan = tmp_path / "offsets.csv"
    for text, words in (
        ("nonsense\n", "line 1"),
        ("no-such-topic,0,1\n", "there is no no-such-topic-0"),
        ("", "no offsets for group"),
    ):
        plan.write_text(text)
        done = cli("group", "reset", group, "--from-file", str(plan))
        assert done.code in (1, 3)
        assert words in done.err


@pytest.mark.usefixtures("patient_completion")
def test_the_shell_is_offered_live_group_names(
    address: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.shell_completion import BashComplete

    from ottla.cli.main import root

    monkeypatch.setenv("OTTLA_BROKERS", address)
    complete = BashComplete(root, {}, "ottla", "_OTTLA_COMPLETE")
    found = complete.get_completions(["group", "describe"], group[:5])
    assert group in [item.value for item in found]
