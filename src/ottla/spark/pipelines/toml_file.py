"""A pipeline from a TOML file. What is wrong is told with its line, all of it at once.

    [pipeline]
    name = "word-count"
    bootstrap = "localhost:9092"

    [sources.lines]
    topic = "lines"
    format = "text"

    [transforms.counts]
    sql = "SELECT value AS word, count(*) AS n FROM lines GROUP BY value"

    [sinks.counts]
    from = "counts"
    topic = "word-counts"
    key = "word"
    output_mode = "update"

Unknown keys are errors: a misspelt option that is silently ignored costs an afternoon. Paths are
relative to the file. `${NAME}` in a string is the environment's, `${NAME:-text}` with a default.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from ottla.spark.pipelines.check import Problem, problems
from ottla.spark.pipelines.definition import (
    Definition,
    NewTopic,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    Transform,
    ValueFormat,
    Watermark,
)
from ottla.spark.pipelines.toml_lines import line_of, lines_of

K = TypeVar("K", bound=StrEnum)

_SYNTAX_LINE = re.compile(r"^(.*?) \(at line (\d+), column (\d+)\)$")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class PipelineError(Exception):
    """What is wrong with a pipeline, one line for each problem, with its place in the file."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages


def load_toml(path: Path, environment: Mapping[str, str]) -> Definition:
    """The definition in the file; PipelineError with lines and reasons."""
    try:
        text = path.read_text()
    except OSError as error:
        raise PipelineError([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError:
        raise PipelineError([f"{path}: this is not UTF-8 text"]) from None
    return parse_toml(text, path, environment)


def parse_toml(text: str, path: Path, environment: Mapping[str, str]) -> Definition:
    """The definition in the text of the file `path`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX_LINE.match(str(error))
        place, reason = (f"{path}:{found[2]}", found[1]) if found else (str(path), str(error))
        raise PipelineError([f"{place}: {reason}"]) from error
    reader = _Reader(path, environment)
    definition = reader.definition(data)
    wrong = reader.problems or problems(definition)
    if wrong:
        lines = lines_of(text)
        numbered = sorted((line_of(lines, problem.path), problem) for problem in wrong)
        raise PipelineError([f"{path}:{line}: {problem.reason}" for line, problem in numbered])
    return definition


class _Table:
    """A table of the file; keys are taken from it, and what is left at the end is unknown."""

    def __init__(self, reader: _Reader, path: tuple[str, ...], data: Any) -> None:
        self.reader = reader
        self.path = path
        self._left: dict[str, Any] = {}
        if isinstance(data, dict):
            self._left = dict(data)
        else:
            reader.complain(path, f"'{path[-1]}' must be a table")

    def text(self, key: str) -> str | None:
        value = self._take(key, str, "a string")
        return None if value is None else self.reader.expand((*self.path, key), value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._take(key, list, "a list of strings")
        if value is None:
            return ()
        if not all(isinstance(item, str) for item in value):
            self.reader.complain((*self.path, key), f"'{key}' must be a list of strings")
            return ()
        return tuple(value)

    def number(self, key: str, default: int) -> int:
        value = self._take(key, int, "a whole number")
        return default if value is None or isinstance(value, bool) else int(value)

    def choice(self, key: str, kind: type[K], default: K) -> K:
        asked = self.text(key)
        if asked is None:
            return default
        if asked not in list(kind):
            names = ", ".join(kind)
            self.reader.complain((*self.path, key), f"'{asked}' is not one of {names}")
            return default
        return kind(asked)

    def options(self, key: str) -> dict[str, str]:
        """A table of options: Spark takes strings, people also write numbers and true."""
        value = self._take(key, dict, "a table")
        found: dict[str, str] = {}
        for name, item in _flat(value or {}):
            if isinstance(item, bool):
                found[name] = "true" if item else "false"
            elif isinstance(item, str | int | float):
                found[name] = self.reader.expand((*self.path, key), str(item))
            else:
                self.reader.complain((*self.path, key, name), f"'{name}' must be a plain value")
        return found

    def table(self, key: str) -> _Table | None:
        if key not in self._left:
            return None
        return _Table(self.reader, (*self.path, key), self._left.pop(key))

    def tables(self, key: str) -> list[_Table]:
        whole = self.table(key)
        if whole is None:
            return []
        return [
            _Table(self.reader, (*whole.path, name), data) for name, data in whole._left.items()
        ]

    def end(self) -> None:
        """Complain about keys that nobody took."""
        for key in self._left:
            self.reader.complain((*self.path, key), f"there is no setting '{key}' here")

    def _take(self, key: str, kind: type, words: str) -> Any:
        value = self._left.pop(key, None)
        if value is not None and not isinstance(value, kind):
            self.reader.complain((*self.path, key), f"'{key}' must be {words}")
            return None
        return value


class _Reader:
    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self.problems: list[Problem] = []

    def complain(self, path: tuple[str, ...], reason: str) -> None:
        self.problems.append(Problem(path, reason))

    def expand(self, path: tuple[str, ...], text: str) -> str:
        """The text with the environment's variables filled in."""

        def value_of(match: re.Match[str]) -> str:
            value: str | None = self._environment.get(match[1], match[2])
            if value is None:
                self.complain(path, f"the environment has no {match[1]}")
                return ""
            return value

        return _VARIABLE.sub(value_of, text)

    def definition(self, data: dict[str, Any]) -> Definition:
        root = _Table(self, (), data)
        head = root.table("pipeline") or _Table(self, ("pipeline",), {})
        made = Definition(
            name=head.text("name") or self._path.stem,
            bootstrap=head.text("bootstrap"),
            description=head.text("description") or "",
            trigger=head.text("trigger") or "1 second",
            checkpoint=self._near(head.text("checkpoint")),
            spark=head.options("spark"),
            sources=tuple(self._source(table) for table in root.tables("sources")),
            transforms=tuple(self._transform(table) for table in root.tables("transforms")),
            sinks=tuple(self._sink(table) for table in root.tables("sinks")),
        )
        head.end()
        root.end()
        return made

    def _source(self, table: _Table) -> Source:
        path = self._near(table.text("path"))
        made = Source(
            name=table.path[-1],
            kind=table.choice("kind", SourceKind, SourceKind.FILES if path else SourceKind.TOPIC),
            topic=table.text("topic"),
            path=path,
            format=table.choice("format", ValueFormat, ValueFormat.RAW),
            file_format=table.text("file_format") or "parquet",
            schema=table.text("schema"),
            starting=table.text("starting") or "earliest",
            watermark=self._watermark(table),
            bootstrap=table.text("bootstrap"),
            options=table.options("options"),
        )
        table.end()
        return made

    def _transform(self, table: _Table) -> Transform:
        python = table.text("python")
        made = Transform(
            name=table.path[-1],
            sql=table.text("sql"),
            function=None if python is None else self._function(table, python),
            inputs=table.texts("inputs"),
            watermark=self._watermark(table),
        )
        table.end()
        return made

    def _sink(self, table: _Table) -> Sink:
        path = self._near(table.text("path"))
        made = Sink(
            name=table.path[-1],
            input=table.text("from") or "",
            kind=table.choice("kind", SinkKind, SinkKind.FILES if path else SinkKind.TOPIC),
            topic=table.text("topic"),
            topic_column=table.text("topic_column"),
            key=table.text("key"),
            value=table.text("value"),
            create=self._new_topic(table),
            path=path,
            file_format=table.text("file_format") or "parquet",
            partition_by=table.texts("partition_by"),
            output_mode=table.text("output_mode") or "append",
            trigger=table.text("trigger"),
            delivery=table.text("delivery") or "exactly_once",
            bootstrap=table.text("bootstrap"),
            options=table.options("options"),
        )
        if not made.input:
            self.complain(table.path, "a sink needs 'from', the name of what it writes")
        table.end()
        return made

    def _watermark(self, table: _Table) -> Watermark | None:
        inner = table.table("watermark")
        if inner is None:
            return None
        column, delay = inner.text("column"), inner.text("delay")
        inner.end()
        if column is None or delay is None:
            self.complain(inner.path, "a watermark has a 'column' and a 'delay'")
            return None
        return Watermark(column, delay)

    def _new_topic(self, table: _Table) -> NewTopic | None:
        inner = table.table("create")
        if inner is None:
            return None
        made = NewTopic(
            inner.number("partitions", 1),
            inner.number("replication_factor", -1),
            inner.options("config"),
        )
        inner.end()
        return made

    def _near(self, text: str | None) -> str | None:
        """A path relative to the file; what names a file system stays as it is."""
        if text is None or "://" in text:
            return text
        return str((self._path.parent / Path(text).expanduser()).absolute())

    def _function(self, table: _Table, reference: str) -> Callable[..., Any] | None:
        try:
            return load_function(reference, self._path.parent)
        except PipelineError as error:
            self.complain((*table.path, "python"), str(error))
            return None


def _flat(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested tables as dotted names: what is written kafka.acks is one option's name."""
    found: list[tuple[str, Any]] = []
    for name, value in data.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found


def load_function(reference: str, directory: Path) -> Callable[..., Any]:
    """The function that "file.py:name" or "module:name" names; files are near `directory`."""
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise PipelineError([f"'{reference}' is not 'file.py:function' or 'module:function'"])
    module = load_module(place, directory)
    function = getattr(module, name, None)
    if not callable(function):
        raise PipelineError([f"{place} has no function '{name}'"])
    return function  # type: ignore[no-any-return]  # any callable will do


def load_module(place: str, directory: Path) -> Any:
    """The module in a file or of a name; PipelineError with the reason if it cannot be imported."""
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = (directory / place).absolute()
        name = f"ottla_pipeline_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise PipelineError([f"{path} cannot be imported"])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    except PipelineError:
        raise
    except Exception as error:  # a user's module may raise anything when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise PipelineError([f"{place} cannot be imported ({reason})"]) from error
