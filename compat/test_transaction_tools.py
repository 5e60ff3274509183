"""kafka-transactions and kafka-dump-log against transactions that are under way, and after them."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.brokers import BrokerProcess, Missing, kafka_jars
from confluent_kafka import KafkaException, Producer

from compat.allow_list import Judge
from compat.test_kafka_tools import DUMP, TOOLS, tool

COMMAND = f"{TOOLS}.TransactionsCommand"
SECTION = "kafka-transactions"


@pytest.fixture(scope="module", autouse=True)
def jars() -> Path:
    try:
        return kafka_jars()
    except Missing as reason:
        pytest.skip(str(reason))


class Open:
    """A transaction of three records in one partition, not ended yet."""

    def __init__(self, broker: BrokerProcess, *, configs: tuple[tuple[str, str], ...] = ()) -> None:
        self.name = f"open-{uuid.uuid4().hex[:8]}"
        with broker.connect() as connection:
            connection.create_topic(self.name, partitions=2, configs=configs)
        settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        self.producer = Producer({**settings, "transactional.id": self.name})
        self.producer.init_transactions(30)
        self.producer.begin_transaction()
        for number in range(3):
            self.producer.produce(self.name, b"%d" % number, partition=1)
        assert self.producer.flush(30) == 0


@pytest.fixture(scope="module")
def transaction(broker: BrokerProcess) -> Iterator[Open]:
    try:
        yield Open(broker)
    except KafkaException as error:
        pytest.xfail(f"no transactions: {error}")


def columns(answer: str) -> list[dict[str, str]]:
    """The tool's table: one dictionary per row, by its headings."""
    lines = [line.split("\t") for line in answer.splitlines() if line.strip()]
    names = [cell.strip() for cell in lines[0]]
    return [dict(zip(names, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]


def test_kafka_transactions_shows_finds_and_aborts(
    broker: BrokerProcess, transaction: Open, judge: Judge
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    name = transaction.name
    place = ("--topic", name, "--partition", "1")
    with judge.judging(SECTION, "list"):
        rows = {row["TransactionalId"]: row for row in columns(tool(COMMAND, *server, "list"))}
        assert rows[name]["TransactionState"] == "Ongoing"
    with judge.judging(SECTION, "list by pattern"):
        answer = tool(COMMAND, *server, "list", "--transactional-id-pattern", f"{name[:-1]}.*")
        assert [row["TransactionalId"] for row in columns(answer)] == [name]
    with judge.judging(SECTION, "describe"):
        (row,) = columns(tool(COMMAND, *server, "describe", "--transactional-id", name))
        assert row["TransactionState"] == "Ongoing"
        assert row["TopicPartitions"] == f"{name}-1"
        assert int(row["ProducerId"]) >= 0
    with judge.judging(SECTION, "describe-producers"):
        (row,) = columns(tool(COMMAND, *server, "describe-producers", *place))
        assert row["CurrentTransactionStartOffset"] == "0"
        assert row["LastSequence"] == "2"
    with judge.judging(SECTION, "find-hanging finds nothing that its coordinator knows of"):
        asked = ("--topic", name, "--max-transaction-timeout", "0")
        assert name not in tool(COMMAND, *server, "find-hanging", *asked)
    with judge.judging(SECTION, "abort"):
        tool(COMMAND, *server, "abort", *place, "--start-offset", "0")
        (row,) = columns(tool(COMMAND, *server, "describe-producers", *place))
        assert row["CurrentTransactionStartOffset"] == "None"
    with judge.judging(SECTION, "forceTerminateTransaction"):
        tool(COMMAND, *server, "forceTerminateTransaction", "--transactionalId", name)
        (row,) = columns(tool(COMMAND, *server, "describe", "--transactional-id", name))
        assert row["TransactionState"] == "Empty"  # aborted, and its producer id taken over
        with pytest.raises(KafkaException):
            transaction.producer.commit_transaction(30)


def test_kafka_dump_log_reads_the_log_of_transactions(
    broker: BrokerProcess, transaction: Open, judge: Judge
) -> None:
    with judge.judging("kafka-dump-log", "transaction log"):
        logs = [str(path) for path in broker.data.glob("__transaction_state-*/*.log")]
        dumped = tool(DUMP, "--files", ",".join(logs), "--transaction-log-decoder")
        about = [line for line in dumped.splitlines() if transaction.name in line]
        assert any(f'"transactionalId":"{transaction.name}"' in line for line in about)
        assert any(f'{{"topic":"{transaction.name}","partitionIds":[1]}}' in line for line in about)
        assert "isvalid: false" not in dumped


def test_kafka_dump_log_reads_markers_and_the_index_of_aborted_transactions(
    broker: BrokerProcess, judge: Judge
) -> None:
    ended = Open(broker, configs=(("segment.bytes", "1048576"),))
    ended.producer.abort_transaction(30)
    for value in (b"kept", bytes(600_000), bytes(600_000)):  # the last one needs another segment
        ended.producer.begin_transaction()
        ended.producer.produce(ended.name, value, partition=1)
        ended.producer.commit_transaction(30)
    folder = broker.data / f"{ended.name}-1"
    with judge.judging("kafka-dump-log", "transaction markers"):
        dumped = tool(DUMP, "--files", str(folder / f"{0:020d}.log"), "--print-data-log")
        assert dumped.count("endTxnMarker: ABORT") == 1
        assert dumped.count("endTxnMarker: COMMIT") == 2
        assert "isvalid: false" not in dumped
    with judge.judging("kafka-dump-log", "index of aborted transactions"):
        dumped = tool(DUMP, "--files", str(folder / f"{0:020d}.txnindex"))
        assert "firstOffset: 0 lastOffset: 3" in dumped
