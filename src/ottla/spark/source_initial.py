"""Where a streaming query began, kept so that a restart begins there too.

Spark asks a Python source for its initial offset again on every restart until the first batch has
been committed, and keeps no answer. With startingOffsets=latest the second answer is later than the
first, and what lies between would never be read. Two things prevent that:

The end offset of the first batch, which Spark does keep in its offset log, carries the start of
that batch under the key START; or, as Spark begins with an empty batch where there is no data, it
is itself marked as INITIAL. Whoever plans that batch again takes the start from there.

Before there is a first batch, only a file can tell. With the option `checkpointLocation` (the same
as the query's) the first answer is written there, once, before it is given.

Shell over pyarrow's file systems, so that the location may be remote.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ottla.spark.option_values import OptionError
from ottla.spark.options import SourceOptions
from ottla.spark.source_ranges import Offsets, from_json, to_json

START = "$start"  # no topic can have this name
INITIAL = "$initial"
_VERSION = 1
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_JAVA_SCHEMES = ("hdfs", "viewfs")  # pyarrow has them only where it finds Hadoop's libraries

logger = logging.getLogger(__name__)


class CheckpointUnreachable(Exception):
    """The place that is to keep the initial offsets cannot be read or written now."""


def initial_json(offsets: Offsets) -> dict[str, Any]:
    """The initial offset as it is given to Spark, marked as such."""
    return {**to_json(offsets), INITIAL: True}


def offsets_of(offset: Mapping[str, Any]) -> Offsets:
    """The offsets in one of our offset values, without its marks."""
    return from_json({name: value for name, value in offset.items() if not name.startswith("$")})


def end_json(start: Mapping[str, Any], end: Offsets) -> dict[str, Any]:
    """The end of a batch; that of a first batch carries its start."""
    if INITIAL in start:
        return {**to_json(end), START: to_json(offsets_of(start))}
    return to_json(end)


def start_of(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Where a batch starts: where it did when it was first planned."""
    if INITIAL not in start:
        return offsets_of(start)
    if START in end:
        return from_json(end[START])
    return offsets_of(end) if INITIAL in end else offsets_of(start)


class InitialOffsetFile:
    """The file under `checkpointLocation`, one for each subscription of the query.

    Spark may know file systems that pyarrow does not. Then there is no file, and a warning.
    """

    def __init__(self, options: SourceOptions) -> None:
        topics = options.topics
        named = f"{topics.kind.value}={topics.text}"
        self._name = hashlib.sha256(named.encode()).hexdigest()[:16]
        self._place = self._open(options.checkpoint_location)

    def load(self) -> Offsets | None:
        if self._place is None:
            return None
        system, path = self._place
        with _reachable(path):
            if system.get_file_info(path).type is not fs.FileType.File:
                return None
            with system.open_input_stream(path) as stream:
                text = stream.readall().decode()
        try:
            value = json.loads(text)
            if value["version"] != _VERSION:
                raise ValueError(f"version {value['version']}")
            return from_json(value["offsets"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                f"{path} does not hold the initial offsets of a query ({error}); delete the file "
                "if the query may start anew from its startingOffsets"
            ) from error

    def save(self, offsets: Offsets) -> None:
        """Write the whole file or none of it."""
        if self._place is None:
            return
        system, path = self._place
        text = json.dumps({"version": _VERSION, "offsets": to_json(offsets)})
        with _reachable(path):
            system.create_dir(path.rpartition("/")[0], recursive=True)
            with system.open_output_stream(f"{path}.tmp") as stream:
                stream.write(text.encode())
            system.move(f"{path}.tmp", path)

    def _open(self, location: str | None) -> tuple[Any, str] | None:
        if location is None:
            return None
        scheme = _SCHEME.match(location)
        if scheme is None:
            return fs.LocalFileSystem(), self._path_under(location)
        # Hadoop writes file:/path where everyone else writes file:///path, and s3a for s3.
        name, rest = scheme[1].lower(), location[scheme.end() :]
        uri = f"{_SCHEMES.get(name, name)}:{'' if rest.startswith('//') else '//'}{rest}"
        try:
            with _reachable(location, is_told=name not in _JAVA_SCHEMES):
                system, root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            logger.warning(
                "The initial offsets of the query are not kept in %s (%s). What arrives before its "
                "first micro-batch is missed if it is stopped before and starts at the latest "
                "offsets.",
                location,
                str(error).partition("\n")[0],
            )
            return None
        return system, self._path_under(root)

    def _path_under(self, root: str) -> str:
        return f"{root.rstrip('/')}/ottla/initial-{self._name}.json"


@contextmanager
def _reachable(path: str, *, is_told: bool = True) -> Iterator[None]:
    """What a file system refuses, told with what to do."""
    try:
        yield
    except OSError as error:
        if not is_told:
            raise
        raise CheckpointUnreachable(
            f"The initial offsets of the query cannot be kept in {path} ({error}). Give pyarrow's "
            "file system access to it, or set the source's checkpointLocation to another directory."
        ) from error
