"""Exactly once in output mode `update`, which Spark denies to sinks in Python: by foreachBatch.

    from ottla.spark.sink_batches import exactly_once_batches

    write = exactly_once_batches(**{"kafka.bootstrap.servers": "b:9092", "topic": "counts"})
    counts.writeStream.outputMode("update").foreachBatch(write).start()

Spark gives each micro-batch with its id, and repeats one with the same id. It is written as a
batch, in one transaction with the marker of the query, as a streaming write would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.spark.sink_errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID_PROPERTY = "sql.streaming.queryId"


def exactly_once_batches(**options: str) -> Callable[[DataFrame, int], None]:
    """What to give to `foreachBatch`; the options are those of `format("ottla")`."""

    def write(frame: DataFrame, batch_id: int) -> None:
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID_PROPERTY)
        if not query_id:
            raise SinkError("Spark did not say which query this micro-batch belongs to.")
        writer = frame.write.format("ottla").mode("append").options(**options)
        writer.options(queryId=query_id, batchId=str(batch_id)).save()

    return write
