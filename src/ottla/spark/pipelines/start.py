"""How a definition becomes streaming queries: sources and transformations are views, sinks queries.

A source of JSON has the fields of its schema and, beside them, what a record has: `_key`, `_value`,
`_topic`, `_partition`, `_offset`, `_timestamp`, and `_malformed`, which is true where the value is
not JSON of that schema. So bad records can be set aside instead of stopping the query.

A sink that names no `value` writes the column of that name if it is text or bytes, and otherwise
the row as JSON, without columns that begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.spark import register
from ottla.spark.pipelines.check import Problem
from ottla.spark.pipelines.definition import (
    Definition,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    ValueFormat,
    Watermark,
)
from ottla.spark.pipelines.failures import failure_of
from ottla.spark.pipelines.intervals import parse_trigger
from ottla.spark.pipelines.spark_options import NETWORK_TIMEOUT, sink_options, source_options
from ottla.spark.sink_batches import exactly_once_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "ottla"
_POLL_S = 1
_CORRUPT = "_corrupt_record"
_RECORD_TYPES = ("string", "binary")


class PlanError(Exception):
    """Spark refuses a part of the pipeline, which the problem names."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{'.'.join(problem.path)}: {problem.reason}")
        self.problem = problem


def start_queries(
    session: SparkSession,
    definition: Definition,
    checkpoint: str | None = None,
    *,
    trigger: str | None = None,
) -> list[StreamingQuery]:
    """Start every query of the pipeline, or none; `trigger` overrides those of the definition."""
    register(session)  # in this thread
    base = checkpoint or definition.checkpoint
    planned = [_planned(session, definition, sink, base, trigger) for sink in definition.sinks]
    started: list[StreamingQuery] = []
    try:
        for sink, writer in zip(definition.sinks, planned, strict=True):
            with _placed("sinks", sink.name):
                started.append(writer.start())
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def await_end(queries: list[StreamingQuery]) -> None:
    """Return when every query has ended; if one fails, stop the others and raise why."""
    try:
        while any(query.isActive for query in queries):
            for query in queries:
                query.awaitTermination(_POLL_S)
        for query in queries:
            query.awaitTermination()
    finally:
        for query in queries:
            query.stop()


def data_frames(
    session: SparkSession, definition: Definition, sink: Sink, checkpoint: str | None = None
) -> dict[str, DataFrame]:
    """The DataFrames of all that a sink needs, which SQL finds by their names."""
    frames: dict[str, DataFrame] = {}

    def add(name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frames[name] = frame
        frame.createOrReplaceTempView(name)

    sources, transforms = definition.needed_by(sink)
    for source in sources:
        with _placed("sources", source.name):
            frame = _source_frame(session, definition, source, sink, checkpoint)
            add(source.name, frame, source.watermark)
    for transform in transforms:
        with _placed("transforms", transform.name, "python" if transform.sql is None else "sql"):
            if transform.sql is not None:
                frame = session.sql(transform.sql)
            elif transform.function is not None:
                frame = transform.function(*(frames[name] for name in transform.inputs))
            else:
                raise ValueError(f"transformation {transform.name} does nothing")
            add(transform.name, frame, transform.watermark)
    return frames


@contextmanager
def _placed(*path: str) -> Iterator[None]:
    """Say of which part of the pipeline Spark complains."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:  # ParseException is one
        failure = failure_of(type(error).__name__, str(error))
        if not failure.is_permanent:
            raise
        raise PlanError(Problem(path, failure.message)) from error


def _source_frame(
    session: SparkSession,
    definition: Definition,
    source: Source,
    sink: Sink,
    checkpoint: str | None,
) -> DataFrame:
    if source.kind is SourceKind.FILES:
        reader = session.readStream.format(source.file_format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.path)
    network_timeout = session.conf.get(NETWORK_TIMEOUT, None)
    options: dict[str, Any] = source_options(
        definition, source, sink.name, checkpoint, network_timeout
    )
    if source.kind is SourceKind.TABLE:
        return _decoded(
            _newest_of_key(session.read.format(FORMAT).options(**options).load()), source
        )
    return _decoded(session.readStream.format(FORMAT).options(**options).load(), source)


def _newest_of_key(records: DataFrame) -> DataFrame:
    """The newest record of every key; a key whose newest value is null is gone."""
    from pyspark.sql import functions as f

    fields = [f.col(name) for name in records.columns]
    # A key may have moved to another partition, where offsets say nothing of it.
    newness = f.struct("timestamp", "offset")
    newest = records.groupBy("key").agg(f.max_by(f.struct(*fields), newness).alias("r"))
    return newest.select("r.*").where("value IS NOT NULL")


def _decoded(records: DataFrame, source: Source) -> DataFrame:
    from pyspark.sql import functions as f

    if source.format is ValueFormat.RAW:
        return records
    if source.format is ValueFormat.TEXT:
        return records.withColumn("key", f.col("key").cast("string")).withColumn(
            "value", f.col("value").cast("string")
        )
    text = f.col("value").cast("string")
    parsed = f.from_json(
        text,
        f"{source.schema}, {_CORRUPT} STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    columns = [
        parsed.alias("_parsed"),
        f.col("key").cast("string").alias("_key"),
        text.alias("_value"),
        *(f.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
    ]
    malformed = f.col("_parsed").isNull() | f.col(f"_parsed.{_CORRUPT}").isNotNull()
    return (
        records.select(*columns)
        .withColumn("_malformed", malformed)
        .select("_parsed.*", *(f"_{n}" for n in _RECORD_COLUMNS))
        .drop(_CORRUPT)
    )


_RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "malformed")


def _planned(
    session: SparkSession,
    definition: Definition,
    sink: Sink,
    base: str | None,
    trigger: str | None,
) -> DataStreamWriter:
    """The query of a sink, to be started."""
    frame = data_frames(session, definition, sink, base)[sink.input]
    checkpoint = f"{base}/{sink.name}" if base is not None else None
    options = dict(sink.options)
    if sink.kind is SinkKind.TOPIC:
        with _placed("sinks", sink.name):
            frame = record_columns(frame, sink)
        options = sink_options(definition, sink, checkpoint)
    elif sink.kind is SinkKind.FILES:
        options["path"] = sink.path or ""
    if checkpoint is not None:
        options["checkpointLocation"] = checkpoint
    writer = frame.writeStream.queryName(sink.name).outputMode(sink.output_mode)
    if sink.kind is SinkKind.TOPIC and sink.output_mode == "update":
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        writer = writer.foreachBatch(exactly_once_batches(name="", **options))
    else:
        names = {SinkKind.TOPIC: FORMAT, SinkKind.FILES: sink.file_format}
        writer = writer.format(names.get(sink.kind, str(sink.kind))).options(**options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    when: Any = parse_trigger(trigger or sink.trigger or definition.trigger)
    return writer.trigger(**when)


def record_columns(frame: DataFrame, sink: Sink) -> DataFrame:
    """The columns of a record, made of the columns of the rows."""
    from pyspark.sql import functions as f

    types = dict(frame.dtypes)

    def as_bytes_or_text(column: str) -> Any:
        kind = types.get(column)
        if kind in _RECORD_TYPES:
            return f.col(column)
        is_nested = kind is not None and kind.startswith(("struct", "array", "map"))
        return f.to_json(f.col(column)) if is_nested else f.col(column).cast("string")

    key, value = sink.key, sink.value
    if value is None and types.get("value") in _RECORD_TYPES:
        value = "value"
        key = "key" if key is None and types.get("key") in _RECORD_TYPES else key
    columns = []
    if key is not None:
        columns.append(as_bytes_or_text(key).alias("key"))
    if value is not None:
        columns.append(as_bytes_or_text(value).alias("value"))
    else:
        apart = (sink.topic_column, "headers")
        fields = [n for n in frame.columns if not n.startswith("_") and n not in apart]
        columns.append(f.to_json(f.struct(*fields)).alias("value"))
    if sink.topic_column is not None:
        columns.append(f.col(sink.topic_column).alias("topic"))
    if "headers" in types:
        columns.append(f.col("headers"))
    return frame.select(*columns)
