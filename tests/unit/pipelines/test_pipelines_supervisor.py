"""The supervisor with a worker that only pretends: what it does as that lives, fails and ends."""

import json
import sys
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines import Pipeline
from ottla.spark.pipelines.restarts import Restarts
from ottla.spark.pipelines.run_directory import AlreadyRunning, RunDirectory, remove_checkpoints
from ottla.spark.pipelines.supervisor import Supervisor

DEFINITION = Pipeline("p", bootstrap="b:1").source("s", topic="t").sink("o", input="s", topic="u")

# Each life of the worker does the next of these; the last one is repeated.
PRETENDED = """
import json, os, sys, time
events, count, lives = os.fdopen(int(sys.argv[1]), "w"), sys.argv[2], json.loads(sys.argv[3])
number = len(open(count).read()) if os.path.exists(count) else 0
open(count, "a").write("x")
for event in lives[min(number, len(lives) - 1)]:
    if event == "die":
        os.kill(os.getpid(), 9)
    if event == "wait":
        time.sleep(60)
    events.write(json.dumps(event) + "\\n")
    events.flush()
"""
STARTED = {"event": "started", "queries": ["o"]}
PROGRESS = {
    "event": "progress",
    "query": "o",
    "progress": {"batchId": 3, "numInputRows": 10, "batchDuration": 5, "sources": []},
}
FINISHED = {"event": "finished"}
FAILED = {"event": "failed", "message": "The broker is away.", "is_permanent": False}
FENCED = {"event": "failed", "message": "Another driver took over.", "is_permanent": True}


class Pretending(Supervisor):
    lives: list[list[Any]]
    count: Path

    def worker_command(self, events: int) -> list[str]:
        arguments = [str(events), str(self.count), json.dumps(self.lives)]
        return [sys.executable, "-c", PRETENDED, *arguments]


class Watched:
    def __init__(self, tmp_path: Path, lives: list[list[Any]], **options: Any) -> None:
        self.seen: list[str] = []
        self.directory = RunDirectory(tmp_path, "p")
        self.supervisor = Pretending(
            "p.toml",
            DEFINITION.definition,
            self.directory,
            on_change=lambda event, status: self.seen.append(event),
            restarts=Restarts(first_pause_ms=1, longest_pause_ms=4),
            **options,
        )
        self.supervisor.lives = lives
        self.supervisor.count = tmp_path / "lives"


def test_a_pipeline_that_ends_by_itself_is_finished(tmp_path: Path) -> None:
    watched = Watched(tmp_path, [[STARTED, PROGRESS, PROGRESS, FINISHED]])
    status = watched.supervisor.run()
    assert status["state"] == "finished"
    assert status["queries"][0]["rows_total"] == 20
    assert status["queries"][0]["batch_id"] == 3
    assert watched.directory.read_status() == status
    text = (watched.directory.path / "metrics.prom").read_text()
    assert 'ottla_pipeline_input_rows_total{pipeline="p",query="o"} 20' in text


def test_a_worker_that_fails_or_dies_is_started_again(tmp_path: Path) -> None:
    lives = [[STARTED, FAILED], [STARTED, PROGRESS, "die"], [], [STARTED, PROGRESS, FINISHED]]
    watched = Watched(tmp_path, lives)
    status = watched.supervisor.run()
    assert (status["state"], status["restarts"]) == ("finished", 3)
    assert "ended unexpectedly" in status["last_error"]["message"]
    assert watched.seen.count("restarting") == 3


def test_what_a_restart_cannot_mend_ends_it_with_the_reason(tmp_path: Path) -> None:
    watched = Watched(tmp_path, [[STARTED, FENCED]])
    status = watched.supervisor.run()
    assert (status["state"], status["restarts"]) == ("failed", 0)
    assert status["last_error"]["message"] == "Another driver took over."


def test_a_pipeline_is_stopped_when_asked_and_tells_its_metrics_until_then(tmp_path: Path) -> None:
    watched = Watched(tmp_path, [[STARTED, PROGRESS, "wait"]], metrics_port=0)
    thread = threading.Thread(target=watched.supervisor.run)
    thread.start()
    running = threading.Event()
    while "progress" not in watched.seen:
        running.wait(0.02)
    other = Watched(tmp_path, [[FINISHED]])
    with pytest.raises(AlreadyRunning):
        other.supervisor.run()
    url = watched.supervisor.status["metrics_url"]
    with urllib.request.urlopen(url) as answer:
        assert b'ottla_pipeline_up{pipeline="p"} 1' in answer.read()
    watched.supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert (watched.directory.read_status() or {})["state"] == "stopped"
    assert not watched.directory.is_running()


def test_a_pipeline_is_stopped_while_it_waits_to_start_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, [[FAILED]])
    watched.supervisor._restarts = Restarts(first_pause_ms=60_000)
    thread = threading.Thread(target=watched.supervisor.run)
    thread.start()
    while "restarting" not in watched.seen:
        threading.Event().wait(0.02)
    watched.supervisor.stop()
    thread.join(30)
    assert (watched.directory.read_status() or {})["state"] == "stopped"


def test_checkpoints_are_removed_only_once_no_other_supervisor_uses_them(tmp_path: Path) -> None:
    kept = RunDirectory(tmp_path, "p").checkpoint_path / "o" / "offsets"
    kept.mkdir(parents=True)
    watched = Watched(tmp_path, [[STARTED, FINISHED]], is_fresh=True)
    other = RunDirectory(tmp_path, "p")
    other.acquire()
    with pytest.raises(AlreadyRunning):
        watched.supervisor.run()
    assert kept.exists()
    other.release()
    assert watched.supervisor.run()["state"] == "finished"
    assert not kept.exists()


def test_of_a_checkpoint_that_is_named_only_what_the_sinks_left_is_removed(tmp_path: Path) -> None:
    for name in ("o/offsets", "o-stage", "sources/o/s", "sources/other/s", "mine"):
        (tmp_path / name).mkdir(parents=True)
    definition = replace(DEFINITION.definition, checkpoint=f"file:{tmp_path}")
    remove_checkpoints(definition, RunDirectory(tmp_path / "home", "p"))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["mine", "sources", "sources/other", "sources/other/s"]
