"""Spark: a data source and an exactly-once sink for topics, and pipelines made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("ottla")` known, where Spark does not find it by itself, and push filters.

    Spark looks for the format of a streaming write in the session that is active in the calling
    thread, and in a thread of one's own none is. So call this in each thread that starts queries.
    """
    from ottla.spark.datasource import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:  # Spark Connect has none, and looks on its server
        spark._jvm.SparkSession.setActiveSession(session)  # type: ignore[union-attr]
