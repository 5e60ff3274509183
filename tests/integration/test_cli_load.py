"""`ottla bench` against Ottla, and against Apache Kafka."""

from support.cli_runs import Cli

COLUMNS = ["LOAD", "RECORDS", "SECONDS", "RECORDS/S", "MB/S", "P50-MS", "P99-MS", "MAX-MS"]


def test_every_record_comes_back_and_no_topic_is_left(cli: Cli) -> None:
    before = cli("topic", "list", "-q").lines
    done = cli("bench", "-n", "2000", "-s", "100", "-z", "lz4", "-o", "json")
    assert done.code == 0, done.err
    for row in done.json:
        assert (row["records"], row["bytes"], row["errors"]) == (2000, 200_000, 0)
    assert [row["load"] for row in done.json] == ["produce", "consume"]
    assert cli("topic", "list", "-q").lines == before


def test_a_named_topic_is_kept_and_only_the_new_records_are_read(cli: Cli, topic: str) -> None:
    cli("produce", topic, stdin=b"old\n")
    for _ in range(2):
        rows = cli("bench", "--topic", topic, "-n", "100", "--acks", "1", "-o", "jsonl").jsonl
        assert [row["records"] for row in rows] == [100, 100]
    ends = cli("topic", "offsets", topic, "-o", "json").json
    assert sum(row["log_end_offset"] for row in ends) == 201


def test_the_table_has_times_and_rates(cli: Cli) -> None:
    lines = cli("bench", "-n", "10", "--produce-only").lines
    assert lines[0].split() == COLUMNS
    assert len(lines) == 2


def test_a_topic_that_is_not_there_is_exit_code_3(cli: Cli) -> None:
    assert cli("bench", "--topic", "no-such-topic").code == 3


def test_records_above_the_usual_limit_are_let_through_or_refused_in_a_sentence(
    cli: Cli, topic: str
) -> None:
    large = cli("bench", "-n", "3", "-s", "2000000", "-o", "json")
    assert large.code == 0, large.err
    assert [row["bytes"] for row in large.json] == [6_000_000, 6_000_000]
    refused = cli("bench", "-n", "3", "-s", "2000000", "--topic", topic, "--produce-only")
    assert refused.code == 1
    assert "3 of 3 records were not acknowledged" in refused.err
    assert "size" in refused.err.lower()
    assert "defect" not in refused.err
