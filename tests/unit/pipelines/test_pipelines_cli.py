"""`ottla pipeline`: what is wrong is a sentence with a line, before Spark starts."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import run
from ottla.client import Client, ClientConfig
from ottla.spark.pipelines import Pipeline
from ottla.spark.pipelines.load import load_pipeline
from ottla.spark.pipelines.run_directory import RunDirectory
from ottla.spark.pipelines.status import empty_query, graph_of
from ottla.spark.pipelines.topics import prepare_topics
from ottla.testing import Cluster


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTTLA_PIPELINES", str(tmp_path / "pipelines"))
    return tmp_path / "pipelines"


def status_of(home: Path, name: str, state: str) -> RunDirectory:
    definition = Pipeline(name, bootstrap="b:1").source("s", topic="t")
    made = definition.sink("o", input="s", topic="u").definition
    directory = RunDirectory(home, name)
    directory.path.mkdir(parents=True)
    directory.write_status(
        {
            "name": name,
            "state": state,
            "pid": os.getpid(),
            "definition": "x.toml",
            "master": "local[*]",
            "restarts": 1,
            "metrics_url": None,
            "last_error": {"message": "The broker was away.", "at_ms": 1},
            "graph": graph_of(made),
            "queries": [empty_query(made, sink) for sink in made.sinks],
        },
        "",
    )
    return directory


def test_a_bad_file_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        '[pipeline]\nbootstrap = "b:1"\n[sources.s]\ntopic = "t"\n[sinks.o]\nfrom="x"\n'
    )
    assert run(["pipeline", "run", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}:6: there is no 'x'" in said
    assert f"{path}:5: a sink needs either a 'topic'" in said


def test_a_broker_that_is_away_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "away.toml"
    path.write_text(
        '[pipeline]\nbootstrap = "127.0.0.1:1"\n[sources.s]\ntopic = "t"\n'
        '[sinks.o]\nfrom = "s"\ntopic = "u"\n'
    )
    assert run(["pipeline", "run", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}:2: " in said
    assert "127.0.0.1:1 cannot be reached" in said


def test_pipelines_are_listed_and_described(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status_of(home, "one", "stopped")
    status_of(home, "two", "running")
    assert run(["pipeline", "list", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["state"]) for one in listed] == [("one", "stopped"), ("two", "dead")]
    assert run(["pipeline", "list"]) == 0
    assert "two" in capsys.readouterr().out
    assert run(["pipeline", "describe", "one"]) == 0
    said = capsys.readouterr().out
    assert "The broker was away." in said
    assert "t -> s" in said


def test_a_pipeline_that_is_not_there_or_does_not_run_is_told_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "describe", "none"]) == 3
    assert run(["pipeline", "stop", "none"]) == 3
    status_of(home, "one", "running")
    assert run(["pipeline", "stop", "one"]) == 0
    assert "does not run" in capsys.readouterr().err
    assert run(["pipeline", "logs", "one"]) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config={"auto.create.topics.enable": "false"}) as found:
        found.create_topic("t")
        yield found


def written(tmp_path: Path, bootstrap: str, sink: str) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\nbootstrap = "{bootstrap}"\n[sources.s]\ntopic = "t"\n'
        f'[sinks.o]\nfrom = "s"\n{sink}\n'
    )
    return path


def test_a_sink_whose_topic_is_missing_is_told_with_its_line(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, cluster.bootstrap_servers, 'topic = "missing"')
    assert run(["pipeline", "run", str(path)]) == 2
    assert f"{path}:8: there is no topic 'missing': create it" in capsys.readouterr().err


def test_a_topic_that_brokers_create_by_themselves_is_not_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster() as creating:
        creating.create_topic("t")
        path = written(tmp_path, creating.bootstrap_servers, 'topic = "missing"')
        assert run(["pipeline", "run", str(path), "--check"]) == 0
        with Client(ClientConfig.of(creating.bootstrap_servers)) as client:
            assert client.topic_names() == ["t"]


def test_a_check_creates_nothing(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = 'topic = "made"\ncreate = { partitions = 2 }'
    path = written(tmp_path, cluster.bootstrap_servers, sink)
    assert run(["pipeline", "run", str(path), "--check"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    with Client(ClientConfig.of(cluster.bootstrap_servers)) as client:
        assert "made" not in client.topic_names()
        assert prepare_topics(load_pipeline(str(path), {})) == []
        assert len(client.topic("made").partitions) == 2


def test_a_checkpoint_that_is_elsewhere_is_not_said_to_be_removed(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, cluster.bootstrap_servers, 'topic = "t2"\ncreate = {}')
    text = path.read_text()
    path.write_text(text.replace("[sources", 'checkpoint = "s3a://b/c"\n[sources', 1))
    assert run(["pipeline", "run", str(path), "--fresh"]) == 1
    assert "s3a://b/c is not on this machine" in capsys.readouterr().err
