"""What members of a group are asked to do, whichever client they are, and what must come out.

A member is a process of a client's own program. It reads one line of JSON from stdin

    {"bootstrap": B, "topic": T, "group": G, "protocol": P, "instance": I or null, "session_ms": M}

joins the group, and prints JSON lines as things happen:

    {"assigned": [0, 1]}          all partitions that it has now, whenever that changes
    {"records": [[0, 17], ...]}   partitions and offsets that it read and has committed

until another line comes on stdin: then it closes as its client does and prints {"stopped": true}.
Killing it is a crash. `eager` and `cooperative` are the classic protocol, `consumer` is KIP-848.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.brokers import BrokerProcess

from compat.toolchains import Driver

PROTOCOLS = ("eager", "cooperative", "consumer")
STEPS = (
    "join and work",
    "scale out",
    "scale in",
    "crash",
    "static restart",
    "commit and resume",
)
STEP_NAMES = tuple(f"groups/{protocol}/{step}" for protocol in PROTOCOLS for step in STEPS)

PARTITIONS = 4
RECORDS_PER_PARTITION = 5
SESSION_MS = 12_000  # longer than a busy machine takes to start a process anew
# A member that is gone is noticed after its session; the rest is for machines that are busy.
STEP_S_MAX = 60.0
ALL = frozenset(range(PARTITIONS))


class Member:
    """One process, and what it has said."""

    def __init__(self, driver: Driver) -> None:
        self.assignments: list[frozenset[int]] = []
        self.read: list[tuple[int, int]] = []
        self.has_stopped = False
        self._is_over = False
        self._process = subprocess.Popen(
            driver.command,
            env=driver.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._listen_to_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, asked: dict[str, Any]) -> None:
        self._say(json.dumps(asked))

    def _say(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            if "assigned" in event:
                self.assignments.append(frozenset(event["assigned"]))
            self.read += [(one[0], one[1]) for one in event.get("records", ())]
            self.has_stopped |= "stopped" in event

    def _listen_to_errors(self) -> None:
        for line in self._process.stderr or ():
            self._errors = [*self._errors[-40:], line]

    @property
    def assigned(self) -> frozenset[int]:
        return self.assignments[-1] if self.assignments else frozenset()

    @property
    def errors(self) -> str:
        return "".join(self._errors)[-800:]

    def stop(self) -> None:
        """Close as the client does."""
        self._say("stop")
        until(lambda: self.has_stopped or self._process.poll() is not None, "it stops", self)
        self.kill()

    def kill(self) -> None:
        """kill -9, if it is still there."""
        if self._is_over:
            return
        self._is_over = True
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def until(holds: Callable[[], bool], what: str, *members: Member) -> None:
    deadline = time.monotonic() + STEP_S_MAX
    while not holds():
        if time.monotonic() > deadline:
            seen = [(sorted(one.assigned), len(one.read), one.errors) for one in members]
            raise TimeoutError(f"waited in vain until {what}: {seen}")
        time.sleep(0.05)  # a poll of what the processes have said


class Group:
    """The life of one group of one client; each step is performed once, in order."""

    def __init__(self, driver: Driver, broker: BrokerProcess, topic: str, protocol: str) -> None:
        self._driver, self._broker, self._topic = driver, broker, topic
        self._protocol = protocol
        self._members: list[Member] = []
        self._filled = 0
        self._spare = self._spawn()
        with broker.connect() as connection:
            connection.create_topic(topic, partitions=PARTITIONS)

    def _spawn(self) -> Member:
        member = Member(self._driver)
        self._members.append(member)
        return member

    def start(self, instance: str | None = None) -> Member:
        """A member joins. Its process runs already, and the next one starts meanwhile."""
        member, self._spare = self._spare, self._spawn()
        member.begin(
            {
                "bootstrap": self._broker.bootstrap,
                "topic": self._topic,
                "group": f"{self._topic}-group",
                "protocol": self._protocol,
                "instance": instance,
                "session_ms": SESSION_MS,
            }
        )
        return member

    @contextmanager
    def ending(self) -> Iterator[None]:
        try:
            yield
        finally:
            for member in self._members:
                member.kill()

    def fill(self) -> set[tuple[int, int]]:
        """More records into each partition; where they lie."""
        start, self._filled = self._filled, self._filled + RECORDS_PER_PARTITION
        with self._broker.connect() as connection:
            for partition in ALL:
                values = [b"record"] * RECORDS_PER_PARTITION
                connection.fill(self._topic, values, partition=partition)
        return {(one, offset) for one in ALL for offset in range(start, self._filled)}

    def share(self, first: Member, second: Member) -> None:
        """Wait until both have half of it."""
        half = PARTITIONS // 2
        until(
            lambda: (
                len(first.assigned) == len(second.assigned) == half
                and first.assigned | second.assigned == ALL
            ),
            "two members share the topic",
            first,
            second,
        )

    def perform(self, steps: Sequence[str]) -> Iterator[tuple[str, Exception | None]]:
        """Each step, and what went wrong in it."""
        with self.ending():
            first: list[Member] = []
            for step in steps:
                try:
                    getattr(self, "_" + step.replace(" ", "_"))(first)
                except Exception as error:  # noqa: BLE001 - whatever went wrong is the result
                    for member in self._members:
                        if member not in first and member is not self._spare:
                            member.kill()
                    yield step, error
                else:
                    yield step, None

    def _join_and_work(self, first: list[Member]) -> None:
        wanted = self.fill()
        member = self.start()
        first.append(member)
        until(lambda: member.assigned == ALL, "one member has everything", member)
        until(lambda: set(member.read) >= wanted, "it has read everything", member)
        assert sorted(member.read) == sorted(wanted), "a record was read twice"

    def _scale_out(self, first: list[Member]) -> None:
        old, seen = first[0], len(first[0].assignments)
        new = self.start()
        first.append(new)
        self.share(old, new)
        wanted = self.fill()
        until(lambda: set(old.read) | set(new.read) >= wanted, "all is read", old, new)
        both = [one for one in (*old.read, *new.read) if one in wanted]
        assert len(both) == len(wanted), "a record was read by both"
        if self._protocol != "eager":
            kept = old.assigned
            assert all(kept <= one for one in old.assignments[seen:]), "it lost what it keeps"

    def _scale_in(self, first: list[Member]) -> None:
        first.pop().stop()
        until(lambda: first[0].assigned == ALL, "the other one has everything", first[0])

    def _crash(self, first: list[Member]) -> None:
        victim = self.start()
        self.share(first[0], victim)
        victim.kill()
        until(lambda: first[0].assigned == ALL, "the other one has everything", first[0])

    def _static_restart(self, first: list[Member]) -> None:
        old = first[0]
        static = self.start("box")
        self.share(old, static)
        had, seen = static.assigned, len(old.assignments)
        static.stop()
        again = self.start("box")
        until(lambda: again.assigned == had, "it is back with what it had", old, again)
        noticed = [sorted(one) for one in old.assignments[seen:]]
        assert not noticed, f"the others noticed: {noticed}"
        again.stop()
        until(lambda: old.assigned == ALL, "its time is up", old)

    def _commit_and_resume(self, first: list[Member]) -> None:
        first.pop(0).stop()
        wanted = self.fill()
        member = self.start()
        until(lambda: set(member.read) >= wanted, "the new records are read", member)
        assert set(member.read) == wanted, "it did not resume where the group was"
        member.stop()
