"""Java workers of a history: one process of HistoryClient.java, spoken to in JSON lines."""

import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from bench.brokers import java_command, quiet_environment
from compat.toolchains import compile_java

from exactly_once.clients import FINAL_READ_S_MAX, Completion, Identity
from exactly_once.history import Key, Outcome, Poll, step_from_json
from exactly_once.workload import PARTITIONS_PER_TOPIC, TOPICS, Kind, Plan, PlannedSend

SOURCE = Path(__file__).with_name("HistoryClient.java")
ANSWER_S_MAX = 60.0
LOG_CHARACTERS_MAX = 2_000
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaProcess:
    """Owns the process and the thread that hands its answers to whoever asked."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        folder = compile_java(SOURCE)
        arguments = (bootstrap, str(PARTITIONS_PER_TOPIC), str(len(TOPICS)))
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                java_command("HistoryClient", *arguments, jvm=JVM, classpath=str(folder)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=quiet_environment("off"),
            )
        self._answers: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        out = self._process.stdout
        if out is None:
            raise RuntimeError("the process has no stdout")
        try:
            for line in out:
                answer = json.loads(line)
                self._answers[answer["worker"]].put(answer)
        except ValueError:
            return  # closed while it was read: the run is over

    def ask(self, worker: str, do: str, **more: Any) -> Completion:
        line = json.dumps({"worker": worker, "do": do, **more}) + "\n"
        pipe = self._process.stdin
        if pipe is None:
            raise RuntimeError("the process has no stdin")
        answers = self._answers.setdefault(worker, queue.Queue())
        wait_s = FINAL_READ_S_MAX + ANSWER_S_MAX if do == "everything" else ANSWER_S_MAX
        try:
            with self._lock:
                pipe.write(line)
                pipe.flush()
            answer = answers.get(timeout=wait_s)
        except (BrokenPipeError, queue.Empty) as error:
            said = self._log.read_text()[-LOG_CHARACTERS_MAX:]
            ended = self._process.poll()
            raise RuntimeError(f"the Java client ended with {ended}: {said}") from error
        return _completion(answer)

    def read_everything(self, keys: Sequence[Key]) -> list[Poll]:
        done = self.ask("final", "everything", positions=dict.fromkeys(keys, 0))
        if done.outcome is not Outcome.OK:
            raise RuntimeError(f"the Java client could not read everything: {done.error}")
        return [step for step in done.steps if isinstance(step, Poll)]


def _completion(answer: dict[str, Any]) -> Completion:
    return Completion(
        Outcome(answer["outcome"]),
        tuple(step_from_json(step) for step in answer["steps"]),
        answer["error"],
        answer["ends"],
        tuple(_completion(part) for part in answer.get("parts", ())),
    )


class JavaClient:
    def __init__(self, process: JavaProcess, identity: Identity) -> None:
        self._process, self._worker = process, identity.worker
        self._is_member = identity.positions is None
        opened = process.ask(
            self._worker,
            "open",
            transactional_id=identity.transactional_id,
            group=identity.group,
            positions=None if identity.positions is None else dict(identity.positions),
        )
        if opened.outcome is not Outcome.OK:
            self.close()
            raise ConnectionError(opened.error)

    def close(self) -> None:
        self._process.ask(self._worker, "close")

    def perform(self, plan: Plan, positions: Mapping[Key, int]) -> Completion:
        if plan.kind is Kind.ASSIGN:
            if self._is_member:
                return self._process.ask(self._worker, "subscribe")
            return self._process.ask(self._worker, "assign", positions=dict(positions))
        steps = [
            ["send", step.key, step.value] if isinstance(step, PlannedSend) else ["poll"]
            for step in plan.steps
        ]
        done = self._process.ask(
            self._worker,
            plan.kind.value,
            steps=steps,
            abort_before=plan.abort_before,
            rival=None if plan.rival is None else ["send", plan.rival.key, plan.rival.value],
        )
        if done.outcome is Outcome.OK or done.ends_process or plan.kind is Kind.PIPELINE:
            return done
        if not self._is_member:
            self._process.ask(self._worker, "assign", positions=dict(positions))
            return done
        rewound = self._process.ask(self._worker, "rewind")
        return done if rewound.outcome is Outcome.OK else replace(done, ends_process=True)
