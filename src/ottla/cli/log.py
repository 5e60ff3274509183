"""`ottla log`: what the files of a log directory hold, without a broker."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ottla.cli.errors import CliError, sentence
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import (
    Column,
    cell_text,
    is_terminal,
    print_data,
    print_table,
    progress,
    to_json,
)
from ottla.cli.params import output_option

# In `table`; `wide` and the machine formats have them all.
_WIDE_FIELDS = frozenset(
    {
        "position",
        "max_timestamp",
        "producer_epoch",
        "base_sequence",
        "timestamp_type",
        "crc",
        "headers",
        "coordinator_epoch",
    }
)


@click.group(
    cls=ExampleGroup, examples=("ottla log dump ./orders-0/00000000000000000000.log --deep",)
)
def log() -> None:
    """Look inside the files of a log directory."""


@log.command(
    examples=(
        "ottla log dump orders-0/00000000000000000000.log",
        "ottla log dump orders-0/00000000000000000000.log --deep -o jsonl",
        "ottla log dump orders-0/*.index orders-0/*.timeindex",
        "ottla log dump __cluster_metadata-0/00000000000000000000.log --deep -o jsonl",
        "ottla log dump __consumer_offsets-7/00000000000000000000.log --deep",
        "ottla log dump meta.properties recovery-point-offset-checkpoint",
    )
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("-d", "--deep", is_flag=True, help="Show records instead of batches.")
@click.option(
    "--as",
    "records_kind",
    type=click.Choice(["metadata", "offsets", "transactions"]),
    help="What the records are of, wherever the file lies: cluster metadata, groups and their "
    "offsets, or transactional ids.",
)
@output_option()
def dump(*, files: tuple[Path, ...], deep: bool, records_kind: str | None, output: str) -> None:
    """Show what segments, indexes, snapshots and checkpoints hold.

    Records of the metadata log and of internal topics are decoded; the entries of an index are
    checked against the segment beside it.
    """
    # A table is printed when its file is read; lines of JSON would run into the bar.
    is_shown = output != "jsonl" or not is_terminal()
    with progress("read", sum(path.stat().st_size for path in files), is_shown=is_shown) as advance:
        _dump(files, deep, records_kind, output, advance)


def _dump(
    files: tuple[Path, ...],
    deep: bool,
    records_kind: str | None,
    output: str,
    advance: Callable[[int], None],
) -> None:
    from ottla.cli.log_files import rows_of, segment_beside

    damaged: CliError | None = None
    documents = []
    for position, path in enumerate(files):
        if output in ("table", "wide") and len(files) > 1:
            click.echo(("\n" if position else "") + f"{path}:")
        rows: list[Mapping[str, Any]] = []
        where = str(path.resolve())
        with _mapped(path) as data, _mapped_if_there(segment_beside(where)) as segment:
            try:
                for row in rows_of(
                    where,
                    data,
                    is_deep=deep,
                    records_kind=records_kind,
                    segment=segment,
                    advance=advance,
                ):
                    if output == "jsonl":
                        click.echo(to_json({"file": str(path), **row}))
                    else:
                        rows.append(row)
            except _damages() as error:
                damaged = CliError(f"{path}: {sentence(str(error))}")
        if output in ("table", "wide"):
            _print(rows, is_wide=output == "wide")
            if damaged is not None:
                raise damaged
        documents.append({"file": str(path), "entries": rows})
    if output in ("json", "yaml"):
        print_data(documents, output)
    if damaged is not None:
        raise damaged


def _print(rows: list[Mapping[str, Any]], *, is_wide: bool) -> None:
    if not rows:
        click.echo("(empty)")
        return
    shown = [
        Column(field, field.upper().replace("_", "-"))
        for field in rows[0]
        if is_wide or field not in _WIDE_FIELDS
    ]
    if all(row.get("problem") is None for row in rows):
        shown = [column for column in shown if column.field != "problem"]
    # A dict in a cell reads better as JSON than as key=value pairs that hold lists.
    cells = [
        {k: to_json(v) if isinstance(v, dict) and v else v for k, v in row.items()} for row in rows
    ]
    print_table(
        [{k: v if _is_number(v) else cell_text(v) for k, v in row.items()} for row in cells], shown
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


@contextmanager
def _mapped_if_there(path: str | None) -> Iterator[memoryview | None]:
    if path is None or not Path(path).exists():
        yield None
        return
    with _mapped(Path(path)) as data:
        yield data


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The file's bytes, without reading a segment of a gigabyte into memory."""
    if path.stat().st_size == 0:
        yield memoryview(b"")
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        yield data


def _damages() -> tuple[type[Exception], ...]:
    """What the rooms below raise for a file that is not as it should be."""
    from ottla.cli.log_files import DamagedFileError
    from ottla.protocol.errors import KafkaError
    from ottla.raft.wire_records import CorruptRecordError, UnsupportedRecordError
    from ottla.storage.core.index_bytes import CorruptIndexError
    from ottla.storage.core.producer_snapshots import CorruptSnapshotError
    from ottla.storage.files.malformed import MalformedFileError

    return (
        DamagedFileError,
        KafkaError,
        CorruptRecordError,
        UnsupportedRecordError,
        CorruptIndexError,
        CorruptSnapshotError,
        MalformedFileError,
        ValueError,
    )
