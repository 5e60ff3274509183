"""One broker for the whole suite, the judge, and a summary of what could join the allow-list."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh

from compat import allow_list
from compat.allow_list import Judge

SUITE_TEST_S_MAX = 400  # the first test of a client waits for the whole scenario
# The suite asks little of the broker, so Apache Kafka need not compile itself to full speed.
SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# kcat's topics come from auto-creation, so the broker's default is the scenario's count.
OVERRIDES = {
    "num.partitions": "2",
    "log.segment.bytes": str(1 << 20),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

_judge = Judge(allow_list.broker_kind(), allow_list.load())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(SUITE_TEST_S_MAX))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    outcome = yield
    _judge.end_of_test()
    return outcome


@pytest.fixture(scope="session")
def judge() -> Judge:
    return _judge


@pytest.fixture(scope="session")
def broker_kind() -> Kind:
    return allow_list.broker_kind()


@pytest.fixture(scope="session")
def broker(broker_kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker under test, started once."""
    try:
        started = start_fresh(
            broker_kind, tmp_path_factory.mktemp("broker"), overrides=OVERRIDES, jvm=SMALL_JVM
        )
    except Missing as reason:
        pytest.skip(str(reason))
    with started:
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = _judge.unlisted_passes
    if not passed:
        return
    if os.environ.get("OTTLA_COMPAT_GROW") == "1":
        allow_list.PATH.write_text(allow_list.dump(_judge.grown()))
        terminalreporter.write_line(f"{len(passed)} lines added to {allow_list.PATH.name}")
        return
    terminalreporter.write_line(f"{len(passed)} pass and are not on {allow_list.PATH.name} yet")
