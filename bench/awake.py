"""Keep the processors from falling asleep while round trips are timed.

One request at a time leaves both ends waiting most of the time, and a processor with nothing to
do sleeps. On a virtual machine waking it costs tens of microseconds, twice in a round trip: more
than either broker spends on a small request. So a process per processor runs meanwhile in the
class of SCHED_IDLE, which gives way at once to whoever has work. Both brokers get the same.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SPIN = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


@contextmanager
def awake_cpus() -> Iterator[None]:
    """No processor sleeps inside; where the system knows no such class they may."""
    if not hasattr(os, "SCHED_IDLE"):
        yield
        return
    count = len(os.sched_getaffinity(0))
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
