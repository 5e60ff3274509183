"""kcat as a member of a group; see compat/groups.py.

kcat prints records to stdout and rebalances to stderr, and leaves when it is interrupted.
"""

import ctypes
import re
import signal
import subprocess
import threading
from typing import IO

from compat.drivers import member

REBALANCED = re.compile(
    r"% Group .* rebalanced(?: \(.*\): |: incremental )(assign|revoc|revoke|unassign).*?: (.*)"
)
PARTITION = re.compile(r"\[(\d+)\]")
PR_SET_PDEATHSIG = 1
CLASSIC = {"eager": "range", "cooperative": "cooperative-sticky"}


def _die_with_parent() -> None:
    """A kill of this program is one of kcat."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    asked = member.asked()
    is_over = member.stop_signal()
    reporter = member.Reporter()
    command = ["kcat", "-u", "-b", asked["bootstrap"], "-G", asked["group"], "-f", "%p %o\n"]
    settings = {
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "partition.assignment.strategy": CLASSIC[asked["protocol"]],
        "session.timeout.ms": asked["session_ms"],
        "heartbeat.interval.ms": 500,
    }
    if asked["instance"] is not None:
        settings["group.instance.id"] = asked["instance"]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    process = subprocess.Popen(
        [*command, asked["topic"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_die_with_parent,
    )
    has: set[int] = set()

    def watch(lines: IO[str]) -> None:
        for line in lines:
            found = REBALANCED.match(line)
            if found:
                changed = {int(one) for one in PARTITION.findall(found[2])}
                if found[1] == "assign":
                    has.update(changed)
                else:
                    has.difference_update(changed)
                reporter.assigned(has)

    def read(lines: IO[str]) -> None:
        for line in lines:
            partition, offset = line.split()
            reporter.records([(int(partition), int(offset))])

    threads = []
    for target, stream in ((watch, process.stderr), (read, process.stdout)):
        if stream is not None:
            threads.append(threading.Thread(target=target, args=(stream,), daemon=True))
            threads[-1].start()
    is_over.wait()
    process.send_signal(signal.SIGINT)
    process.wait()
    reporter.stopped()


if __name__ == "__main__":
    main()
