"""Where tasks leave their output until the driver publishes it.

A task cannot publish: it may run twice, or end after its query has failed. So it leaves finished
batches in a file that the driver can read, and says so in its commit message. A file that no commit
message names is never read, and removed by the next driver that takes the query over. Nothing is
synced: if the machine loses power before the driver has published, Spark runs the tasks again.

A few kilobytes travel in the message itself, which saves the file. Larger ones would travel through
the JVM three times, which costs more than a file.

Layout: <stage>/<owner>/<batch id>/<task>.batches, batches one after the other. `TOKEN_NAME` in
<stage> holds a random word that the driver wrote; a task that finds another, or none, knows that
its directory is not the driver's.

Shell. Invariant: a file has its final name only once it is whole.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ottla.client.metadata import TopicPartition
from ottla.client.transactions import Batch
from ottla.spark.sink_errors import SinkError

if TYPE_CHECKING:
    from ottla.spark.encode import EncodedBatch

INLINE_BYTES_MAX = 65_536
TOKEN_NAME = ".ottla-stage"
ABANDONED_AFTER_S = 7 * 24 * 3600  # longer than any micro-batch takes
_FILE_BUFFER_BYTES = 65_536
_SUFFIX = ".batches"
_SUFFIXES = (_SUFFIX, ".tmp")
_TOKEN_BYTES_MAX = 64
# A write, or the id that Spark gave a query, with the name of one of its writes.
_OWNER = re.compile(r"write-.+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-.+)?")


class Piece(NamedTuple):
    """One batch in a task's output."""

    topic: str
    partition: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """What a task says it left: a file, or the batches themselves."""

    path: str | None
    data: bytes
    pieces: tuple[Piece, ...]
    records: int
    host: str


@dataclass(slots=True)
class StageWriter:
    """Collects the batches of one task; `directory` is made when it is needed."""

    directory: Path
    name: str
    pieces: list[Piece] = field(default_factory=list)
    records: int = 0
    _position: int = 0
    _held: bytearray = field(default_factory=bytearray)
    _file: BinaryIO | None = None

    def add(self, batch: EncodedBatch) -> None:
        """Append one batch."""
        length = len(batch.data)
        self.pieces.append(
            Piece(batch.target.topic, batch.target.partition, self._position, length)
        )
        self.records += batch.records
        self._position += length
        if self._file is None and self._position <= INLINE_BYTES_MAX:
            self._held += batch.data
            return
        if self._file is None:
            self._file = self._open()
            self._file.write(self._held)
            self._held = bytearray()
        self._file.write(batch.data)

    def finish(self) -> StagedOutput:
        """Give the file its name, and say what there is."""
        path = None
        if self._file is not None:
            self._file.close()
            path = str(self.directory / f"{self.name}{_SUFFIX}")
            os.rename(self._temporary, path)
        return StagedOutput(
            path, bytes(self._held), tuple(self.pieces), self.records, socket.gethostname()
        )

    def discard(self) -> None:
        """Leave nothing behind, after a failure."""
        if self._file is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)

    @property
    def _temporary(self) -> Path:
        return self.directory / f"{self.name}.tmp"

    def _open(self) -> BinaryIO:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Batches larger than the buffer are written as they lie, without a copy.
            return self._temporary.open("wb", buffering=_FILE_BUFFER_BYTES)
        except OSError as error:
            raise SinkError(
                f"The stage directory {self.directory} cannot be written on "
                f"{socket.gethostname()}: {error.strerror}. Name another by 'stageDirectory', one "
                "that driver and executors share."
            ) from error


def read_staged(output: StagedOutput) -> Iterator[Batch]:
    """The batches of a task, in memory of one's own; a file is mapped, not read."""
    whole = memoryview(bytearray(output.data)) if output.path is None else _map(output)
    for topic, partition, start, length in output.pieces:
        yield Batch(TopicPartition(topic, partition), whole[start : start + length])


def _map(output: StagedOutput) -> memoryview:
    expected = output.pieces[-1].start + output.pieces[-1].length
    try:
        with open(output.path or "", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Batches are claimed in place: the changes stay in this process.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise SinkError(
            f"The driver on {socket.gethostname()} cannot read {output.path}, which a task on "
            f"{output.host} wrote. 'stageDirectory' must be a directory that driver and executors "
            "share, and nothing else may clean it up."
        ) from error
    if size != expected:
        raise SinkError(f"{output.path} has {size} bytes where {expected} were written.")
    return memoryview(mapped)


def driver_token(stage: Path, *, is_private: bool = False) -> str:
    """The word by which tasks know the driver's directory; written if there is none.

    `is_private`: nobody else may have made the directory, or read it.
    """
    path = stage / TOKEN_NAME
    try:
        stage.mkdir(parents=True, exist_ok=True, mode=0o700 if is_private else 0o777)
        if is_private:
            _make_private(stage)
        if not path.exists():
            _write_once(path, secrets.token_hex(8))
        return path.read_text()[:_TOKEN_BYTES_MAX]
    except OSError as error:
        raise SinkError(
            f"The stage directory {stage} cannot be used by the driver: {error.strerror}. Name "
            "another by 'stageDirectory', one that driver and executors share."
        ) from error


def _make_private(stage: Path) -> None:
    """Anybody can make a directory of a known name in /tmp, and read there what rows hold."""
    found = stage.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise SinkError(
            f"{stage}, where tasks would leave rows, belongs to another user of this machine: name "
            "a directory of your own by 'stageDirectory'."
        )
    if found.st_mode & 0o077:
        stage.chmod(0o700)


def _write_once(path: Path, text: str) -> None:
    """Write a file whole, unless another process does so first."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    temporary.write_text(text)
    with suppress(FileExistsError):  # theirs counts
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with path.open("x") as file:
                file.write(text)
    temporary.unlink()


def check_token(stage: Path, token: str) -> None:
    """Fail in the task, before any work, if this is not the driver's directory."""
    try:
        found = (stage / TOKEN_NAME).read_text()[:_TOKEN_BYTES_MAX]
    except OSError:
        found = ""
    if found != token:
        raise SinkError(
            f"{stage} on {socket.gethostname()} is not the directory that the driver uses under "
            "this name. 'stageDirectory' must be a directory that driver and executors share."
        )


def remove_unnamed(stage: Path, owner: str, batch_id: int, outputs: Iterable[StagedOutput]) -> None:
    """Remove what failed attempts left of a query: all but the files of these outputs."""
    named = {output.path for output in outputs}
    for directory in _entries(stage / owner):
        if directory.name != str(batch_id):
            shutil.rmtree(directory, ignore_errors=True)
            continue
        for file in _entries(directory.path):
            if file.path not in named:
                Path(file.path).unlink(missing_ok=True)


def remove_outputs(outputs: Iterable[StagedOutput]) -> None:
    """Remove the files of outputs that will not be published."""
    for output in outputs:
        if output.path is not None:
            Path(output.path).unlink(missing_ok=True)


def remove_batch(stage: Path, owner: str, batch_id: int) -> None:
    """Remove what was staged for a micro-batch that is done, and for any before it."""
    for directory in _entries(stage / owner):
        if directory.name.isdecimal() and int(directory.name) <= batch_id:
            shutil.rmtree(directory, ignore_errors=True)


def remove_owner(stage: Path, owner: str) -> None:
    """Remove everything that was staged for a query or a write."""
    shutil.rmtree(stage / owner, ignore_errors=True)


def remove_abandoned(stage: Path, now_s: float) -> None:
    """Remove what killed writes and queries that never came back left, long after.

    A user may name a directory that holds other things, which are older still: whatever does not
    look like an owner's directory throughout is left alone.
    """
    for owner in _entries(stage):
        if _OWNER.fullmatch(owner.name) and owner.is_dir(follow_symlinks=False):
            with suppress(FileNotFoundError):  # its owner lives, and removes it
                newest_s = _newest_staged(owner)
                if newest_s is not None and now_s - newest_s > ABANDONED_AFTER_S:
                    shutil.rmtree(owner, ignore_errors=True)


def _newest_staged(owner: os.DirEntry[str]) -> float | None:
    """When anything was last staged in a directory; None if it holds anything else."""
    times = [owner.stat().st_mtime]
    for batch in _entries(owner.path):
        if not batch.name.isdecimal() or not batch.is_dir(follow_symlinks=False):
            return None
        times.append(batch.stat().st_mtime)
        for file in _entries(batch.path):
            if not file.name.endswith(_SUFFIXES) or not file.is_file(follow_symlinks=False):
                return None
            times.append(file.stat().st_mtime)
    return max(times)


def _entries(directory: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
