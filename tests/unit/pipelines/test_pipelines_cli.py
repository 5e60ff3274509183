"""`ottla pipeline`: what is wrong is a sentence with a line, before Spark starts."""

import json
import os
from pathlib import Path

import pytest

from ottla.cli.main import run
from ottla.spark.pipelines import Pipeline
from ottla.spark.pipelines.run_directory import RunDirectory
from ottla.spark.pipelines.status import empty_query, graph_of


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
            "queries": [empty_query(sink) for sink in made.sinks],
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
