"""What ended a query, in one sentence, and whether starting it again can help. Pure.

Spark wraps a Python exception into a Java one and both into text. A person wants the last line of
the innermost traceback; a supervisor wants to know whether the same will just happen again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MESSAGE_LENGTH_MAX = 2_000

# A line "package.module.Name: text" as Python ends a traceback, with lines that follow it.
_PYTHON_ERROR = re.compile(
    r"^\s*(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Fenced|Unreachable)): (?P<text>.+)$",
    re.MULTILINE,
)
_SPARK_ERROR = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?P<text>[^\n]+)")
_PERMANENT_NAMES = ("FencedError", "MarkerError", "AnalysisException", "ParseException")
_PERMANENT_CLASSES = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "UNRESOLVED_COLUMN",
    "DATATYPE_MISMATCH",
    "PARSE_SYNTAX_ERROR",
    "STREAMING_OUTPUT_MODE",
    "UNSUPPORTED",
)


class Failure(NamedTuple):
    message: str
    is_permanent: bool


def failure_of(kind: str, text: str) -> Failure:
    """The sentence of an error whose class is `kind` and whose text is Spark's."""
    message, name = text.strip().splitlines()[0] if text.strip() else kind, kind
    found = list(_PYTHON_ERROR.finditer(text))
    ours = [one for one in found if one["name"].startswith("ottla.")]
    if ours or found:
        chosen = (ours or found)[-1]
        name = chosen["name"].rpartition(".")[2]
        message = chosen["text"] if ours else f"{name}: {chosen['text']}"
    elif spark := _SPARK_ERROR.search(text):
        message, name = spark["text"], spark["name"]
    is_permanent = (
        kind in _PERMANENT_NAMES or name in _PERMANENT_NAMES or name.startswith(_PERMANENT_CLASSES)
    )
    return Failure(message[:_MESSAGE_LENGTH_MAX].strip(), is_permanent)
