"""The demo as the broker's process sees it: whether it can run here, starting and stopping it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec

from ottla.spark.pipelines.session import JavaMissing, check_java

_STOP_S_MAX = 40.0


class DemoProcess:
    """The demo, from the broker's side."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.spark.pipelines.demo", bootstrap],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OTTLA_BROKERS": bootstrap},
        )

    def stop(self) -> None:
        """Stop it, and what it started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def missing() -> str | None:
    """Why the pipeline cannot run here, in one sentence; None if it can."""
    for name in ("pyspark", "pyarrow", "numba"):
        if find_spec(name) is None:
            return f"The pipeline needs {name}: pip install 'ottla[spark]'."
    try:
        check_java()
    except JavaMissing as error:
        return str(error)
    return None
