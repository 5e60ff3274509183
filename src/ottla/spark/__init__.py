"""Spark: a data source and an exactly-once sink for topics, and pipelines made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("ottla")` known, where Spark does not find it by itself, and push filters."""
    from ottla.spark.datasource import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
