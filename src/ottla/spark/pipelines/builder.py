"""A pipeline in Python: the same as the TOML file, where functions are at hand.

    from ottla.spark.pipelines import Pipeline

    pipeline = Pipeline("word-count", bootstrap="localhost:9092")
    pipeline.source("lines", topic="lines", format="text")
    pipeline.sql("words", "SELECT explode(split(value, ' ')) AS word FROM lines")

    @pipeline.transform(inputs=["words"])
    def counts(words):
        return words.groupBy("word").count()

    pipeline.sink("counts", topic="word-counts", key="word", output_mode="update")

    if __name__ == "__main__":
        pipeline.run()

`ottla pipeline run FILE.py` runs it supervised, as it runs a TOML file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.spark.pipelines.check import problems
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
from ottla.spark.pipelines.toml_file import PipelineError

F = TypeVar("F", bound=Callable[..., Any])


class Pipeline:
    """Collects the parts of a pipeline; `definition` is what they make."""

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        description: str = "",
        trigger: str = "1 second",
        checkpoint: str | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._bootstrap = bootstrap
        self._description = description
        self._trigger = trigger
        self._checkpoint = checkpoint
        self._spark = dict(spark or {})
        self._sources: list[Source] = []
        self._transforms: list[Transform] = []
        self._sinks: list[Sink] = []

    def source(
        self,
        name: str,
        *,
        topic: str | None = None,
        path: str | None = None,
        kind: str | None = None,
        format: str = "raw",  # noqa: A002  # Spark's word for it
        watermark: tuple[str, str] | None = None,
        **settings: Any,
    ) -> Pipeline:
        """Add a source; the settings are those of [sources.NAME] in TOML."""
        default = SourceKind.FILES if path is not None else SourceKind.TOPIC
        self._sources.append(
            Source(
                name=name,
                topic=topic,
                path=path,
                kind=SourceKind(kind) if kind else default,
                format=ValueFormat(format),
                watermark=Watermark(*watermark) if watermark else None,
                **settings,
            )
        )
        return self

    def sql(self, name: str, sql: str, *, watermark: tuple[str, str] | None = None) -> Pipeline:
        """Add a transformation in SQL."""
        mark = Watermark(*watermark) if watermark else None
        self._transforms.append(Transform(name=name, sql=sql, watermark=mark))
        return self

    def transform(
        self,
        name: str | None = None,
        *,
        inputs: Sequence[str],
        watermark: tuple[str, str] | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function of DataFrames; its own name is the transformation's unless given."""

        def add(function: F) -> F:
            mark = Watermark(*watermark) if watermark else None
            self._transforms.append(
                Transform(
                    name=name or function.__name__,
                    function=function,
                    inputs=tuple(inputs),
                    watermark=mark,
                )
            )
            return function

        return add

    def sink(
        self,
        name: str,
        *,
        input: str | None = None,  # noqa: A002  # the TOML says 'from', which Python cannot
        topic: str | None = None,
        path: str | None = None,
        kind: str | None = None,
        create: int | NewTopic | None = None,
        partition_by: Sequence[str] = (),
        **settings: Any,
    ) -> Pipeline:
        """Add a sink; it writes what has its own name unless `input` says otherwise."""
        default = SinkKind.FILES if path is not None else SinkKind.TOPIC
        self._sinks.append(
            Sink(
                name=name,
                input=input or name,
                topic=topic,
                path=path,
                kind=SinkKind(kind) if kind else default,
                create=NewTopic(create, -1, {}) if isinstance(create, int) else create,
                partition_by=tuple(partition_by),
                **settings,
            )
        )
        return self

    @property
    def definition(self) -> Definition:
        """The whole pipeline; PipelineError if it makes no sense."""
        made = Definition(
            name=self._name,
            bootstrap=self._bootstrap,
            description=self._description,
            trigger=self._trigger,
            checkpoint=self._checkpoint,
            spark=self._spark,
            sources=tuple(self._sources),
            transforms=tuple(self._transforms),
            sinks=tuple(self._sinks),
        )
        wrong = problems(made)
        if wrong:
            raise PipelineError([f"{'.'.join(one.path)}: {one.reason}" for one in wrong])
        return made

    def run(self, *, master: str | None = None) -> None:
        """Run here, unsupervised, until the queries end; for scripts and notebooks."""
        from ottla.spark.pipelines.session import spark_session
        from ottla.spark.pipelines.start import await_end, start_queries

        definition = self.definition
        session = spark_session(definition, master)
        await_end(start_queries(session, definition))
