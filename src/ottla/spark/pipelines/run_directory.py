"""Where a pipeline's runs leave what others want to see: state, log, checkpoints.

<home>/<pipeline>/
  status.json   what the pipeline does now (`status.py` says what is in it); replaced as a whole
  metrics.prom  the same for Prometheus' textfile collector
  run.log       what Spark and the pipeline's functions print
  lock          held by the supervisor as long as it lives
  checkpoints/  Spark's, one for each sink

<home> is OTTLA_PIPELINES, or `ottla/pipelines` in the user's data directory. Reading needs no lock:
a file is renamed into place.

Shell.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from ottla.spark.pipelines.definition import Definition

LOG_BYTES_MAX = 16 << 20  # a pipeline that fails for days must not fill the disk


class AlreadyRunning(Exception):
    """Another supervisor holds the directory."""


def home_directory(environment: Mapping[str, str]) -> Path:
    """Where all pipelines of this user are."""
    if given := environment.get("OTTLA_PIPELINES"):
        return Path(given).expanduser()
    data = environment.get("XDG_DATA_HOME")
    return (Path(data) if data else Path("~/.local/share").expanduser()) / "ottla" / "pipelines"


class RunDirectory:
    """The directory of one pipeline."""

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.path = home / name
        self._lock: IO[str] | None = None

    @property
    def log_path(self) -> Path:
        return self.path / "run.log"

    @property
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoints"

    def acquire(self) -> None:
        """Make the directory this process's; AlreadyRunning if it is another's."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = (self.path / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise AlreadyRunning(self.name) from error
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def is_running(self) -> bool:
        """Whether a supervisor lives."""
        try:
            with (self.path / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def write_status(self, status: Mapping[str, Any], metrics: str) -> None:
        """Replace what others see."""
        self._replace("status.json", json.dumps(status, indent=1))
        self._replace("metrics.prom", metrics)

    def read_status(self) -> dict[str, Any] | None:
        """What the pipeline last said of itself; `state` is corrected if its supervisor died."""
        try:
            status: dict[str, Any] = json.loads((self.path / "status.json").read_text())
        except (OSError, ValueError):
            return None
        if status.get("state") not in ("stopped", "failed", "finished") and not self.is_running():
            status["state"] = "dead"
        return status

    def open_log(self) -> IO[bytes]:
        """The log, for appending; what is too long begins anew, with the old one beside it."""
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_BYTES_MAX:
            os.replace(self.log_path, self.log_path.with_suffix(".log.1"))
        return self.log_path.open("ab")

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the log."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - lines * 400))
                return log.read().decode(errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def _replace(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.tmp"
        temporary.write_text(text)
        os.replace(temporary, self.path / name)


class NotRemoved(Exception):
    """Checkpoints that are not on this machine's disk."""


def checkpoints_of(definition: Definition, directory: RunDirectory) -> list[Path]:
    """What a pipeline keeps of what it has read and written; NotRemoved if it is elsewhere.

    A checkpoint that the pipeline names may hold what is not the pipeline's: only what its sinks
    left there is listed.
    """
    if definition.checkpoint is None:
        return [directory.checkpoint_path]
    split = urlsplit(definition.checkpoint)
    if split.scheme not in ("", "file"):
        raise NotRemoved(
            f"The checkpoint {definition.checkpoint} is not on this machine: remove it by hand."
        )
    root = Path(split.path)
    return [
        path
        for sink in definition.sinks
        for path in (root / sink.name, root / f"{sink.name}-stage", root / "sources" / sink.name)
    ]


def remove_checkpoints(definition: Definition, directory: RunDirectory) -> None:
    """Forget what was read and written: the next run begins anew."""
    for path in checkpoints_of(definition, directory):
        shutil.rmtree(path, ignore_errors=True)


def all_pipelines(home: Path) -> list[RunDirectory]:
    """Every pipeline that has ever run here, by name."""
    if not home.is_dir():
        return []
    return [
        RunDirectory(home, path.name)
        for path in sorted(home.iterdir())
        if (path / "status.json").exists()
    ]
