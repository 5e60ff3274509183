"""A broker for each module of the command line's tests: Ottla's, and Apache Kafka's."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from bench.brokers import Missing, kafka_jars

from ottla.cli.main import run
from support.cli_runs import Cli, Done, apache_kafka, ottla, until


@pytest.fixture(scope="session")
def jars() -> Path:
    """Apache Kafka's own classes; what needs them is skipped where they cannot be had."""
    try:
        return kafka_jars()
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "ottla":
        with ottla() as found:
            yield found
        return
    request.getfixturevalue("jars")
    with apache_kafka(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture
def cli(
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    monkeypatch.setenv("OTTLA_BROKERS", address)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def call(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(args)
        captured = capsysbinary.readouterr()
        return Done(code, captured.out, captured.err.decode())

    return call


@pytest.fixture
def patient_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person gives up on a tab key sooner than a busy machine answers."""
    monkeypatch.setattr("ottla.cli.completion.COMPLETION_TIMEOUT_S", 30.0)


@pytest.fixture
def topic(cli: Cli) -> Iterator[str]:
    """A topic of three partitions, which the broker has heard of."""
    name = f"t-{uuid4().hex[:8]}"
    assert cli("topic", "create", name, "-p", "3").code == 0
    until(lambda: cli("topic", "offsets", name).code == 0)
    yield name
    cli("topic", "delete", name, "--yes")
