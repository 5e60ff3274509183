"""The process in which a pipeline's queries run: Spark's driver. Started by the supervisor.

It says what happens as lines of JSON on a pipe, and ends when the queries end, when one fails, when
it is told to (SIGTERM), or when its supervisor is gone. Whatever it prints is the log.

A failed query ends the process: the others stop with it, and all start again together from their
checkpoints. Restarting single queries inside a JVM that may be short of memory or threads would
save seconds and cost certainty.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.failures import failure_of
from ottla.spark.pipelines.load import load_pipeline, placed
from ottla.spark.pipelines.session import spark_session
from ottla.spark.pipelines.start import PlanError, start_queries
from ottla.spark.pipelines.topic_ends import TopicEnds

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.25


class Events:
    """Lines of JSON on the pipe to the supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", buffering=1)

    def send(self, event: str, **fields: Any) -> None:
        """Send one; BrokenPipeError if the supervisor is gone."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()


def main(argv: Sequence[str]) -> int:
    """Run the pipeline until it ends."""
    parser = argparse.ArgumentParser(prog="ottla.spark.pipelines.worker")
    parser.add_argument("reference")
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--master")
    parser.add_argument("--trigger")
    arguments = parser.parse_args(argv)
    ending = Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    events = Events(arguments.events)
    try:
        return _run(arguments, events, ending)
    except BrokenPipeError:
        return 1
    except PlanError as error:
        (message,) = placed(arguments.reference, [error.problem])
        print(message, file=sys.stderr, flush=True)
        events.send("failed", message=message, is_permanent=True)
        return 1
    except Exception as error:  # noqa: BLE001  # whatever it is, the supervisor must be told
        traceback.print_exc()
        failure = failure_of(type(error).__name__, str(error))
        events.send("failed", message=failure.message, is_permanent=failure.is_permanent)
        return 1


def _end_with(supervisor: int) -> None:
    """End when the supervisor has, however it did: nobody else would stop this process."""
    pause = Event()
    while os.getppid() == supervisor:
        pause.wait(1)
    os._exit(1)


def _run(arguments: argparse.Namespace, events: Events, ending: Event) -> int:
    definition = load_pipeline(arguments.reference, os.environ)
    warming = subprocess.Popen([sys.executable, "-m", "ottla.spark.pipelines.warm_up"])
    session = spark_session(definition, arguments.master)
    queries = start_queries(session, definition, arguments.checkpoint, trigger=arguments.trigger)
    events.send("started", queries=[query.name for query in queries])
    try:
        return _watch(queries, TopicEnds(definition), events, ending)
    finally:
        warming.kill()
        warming.wait()
        for query in queries:
            if query.isActive:
                query.stop()
        session.stop()


def _watch(queries: list[StreamingQuery], ends: TopicEnds, events: Events, ending: Event) -> int:
    seen: dict[str | None, int] = {}
    while not ending.wait(POLL_S):
        for query in queries:
            _report_progress(query, ends, seen, events)
            if not query.isActive and (error := query.exception()) is not None:
                print(f"query {query.name} failed: {error}", file=sys.stderr, flush=True)
                failure = failure_of(type(error).__name__, str(error))
                events.send(
                    "failed",
                    query=query.name,
                    message=failure.message,
                    is_permanent=failure.is_permanent,
                )
                return 1
        if not any(query.isActive for query in queries):
            events.send("finished")
            return 0
    return 0


def _report_progress(
    query: StreamingQuery, ends: TopicEnds, seen: dict[str | None, int], events: Events
) -> None:
    """Send the progress reports that are new; Spark keeps the last hundred."""
    last: Any = query.lastProgress
    if last is None:
        return
    newest = json.loads(last.json)
    key = query.name
    if newest["batchId"] == seen.get(key) and not newest["numInputRows"]:
        return
    for report in query.recentProgress:
        progress = json.loads(report.json)
        if progress["batchId"] > seen.get(key, -1):
            if progress["batchId"] == newest["batchId"]:
                ends.put_into(key or "", progress)
            events.send("progress", query=query.name, progress=progress)
            seen[key] = progress["batchId"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
