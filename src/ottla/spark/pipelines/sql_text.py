"""What can be said of SQL without Spark: what it reads, and whether it can be a query. Pure.

Only Spark's own parser knows its SQL, and that needs a JVM. But the order of transformations and
most slips of the pen are seen by a walk over the words: relations stand behind FROM, JOIN and
TABLE, and behind commas of a FROM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_NOISE = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
_TOKEN = re.compile(r"`(?:[^`]|``)*`|[A-Za-z_][A-Za-z0-9_]*|[(),.]")
_WITH_NAME = re.compile(
    r"(?:\bWITH|,)\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\([^()]*\)\s*)?\bAS\s*\(", re.IGNORECASE
)
_BEGINNINGS = ("SELECT", "WITH", "FROM", "TABLE", "VALUES", "(")
_SUBQUERIES = ("SELECT", "WITH", "FROM", "TABLE", "VALUES")
_BEHIND_RELATIONS = """
SELECT WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW QUALIFY UNION EXCEPT
MINUS INTERSECT ON USING LATERAL PIVOT UNPIVOT
"""
_BETWEEN = ("LATERAL", "STREAM", "ONLY")


@dataclass(slots=True)
class _Level:
    """What was seen since a bracket was opened."""

    is_query: bool
    wants_relation: bool = False
    is_from: bool = False  # so that a comma is followed by another relation
    words: list[str] = field(default_factory=list)


def relations_in_sql(sql: str, known: Iterable[str]) -> tuple[str, ...]:
    """Those of the known names that the SQL reads, sorted."""
    names = {name.lower(): name for name in known}
    text = _NOISE.sub(" ", sql)
    tokens = _TOKEN.findall(text)
    levels = [_Level(is_query=True)]
    found: set[str] = set()
    for number, token in enumerate(tokens):
        level, word = levels[-1], token.strip("`").upper()
        if token == "(":
            following = tokens[number + 1].upper() if number + 1 < len(tokens) else ""
            is_query, is_join = following in _SUBQUERIES, level.wants_relation
            levels.append(_Level(is_query or is_join, wants_relation=is_join and not is_query))
            level.wants_relation = False
        elif token == ")":
            if len(levels) > 1:
                levels.pop()
        elif token == ",":
            level.wants_relation = level.is_from
        elif token == "." or (level.words and level.words[-1] == "."):
            level.wants_relation = False  # a part of a longer name
        elif word in ("FROM", "JOIN", "TABLE"):
            # FROM is also a word of functions, extract(YEAR FROM at), and of IS DISTINCT FROM.
            level.wants_relation = level.is_query and level.words[-1:] != ["DISTINCT"]
            level.is_from = level.wants_relation
        elif level.wants_relation and word not in _BETWEEN:
            following = tokens[number + 1] if number + 1 < len(tokens) else ""
            if following not in ("(", "."):  # a function, or a name in another catalog
                found.add(word.lower())
            level.wants_relation = False
        elif word in _BEHIND_RELATIONS.split():
            level.is_from = False
        level.words.append(word)
    own = {name.lower() for name in _WITH_NAME.findall(text)}
    return tuple(sorted(names[name] for name in found - own if name in names))


def problem_of_sql(sql: str) -> str | None:
    """What is wrong with the SQL as a text, if that can be seen."""
    rest = _NOISE.sub(" ", sql)
    if "'" in rest or '"' in rest:
        return "a quote is not closed"
    depth = 0
    for character in rest:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return "there is a ')' without '('"
    if depth:
        return "a '(' is not closed"
    tokens = _TOKEN.findall(rest)
    if not tokens:
        return "there is nothing"
    if tokens[0].upper() not in _BEGINNINGS:
        return f"'{tokens[0]}' does not begin a query; SELECT or WITH do"
    return None
