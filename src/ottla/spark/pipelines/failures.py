"""What ended a query, in one sentence, and whether starting it again can help. Pure.

Spark wraps a Python exception into a Java one and both into text. A person wants the last line of
the innermost traceback; a supervisor wants to know whether the same will just happen again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MESSAGE_LENGTH_MAX = 2_000

# A line "package.module.Name: text" as Python ends a traceback.
_PYTHON_ERROR = re.compile(
    r"^\s*(?P<name>ottla\.[\w.]+|[A-Za-z_][\w.]*(?:Error|Exception)): (?P<text>.+)$", re.MULTILINE
)
_SPARK_ERROR = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?P<text>[^\n]+)")
# Of Ottla: what will be the same next time, unless a person does something.
_PERMANENT_NAMES = (
    "CorruptBatch",
    "DataLoss",
    "EncodeError",
    "FencedError",
    "MarkerError",
    "OptionError",
    "PlanError",
    "TopicGone",
    "TopicMissing",
)
_PERMANENT_KINDS = ("AnalysisException", "ParseException", *_PERMANENT_NAMES)
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
    found = list(_PYTHON_ERROR.finditer(text))
    ours = [one for one in found if one["name"].startswith("ottla.")]
    if ours:
        name = ours[-1]["name"].rpartition(".")[2]
        return _failure(ours[-1]["text"], name in _PERMANENT_NAMES)
    is_permanent = kind in _PERMANENT_KINDS
    if found:
        name = found[-1]["name"].rpartition(".")[2]
        return _failure(f"{name}: {found[-1]['text']}", is_permanent or name in _PERMANENT_KINDS)
    if spark := _SPARK_ERROR.search(text):
        is_permanent = is_permanent or spark["name"].startswith(_PERMANENT_CLASSES)
        return _failure(spark["text"], is_permanent)
    return _failure(text.strip().splitlines()[0] if text.strip() else kind, is_permanent)


def _failure(message: str, is_permanent: bool) -> Failure:
    return Failure(message[:_MESSAGE_LENGTH_MAX].strip(), is_permanent)
