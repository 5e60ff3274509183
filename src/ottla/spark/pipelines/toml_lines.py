"""On which line of a TOML file a key stands. Pure.

Python's reader of TOML gives values without places. Errors should name the line, so this walks the
text a second time, by the few rules that decide what begins a line: tables, keys, and strings of
several lines, which it skips. It trusts that the reader accepted the text before.
"""

from __future__ import annotations

import re

Path = tuple[str, ...]

_TABLE = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=(.*)$"""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"([^"]*)"|'([^']*)'""")


def lines_of(text: str) -> dict[Path, int]:
    """The line, from 1, of every table and key that begins a line."""
    found: dict[Path, int] = {}
    table: Path = ()
    closing = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            if closing in line:
                closing = ""
            continue
        if header := _TABLE.match(line):
            table = _parts(header[1])
            for length in range(1, len(table) + 1):
                found.setdefault(table[:length], number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_parts(key[1])), number)
            closing = _left_open(key[2])
    return found


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of a path, or of the nearest that encloses it; 1 if there is none.

    A name with dots is the same whether it is written as one or as several.
    """
    dotted = {".".join(known): line for known, line in lines.items()}
    parts = ".".join(path).split(".")
    for length in range(len(parts), 0, -1):
        if (line := dotted.get(".".join(parts[:length]))) is not None:
            return line
    return 1


def _parts(text: str) -> Path:
    return tuple(
        match[1] if match[1] is not None else match[2] if match[2] is not None else match[0]
        for match in _PART.finditer(text)
    )


def _left_open(value: str) -> str:
    """The quotes that a value of several lines still has to close."""
    for quotes in ('"""', "'''"):
        if value.lstrip().startswith(quotes) and value.count(quotes) % 2:
            return quotes
    return ""
