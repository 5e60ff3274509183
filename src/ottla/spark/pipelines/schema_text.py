"""What is wrong with a schema that is written as in SQL: `id INT, at TIMESTAMP`. Pure.

Spark would say so too, after it has started. Types are looked at by their first word; what follows
it (a precision, NOT NULL, a comment) is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FIELD = re.compile(r"\s*(?:`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*)\s*(:|\s)\s*(.*)", re.DOTALL)
_TYPE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*(.*)", re.DOTALL)
_TYPES = (
    "array bigint binary boolean byte char character date dec decimal double float geography "
    "geometry int integer interval long map numeric real short smallint string struct time "
    "timestamp timestamp_ltz timestamp_ntz tinyint varchar variant void"
)
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def problem_of_schema(text: str) -> str | None:
    """The first thing that is wrong, or None."""
    bare = _STRING.sub("''", text)
    for opening, closing in ("<>", "()"):
        if bare.count(opening) != bare.count(closing):
            return f"'{opening}' and '{closing}' do not match"
    return _problem_of_fields(bare)


def _problem_of_fields(text: str) -> str | None:
    for field in _split(text):
        found = _FIELD.fullmatch(field)
        if found is None:
            written = field.strip()
            return f"'{written}' is not a name and a type" if written else "a field is missing"
        if (problem := _problem_of_type(found[2])) is not None:
            return problem
    return None


def _problem_of_type(text: str) -> str | None:
    found = _TYPE.fullmatch(text.strip())
    if found is None or found[1].lower() not in _TYPES.split():
        written = found[1] if found else text.strip()
        return f"'{written}' is not a type of Spark, such as INT, STRING or TIMESTAMP"
    kind, rest = found[1].lower(), found[2]
    if kind not in ("array", "map", "struct"):
        return None
    inner = rest[1 : rest.rfind(">")] if rest.startswith("<") and ">" in rest else None
    if inner is None:
        return f"{found[1].upper()} does not say of what: {found[1].upper()}<...>"
    if kind == "struct":
        return _problem_of_fields(inner) if inner.strip() else None
    parts = list(_split(inner))
    if len(parts) != (2 if kind == "map" else 1):
        return f"{found[1].upper()}<{inner}> does not have the types it needs"
    return next((one for one in map(_problem_of_type, parts) if one is not None), None)


def _split(text: str) -> Iterator[str]:
    """The parts between commas that no bracket encloses."""
    depth, begin = 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield text[begin:position]
            begin = position + 1
    yield text[begin:]
