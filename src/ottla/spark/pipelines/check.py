"""Whether a definition makes sense, before Spark starts. Pure.

Spark would find most mistakes too, but after ten seconds and in words of its own. Each problem
names the place in the definition, as a path of keys that the loader of a file turns into a line.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ottla.spark.pipelines.definition import (
    NAME_PATTERN,
    PIPELINE_NAME_PATTERN,
    Definition,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    Transform,
    ValueFormat,
)
from ottla.spark.pipelines.intervals import IntervalError, check_interval, parse_trigger
from ottla.spark.pipelines.schema_text import problem_of_schema
from ottla.spark.pipelines.spark_options import problems_of_sink, problems_of_source
from ottla.spark.pipelines.sql_text import problem_of_sql

OUTPUT_MODES = ("append", "update", "complete")
FILE_FORMATS = ("parquet", "json", "csv", "orc", "text")


class Problem(NamedTuple):
    path: tuple[str, ...]
    reason: str


def problems(definition: Definition) -> list[Problem]:
    """Everything that is wrong, in the order of the definition."""
    return [
        *_of_whole(definition),
        *(found for one in definition.sources for found in _of_source(definition, one)),
        *(found for one in definition.transforms for found in _of_transform(definition, one)),
        *(found for one in definition.sinks for found in _of_sink(definition, one)),
        *_of_circles(definition),
    ]


def _of_whole(definition: Definition) -> Iterator[Problem]:
    if not PIPELINE_NAME_PATTERN.fullmatch(definition.name):
        yield Problem(
            ("pipeline", "name"),
            f"the name '{definition.name}' is not of letters, digits, dots, dashes and underscores",
        )
    if not definition.sources:
        yield Problem(("sources",), "there is no source: add [sources.NAME]")
    if not definition.sinks:
        yield Problem(("sinks",), "there is no sink: add [sinks.NAME]")
    try:
        parse_trigger(definition.trigger)
    except IntervalError as error:
        yield Problem(("pipeline", "trigger"), str(error))
    parts = (("sources", definition.sources), ("transforms", definition.transforms))
    counted = Counter(one.name.lower() for _, group in parts for one in group)
    for section, group in parts:
        for one in group:
            if not NAME_PATTERN.fullmatch(one.name):
                yield Problem(
                    (section, one.name),
                    f"'{one.name}' cannot be a name in SQL: use letters, digits and underscores",
                )
            if counted[one.name.lower()] > 1:
                yield Problem((section, one.name), f"the name '{one.name}' is given twice")


def _of_source(definition: Definition, source: Source) -> Iterator[Problem]:
    at = ("sources", source.name)
    if source.kind is SourceKind.FILES:
        if source.path is None:
            yield Problem(at, "a source of files needs a 'path'")
        if source.file_format not in FILE_FORMATS:
            yield Problem(
                (*at, "file_format"),
                f"'{source.file_format}' is not one of {', '.join(FILE_FORMATS)}",
            )
        if source.schema is None and source.file_format != "text":
            yield Problem(at, "a source of files needs a 'schema', such as \"id INT, name STRING\"")
    else:
        if source.topic is None:
            yield Problem(at, "a source needs a 'topic' (or kind = \"files\" and a 'path')")
        if definition.bootstrap_of(source) is None:
            yield Problem(at, "no broker is named: set 'bootstrap' in [pipeline]")
        if source.format is ValueFormat.JSON and source.schema is None:
            yield Problem(at, 'format = "json" needs a \'schema\', such as "id INT, name STRING"')
        if source.topic is not None and definition.bootstrap_of(source) is not None:
            for setting, why in problems_of_source(definition, source):
                yield Problem((*at, setting), why)
    if source.schema is not None and (reason := problem_of_schema(source.schema)) is not None:
        yield Problem((*at, "schema"), reason)
    if source.watermark is not None:
        yield from _of_watermark((*at, "watermark"), source.watermark.delay)
        if source.kind is SourceKind.TABLE:
            yield Problem((*at, "watermark"), "a table has no watermark")


def _of_transform(definition: Definition, transform: Transform) -> Iterator[Problem]:
    at = ("transforms", transform.name)
    if (transform.sql is None) == (transform.function is None):
        yield Problem(at, "a transformation has either 'sql' or 'python'")
        return
    if transform.sql is not None:
        if (reason := problem_of_sql(transform.sql)) is not None:
            yield Problem((*at, "sql"), f"in the SQL {reason}")
        elif not definition.inputs_of(transform):
            known = [name for name in definition.names if name != transform.name]
            yield Problem(
                (*at, "sql"),
                "the SQL reads none of the pipeline's sources and transformations "
                f"({', '.join(known)})",
            )
    else:
        yield from _of_function(definition, transform)
    if transform.watermark is not None:
        yield from _of_watermark((*at, "watermark"), transform.watermark.delay)


def _of_function(definition: Definition, transform: Transform) -> Iterator[Problem]:
    at = ("transforms", transform.name)
    if not transform.inputs:
        yield Problem(at, "a Python transformation needs 'inputs', the names of what it reads")
    for name in transform.inputs:
        yield from _of_reference(definition, (*at, "inputs"), name)
    if transform.function is None or not transform.inputs:
        return
    try:
        inspect.signature(transform.function).bind(*transform.inputs)
    except (TypeError, ValueError):
        name = getattr(transform.function, "__name__", "the function")
        yield Problem(
            (*at, "python"),
            f"{name} cannot be called with {len(transform.inputs)} DataFrames "
            f"({', '.join(transform.inputs)})",
        )


def _of_sink(definition: Definition, sink: Sink) -> Iterator[Problem]:
    at = ("sinks", sink.name)
    if not PIPELINE_NAME_PATTERN.fullmatch(sink.name):
        yield Problem(at, f"'{sink.name}' cannot be the name of a sink")
    yield from _of_reference(definition, (*at, "from"), sink.input)
    if sink.output_mode not in OUTPUT_MODES:
        yield Problem(
            (*at, "output_mode"), f"'{sink.output_mode}' is not one of {', '.join(OUTPUT_MODES)}"
        )
    if sink.trigger is not None:
        try:
            parse_trigger(sink.trigger)
        except IntervalError as error:
            yield Problem((*at, "trigger"), str(error))
    if sink.kind is SinkKind.FILES:
        if sink.path is None:
            yield Problem(at, "a sink of files needs a 'path'")
        if sink.file_format not in FILE_FORMATS:
            yield Problem(
                (*at, "file_format"),
                f"'{sink.file_format}' is not one of {', '.join(FILE_FORMATS)}",
            )
        if sink.output_mode != "append":
            yield Problem((*at, "output_mode"), "files can only be appended")
    if sink.kind is SinkKind.TOPIC:
        yield from _of_topic_sink(definition, sink)


def _of_topic_sink(definition: Definition, sink: Sink) -> Iterator[Problem]:
    at = ("sinks", sink.name)
    if (sink.topic is None) == (sink.topic_column is None):
        yield Problem(at, "a sink needs either a 'topic' or a 'topic_column'")
    if definition.bootstrap_of(sink) is None:
        yield Problem(at, "no broker is named: set 'bootstrap' in [pipeline]")
    else:
        for setting, reason in problems_of_sink(definition, sink):
            yield Problem((*at, setting), reason)
    if sink.create is not None and sink.topic is None:
        yield Problem((*at, "create"), "only a sink with one 'topic' can create it")
    if sink.create is not None and sink.create.partitions < 1:
        yield Problem((*at, "create"), "a topic has at least one partition")
    for source in definition.sources:
        is_same_cluster = definition.bootstrap_of(source) == definition.bootstrap_of(sink)
        if sink.topic is not None and source.topic == sink.topic and is_same_cluster:
            yield Problem(
                (*at, "topic"),
                f"the pipeline reads '{sink.topic}' (source '{source.name}') and would read its "
                "own output for ever",
            )


def _of_reference(definition: Definition, at: tuple[str, ...], name: str) -> Iterator[Problem]:
    known = definition.names
    if name not in known:
        yield Problem(
            at,
            f"there is no '{name}': sources and transformations are {', '.join(known) or 'none'}",
        )


def _of_watermark(at: tuple[str, ...], delay: str) -> Iterator[Problem]:
    try:
        check_interval(delay)
    except IntervalError as error:
        yield Problem(at, str(error))


def _of_circles(definition: Definition) -> Iterator[Problem]:
    try:
        definition.ordered_transforms()
    except ValueError as error:
        first = str(error).partition(",")[0]
        yield Problem(("transforms", first), f"these read each other in a circle: {error}")
