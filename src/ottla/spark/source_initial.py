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
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

from ottla.spark.options import OptionError, SourceOptions
from ottla.spark.source_ranges import Offsets, from_json, to_json

START = "$start"  # no topic can have this name
INITIAL = "$initial"
_VERSION = 1


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
    """The file under `checkpointLocation`, one for each subscription of the query."""

    def __init__(self, options: SourceOptions) -> None:
        self._location = options.checkpoint_location
        topics = options.topics
        named = f"{topics.kind.value}={topics.text}"
        self._name = hashlib.sha256(named.encode()).hexdigest()[:16]

    def load(self) -> Offsets | None:
        if self._location is None:
            return None
        system, path = self._open(self._location)
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
        if self._location is None:
            return
        system, path = self._open(self._location)
        system.create_dir(path.rpartition("/")[0], recursive=True)
        text = json.dumps({"version": _VERSION, "offsets": to_json(offsets)})
        with system.open_output_stream(f"{path}.tmp") as stream:
            stream.write(text.encode())
        system.move(f"{path}.tmp", path)

    def _open(self, location: str) -> tuple[Any, str]:
        if "://" in location or location.startswith("file:"):
            # Hadoop writes file:/path where everyone else writes file:///path.
            uri = location.replace("file:/", "file:///", 1) if "//" not in location else location
            system, root = fs.FileSystem.from_uri(uri)
        else:
            system, root = fs.LocalFileSystem(), location
        return system, f"{root.rstrip('/')}/ottla/initial-{self._name}.json"
