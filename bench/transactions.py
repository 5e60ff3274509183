"""Exactly once, measured: idempotent throughput, and transactions a second by their size.

One Java producer makes the load for both brokers: it speaks transactions v2 (KIP-890) and
commits one transaction after another, so what counts is how long a commit takes. It warms up
within each sample, as each sample is a program of its own.
"""

import json
from functools import cache
from pathlib import Path

from bench import generators
from bench.brokers import CACHE, ROOT, BrokerProcess, java_command, kafka_jars, quiet_environment
from bench.generators import CLIENT_JVM, Sample
from bench.loads import Effort, Load, Measure, Prepare
from bench.table import Figure, at_least

RECORDS_PER_TRANSACTION = (1, 10, 100, 1_000)
RECORD_BYTES = 100
WARMUP_S = 2.0
IDEMPOTENT_BYTES = 60_000_000
GROUP = "transactions"
IDEMPOTENT_NAME, TRANSACTIONS_NAME = "idempotent produce", "transactions of"


@cache
def _transaction_load() -> Path:
    """Compile bench/java/TransactionLoad.java and return the folder of its class."""
    built = CACHE / "bench" / "java"
    built.mkdir(parents=True, exist_ok=True)
    source = ROOT / "bench" / "java" / "TransactionLoad.java"
    generators.run_program(["javac", "-cp", f"{kafka_jars()}/*", "-d", str(built), str(source)])
    return built


def _transactions(records: int, seconds: float) -> Measure:
    def measure(broker: BrokerProcess) -> Sample:
        topic = _topic(records)
        load = (broker.bootstrap, topic, str(records), str(WARMUP_S), str(seconds))
        folder = str(_transaction_load())
        command = java_command("TransactionLoad", *load, jvm=CLIENT_JVM, classpath=folder)
        before = broker.usage().cpu_s
        answer = json.loads(generators.run_program(command, environment=quiet_environment()))
        cpu_s = broker.usage().cpu_s - before
        rate = answer["transactions"] / answer["seconds"]
        # The warm-up costs the broker as much per transaction as what is measured.
        total = rate * (WARMUP_S + answer["seconds"])
        return {
            "transactions_per_s": rate,
            "records_per_s": rate * records,
            "cpu_us_per_transaction": cpu_s * 1e6 / total,
        }

    return measure


def _topic(records: int) -> str:
    return f"transactions-of-{records}"


def _create(topic: str) -> Prepare:
    def prepare(broker: BrokerProcess) -> None:
        with broker.connect() as connection:
            connection.create_topic(topic)

    return prepare


def _idempotent(size: int) -> Measure:
    """ProducerPerformance as it comes: idempotent, acks=all."""
    records = IDEMPOTENT_BYTES // size
    load = ("--num-records", str(records), "--record-size", str(size), "--throughput", "-1")

    def measure(broker: BrokerProcess) -> Sample:
        server = ("--bootstrap-server", broker.bootstrap, "--topic", f"idempotent-{size}")
        main_class = "org.apache.kafka.tools.ProducerPerformance"
        command = java_command(main_class, *server, *load, jvm=CLIENT_JVM)
        before = broker.usage().cpu_s
        said = generators.run_program(command, environment=quiet_environment())
        cpu_s = broker.usage().cpu_s - before
        last = said.strip().splitlines()[-1]
        return {
            "records_per_s": float(last.split("records sent, ")[1].split(" records/sec")[0]),
            "cpu_ms_per_mb": cpu_s * 1e3 / (IDEMPOTENT_BYTES / 1e6),
        }

    return measure


def transaction_loads(effort: Effort) -> list[Load]:
    found = [
        Load(
            f"{IDEMPOTENT_NAME} {size} B",
            GROUP,
            (
                Figure("records_per_s", "records/s", at_least(1.0)),
                Figure("cpu_ms_per_mb", "broker CPU ms/MB"),
            ),
            _idempotent(size),
            _create(f"idempotent-{size}"),
            is_slow=True,
            bytes_written=IDEMPOTENT_BYTES,
        )
        for size in (100, 1_000)
    ]
    for records in RECORDS_PER_TRANSACTION:
        found.append(
            Load(
                f"{TRANSACTIONS_NAME} {records:,} x {RECORD_BYTES} B",
                GROUP,
                (
                    Figure("transactions_per_s", "transactions/s", at_least(1.0)),
                    Figure("cpu_us_per_transaction", "broker CPU us/transaction"),
                ),
                _transactions(records, effort.seconds),
                _create(_topic(records)),
                is_slow=True,
            )
        )
    return found
