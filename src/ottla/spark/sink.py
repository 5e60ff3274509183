"""`format("ottla")` for writing: what Spark calls in tasks and in the driver.

A task encodes its rows and leaves them staged; the driver publishes what the tasks of a
micro-batch left, in one transaction (`exactly_once.py`). With `delivery=at_least_once` tasks
produce directly and there is nothing to publish, as in Spark's own sink.

Spark calls `streamWriter` anew in three processes for every micro-batch, so making a writer must be
cheap: connections and metadata live in the process, which Spark reuses (`sink_process.py`).

Writers are pickled into tasks; they hold only values.
"""

from __future__ import annotations

import getpass
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ottla.spark import sink_process
from ottla.spark.option_values import OptionError
from ottla.spark.publish import Output, QueryPublisher
from ottla.spark.sink_errors import SinkError
from ottla.spark.sink_options import Field, SinkOptions, check_columns, parse_sink_options
from ottla.spark.stage import (
    StagedOutput,
    check_token,
    driver_token,
    read_staged,
    remove_abandoned,
    remove_batch,
    remove_outputs,
    remove_owner,
    remove_unnamed,
)
from ottla.spark.worker_process import settle, tell_unknown

_BATCH_ID_PROPERTY = "streaming.sql.batchId"
_QUERY_ID_PROPERTY = "sql.streaming.queryId"
_STAGE_NAME = "ottla-stage"


@dataclass
class TaskOutput(WriterCommitMessage):
    """What a task tells the driver; `staged` is None if it produced its rows itself."""

    owner: str
    staged: StagedOutput | None


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, options: SinkOptions, stage: Path | None, token: str) -> None:
        self._options = options
        self._stage = stage
        self._token = token

    def write(self, iterator: Iterator[Any]) -> TaskOutput:
        """In a task: encode the rows and leave them staged."""
        context = _task_context()
        query_id = context.getLocalProperty(_QUERY_ID_PROPERTY)
        batch_id = context.getLocalProperty(_BATCH_ID_PROPERTY)
        if not query_id or not batch_id:
            raise SinkError("Spark did not say which query and micro-batch this task belongs to.")
        return _write(self._options, self._stage, self._token, query_id, batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver, once every task is done: publish what they left."""
        outputs = _outputs_of(messages)
        if self._stage is None or not outputs:
            return
        query_id = outputs[0].owner
        transactional_id = f"{self._options.transactional_id_prefix}-{query_id}"
        publisher = sink_process.publisher(self._options, transactional_id)
        _publish(publisher, self._stage, outputs, batchId)
        remove_batch(self._stage, query_id, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged: it is staged anew if the micro-batch is repeated."""
        remove_outputs(_staged_of(messages))


class OttlaBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once, all of it or nothing.

    With `queryId` and `batchId` it is a micro-batch of foreachBatch (`sink_batches.py`), where
    `writer` tells several writes of one query apart.
    """

    def __init__(self, options: SinkOptions, stage: Path | None, token: str) -> None:
        self._options = options
        self._stage = stage
        self._token = token
        self._is_micro_batch = options.query_id is not None
        if options.query_id is not None:
            self._owner = "-".join(filter(None, (options.query_id, options.writer)))
        else:
            self._owner = "write-" + (options.write_id or secrets.token_hex(8))
        self._batch_id = options.batch_id if self._is_micro_batch else 0

    def write(self, iterator: Iterator[Any]) -> TaskOutput:
        """In a task: encode the rows and leave them staged."""
        batch_id = str(self._batch_id)
        return _write(self._options, self._stage, self._token, self._owner, batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, once every task is done: publish what they left."""
        if self._stage is None:
            return
        outputs = _outputs_of(messages)
        transactional_id = f"{self._options.transactional_id_prefix}-{self._owner}"
        has_marker = self._is_micro_batch or self._options.write_id is not None
        options = replace(self._options, batch_id=0)  # the publisher outlives the micro-batch
        publisher = sink_process.publisher(options, transactional_id, has_marker=has_marker)
        try:
            _publish(publisher, self._stage, outputs, self._batch_id)
        finally:
            if not self._is_micro_batch:
                sink_process.forget_publisher(transactional_id)
        if self._is_micro_batch:
            remove_batch(self._stage, self._owner, self._batch_id)
        else:
            remove_owner(self._stage, self._owner)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged."""
        remove_outputs(_staged_of(messages))
        if self._stage is not None and not self._is_micro_batch:
            remove_owner(self._stage, self._owner)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> OttlaStreamWriter:
    """What `DataSource.streamWriter` returns; an error if the write cannot work."""
    return OttlaStreamWriter(*_prepare(options, schema))


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> OttlaBatchWriter:
    """What `DataSource.writer` returns; an error if the write cannot work."""
    if overwrite:
        raise OptionError("A topic cannot be overwritten: use mode('append').")
    return OttlaBatchWriter(*_prepare(options, schema))


def _prepare(
    options: Mapping[str, str], schema: StructType
) -> tuple[SinkOptions, Path | None, str]:
    """Check everything that can be checked without running a task."""
    parsed = parse_sink_options(options)
    fields = [Field(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(fields, parsed.topic)
    tell_unknown(parsed.client)
    is_driver = TaskContext.get() is None
    if is_driver and parsed.topic is not None:
        sink_process.ensure_topic(parsed.client, parsed.topic)
    if not parsed.is_exactly_once:
        return parsed, None, ""
    named = stage_directory(parsed)
    stage = named or Path(tempfile.gettempdir()) / f"{_STAGE_NAME}-{getpass.getuser()}"
    token = sink_process.token_of(
        stage, lambda: _settled(stage, is_private=named is None, is_driver=is_driver)
    )
    return parsed, stage, token


def _settled(stage: Path, *, is_private: bool, is_driver: bool) -> str:
    """The token of a stage directory, which is rid of what others left long ago."""
    token = driver_token(stage, is_private=is_private)
    if is_driver:
        remove_abandoned(stage, time())
    return token


def stage_directory(options: SinkOptions) -> Path | None:
    """Where tasks leave their output: named, or beside the checkpoint, if that is a local path."""
    if options.stage_directory is not None:
        return _local_path(options.stage_directory, "stageDirectory")
    if options.checkpoint_location is not None:
        split = urlsplit(options.checkpoint_location)
        if split.scheme in ("", "file"):
            return Path(split.path) / _STAGE_NAME
    return None


def _local_path(text: str, option: str) -> Path:
    split = urlsplit(text)
    if split.scheme not in ("", "file"):
        raise OptionError(
            f"{option} is {text}, but must be a path: a directory that driver and executors share, "
            "such as a network file system."
        )
    return Path(split.path).absolute()


def _write(
    options: SinkOptions,
    stage: Path | None,
    token: str,
    owner: str,
    batch_id: str,
    rows: Iterator[Any],
) -> TaskOutput:
    from ottla.spark.sink_task import produce_rows, stage_rows  # numpy and Arrow: for tasks only

    staged = None
    if stage is None:
        produce_rows(options, rows)
    else:
        check_token(stage, token)
        context = _task_context()
        name = f"{context.partitionId()}-{context.taskAttemptId()}-{secrets.token_hex(4)}"
        staged = stage_rows(options, stage / owner / batch_id, name, rows)
    settle()  # now that the kernels are loaded too
    return TaskOutput(owner, staged)


def _publish(
    publisher: QueryPublisher, stage: Path, outputs: list[TaskOutput], batch_id: int
) -> None:
    """Publish what tasks left; who takes a query over removes what failed attempts left."""
    takes_over = publisher.takes_over

    def read() -> Output:
        staged = _staged_of(outputs)
        if takes_over and outputs:
            remove_unnamed(stage, outputs[0].owner, batch_id, staged)
        batches = [batch for output in staged for batch in read_staged(output)]
        return Output(batches, sum(output.records for output in staged))

    publisher.publish(batch_id, read)
    settle()


def _outputs_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutput]:
    return [message for message in messages if isinstance(message, TaskOutput)]


def _staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedOutput]:
    return [output.staged for output in _outputs_of(messages) if output.staged is not None]


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("This runs only inside a task of Spark.")
    return context
