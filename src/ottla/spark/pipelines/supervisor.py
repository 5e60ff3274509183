"""Keeps a pipeline running: starts its worker, starts it again when it fails, tells how it goes.

The worker is a process of its own, because a JVM can end in ways that no handler survives. The
supervisor holds the pipeline's directory, so that one pipeline never runs twice on one machine; on
two machines the sink's fencing stops the older one.

Shell: one thread reads the worker's events; another serves metrics.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from time import monotonic, time
from typing import IO, Any

from ottla.spark.pipelines.definition import Definition
from ottla.spark.pipelines.restarts import Restarts
from ottla.spark.pipelines.run_directory import RunDirectory, remove_checkpoints
from ottla.spark.pipelines.status import empty_query, graph_of, metrics_text, with_progress

STOP_S_MAX = 30.0  # Spark's own shutdown takes a few seconds; beyond this it hangs
_POLL_S = 0.5
_EVENT_BYTES_MAX = 4 << 20  # a progress report of many partitions is some hundred kilobytes

Status = dict[str, Any]


class Supervisor:
    """Runs one pipeline until it is stopped, ends by itself, or cannot go on."""

    def __init__(
        self,
        reference: str,
        definition: Definition,
        directory: RunDirectory,
        *,
        master: str | None = None,
        trigger: str | None = None,
        is_fresh: bool = False,
        metrics_port: int | None = None,
        on_change: Callable[[str, Status], None] = lambda event, status: None,
        environment: Mapping[str, str] | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        """`on_change` is told what happened and the status after it, from the calling thread.

        `is_fresh`: the checkpoints of earlier runs are removed first.
        """
        self._reference = reference
        self._definition = definition
        self._directory = directory
        self._master = master
        self._trigger = trigger
        self._is_fresh = is_fresh
        self._metrics_port = metrics_port
        self._on_change = on_change
        self._environment = dict(os.environ if environment is None else environment)
        self._restarts = restarts or Restarts()
        self._ending = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._status: Status = {
            "name": definition.name,
            "state": "starting",
            "pid": os.getpid(),
            "definition": os.path.abspath(reference),
            "description": definition.description,
            "master": master or "local[*]",
            "started_at_ms": _now_ms(),
            "updated_at_ms": _now_ms(),
            "restarts": 0,
            "next_start_at_ms": None,
            "last_error": None,
            "metrics_url": None,
            "graph": graph_of(definition),
            "queries": [empty_query(definition, sink) for sink in definition.sinks],
        }

    @property
    def status(self) -> Status:
        return self._status

    def stop(self) -> None:
        """Ask for the end; may be called from a signal handler."""
        self._ending.set()

    def run(self) -> Status:
        """Run until the end, which is in the status returned."""
        self._directory.acquire()
        server: ThreadingHTTPServer | None = None
        try:
            if self._is_fresh:  # now that no other supervisor uses them
                remove_checkpoints(self._definition, self._directory)
            server = self._serve_metrics()
            while True:
                began = monotonic()
                outcome = self._run_once()
                if outcome != "failed" or self._ending.is_set():
                    self._tell("stopped" if self._ending.is_set() else outcome)
                    return self._status
                pause_ms = self._restarts.pause_ms_after(int((monotonic() - began) * 1000))
                self._status["restarts"] = self._restarts.count
                self._status["next_start_at_ms"] = _now_ms() + pause_ms
                self._tell("restarting")
                self._ending.wait(pause_ms / 1000)
                self._status["next_start_at_ms"] = None
                if self._ending.is_set():
                    self._tell("stopped")
                    return self._status
                self._tell("starting")
        finally:
            self._kill()
            if server is not None:
                server.shutdown()
                server.server_close()
            self._directory.release()

    def _run_once(self) -> str:
        """One life of the worker: stopped, finished, failed, or broken for good."""
        self._tell("starting")
        reader, writer = os.pipe()
        with self._directory.open_log() as log:
            self._process = subprocess.Popen(
                self.worker_command(writer),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                start_new_session=True,  # Ctrl-C is for the supervisor, who stops it in order
                env=self._environment,
            )
        os.close(writer)
        with os.fdopen(reader, "rb") as events:
            outcome = self._follow(events)
        self._stop_worker()
        return outcome

    def worker_command(self, events: int) -> list[str]:
        """How the worker is started; it tells events on the file descriptor `events`."""
        checkpoint = self._definition.checkpoint or str(self._directory.checkpoint_path)
        command = [sys.executable, "-m", "ottla.spark.pipelines.worker", self._reference]
        command += ["--events", str(events), "--checkpoint", checkpoint]
        if self._master is not None:
            command += ["--master", self._master]
        if self._trigger is not None:
            command += ["--trigger", self._trigger]
        return command

    def _follow(self, events: IO[bytes]) -> str:
        """Take in events until the worker ends or is to end."""
        os.set_blocking(events.fileno(), False)
        pending = b""
        outcome = "failed"
        is_told = False
        with selectors.DefaultSelector() as selector:
            selector.register(events, selectors.EVENT_READ)
            while not self._ending.is_set():
                if not selector.select(_POLL_S):
                    continue
                data = events.read(1 << 16)
                if data == b"":
                    break
                *lines, pending = (pending + (data or b"")).split(b"\n")
                if len(pending) > _EVENT_BYTES_MAX:
                    break
                for line in lines:
                    event = json.loads(line)
                    outcome = self._on_event(event) or outcome
                    is_told = is_told or event["event"] == "failed"
        if outcome == "failed" and not is_told and not self._ending.is_set():
            self._fail(f"The Spark process ended unexpectedly; see {self._directory.log_path}.")
        return outcome

    def _on_event(self, event: Mapping[str, Any]) -> str | None:
        kind = event["event"]
        if kind == "started":
            self._tell("running")
        elif kind == "progress":
            queries = self._status["queries"]
            for number, query in enumerate(queries):
                if query["name"] == event["query"]:
                    queries[number] = with_progress(query, event["progress"], _now_ms())
            self._tell("running", "progress")
        elif kind == "finished":
            return "finished"
        elif kind == "failed":
            self._fail(event["message"])
            return "broken" if event.get("is_permanent") else "failed"
        return None

    def _fail(self, message: str) -> None:
        self._status["last_error"] = {"message": message, "at_ms": _now_ms()}
        self._tell(self._status["state"], "error")

    def _tell(self, state: str, event: str | None = None) -> None:
        if self._ending.is_set() and state == "running":
            state = "stopping"
        self._status["state"] = "failed" if state == "broken" else state
        self._status["updated_at_ms"] = _now_ms()
        self._directory.write_status(self._status, metrics_text(self._status))
        self._on_change(event or self._status["state"], self._status)

    def _stop_worker(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None and self._ending.is_set():
            self._tell("stopping")
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            print("The Spark process did not stop in time; it is killed.", file=sys.stderr)
        self._kill()

    def _kill(self) -> None:
        """End the worker and what it started: its JVM, which may outlive it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):  # nobody is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _serve_metrics(self) -> ThreadingHTTPServer | None:
        if self._metrics_port is None:
            return None
        supervisor = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = metrics_text(supervisor.status).encode()
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Scrapes are not worth a line each."""

        server = ThreadingHTTPServer(("127.0.0.1", self._metrics_port), Handler)
        self._status["metrics_url"] = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        Thread(target=server.serve_forever, daemon=True).start()
        return server


def start_detached(command: list[str]) -> None:
    """Start a supervisor that outlives this process and its terminal."""
    subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _now_ms() -> int:
    return int(time() * 1000)
