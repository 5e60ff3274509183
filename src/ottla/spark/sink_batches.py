"""Exactly once in output mode `update`, which Spark denies to sinks in Python: by foreachBatch.

    from ottla.spark.sink_batches import exactly_once_batches

    write = exactly_once_batches(**{"kafka.bootstrap.servers": "b:9092", "topic": "counts"})
    counts.writeStream.outputMode("update").foreachBatch(write).start()

Spark gives each micro-batch with its id, and repeats one with the same id. It is written as a
batch, in one transaction with the marker of the query, as a streaming write would be.

A foreachBatch may write several times. Each write has a marker of its own, by its name, which is
the topic unless it is given; two of one name could not be told from a repetition, so the second
one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.spark.option_values import GivenOptions, OptionError
from ottla.spark.sink_errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID_PROPERTY = "sql.streaming.queryId"
_RUN_ID_PROPERTY = "spark.jobGroup.id"  # Spark runs the jobs of a query as a group of that name
_NAME = re.compile(r"[A-Za-z0-9._-]{0,200}")

_written: dict[tuple[str, str], tuple[str, int]] = {}
"""By query and name: the run and the micro-batch that were written last."""


def exactly_once_batches(
    *, name: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """What to give to `foreachBatch`; the options are those of `format("ottla")`.

    `name` must stay the same when the query starts again. With an empty one the transactional id is
    that of a query with a single write.
    """
    writer = (GivenOptions(options).text("topic") or "") if name is None else name
    if not _NAME.fullmatch(writer):
        raise OptionError(f"'{writer}' is not a name of letters, digits, dots, dashes, underscores")

    def write(frame: DataFrame, batch_id: int) -> None:
        context = frame.sparkSession.sparkContext
        query_id = context.getLocalProperty(_QUERY_ID_PROPERTY)
        if not query_id:
            raise SinkError("Spark did not say which query this micro-batch belongs to.")
        now = (context.getLocalProperty(_RUN_ID_PROPERTY) or "", batch_id)
        if _written.get((query_id, writer)) == now:
            raise SinkError(
                f"foreachBatch writes micro-batch {batch_id} twice under the name '{writer}', and "
                "the second write would be taken for a repetition of the first. Give this one a "
                "name of its own: exactly_once_batches(name=..., ...)."
            )
        frame_writer = frame.write.format("ottla").mode("append").options(**options)
        ids = {"queryId": query_id, "writer": writer, "batchId": str(batch_id)}
        frame_writer.options(**ids).save()
        _written[query_id, writer] = now

    return write
