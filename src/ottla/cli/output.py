"""How a command prints rows: aligned columns for people, JSON and YAML for programs.

Tables are plain text with two spaces between columns, so that `awk` and `cut` work on them; the
only ornament is a bold header on a terminal. Machine formats carry every field, whether or not
the table shows it.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table: the field it shows, and whether only `wide` shows it."""

    field: str
    header: str
    is_wide: bool = False


def columns(*fields: str, wide: Sequence[str] = ()) -> tuple[Column, ...]:
    """Columns whose headers are Kafka's way of writing the field: `LOG-END-OFFSET`."""
    return tuple(
        Column(field, field.upper().replace("_", "-"), field in wide) for field in (*fields, *wide)
    )


def print_rows(rows: Iterable[Row], shown: Sequence[Column], output: str) -> None:
    """Print rows in the asked format."""
    rows = list(rows)
    if output in ("table", "wide"):
        print_table(rows, [c for c in shown if output == "wide" or not c.is_wide])
    else:
        print_data(rows, output)


def print_data(data: Any, output: str) -> None:
    """Print `data` as JSON, JSON lines or YAML."""
    if output == "jsonl":
        for item in data if isinstance(data, list) else [data]:
            click.echo(to_json(item))
    elif output == "yaml":
        import yaml

        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=False)
        click.echo(text, nl=False)
    else:
        click.echo(to_json(data, indent=2))


def to_json(data: Any, *, indent: int | None = None) -> str:
    """`data` as JSON text, integers exact and text readable."""
    import json

    return json.dumps(data, ensure_ascii=False, indent=indent)


def print_table(rows: Sequence[Row], shown: Sequence[Column]) -> None:
    """Print aligned columns; numbers are right-aligned."""
    cells = [[cell_text(row.get(column.field)) for column in shown] for row in rows]
    widths = [
        max([display_width(column.header), *(display_width(line[i]) for line in cells)])
        for i, column in enumerate(shown)
    ]
    numeric = [_is_numeric([row.get(column.field) for row in rows]) for column in shown]
    click.secho(_line([column.header for column in shown], widths, numeric), bold=True)
    for line in cells:
        click.echo(_line(line, widths, numeric))


def print_fields(fields: Sequence[tuple[str, Any]]) -> None:
    """Print name and value pairs, one a line, values aligned."""
    width = max((display_width(name) for name, _ in fields), default=0)
    for name, value in fields:
        click.secho(name + " " * (width - display_width(name) + 2), bold=True, nl=False)
        click.echo(cell_text(value))


def cell_text(value: Any) -> str:
    """A value as a table shows it: a dash where there is none."""
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(cell_text(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return str(value)


def display_width(text: str) -> int:
    """How many terminal cells `text` takes; wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def human_bytes(count: int) -> str:
    """A size for people, in binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


@contextmanager
def progress(label: str, length: int, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, moved on by calls; nothing where that is no terminal.

    A caller that also prints data shows it only while the data does not go to the same terminal.
    """
    bar = click.progressbar(
        length=length,
        label=f"{label:8}",
        file=sys.stderr,
        hidden=not (is_shown and length > 0 and sys.stderr.isatty()),
        update_min_steps=max(1, length // 200),
    )
    with bar as shown:
        yield shown.update


def note(message: str) -> None:
    """Tell the user something that is not data, on stderr."""
    click.echo(message, err=True)


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def _is_numeric(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in present
    )


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        space = " " * (width - display_width(cell))
        padded.append(space + cell if right else cell + space)
    return "  ".join(padded).rstrip()
