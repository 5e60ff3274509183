"""Pipelines: sources, transformations and sinks, run as supervised streaming queries on Spark."""

from ottla.spark.pipelines.builder import Pipeline
from ottla.spark.pipelines.definition import NewTopic
from ottla.spark.pipelines.toml_file import PipelineError

__all__ = ["NewTopic", "Pipeline", "PipelineError"]
