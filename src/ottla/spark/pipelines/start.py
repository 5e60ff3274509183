"""How a definition becomes streaming queries: sources and transformations are views, sinks queries.

A source of JSON has the fields of its schema and, beside them, what a record has: `_key`, `_value`,
`_topic`, `_partition`, `_offset`, `_timestamp`, and `_malformed`, which is true where the value is
not JSON of that schema. So bad records can be set aside instead of stopping the query.

A sink that names no `value` writes the column of that name if it is text or bytes, and otherwise
the row as JSON, without columns that begin with an underscore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ottla.spark.pipelines.definition import (
    Definition,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    ValueFormat,
    Watermark,
)
from ottla.spark.pipelines.intervals import parse_trigger
from ottla.spark.sink_batches import exactly_once_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "ottla"
_CORRUPT = "_corrupt_record"
_RECORD_TYPES = ("string", "binary")


def start_queries(
    session: SparkSession,
    definition: Definition,
    checkpoint: str | None = None,
    *,
    trigger: str | None = None,
) -> list[StreamingQuery]:
    """Start every query of the pipeline; `trigger` overrides those of the definition."""
    base = checkpoint or definition.checkpoint
    frames = data_frames(session, definition, base)
    return [
        _start(definition, sink, frames[sink.input], base, trigger) for sink in definition.sinks
    ]


def await_end(queries: list[StreamingQuery]) -> None:
    """Return when every query has ended; raise what ended the first that failed."""
    for query in queries:
        query.awaitTermination()


def data_frames(
    session: SparkSession, definition: Definition, checkpoint: str | None = None
) -> dict[str, DataFrame]:
    """The DataFrames of all sources and transformations, which SQL finds by their names."""
    frames: dict[str, DataFrame] = {}

    def add(name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frames[name] = frame
        frame.createOrReplaceTempView(name)

    for source in definition.sources:
        frame = _source_frame(session, definition, source, checkpoint)
        add(source.name, frame, source.watermark)
    for transform in definition.ordered_transforms():
        if transform.sql is not None:
            frame = session.sql(transform.sql)
        elif transform.function is not None:
            frame = transform.function(*(frames[name] for name in transform.inputs))
        else:
            raise ValueError(f"transformation {transform.name} does nothing")
        add(transform.name, frame, transform.watermark)
    return frames


def _source_frame(
    session: SparkSession, definition: Definition, source: Source, checkpoint: str | None
) -> DataFrame:
    if source.kind is SourceKind.FILES:
        reader = session.readStream.format(source.file_format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.path)
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": definition.bootstrap_of(source),
        "subscribe": source.topic,
        "kafka.isolation.level": "read_committed",
        **source.options,
    }
    if source.kind is SourceKind.TABLE:
        return _decoded(
            _newest_of_key(session.read.format(FORMAT).options(**options).load()), source
        )
    options.setdefault("startingOffsets", source.starting)
    if checkpoint is not None:
        options.setdefault("checkpointLocation", f"{checkpoint}/sources/{source.name}")
    options.setdefault("kafka.group.id", f"{definition.name}-{source.name}")
    return _decoded(session.readStream.format(FORMAT).options(**options).load(), source)


def _newest_of_key(records: DataFrame) -> DataFrame:
    """The newest record of every key; a key whose newest value is null is gone."""
    from pyspark.sql import functions as f

    fields = [f.col(name) for name in records.columns]
    newest = records.groupBy("key").agg(f.max_by(f.struct(*fields), f.col("offset")).alias("r"))
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


def _start(
    definition: Definition,
    sink: Sink,
    frame: DataFrame,
    base: str | None,
    trigger: str | None,
) -> StreamingQuery:
    checkpoint = f"{base}/{sink.name}" if base is not None else None
    options = dict(sink.options)
    if sink.kind is SinkKind.TOPIC:
        frame = record_columns(frame, sink)
        options = {**_topic_options(definition, sink, checkpoint), **options}
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
    return writer.trigger(**when).start()


def _topic_options(definition: Definition, sink: Sink, checkpoint: str | None) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": definition.bootstrap_of(sink) or "",
        "delivery": sink.delivery,
    }
    if sink.topic is not None:
        options["topic"] = sink.topic
    if checkpoint is not None and urlsplit(checkpoint).scheme in ("", "file"):
        options["stageDirectory"] = f"{urlsplit(checkpoint).path}-stage"
    return options


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
