"""`ottla transactions` against Ottla, and against Apache Kafka."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from click.shell_completion import BashComplete
from confluent_kafka import Producer

from ottla.cli.main import root
from support.cli_runs import Cli

LIST_COLUMNS = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
DESCRIBE_COLUMNS = [
    *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
    *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
    "TopicPartitions",
]
PRODUCER_COLUMNS = [
    *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
    "CurrentTransactionStartOffset",
]


@pytest.fixture
def open_id(address: str, topic: str) -> Iterator[str]:
    """A transactional id with three records in an open transaction, in partition 1."""
    name = f"tx-{uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"v", partition=1)
    assert producer.flush(30) == 0
    yield name
    del producer


def open_offsets(cli: Cli, topic: str, partition: str = "1") -> list[int]:
    done = cli("transactions", "describe-producers", topic, "-p", partition, "-o", "json")
    assert done.code == 0, done.err
    starts = [row["current_transaction_start_offset"] for row in done.json]
    return [start for start in starts if start is not None]


def test_an_open_transaction_is_listed_and_described(cli: Cli, topic: str, open_id: str) -> None:
    assert cli("transactions", "list").lines[0].split() == LIST_COLUMNS
    ongoing = cli("transactions", "list", "--state", "ongoing", "-o", "json").json
    (listed,) = [row for row in ongoing if row["transactional_id"] == open_id]
    by_producer = ("transactions", "list", "--producer-id", str(listed["producer_id"]))
    (found,) = cli(*by_producer, "-o", "json").json
    assert found == listed
    long = cli("transactions", "list", "--longer-than", "3600000", "-o", "json").json
    assert open_id not in [row["transactional_id"] for row in long]

    described = cli("transactions", "describe", open_id)
    assert described.lines[0].split() == DESCRIBE_COLUMNS
    row = dict(zip(DESCRIBE_COLUMNS, described.lines[1].split(), strict=True))
    assert row["TransactionState"] == "Ongoing"
    assert row["TopicPartitions"] == f"{topic}-1"
    assert row["ProducerId"] == str(listed["producer_id"])


@pytest.mark.usefixtures("patient_completion")
@pytest.mark.parametrize("command", ["describe", "terminate"])
def test_the_shell_offers_transactional_ids(cli: Cli, open_id: str, command: str) -> None:
    complete = BashComplete(root, {}, "ottla", "_OTTLA_COMPLETE")
    found = complete.get_completions(["transactions", command], open_id[:4])
    assert open_id in [item.value for item in found]


def test_the_producers_of_a_partition_show_where_it_began(
    cli: Cli, topic: str, open_id: str
) -> None:
    done = cli("transactions", "describe-producers", topic, "-p", "1")
    assert done.lines[0].split() == PRODUCER_COLUMNS
    assert open_offsets(cli, topic) == [0]
    assert open_offsets(cli, topic, "0") == []


def test_what_its_coordinator_knows_does_not_hang(cli: Cli, topic: str, open_id: str) -> None:
    asked = ("transactions", "find-hanging", "--topic", topic, "--max-timeout", "0")
    assert cli(*asked, "-o", "json").json == []
    assert "No hanging transactions in 3 partitions." in cli(*asked).err


def test_a_transaction_is_aborted_where_it_begins(cli: Cli, topic: str, open_id: str) -> None:
    wrong = cli("transactions", "abort", topic, "-p", "1", "--start-offset", "7", "--yes")
    assert wrong.code == 3
    assert open_offsets(cli, topic) == [0]
    done = cli("transactions", "abort", topic, "-p", "1", "--start-offset", "0", "--yes")
    assert done.code == 0, done.err
    assert open_offsets(cli, topic) == []
    # Its coordinator still counts it as open, but in this partition it is over: now it hangs not.
    read = cli("consume", topic, "-e", "--isolation", "read_committed")
    assert (read.code, read.out) == (0, b"")


def test_terminating_a_producer_aborts_what_it_has_open(cli: Cli, topic: str, open_id: str) -> None:
    assert cli("transactions", "terminate", open_id, "--yes").code == 0
    assert open_offsets(cli, topic) == []
    (row,) = cli("transactions", "describe", open_id, "-o", "json").json
    assert row["transaction_state"] in ("Empty", "CompleteAbort")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("describe", "no-such-id"), 3, "no transactional id"),
        (("describe-producers", "no-such-topic", "-p", "0"), 3, "does not exist"),
        (("abort", "no-such-topic", "-p", "0", "--start-offset", "0", "-y"), 3, "does not exist"),
        (("abort", "t", "-p", "0"), 2, "--start-offset"),
        (("abort", "t", "-p", "0", "--start-offset", "0", "--producer-id", "1"), 2, "Give"),
        (("find-hanging", "-p", "0"), 2, "needs --topic"),
        (("list", "--state", "Bogus"), 2, "Bogus"),
    ],
)
def test_bad_input_is_one_sentence_and_its_exit_code(
    cli: Cli, args: tuple[str, ...], code: int, words: str
) -> None:
    done = cli("transactions", *args)
    assert done.code == code, done.err
    assert words in done.err


def test_a_partition_that_is_not_there_is_named(cli: Cli, topic: str) -> None:
    done = cli("transactions", "describe-producers", topic, "-p", "7")
    assert done.code == 3
    assert "no partition 7" in done.err
