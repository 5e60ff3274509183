"""What a pipeline is: sources, transformations and sinks that refer to each other by name. Pure.

A definition is made from a TOML file (`toml_file.py`) or in Python (`builder.py`), checked as a
whole (`check.py`) and made into streaming queries (`start.py`), one for each sink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ottla.spark.pipelines.sql_text import relations_in_sql

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PIPELINE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SourceKind(StrEnum):
    TOPIC = "topic"  # every record, as it comes
    TABLE = "table"  # the newest record of every key of a topic, as it is at each micro-batch
    FILES = "files"


class ValueFormat(StrEnum):
    RAW = "raw"  # the columns of Spark's Kafka source
    TEXT = "text"  # key and value as strings
    JSON = "json"  # the fields of `schema`


class SinkKind(StrEnum):
    TOPIC = "topic"
    FILES = "files"
    CONSOLE = "console"


class Watermark(NamedTuple):
    column: str
    delay: str


class NewTopic(NamedTuple):
    """How to create a topic that is not there."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    name: str
    kind: SourceKind = SourceKind.TOPIC
    topic: str | None = None
    path: str | None = None
    format: ValueFormat = ValueFormat.RAW
    file_format: str = "parquet"
    schema: str | None = None
    starting: str = "earliest"
    watermark: Watermark | None = None
    bootstrap: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """SQL over the names of others, or a function of their DataFrames."""

    name: str
    sql: str | None = None
    function: Callable[..., Any] | None = None
    inputs: tuple[str, ...] = ()
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    name: str
    input: str
    kind: SinkKind = SinkKind.TOPIC
    topic: str | None = None
    topic_column: str | None = None
    key: str | None = None
    value: str | None = None
    create: NewTopic | None = None
    path: str | None = None
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    output_mode: str = "append"
    trigger: str | None = None
    delivery: str = "exactly_once"
    bootstrap: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A whole pipeline."""

    name: str
    bootstrap: str | None = None
    description: str = ""
    trigger: str = "1 second"
    checkpoint: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    transforms: tuple[Transform, ...] = ()
    sinks: tuple[Sink, ...] = ()

    def inputs_of(self, transform: Transform) -> tuple[str, ...]:
        """The names that a transformation reads."""
        if transform.sql is None:
            return transform.inputs
        return relations_in_sql(transform.sql, set(self.names) - {transform.name})

    @property
    def names(self) -> tuple[str, ...]:
        """What SQL, functions and sinks can refer to."""
        sources = tuple(source.name for source in self.sources)
        return sources + tuple(transform.name for transform in self.transforms)

    def needed_by(self, sink: Sink) -> tuple[tuple[Source, ...], tuple[Transform, ...]]:
        """The sources and transformations of a sink, each after what it reads."""
        needed = {sink.input}
        ordered = self.ordered_transforms()
        for one in reversed(ordered):
            if one.name in needed:
                needed |= set(self.inputs_of(one))
        return (
            tuple(source for source in self.sources if source.name in needed),
            tuple(one for one in ordered if one.name in needed),
        )

    def bootstrap_of(self, part: Source | Sink) -> str | None:
        return part.bootstrap or self.bootstrap

    def ordered_transforms(self) -> tuple[Transform, ...]:
        """Transformations, each after what it reads; ValueError with the names of a circle."""
        waiting = {one.name: one for one in self.transforms}
        ordered: list[Transform] = []
        while waiting:
            ready = [
                one
                for one in waiting.values()
                if not any(name in waiting for name in self.inputs_of(one))
            ]
            if not ready:
                raise ValueError(", ".join(sorted(waiting)))
            for one in ready:
                ordered.append(waiting.pop(one.name))
        return tuple(ordered)
